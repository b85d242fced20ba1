"""Models over the wire: listed across providers, offered as choices, switched in the middle of a conversation."""

import socket
from pathlib import Path
from typing import Any

import pytest

from support.daemon import DaemonProcess, OpenSession
from support.model_server import ModelServer, says
from support.raw_client import RawClient


def ids(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(model["provider"], model["id"]) for model in result["models"]]


def choices(info: dict[str, Any], option: str) -> list[str]:
    (found,) = [each for each in info["config"] if each["option"] == option]
    return [choice["value"] for choice in found["choices"]]


def set_option(client: RawClient, session_id: str, option: str, value: str) -> dict[str, Any]:
    params = {"sessionId": session_id, "option": option, "value": value}
    return client.call("basis/session/setConfig", params)


def turn(client: RawClient, session_id: str) -> dict[str, Any]:
    block = {"type": "text", "text": "hello"}
    client.call("basis/session/prompt", {"sessionId": session_id, "input": [block]})
    return client.events_until("run_finished")[-1]["event"]


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return {**environment, "BASIS_DETECT": "off"}


@pytest.fixture
def model() -> Any:
    with ModelServer(
        models=[{"id": "big", "context_length": 200000, "created": 9}, {"id": "small", "created": 3}]
    ) as server:
        yield server


def test_a_provider_that_is_down_stands_beside_the_models_of_the_others(
    daemon: DaemonProcess, model: ModelServer, repo: Path, environment: dict[str, str]
) -> None:
    """Degraded, with the reason and what to do; the context window where the list has it. A way out that leads nowhere
    keeps the vendor out of reach here."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{probe.getsockname()[1]}"
    client = daemon.connect()
    broken = {"OPENROUTER_API_KEY": "sk-canary-models", "HTTPS_PROXY": nowhere}
    client.call("basis/workspace/open", {"path": str(repo), "env": {**environment, **broken}})

    result = client.call("basis/model/list", {"workspace": str(repo)})

    assert ids(result) == [("openai", "big"), ("openai", "small")]
    assert result["models"][0]["contextWindow"] == 200000 and "contextWindow" not in result["models"][1]
    assert result["degraded"] == ["openrouter"]
    assert result["problems"][0]["provider"] == "openrouter" and "canary" not in str(result)
    only = client.call("basis/model/list", {"workspace": str(repo), "provider": "OpenAI"})
    assert ids(only) == ids(result) and "degraded" not in only
    assert len(model.listings) == 1


def test_refresh_asks_again(daemon: DaemonProcess, model: ModelServer, repo: Path, environment: dict[str, str]) -> None:
    client = daemon.connect()
    client.call("basis/workspace/open", {"path": str(repo), "env": environment})
    for refresh in (False, False, True):
        client.call("basis/model/list", {"refresh": refresh})
    assert len(model.listings) == 2
    refused = client.refusal("basis/model/list", {"provider": "opnai"})
    assert refused["data"]["kind"] == "unknown_provider"


def test_without_any_workspace_there_is_nothing_to_list(daemon: DaemonProcess) -> None:
    result = daemon.connect().call("basis/model/list", {"provider": "openai"})
    assert result == {"models": []}


def test_making_a_session_asks_nobody_and_offers_what_was_listed_before(
    daemon: DaemonProcess, model: ModelServer, repo: Path, environment: dict[str, str]
) -> None:
    """A picker lists models; from then on they are choices of every session of that provider."""
    client = daemon.connect()
    client.call("basis/workspace/open", {"path": str(repo), "env": environment})
    params = {"workspace": str(repo), "config": {"model": "own"}}
    info = client.call("basis/session/new", params)
    assert choices(info, "model") == ["own"] and model.listings == []

    client.call("basis/model/list", {"workspace": str(repo)})

    attached = client.call("basis/session/attach", {"sessionId": info["sessionId"]})
    assert choices(attached["info"], "model") == ["own", "big", "small"]
    assert choices(client.call("basis/session/new", params), "model") == ["own", "big", "small"]
    assert len(model.listings) == 1


def test_model_and_effort_are_switched_in_the_middle_of_a_conversation(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """PR-9, PR-10: from the next turn on, kept over a restart; a model needs to be in no list."""
    client = daemon.connect()
    session_id = open_session(client, config={"model": "big"})
    model.script(*(says("Hi.") for _ in range(3)))
    turn(client, session_id)

    set_option(client, session_id, "model", " unlisted ")
    info = set_option(client, session_id, "effort", "high")
    assert info["model"] == "unlisted" and choices(info, "effort")[0] == "default"
    assert turn(client, session_id)["status"] == "ok"

    late = daemon.restart().connect()
    attached = late.call("basis/session/attach", {"sessionId": session_id})
    assert attached["info"]["model"] == "unlisted"
    assert [request.model for request in model.requests] == ["big", "unlisted"]
    assert model.requests[1].body.get("reasoning_effort") == "high"


@pytest.mark.parametrize(("option", "value"), [("model", " "), ("effort", "enormous"), ("provider", "openai")])
def test_what_is_no_choice_is_refused_and_changes_nothing(
    daemon: DaemonProcess, open_session: OpenSession, option: str, value: str
) -> None:
    """PR-9, PR-10: a conversation stays with its provider."""
    client = daemon.connect()
    session_id = open_session(client, config={"model": "big"})
    params = {"sessionId": session_id, "option": option, "value": value}
    assert client.refusal("basis/session/setConfig", params)["code"] == -32602
    info = client.call("basis/session/attach", {"sessionId": session_id})["info"]
    assert info["model"] == "big" and info["provider"] == "openai"


def test_a_model_that_takes_no_effort_is_offered_none(daemon: DaemonProcess, repo: Path) -> None:
    """PR-9: choices are what the model takes, as far as that is known."""
    client = daemon.connect()
    client.call("basis/workspace/open", {"path": str(repo), "env": {"PATH": "/usr/bin:/bin", "BASIS_DETECT": "off"}})
    params = {"workspace": str(repo), "config": {"provider": "ollama", "model": "qwen3:8b"}}
    assert choices(client.call("basis/session/new", params), "effort") == ["default"]
    listed = client.call("basis/model/list", {"workspace": str(repo), "provider": "rehearsal"})
    assert [model["efforts"] for model in listed["models"]] == [[]]


@pytest.mark.parametrize(
    ("provider", "model", "efforts"),
    [
        ("anthropic", "claude-opus-4-5-20251101", ["low", "medium", "high"]),
        ("anthropic", "claude-haiku-4-5", []),
        ("gemini", "gemini-2.5-pro", []),
        ("openai", "anything", ["low", "medium", "high", "xhigh", "max"]),
    ],
)
def test_efforts_are_offered_as_the_vendor_documents_them(
    daemon: DaemonProcess, repo: Path, provider: str, model: str, efforts: list[str]
) -> None:
    """PR-9, 2.9: by model where there is a table, all of them where there is none."""
    client = daemon.connect()
    keys = {f"{provider.upper()}_API_KEY": "sk-canary-0001"}
    client.call("basis/workspace/open", {"path": str(repo), "env": {"PATH": "/usr/bin:/bin", **keys}})
    params = {"workspace": str(repo), "config": {"provider": provider, "model": model}}
    assert choices(client.call("basis/session/new", params), "effort") == ["default", *efforts]
