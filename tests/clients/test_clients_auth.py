"""`basisctl auth`: a key goes from a person's hands to the daemon and is seen nowhere on the way."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Terminal, basisctl
from support.daemon import DaemonProcess
from support.model_server import ModelServer

CANARY = "sk-canary-login-0001"


@pytest.fixture
def daemon(clean_environment: Path, stopped_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> DaemonProcess:
    """A real daemon where `basisctl` looks for it."""
    monkeypatch.setenv("BASIS_SOCKET", stopped_daemon.socket)
    return stopped_daemon.start()


def keys_in(daemon: DaemonProcess) -> dict[str, Any]:
    return json.loads((daemon.data / "credentials.json").read_text())["credentials"]


def test_a_piped_key_is_stored_and_said_to_be(daemon: DaemonProcess, model: ModelServer, workspace: Path) -> None:
    """The line's end is no part of it. Exit code 0, nothing on stdout, and the key nowhere."""
    done = basisctl("auth", "login", "--base-url", model.base_url, cwd=workspace, stdin=f"{CANARY}\n")

    assert done.returncode == 0 and done.stdout == "" and CANARY not in done.stderr
    assert "and works" in done.stderr and str(daemon.data / "credentials.json") in done.stderr
    assert keys_in(daemon) == {model.base_url.rstrip("/"): {"secret": CANARY}}
    assert model.listings[0].headers["authorization"] == f"Bearer {CANARY}"


def test_a_key_typed_at_a_terminal_is_not_shown(daemon: DaemonProcess, model: ModelServer, workspace: Path) -> None:
    with Terminal(["auth", "login", "openai", "--base-url", model.base_url], cwd=workspace) as terminal:
        terminal.until("it is not shown")
        terminal.until_true(lambda: not terminal.echoes())
        terminal.press(f"{CANARY}\n")
        assert terminal.exit_code() == 0
        assert "it holds at once" in terminal.shown and CANARY not in terminal.shown
    assert list(keys_in(daemon).values()) == [{"secret": CANARY}]


def test_a_key_the_provider_refuses_is_not_stored(daemon: DaemonProcess, workspace: Path) -> None:
    with ModelServer(api_key="another") as strict:
        done = basisctl("auth", "login", "--base-url", strict.base_url, "--json", cwd=workspace, stdin=CANARY)
    assert done.returncode == 1 and json.loads(done.stdout)["code"] == "invalid_input"
    assert CANARY not in done.stdout + done.stderr and not (daemon.data / "credentials.json").exists()


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["login", "openai"], " \n"),
        (["login"], CANARY),
        (["login", "openai", "--base-url", "http://gw.example/v1"], CANARY),
        (["login", CANARY], ""),
        (["logout"], ""),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(arguments: list[str], stdin: str, workspace: Path) -> None:
    """Exit code 2, and no daemon is started for it. There is no option that takes a key."""
    done = basisctl("auth", *arguments, "--no-start", cwd=workspace, stdin=stdin)
    assert done.returncode in (2, 5) and done.stdout == ""
    if "openai" not in arguments or "--base-url" in arguments:
        assert done.returncode == 2


def test_a_key_typed_in_the_place_of_its_owner_is_not_repeated(workspace: Path) -> None:
    done = basisctl("auth", "login", CANARY, cwd=workspace, stdin="")
    assert done.returncode == 2 and CANARY not in done.stderr
    assert "anthropic, openai" in done.stderr and "a key is asked for" in done.stderr


def test_a_vendors_key_that_an_endpoint_keeps_from_being_used_says_so(daemon: DaemonProcess, workspace: Path) -> None:
    basisctl("connect", "openai", "--base-url", "http://localhost:9/v1", cwd=workspace)
    done = basisctl("auth", "login", "openai", "--no-verify", cwd=workspace, stdin=CANARY)
    assert "next: basisctl connect openai --base-url ''" in done.stderr and "http://localhost:9/v1" in done.stderr


def test_the_provider_that_was_chosen_is_meant_when_none_is_named(daemon: DaemonProcess, workspace: Path) -> None:
    basisctl("connect", "openrouter", cwd=workspace)
    assert basisctl("auth", "login", "--no-verify", cwd=workspace, stdin=CANARY).returncode == 0
    assert list(keys_in(daemon)) == ["openrouter"]


def test_status_says_where_each_key_is_from(
    daemon: DaemonProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", CANARY)
    basisctl("auth", "login", "openai", "--no-verify", cwd=workspace, stdin=CANARY)

    done = basisctl("auth", "status", cwd=workspace)
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())

    assert rows["openai"].startswith("the credentials file") and rows["gemini"] == "GEMINI_API_KEY, which is set here"
    assert rows["anthropic"] == "no key" and rows["ollama"] == "needs no key"
    told = basisctl("auth", "status", "--json", cwd=workspace).stdout
    assert {state["provider"]: state["source"] for state in json.loads(told)["providers"]}["openai"] == "store"
    assert CANARY not in done.stdout + told


def test_logging_out_forgets_and_says_what_is_left(
    clean_environment: Path, stopped_daemon: DaemonProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASIS_SOCKET", stopped_daemon.socket)
    stopped_daemon.set_environment(OPENAI_API_KEY="sk-canary-own-0002")
    stopped_daemon.start()
    basisctl("auth", "login", "openai", "--no-verify", "--in-file", cwd=workspace, stdin=CANARY)
    assert stat.S_IMODE((stopped_daemon.data / "credentials.json").stat().st_mode) == 0o600

    done = basisctl("auth", "logout", "openai", cwd=workspace)

    assert done.returncode == 0 and keys_in(stopped_daemon) == {}
    assert "OPENAI_API_KEY in the daemon's own environment" in done.stderr
    assert json.loads(basisctl("auth", "logout", "openai", "--json", cwd=workspace).stdout)["state"] == "forgotten"


def test_a_key_of_an_endpoint_is_forgotten_as_it_was_stored(
    daemon: DaemonProcess, model: ModelServer, workspace: Path
) -> None:
    """By its address alone."""
    endpoint = ("--base-url", model.base_url)
    basisctl("auth", "login", *endpoint, cwd=workspace, stdin=CANARY)
    done = basisctl("auth", "logout", *endpoint, cwd=workspace)
    assert done.returncode == 0 and f"no key for {model.base_url} is stored" in done.stderr
    assert keys_in(daemon) == {}


def test_connecting_knows_of_a_stored_key(daemon: DaemonProcess, model: ModelServer, workspace: Path) -> None:
    basisctl("auth", "login", "--base-url", model.base_url, cwd=workspace, stdin=CANARY)
    done = basisctl("connect", "openai", "--base-url", model.base_url, cwd=workspace)
    assert "the key is taken from the credentials file" in done.stderr
    done = basisctl("connect", "openai", "--base-url", "http://127.0.0.1:9/v1", cwd=workspace)
    assert "there is no key for it yet" in done.stderr  # it belongs to the other port


def test_the_endpoint_that_was_chosen_is_meant_when_none_is_named(
    daemon: DaemonProcess, model: ModelServer, workspace: Path
) -> None:
    """Its key, and not that of the vendor whose name it bears."""
    basisctl("connect", "openai", "--base-url", model.base_url, "--wire", "responses", cwd=workspace)
    done = basisctl("auth", "login", cwd=workspace, stdin=CANARY)
    assert "and works" in done.stderr and list(keys_in(daemon)) == [model.base_url.rstrip("/")]
    basisctl("auth", "login", "openai", "--no-verify", cwd=workspace, stdin=CANARY)
    assert sorted(keys_in(daemon)) == [model.base_url.rstrip("/"), "openai"]
