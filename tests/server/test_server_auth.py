"""Keys over the wire: told where each is from, stored, tried, forgotten, and shown by nothing (protocol.md 3, 6)."""

import fcntl
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from support.daemon import DaemonProcess
from support.model_server import ModelServer, fails, says
from support.raw_client import RawClient

CANARY = "sk-canary-auth-0001"
SENT = "sk-canary-sent-0002"
OWN = "sk-canary-daemon-0003"


def states(client: RawClient, **params: Any) -> dict[str, dict[str, Any]]:
    """Auth states by what they are of."""
    found = client.call("basis/auth/status", params)["providers"]
    return {state.get("baseUrl") or state["provider"]: state for state in found}


def store_key(client: RawClient, model: ModelServer, key: str = CANARY, **params: Any) -> dict[str, Any]:
    said = {"provider": "openai", "secret": key, "baseUrl": model.base_url, **params}
    return client.call("basis/auth/set", said)


def opened(client: RawClient, repo: Path, environment: dict[str, str]) -> None:
    client.call("basis/workspace/open", {"path": str(repo), "env": environment})


def new_session(client: RawClient, repo: Path) -> str:
    session_id = client.call("basis/session/new", {"workspace": str(repo)})["sessionId"]
    client.call("basis/session/attach", {"sessionId": session_id})
    return session_id


def turn(client: RawClient, session_id: str, text: str = "hello") -> dict[str, Any]:
    """Run one turn; returns its `run_finished`."""
    block = {"type": "text", "text": text}
    client.call("basis/session/prompt", {"sessionId": session_id, "input": [block]})
    return client.events_until("run_finished")[-1]["event"]


def assert_no_trace(daemon: DaemonProcess, *keys: str) -> None:
    """No key in the log, nor anywhere in the data directory but in the file that is for them."""
    for path in daemon.data.rglob("*"):
        if path.is_file() and path.name != "credentials.json":
            data = path.read_bytes()
            assert not any(key.encode() in data for key in keys), path


@pytest.fixture
def environment(model: ModelServer, clean_environment: Path) -> dict[str, str]:
    """A client's environment that says where the model is, and has no key."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(clean_environment), "BASIS_BASE_URL": model.base_url}


def test_with_nothing_stored_or_set_every_provider_says_so(daemon: DaemonProcess) -> None:
    """And which variable a key could be in."""
    found = states(daemon.connect())
    assert {name: state["source"] for name, state in found.items()} == {
        **dict.fromkeys(("anthropic", "openai", "gemini", "openrouter"), "none"),
        **dict.fromkeys(("ollama", "lmstudio"), "not_needed"),
    }
    assert found["gemini"]["variable"] == "GEMINI_API_KEY"


def test_a_stored_key_opens_what_could_not_be_opened_and_everybody_hears_of_it(
    daemon: DaemonProcess, model: ModelServer, repo: Path, environment: dict[str, str]
) -> None:
    """PR-11 and DM-12 as they are now: nothing is restarted or opened again. DM-1: the next request tries again."""
    client, other = daemon.connect(), daemon.connect(name="other")
    other.call("basis/daemon/subscribe")
    opened(client, repo, environment)
    refused = client.refusal("basis/session/new", {"workspace": str(repo)})
    assert (refused["code"], refused["data"]["kind"]) == (-32000, "no_compatible_credential")
    assert "basisctl auth login --base-url" in refused["data"]["hint"]

    result = store_key(client, model)

    place = daemon.data / "credentials.json"
    assert result["state"]["source"] == "store" and str(place) in result["state"]["detail"]
    assert stat.S_IMODE(place.stat().st_mode) == 0o600 and CANARY in place.read_text()
    while (event := other.next_notification("basis/daemon/event"))["kind"] != "auth_changed":
        pass
    assert event["provider"] == "openai"
    model.script(says("Hi."))
    assert turn(client, new_session(client, repo))["status"] == "ok"
    assert model.requests[0].headers["authorization"] == f"Bearer {CANARY}"
    assert_no_trace(daemon, CANARY)


def test_a_key_changed_between_two_prompts_is_used_for_the_second(
    daemon: DaemonProcess, model: ModelServer, repo: Path, environment: dict[str, str]
) -> None:
    """RT-35: in a session that was open all the time. A refused key's error names its source and no key (PR-12)."""
    client = daemon.connect()
    store_key(client, model)
    opened(client, repo, environment)
    model.script(says("One."), fails(401), says("Three."))
    session_id = new_session(client, repo)
    assert turn(client, session_id)["status"] == "ok"

    store_key(client, model, "sk-canary-wrong-0009")
    refused = turn(client, session_id)
    store_key(client, model, "sk-canary-third-0004")
    assert turn(client, session_id)["status"] == "ok"

    assert refused["status"] == "error" and "sk-canary" not in json.dumps(refused)
    sent = [request.headers["authorization"].removeprefix("Bearer ") for request in model.requests]
    assert sent == [CANARY, "sk-canary-wrong-0009", "sk-canary-third-0004"]
    assert_no_trace(daemon, *sent)


def test_a_name_that_means_nothing_in_the_file_of_keys_hides_none_of_the_others(daemon: DaemonProcess) -> None:
    """It is told, and not repeated: it may be a key in the wrong place."""
    client = daemon.connect()
    client.call("basis/auth/set", {"provider": "openai", "secret": SENT, "verify": False, "inFile": True})
    place = daemon.data / "credentials.json"
    kept = json.loads(place.read_text())
    kept["credentials"][CANARY] = {"secret": "x"}
    place.write_text(json.dumps(kept))

    found = states(client)

    assert found["openai"]["source"] == "store"
    assert "neither a provider nor an address" in found["unknown"]["problem"] and CANARY not in json.dumps(found)


def test_a_key_whose_giver_has_left_is_told_to_everybody_all_the_same(daemon: DaemonProcess) -> None:
    """DM-12: what was begun is done to its end. Another process holds the file meanwhile."""
    giver, other = daemon.connect(), daemon.connect(name="other")
    other.call("basis/daemon/subscribe")
    directory = os.open(daemon.data, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        giver.request("basis/auth/set", {"provider": "openai", "secret": CANARY, "verify": False, "inFile": True})
        giver.call("basis/daemon/status")  # answered while the other is under way
        giver.die()
        while other.call("basis/daemon/status")["counts"]["clients"] > 1:
            pass
    finally:
        os.close(directory)

    while other.next_notification("basis/daemon/event")["kind"] != "auth_changed":
        pass

    assert states(other)["openai"]["source"] == "store"


def test_a_forgotten_key_is_not_used_again(
    daemon: DaemonProcess, model: ModelServer, repo: Path, environment: dict[str, str]
) -> None:
    """What was open fails with a way out; forgetting twice is fine."""
    client = daemon.connect()
    store_key(client, model)
    opened(client, repo, environment)
    model.script(says("One."))
    session_id = new_session(client, repo)
    assert turn(client, session_id)["status"] == "ok"

    for _ in range(2):
        assert client.call("basis/auth/forget", {"provider": "openai", "baseUrl": model.base_url}) == {}

    assert turn(client, session_id)["status"] == "error"
    assert len(model.requests) == 1
    assert CANARY not in (daemon.data / "credentials.json").read_text()


def test_status_tells_every_source_in_order_and_none_of_the_keys(
    stopped_daemon: DaemonProcess, model: ModelServer, repo: Path, environment: dict[str, str]
) -> None:
    """protocol.md 6: the store, then what a client sent, then the daemon's own environment."""
    stopped_daemon.set_environment(OPENAI_API_KEY=OWN)
    client = stopped_daemon.start().connect(name="nvim")
    assert states(client)["openai"]["source"] == "daemon_environment"
    opened(client, repo, {**environment, "OPENAI_API_KEY": SENT, "BASIS_BASE_URL": ""})
    sent = states(client)["openai"]
    assert (sent["source"], sent["detail"]) == ("workspace_environment", "OPENAI_API_KEY sent by nvim")

    client.call("basis/auth/set", {"provider": " OpenAI ", "secret": f"{CANARY}\n"})

    found = states(client, workspace=str(repo))["openai"]
    assert found["source"] == "store"
    assert found["also"] == ["OPENAI_API_KEY sent by nvim", "OPENAI_API_KEY in the daemon's own environment"]
    store_key(client, model)
    assert states(client)[model.base_url.rstrip("/")]["source"] == "store"
    shown = json.dumps([client.call("basis/auth/status"), client.call("basis/daemon/status")])
    assert not any(key in shown for key in (CANARY, SENT, OWN))
    assert_no_trace(stopped_daemon, CANARY, SENT, OWN)


@pytest.mark.parametrize(
    "secret", ["", " \t\n", "two words-canary", "line\nbreak-canary", "schlüssel-canary", "x" * 9000]
)
def test_what_can_be_no_key_is_refused_without_repeating_it(daemon: DaemonProcess, secret: str) -> None:
    """PR-12: the field is named, and how to do better."""
    refused = daemon.connect().refusal("basis/auth/set", {"provider": "openai", "secret": secret})
    assert (refused["code"], refused["data"]["details"]["field"]) == (-32602, "secret")
    assert "canary" not in json.dumps(refused) and not (daemon.data / "credentials.json").exists()


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        ({"provider": "opnai"}, "unknown_provider"),
        ({"provider": "ollama"}, "not_keyed"),
        ({"provider": "rehearsal", "baseUrl": "https://x.example"}, "not_keyed"),
        ({"provider": "openai", "baseUrl": "https://gw.example", "wire": "telegraph"}, "invalid_params"),
        ({"provider": "openai", "baseUrl": "gw.example"}, "invalid_base_url"),
        ({"provider": "openai", "baseUrl": "http://gw.example/v1"}, "invalid_base_url"),
        ({"provider": "openai", "baseUrl": f"https://user:{CANARY}@gw.example"}, "invalid_base_url"),
    ],
)
def test_a_key_that_could_never_be_sent_is_not_stored(daemon: DaemonProcess, params: dict[str, str], kind: str) -> None:
    """PR-5, PR-7, PV-63: nobody learns at the first prompt what could be said at once."""
    refused = daemon.connect().refusal("basis/auth/set", {"secret": CANARY, **params})
    assert refused["data"]["kind"] == kind and CANARY not in json.dumps(refused)
    assert not (daemon.data / "credentials.json").exists()


def test_a_key_that_is_tried_and_refused_is_not_stored(daemon: DaemonProcess) -> None:
    client = daemon.connect()
    with ModelServer(api_key="sk-the-right-one") as strict:
        refused = client.refusal(
            "basis/auth/set", {"provider": "openai", "secret": CANARY, "baseUrl": strict.base_url, "verify": True}
        )
        assert "not stored" in refused["message"] and CANARY not in json.dumps(refused)
        assert not (daemon.data / "credentials.json").exists()
        assert store_key(client, strict, "sk-the-right-one", verify=True)["verified"] is True
    assert_no_trace(daemon, CANARY)


def test_a_key_that_can_not_be_tried_is_stored_and_the_reason_is_told(daemon: DaemonProcess) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    said = {"provider": "openai", "secret": CANARY, "baseUrl": url, "verify": True}
    result = daemon.connect().call("basis/auth/set", said)
    assert result["state"]["source"] == "store" and "verified" not in result
    assert "127.0.0.1" in result["problem"]


def test_a_file_of_keys_that_others_can_read_is_said_to_be_the_problem(
    daemon: DaemonProcess, model: ModelServer, repo: Path, environment: dict[str, str]
) -> None:
    client = daemon.connect()
    store_key(client, model)
    (daemon.data / "credentials.json").chmod(0o644)
    assert "chmod 600" in states(client)["openai"]["problem"]
    opened(client, repo, environment)
    refused = client.refusal("basis/session/new", {"workspace": str(repo)})
    assert "can be read by others" in refused["message"]


def test_with_a_keyring_the_key_is_in_it_and_nowhere_else(
    stopped_daemon: DaemonProcess, model: ModelServer, repo: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """Found again by the next daemon; the key's own file says only where it is."""
    drawer = tmp_path / "drawer"
    drawer.mkdir()
    (tmp_path / "keyring_of_the_test.py").write_text(DRAWER.format(directory=str(drawer)))
    stopped_daemon.set_environment(
        PYTHONPATH=str(tmp_path), PYTHON_KEYRING_BACKEND="keyring_of_the_test.Drawer", PYTHONDONTWRITEBYTECODE="1"
    )
    assert store_key(stopped_daemon.start().connect(), model)["state"]["detail"] == "the keyring"
    assert CANARY not in (stopped_daemon.data / "credentials.json").read_text()
    assert [path.read_text() for path in drawer.iterdir()] == [CANARY]

    client = stopped_daemon.restart().connect()
    model.script(says("Hi."))
    opened(client, repo, environment)
    assert turn(client, new_session(client, repo))["status"] == "ok"
    assert model.requests[0].headers["authorization"] == f"Bearer {CANARY}"
    client.call("basis/auth/forget", {"provider": "openai", "baseUrl": model.base_url})
    assert list(drawer.iterdir()) == []
    assert_no_trace(stopped_daemon, CANARY)


DRAWER = """
import hashlib, pathlib
from keyring.backend import KeyringBackend

class Drawer(KeyringBackend):
    priority = 5

    def _place(self, service, username):
        return pathlib.Path({directory!r}) / hashlib.sha256((service + username).encode()).hexdigest()

    def get_password(self, service, username):
        place = self._place(service, username)
        return place.read_text() if place.exists() else None

    def set_password(self, service, username, password):
        self._place(service, username).write_text(password)

    def delete_password(self, service, username):
        self._place(service, username).unlink()
"""
"""A keyring that keeps each key in a file, for a daemon in a process of its own."""
