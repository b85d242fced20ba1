"""`basisctl rules`, and answers that last: given, listed, explained and forgotten from a terminal."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.command_line import basisctl
from support.daemon import DaemonProcess
from support.fake_daemon import FakeDaemon
from support.model_server import ModelServer, calls, says, tool

RULES = [
    {"toolName": "edit", "allow": True, "scope": "process"},
    {
        "toolName": "spawn",
        "pattern": '{"body":"git status *","cwd":"*","mode":"command","target":"local"}',
        "allow": True,
        "scope": "project",
    },
    {"toolName": "write", "allow": False, "scope": "global", "reason": "by hand\x1b[31m only"},
]


@pytest.fixture
def daemon(stopped_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> DaemonProcess:
    """A real daemon where `basisctl` looks for it."""
    monkeypatch.setenv("BASIS_SOCKET", stopped_daemon.socket)
    monkeypatch.setenv("BASIS_DETECT", "off")
    return stopped_daemon.start()


def test_rules_are_listed_by_number_in_the_order_they_are_asked(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """What a rule says can't colour the terminal."""
    fake_daemon.handlers["basis/rule/list"] = lambda _, __: {"rules": RULES, "file": "/data/store/rules.json"}

    done = basisctl("rules", cwd=workspace)

    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "  1  allow process edit (all of it)",
        '  2  allow project spawn {"body":"git status *","cwd":"*","mode":"command","target":"local"}',
        "  3  deny  global  write (all of it): by hand␛[31m only",
    ]
    assert "/data/store/rules.json" in done.stderr and "basisctl rules remove N" in done.stderr
    assert fake_daemon.asked("basis/rule/list") == [{"workspace": str(workspace)}]


def test_a_rule_is_forgotten_by_its_number(fake_daemon: FakeDaemon, workspace: Path) -> None:
    fake_daemon.handlers["basis/rule/list"] = lambda _, __: {"rules": RULES}
    fake_daemon.handlers["basis/rule/remove"] = lambda _, __: {}

    done = basisctl("rules", "remove", "2", cwd=workspace)
    beyond = basisctl("rules", "remove", "4", "--json", cwd=workspace)

    assert done.returncode == 0 and "forgotten: allow project spawn" in done.stderr
    assert fake_daemon.asked("basis/rule/remove") == [{"workspace": str(workspace), "rule": RULES[1]}]
    assert beyond.returncode == 2 and json.loads(beyond.stdout)["code"] == "usage"


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("!git push", {"input": "!git push"}),
        ('{"path": "a.txt"}', {"path": "a.txt"}),
        (None, {}),
    ],
)
def test_a_call_is_typed_as_json_or_as_its_one_text(
    fake_daemon: FakeDaemon, workspace: Path, typed: str | None, sent: dict[str, Any]
) -> None:
    fake_daemon.handlers["basis/rule/explain"] = lambda _, __: {
        "outcome": "prompt",
        "decidedBy": "person",
        "why": "nothing covers it",
    }

    done = basisctl("rules", "explain", "spawn", *([typed] if typed is not None else []), cwd=workspace)

    assert done.returncode == 0 and done.stdout == "asked about: nothing covers it\n"
    assert fake_daemon.asked("basis/rule/explain") == [{"workspace": str(workspace), "tool": "spawn", "input": sent}]


def test_json_that_is_none_is_refused_before_anything_is_asked(fake_daemon: FakeDaemon, workspace: Path) -> None:
    done = basisctl("rules", "explain", "write", "{path: a}", cwd=workspace)
    assert done.returncode == 2 and "no JSON" in done.stderr
    assert fake_daemon.asked("basis/rule/explain") == []


def test_an_answer_for_the_project_from_asking_to_forgetting(
    daemon: DaemonProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way with the real daemon: what would be covered is said, kept, explained and forgotten."""
    monkeypatch.setenv("BASIS_API_KEY", "sk-canary-0001")
    with ModelServer(calls(tool("spawn", {"input": "!touch one"})), says("done")) as model:
        monkeypatch.setenv("BASIS_BASE_URL", model.base_url)
        client = daemon.connect()
        environment = {"PATH": "/usr/bin:/bin", "BASIS_BASE_URL": model.base_url, "BASIS_API_KEY": "sk-canary-0001"}
        client.call("basis/workspace/open", {"path": str(workspace), "env": environment})
        session = client.call("basis/session/new", {"workspace": str(workspace)})["sessionId"]
        client.call("basis/session/attach", {"sessionId": session})
        block = {"type": "text", "text": "go"}
        client.call("basis/session/prompt", {"sessionId": session, "input": [block]})
        ask = client.events_until("ask_opened")[-1]["event"]["ask"]["askId"]

        asks = basisctl("asks", cwd=workspace)
        given = basisctl("approve", ask, "--scope", "project", "--pattern", "touch *", cwd=workspace)
        client.events_until("run_finished")
        listed = basisctl("rules", cwd=workspace)
        covered = basisctl("rules", "explain", "spawn", "!touch two", cwd=workspace)
        hidden = basisctl("rules", "explain", "spawn", "!touch two; rm x", "--json", cwd=workspace)
        read = basisctl("rules", "explain", "read", '{"path": "x"}', cwd=workspace)
        forgotten = basisctl("rules", "remove", "1", cwd=workspace)
        left = basisctl("rules", "--json", cwd=workspace)

    assert "--scope project: Allow exactly `touch one` in this project" in asks.stdout
    assert given.returncode == 0 and (workspace / "one").exists()
    assert "allow project spawn" in listed.stdout and "touch *" in listed.stdout
    assert covered.stdout.startswith("allowed: allowed by a remembered answer in scope `project`")
    assert "from " in covered.stdout and "rules.json" in covered.stdout
    explained = json.loads(hidden.stdout)
    assert explained["outcome"] == "prompt" and explained["uncovered"] == ["rm x"]
    assert read.stdout.startswith("allowed: ")
    assert forgotten.returncode == 0 and json.loads(left.stdout)["rules"] == []
