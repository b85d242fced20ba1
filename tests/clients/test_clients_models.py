"""`basisctl models`: what can be chosen here, and why some is missing."""

import json
from pathlib import Path

import pytest

from support.command_line import basisctl
from support.daemon import DaemonProcess
from support.model_server import ModelServer, fails, says


@pytest.fixture
def daemon(stopped_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> DaemonProcess:
    """A real daemon where `basisctl` looks for it; nobody looks for model servers of this machine."""
    monkeypatch.setenv("BASIS_SOCKET", stopped_daemon.socket)
    monkeypatch.setenv("BASIS_DETECT", "off")
    return stopped_daemon.start()


def test_models_are_listed_with_this_shells_key(
    clean_environment: Path, daemon: DaemonProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"id": "big", "context_length": 1_048_576, "created": 2},
        {"id": "small", "context_length": 8192, "created": 1},
    ]
    monkeypatch.setenv("BASIS_API_KEY", "sk-canary-0001")
    with ModelServer(models=rows) as model:
        monkeypatch.setenv("BASIS_BASE_URL", model.base_url)
        own = {"provider": f"openai@{model.base_url.rstrip('/')}", "model": "b*", "input": "2", "output": "0.5"}
        (clean_environment / "config_home" / "basis").mkdir(parents=True)
        (clean_environment / "config_home" / "basis" / "prices.json").write_text(
            json.dumps({"schema": 1, "prices": [own]})
        )
        done = basisctl("models", cwd=workspace)
        again = basisctl("models", "--refresh", "--json", cwd=workspace)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert lines == [
        ["PROVIDER", "CONTEXT", "PRICE", "MODEL"],
        ["openai", "1.05M", "$2/$0.5", "big"],
        ["openai", "8.19k", "?", "small"],
    ]
    assert [found["id"] for found in json.loads(again.stdout)["models"]] == ["big", "small"]
    assert len(model.listings) == 2 and model.listings[0].headers["authorization"] == "Bearer sk-canary-0001"


def test_a_provider_that_is_down_is_a_warning(
    daemon: DaemonProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1 when there is nothing at all to choose from; the reason is on stderr."""
    monkeypatch.setenv("BASIS_API_KEY", "sk-canary-0001")
    with ModelServer(listing=fails(403)) as model:
        monkeypatch.setenv("BASIS_BASE_URL", model.base_url)
        done = basisctl("models", cwd=workspace)
    assert done.returncode == 1 and done.stdout == ""
    assert "warning: openai: " in done.stderr and "403" in done.stderr and "canary" not in done.stderr
    assert "within reach" not in done.stderr  # it is there, and said what is wrong


def test_a_provider_without_models_is_not_said_to_be_missing(
    daemon: DaemonProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASIS_API_KEY", "sk-canary-0001")
    with ModelServer(models=[]) as model:
        monkeypatch.setenv("BASIS_BASE_URL", model.base_url)
        done = basisctl("models", cwd=workspace)
    assert done.returncode == 1 and "no provider within reach lists a model" in done.stderr


def test_model_and_effort_of_a_conversation_change_and_its_provider_stays(
    daemon: DaemonProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PR-9, PR-10: an effort can be taken back, as a model may not take any. Exit code 2 for another provider."""
    monkeypatch.setenv("BASIS_API_KEY", "sk-canary-0001")
    with ModelServer(says("One."), says("Two."), says("Three.")) as model:
        monkeypatch.setenv("BASIS_BASE_URL", model.base_url)
        basisctl("run", "--effort", "high", "--model", "m-1", "hello", cwd=workspace)
        basisctl("run", "-s", "last", "--effort", "default", "--provider", "openai", "hello", cwd=workspace)
        basisctl("run", "-s", "last", "--model", "m-2", "hello", cwd=workspace)
        other = basisctl("run", "-s", "last", "--provider", "gemini", "hello", cwd=workspace)
    sent = [(request.model, request.body.get("reasoning_effort")) for request in model.requests]
    assert sent == [("m-1", "high"), ("m-1", None), ("m-2", None)]
    assert other.returncode == 2 and "keeps its provider, and this one's is openai" in other.stderr


def test_with_nothing_within_reach_the_next_step_is_named(daemon: DaemonProcess, workspace: Path) -> None:
    done = basisctl("models", "--provider", "gemini", cwd=workspace)
    assert done.returncode == 1 and "basisctl auth login" in done.stderr
