"""The commands that look and answer: sessions, show, asks, approve, deny, stop, cancel, resume, status, daemon."""

import json
import re
from pathlib import Path

import pytest

from basis_client.handshake import VERSION
from support.command_line import COMMAND, WAIT_S, basisctl
from support.fake_daemon import FakeDaemon, FakeSession, Json, Refusal, answer_at_once

HOSTILE = "a\x1b[31mb\u202ec\nd"
SHOWN = "a␛[31mb<U+202E>c"


@pytest.fixture
def session(fake_daemon: FakeDaemon, workspace: Path) -> FakeSession:
    one = FakeSession(fake_daemon, "agent-aaaabbbbcccc", str(workspace))
    fake_daemon.sessions[one.id] = one
    return one


def test_sessions_are_listed_with_ids_that_can_be_typed(
    fake_daemon: FakeDaemon, session: FakeSession, workspace: Path
) -> None:
    other = FakeSession(fake_daemon, "agent-aaaabbbbdddd", str(workspace))
    other.state = "waiting_person"
    fake_daemon.sessions[other.id] = other

    done = basisctl("sessions", cwd=workspace)

    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["ID", "aaaabbbbc", "aaaabbbbd"]
    assert "waiting for you" in done.stdout
    assert fake_daemon.asked("basis/session/list")[0]["workspace"] == str(workspace)


def test_session_that_waits_for_its_provider_says_until_when(
    fake_daemon: FakeDaemon, session: FakeSession, workspace: Path
) -> None:
    def page(connection: object, params: Json) -> Json:
        state = {"kind": "waiting_provider", "since": "", "detail": "", "until": "2026-01-31T12:00:05.000Z"}
        return {"sessions": [{"sessionId": session.id, "title": "", "turns": 1, "updatedAt": "", "state": state}]}

    fake_daemon.handlers["basis/session/list"] = page

    done = basisctl("sessions", cwd=workspace)

    assert "waiting for the provider until " in done.stdout and ":00:05" in done.stdout


def test_sessions_of_all_workspaces_are_paged_to_the_end(fake_daemon: FakeDaemon, workspace: Path) -> None:
    def page(connection: object, params: Json) -> Json:
        number = int(params.get("cursor", 0))
        one = {
            "sessionId": f"s{number}",
            "workspace": "/r",
            "title": HOSTILE,
            "updatedAt": "",
            "state": {"kind": "idle"},
        }
        return {"sessions": [one], **({"nextCursor": str(number + 1)} if number < 3 else {})}

    fake_daemon.handlers["basis/session/list"] = page

    lines = basisctl("sessions", "--all", "--json", cwd=workspace).stdout.splitlines()
    text = basisctl("sessions", "--all", cwd=workspace).stdout

    assert [json.loads(line)["sessionId"] for line in lines] == ["s0", "s1", "s2", "s3"]
    assert "workspace" not in fake_daemon.asked("basis/session/list")[0]
    assert len(text.splitlines()) == 5 and SHOWN in text and "/r" in text


def test_conversation_is_shown_from_its_beginning(
    fake_daemon: FakeDaemon, session: FakeSession, workspace: Path
) -> None:
    """Pages are fetched oldest first until there are no more; hostile text is harmless."""
    diff = [{"path": "app.py", "patch": "-a\n+b\n"}]
    items = [
        {"entryId": "1", "kind": "context", "text": "hidden"},
        {"entryId": "2", "kind": "user", "text": "please\nfix"},
        {"entryId": "3", "kind": "tool", "toolName": "edit", "summary": "edit: app.py", "diff": diff},
        {"entryId": "4", "kind": "tool", "toolName": "spawn", "input": {"input": "!make"}, "isError": True},
        {"entryId": "5", "kind": "assistant", "text": HOSTILE},
    ]

    def page(connection: object, params: Json) -> Json:
        start = int(params.get("cursor", 0))
        after = {"afterCursor": str(start + 2)} if start + 2 < len(items) else {}
        return {"items": items[start : start + 2], **after}

    fake_daemon.handlers["basis/session/history"] = page

    text = basisctl("show", "aaaa", cwd=workspace).stdout
    lines = basisctl("show", "last", "--json", cwd=workspace).stdout.splitlines()

    assert "› please\n  fix" in text and "· edit app.py\n  app.py\n  -a\n  +b\n" in text
    assert "✗ run make" in text and SHOWN in text and "hidden" not in text
    assert [json.loads(line) for line in lines] == items


def test_asks_are_listed_with_what_they_are_about(
    fake_daemon: FakeDaemon, session: FakeSession, workspace: Path
) -> None:
    session.open_ask("ask-1234abcd", title=HOSTILE)

    text = basisctl("asks", cwd=workspace)
    line = basisctl("asks", "--json", cwd=workspace).stdout

    assert "ask-1234abcd" in text.stdout and SHOWN in text.stdout and "$ make test" in text.stdout
    assert "next: basisctl approve ASK" in text.stderr
    assert json.loads(line) == session.asks["ask-1234abcd"]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (["approve", "1234"], {"decision": "allow", "scope": "once"}),
        (["approve", "ask-1234", "--for-session"], {"decision": "allow", "scope": "session"}),
        (
            ["approve", "ask-1234", "--scope", "project", "--pattern", "git log *"],
            {"decision": "allow", "scope": "project", "pattern": "git log *"},
        ),
        (["deny", "ask-1234", "--scope", "global"], {"decision": "deny", "scope": "global"}),
        (["deny", "ask-1234abcd", "--reason", "no"], {"decision": "deny", "scope": "once", "reason": "no"}),
    ],
)
def test_ask_is_answered_from_anywhere(
    arguments: list[str], sent: Json, fake_daemon: FakeDaemon, session: FakeSession, workspace: Path, tmp_path: Path
) -> None:
    """By the beginning of its id, from any directory; its own workspace is opened so that the turn can go on."""
    fake_daemon.handlers["basis/workspace/list"] = lambda _, __: {"workspaces": []}
    session.open_ask("ask-1234abcd")

    done = basisctl(*arguments, cwd=tmp_path)

    assert done.returncode == 0
    assert fake_daemon.asked("basis/ask/answer") == [{"askId": "ask-1234abcd", **sent}]
    assert fake_daemon.asked("basis/workspace/open")[0]["path"] == str(workspace)
    assert "Run a command" in done.stderr


def test_workspace_that_is_open_keeps_its_environment(
    fake_daemon: FakeDaemon, session: FakeSession, workspace: Path, tmp_path: Path
) -> None:
    fake_daemon.handlers["basis/workspace/list"] = lambda _, __: {"workspaces": [{"path": str(workspace)}]}
    session.open_ask("ask-1234abcd")

    basisctl("approve", "1234", cwd=tmp_path)

    assert fake_daemon.asked("basis/workspace/open") == []


def test_late_answer_is_told_who_was_first(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """protocol.md 3: the first answer wins, later ones learn who gave it."""

    def decided(*_: object) -> None:
        by = {"client": "nvim", "kind": "nvim"}
        raise Refusal("ask_decided", "decided", details={"by": by, "decision": "deny", "scope": "once", "reason": "no"})

    fake_daemon.handlers["basis/ask/answer"] = decided
    fake_daemon.handlers["basis/workspace/list"] = lambda _, __: {"workspaces": []}

    done = basisctl("approve", "ask-gone", cwd=workspace)

    assert done.returncode == 1
    assert done.stderr == "basisctl: too late: denied by nvim: no\n"


def test_ambiguous_ask_is_not_guessed(fake_daemon: FakeDaemon, session: FakeSession, workspace: Path) -> None:
    session.open_ask("ask-1234abcd")
    session.open_ask("ask-1234efgh")

    done = basisctl("approve", "1234", cwd=workspace)

    assert done.returncode == 2
    assert "could be 2 waiting questions" in done.stderr
    assert fake_daemon.asked("basis/ask/answer") == []


@pytest.mark.parametrize("command", ["stop", "cancel"])
def test_the_active_turn_of_the_workspace_is_ended(
    command: str, fake_daemon: FakeDaemon, session: FakeSession, workspace: Path
) -> None:
    """Without an id the one session that is busy is meant."""
    idle = FakeSession(fake_daemon, "agent-idle", str(workspace))
    fake_daemon.sessions[idle.id] = idle
    session.state = "working"
    fake_daemon.handlers[f"basis/turn/{command}"] = lambda _, __: {}

    done = basisctl(command, "--json", cwd=workspace)

    assert fake_daemon.asked(f"basis/turn/{command}") == [{"sessionId": session.id}]
    assert json.loads(done.stdout)["state"] == f"{command}_requested"
    assert json.loads(done.stdout)["next"] == f"basisctl attach {session.id}"


def test_two_active_turns_are_not_guessed_between(
    fake_daemon: FakeDaemon, session: FakeSession, workspace: Path
) -> None:
    other = FakeSession(fake_daemon, "agent-other", str(workspace))
    fake_daemon.sessions[other.id] = other
    session.state = other.state = "working"

    done = basisctl("stop", cwd=workspace)

    assert done.returncode == 2
    assert session.id in done.stderr and other.id in done.stderr


def test_interrupted_turn_is_carried_on_and_watched(
    fake_daemon: FakeDaemon, session: FakeSession, workspace: Path
) -> None:
    session.turn = {"turnId": "turn-9", "state": "interrupted"}
    session.state = "interrupted"
    fake_daemon.on_turn = answer_at_once

    done = basisctl("resume", "last", cwd=workspace)

    assert (done.returncode, done.stdout) == (0, "the answer is 42\n")


def test_nothing_is_started_only_to_be_looked_at_or_stopped(workspace: Path) -> None:
    """`status`, `stop` and `daemon stop` never start a daemon."""
    status = basisctl("status", cwd=workspace)
    as_json = basisctl("status", "--json", cwd=workspace)
    stop = basisctl("stop", cwd=workspace)
    daemon_stop = basisctl("daemon", "stop", cwd=workspace)

    assert [done.returncode for done in (status, as_json, stop, daemon_stop)] == [5, 5, 5, 0]
    assert status.stdout.startswith("no daemon is running\n")
    assert json.loads(as_json.stdout)["state"] == "not_running"


def test_status_tells_what_the_daemon_does_and_warns_of_an_old_one(fake_daemon: FakeDaemon, workspace: Path) -> None:
    fake_daemon.handlers["basis/daemon/status"] = lambda _, __: {
        "version": "0.0.9",
        "pid": 7,
        "instanceId": "i",
        "startedAt": "",
        "uptimeS": 7200.5,
        "counts": {"clients": 1, "workspaces": 2, "sessions": {"working": 1, "waiting_person": 2}, "pendingAsks": 3},
        "memoryBytes": 42_000_000,
        "dataDir": "/d",
        "socket": "/s",
        "providers": [{"provider": "openai", "state": "needs_key", "detail": HOSTILE}],
    }

    done = basisctl("status", cwd=workspace)

    for words in ("0.0.9, pid 7, up 2 h", "42.0 MB", "1 working, 2 waiting person", "3 waiting: basisctl asks"):
        assert words in done.stdout
    assert f"openai: needs key · {SHOWN}⏎d" in done.stdout
    assert f"the daemon is of version 0.0.9, basisctl of {VERSION}" in done.stderr


def test_log_is_printed_harmlessly_and_followed(workspace: Path, clean_environment: Path) -> None:
    import subprocess

    log = clean_environment / "data" / "log" / "daemon.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(9)) + "bad \x1b[2J\n")

    printed = basisctl("daemon", "logs", "-n", "2", cwd=workspace).stdout
    with subprocess.Popen([*COMMAND, "daemon", "logs", "-n1", "-f"], stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        first = following.stdout.readline()
        log.rename(log.with_suffix(".log.1"))
        log.write_text("rotated\n")
        second = following.stdout.readline()
        following.kill()
        following.wait(WAIT_S)

    assert printed == "line 8\nbad ␛[2J\n"
    assert (first, second) == ("bad ␛[2J\n", "rotated\n")


def test_log_that_does_not_exist_is_named(workspace: Path) -> None:
    done = basisctl("daemon", "logs", cwd=workspace)

    assert done.returncode == 2
    assert re.search(r"no log yet at \S+daemon\.log", done.stderr)


def test_acp_bridge_says_that_it_is_not_there(workspace: Path) -> None:
    """Nothing on stdout, which an ACP editor reads as the protocol."""
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-m", "basis_acp"], capture_output=True, text=True, timeout=WAIT_S)

    assert (done.returncode, done.stdout) == (2, "")
    assert "not part of this version" in done.stderr and "basisctl run" in done.stderr
