"""`basisctl models`: what can be chosen here, and why some is missing."""

import json
from pathlib import Path

import pytest

from support.command_line import basisctl
from support.daemon import DaemonProcess
from support.model_server import ModelServer, fails


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


def test_with_nothing_within_reach_the_next_step_is_named(daemon: DaemonProcess, workspace: Path) -> None:
    done = basisctl("models", "--provider", "gemini", cwd=workspace)
    assert done.returncode == 1 and "basisctl auth login" in done.stderr
