"""`basisctl` on a real terminal: progress, questions, keys, Ctrl-C, a closed window."""

import re
import time
from pathlib import Path

import pytest

from support.command_line import WAIT_S, Terminal
from support.fake_daemon import FakeDaemon, FakeSession, Refusal, begin

CALL = {"toolCallId": "call-1", "toolName": "spawn"}


def _asks(**fields: object):
    """A turn that asks, does what was answered, and says what that was."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.emit("tool_queued", **CALL, summary="make test")
        session.open_ask(**fields)
        answer = session.answers.get(timeout=WAIT_S)
        session.emit("permission_resolved", requestId="p", **CALL, outcome="allowed")
        session.emit("tool_started", **CALL)
        session.say(f"{answer['decision']} {answer['scope']} {answer.get('reason', '-')}")
        session.finish(turn_id)

    return turn


def test_answer_appears_as_it_is_written(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """On a terminal each piece is shown when it comes, not when the message is whole."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.emit("assistant_delta", text="first half", messageId="m-1")
        assert session.cancelled.wait(WAIT_S)
        session.emit("assistant_delta", text=" second half", messageId="m-1")
        session.emit("assistant_message", text="first half second half", messageId="m-1")
        session.finish(turn_id)

    fake_daemon.on_turn = turn
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("first half")
        assert "second half" not in terminal.shown
        fake_daemon.sessions["session-1"].cancelled.set()

        assert terminal.exit_code() == 0
    assert terminal.shown.count("first half") == 1
    assert 'next: basisctl run --session session-1 "…"' in terminal.shown


def test_progress_is_visible_while_nothing_is_said(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """A status line tells what is going on, and a clock that it still is."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        assert session.cancelled.wait(WAIT_S)
        session.emit("tool_queued", **CALL, summary="make test")
        session.emit("tool_started", **CALL)
        session.emit("tool_progress", **CALL, progress="stdout: 41 passed\nstdout: 42 passed\n")
        state = {"kind": "waiting_provider", "since": "", "detail": "rate limited", "until": "2026-01-31T12:00:00.000Z"}
        session.emit("info_changed", state=state)

    fake_daemon.on_turn = turn
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("working · 2 s")
        fake_daemon.sessions["session-1"].cancelled.set()
        terminal.until("spawn make test")
        terminal.until("· stdout: 42 passed")
        terminal.until("waiting for the provider until")
        assert "fake-1 · fake" in terminal.shown


def test_command_is_asked_about_and_runs_when_allowed(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """The person sees exactly what will run before they press a key."""
    preview = {
        "type": "command",
        "command": "rm -rf build\necho \x1b[2Jdone",
        "cwd": "/repo",
        "target": "local",
        "classification": {"intent": "destructive", "warnings": ["deletes files"]},
    }
    fake_daemon.on_turn = _asks(preview=preview)
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        plain = _plain(terminal.shown)
        for line in (
            "? Run a command",
            "$ rm -rf build",
            "echo ␛[2Jdone",
            "in /repo",
            "destructive",
            "! deletes files",
        ):
            assert line in plain
        terminal.press("y")
        terminal.until("allow once -")

        assert terminal.exit_code() == 0
        assert terminal.shown.count("\x1b[2J") == 0


def test_edit_is_asked_about_with_its_diff(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """The diff is shown once: as the question, not again as the result."""
    patch = "--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-old line\n+new line\n"
    files = [{"path": "app.py", "patch": patch}]

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.open_ask(title="Edit app.py", preview={"type": "diff", "files": files})
        session.answers.get(timeout=WAIT_S)
        session.emit("tool_completed", **CALL, summary="app.py", isError=False, diff=files)
        session.emit("tool_completed", toolCallId="other", toolName="edit", summary="b", isError=False, diff=files)
        session.finish(turn_id)

    fake_daemon.on_turn = turn
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        assert "\x1b[32m+new line\x1b[0m" in terminal.shown and "\x1b[31m-old line\x1b[0m" in terminal.shown
        terminal.press("a")

        assert terminal.exit_code() == 0
    assert terminal.shown.count("+new line") == 2
    assert fake_daemon.asked("basis/ask/answer") == [{"askId": "ask-1", "decision": "allow", "scope": "session"}]


def test_what_an_answer_would_cover_for_good_stands_above_the_prompt(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """AP-21: one key for the project, one for everywhere, each with the daemon's own words; hostile ones too."""
    options = [
        {"optionId": "1", "label": "Allow", "decision": "allow", "scope": "once"},
        {"optionId": "2", "label": "Allow `git \x1b[2Jlog …` in this project", "decision": "allow", "scope": "project"},
        {"optionId": "3", "label": "Allow `git log …` in every project", "decision": "allow", "scope": "global"},
        {"optionId": "4", "label": "Deny", "decision": "deny", "scope": "once"},
    ]
    fake_daemon.on_turn = _asks(options=options)
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        shown = _plain(terminal.shown)
        assert "[p] Allow `git ␛[2Jlog …` in this project" in shown
        assert "[g] Allow `git log …` in every project" in shown
        assert shown.index("in every project") < shown.index("[y] yes")
        assert "[p] for the project  [g] everywhere" in shown and "\x1b[2J" not in terminal.shown
        terminal.press("p")

        assert terminal.exit_code() == 0
    assert fake_daemon.asked("basis/ask/answer") == [{"askId": "ask-1", "decision": "allow", "scope": "project"}]


def test_a_question_longer_than_the_screen_says_again_what_it_asks(fake_daemon: FakeDaemon, workspace: Path) -> None:
    added = "".join(f"+line {number}\n" for number in range(300))
    files = [{"path": "app.py", "patch": f"--- a/app.py\n+++ b/app.py\n@@ -0,0 +1,300 @@\n{added}"}]
    fake_daemon.on_turn = _asks(title="Edit app.py", preview={"type": "diff", "files": files})
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        shown = _plain(terminal.shown)
        assert shown.count("? Edit app.py") == 2 and shown.index("+line 299") < shown.rindex("? Edit app.py")
        assert "--- a/app.py" not in shown
        terminal.press("n")

        assert terminal.exit_code() == 0


def test_a_failed_command_and_a_cancelled_turn_are_told_once(fake_daemon: FakeDaemon, workspace: Path) -> None:
    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.emit("tool_queued", **CALL, summary="spawn: !make test")
        session.emit("tool_completed", **CALL, summary="run make test: exit status 2", isError=True)
        session.finish(turn_id, "cancelled", message="cancelled by nvim")

    fake_daemon.on_turn = turn
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        assert terminal.exit_code() == 1
    shown = _plain(terminal.shown)
    assert "✗ run make test: exit status 2" in shown
    assert "run cancelled by nvim" in shown and shown.count("cancelled") == 1


def test_denial_can_carry_a_reason(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """protocol.md 5: the reason is what the model reads."""
    fake_daemon.on_turn = _asks()
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        terminal.press("r")
        terminal.until("reason: ")
        terminal.press("use tox näht")
        terminal.until("näht")
        terminal.press("\x17instead\n")
        terminal.until("deny once use tox instead")

        assert terminal.exit_code() == 0


def test_reason_can_be_given_up(fake_daemon: FakeDaemon, workspace: Path) -> None:
    fake_daemon.on_turn = _asks()
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        terminal.press("r")
        terminal.until("reason: ")
        terminal.press("\x1b")
        _until_count(terminal, "[r] no, with a reason", 2)
        terminal.press("n\n")
        terminal.until("deny once -")


def test_keys_pressed_before_the_question_are_no_answer(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Type-ahead, pastes and the terminal's own reports must not approve anything."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        assert session.cancelled.wait(WAIT_S)
        _asks()(session, turn_id)

    fake_daemon.on_turn = turn
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("fake-1 · fake")
        terminal.press("y")
        terminal.until("y")
        fake_daemon.sessions["session-1"].cancelled.set()
        terminal.until("[r] no, with a reason")
        for times, keys in enumerate(("yes please", "\x1b[0n", "\x1b[A", "z"), start=2):
            terminal.press(keys)
            _until_count(terminal, "[r] no, with a reason", times)
        assert fake_daemon.asked("basis/ask/answer") == []
        terminal.press("n")
        terminal.until("deny once -")
    assert len(fake_daemon.asked("basis/ask/answer")) == 1


@pytest.mark.parametrize("stray", [b"\xff\xfe", b"\xc3"])
def test_bytes_that_are_no_character_end_no_question(fake_daemon: FakeDaemon, workspace: Path, stray: bytes) -> None:
    """A terminal that isn't set to UTF-8 is still there."""
    fake_daemon.on_turn = _asks()
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        terminal.press(stray.decode("utf-8", "surrogateescape"))
        _until_count(terminal, "[r] no, with a reason", 2)
        terminal.press("n")
        terminal.until("deny once -")


def test_question_answered_elsewhere_is_withdrawn(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """DM-17: the first answer wins, the others are told by whom it was given."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.open_ask()
        assert session.cancelled.wait(WAIT_S)
        session.close_ask("ask-1", {"client": "nvim", "kind": "nvim"}, "allow", scope="session")
        session.say("ran it")
        session.finish(turn_id)

    fake_daemon.on_turn = turn
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        assert not terminal.echoes()
        fake_daemon.sessions["session-1"].cancelled.set()
        terminal.until("· allowed by nvim (session)")
        terminal.until("ran it")

        assert terminal.exit_code() == 0
    assert fake_daemon.asked("basis/ask/answer") == []


def test_answer_that_came_too_late_says_who_was_first(fake_daemon: FakeDaemon, workspace: Path) -> None:
    def too_late(*_: object) -> None:
        session = fake_daemon.sessions["session-1"]
        session.answers.put({"decision": "deny", "scope": "once"})
        decided = {"by": {"client": "vscode", "kind": "vscode"}, "decision": "deny", "scope": "once", "at": ""}
        raise Refusal("ask_decided", "vscode has already denied this", details=decided)

    fake_daemon.handlers["basis/ask/answer"] = too_late
    fake_daemon.on_turn = _asks()
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        terminal.press("y")
        terminal.until("· denied by vscode")
        terminal.until("deny once -")


def test_question_survives_a_daemon_that_dies(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """protocol.md 5: an ask outlives a restart; the same question still waits for its key, and is put only once."""
    fake_daemon.on_turn = _asks()
    with Terminal(["run", "--no-start", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        fake_daemon.die()
        fake_daemon.start()
        fake_daemon.wait_for("basis/session/attach", times=2)
        terminal.press("y")
        terminal.until("allow once -")

        assert terminal.exit_code() == 0
    assert _plain(terminal.shown).count("? Run a command") == 1


def test_turn_cut_short_while_it_asked_goes_on_with_the_answer(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """That it was cut short may be told only after the answer was given; it is no end then either."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.open_ask()
        fake_daemon.wait_for("basis/session/prompt")
        assert session.cancelled.wait(WAIT_S)
        assert session.turn is not None
        session.turn["state"] = "interrupted"
        fake_daemon.die()
        fake_daemon.start()
        session.answers.get(timeout=WAIT_S)
        session.emit("run_finished", turnId=turn_id, status="interrupted", message="the daemon ended")
        session.say("carried on")
        session.finish(turn_id)

    fake_daemon.on_turn = turn
    with Terminal(["run", "--no-start", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        fake_daemon.sessions["session-1"].cancelled.set()
        fake_daemon.wait_for("basis/session/attach", times=2)
        terminal.press("y")
        terminal.until("carried on")

        assert terminal.exit_code() == 0


def test_terminal_is_given_back_as_it_was(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """After an answer, after Ctrl-C: echo and line mode are on again."""
    fake_daemon.on_turn = _asks()
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        assert not terminal.echoes()
        terminal.press("y")
        terminal.until("allow once -")
        assert terminal.echoes()

    def ask_until_cancelled(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.open_ask()
        assert session.cancelled.wait(WAIT_S)
        session.finish(turn_id, "cancelled")

    fake_daemon.on_turn = ask_until_cancelled
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        terminal.interrupt()
        terminal.until("run cancelled")
        assert terminal.echoes()
        assert terminal.exit_code() == 130


def test_closed_window_leaves_the_question_to_others(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Nothing is cancelled and nothing is denied when the terminal goes away."""
    fake_daemon.on_turn = _asks()
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        terminal.close()
        terminal.process.wait(WAIT_S)
    assert fake_daemon.asked("basis/turn/cancel") == []
    assert fake_daemon.asked("basis/ask/answer") == []


def test_person_is_asked_although_stdout_is_a_pipe(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Questions and progress are on the terminal, the answer alone goes down the pipe."""
    fake_daemon.on_turn = _asks()
    with Terminal(["run", "hello"], cwd=workspace, pipe_stdout=True) as terminal:
        terminal.until("[r] no, with a reason")
        terminal.press("y")
        assert terminal.process.stdout is not None
        assert terminal.process.stdout.read() == b"allow once -\n"
        assert terminal.exit_code() == 0
    assert "unattended" not in fake_daemon.asked("basis/session/prompt")[0]


def test_hostile_text_does_not_reach_the_terminal(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Only our own escape sequences are written: colour, and taking the status line away."""
    hostile = "\x1b]0;owned\x07 \x1b[8mhidden \x9b31m \u202eevil\x1b[0m\x1b[K"

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.emit("tool_queued", toolCallId="c", toolName="t", summary=hostile)
        session.emit("tool_started", toolCallId="c", toolName="t")
        session.emit("tool_progress", toolCallId="c", toolName="t", progress=hostile)
        session.emit(
            "info_changed", state={"kind": "waiting_provider", "since": "", "detail": hostile, "until": hostile}
        )
        session.emit("notice", message=hostile)
        session.open_ask(title=hostile, description=hostile, preview={"type": "call", "input": {hostile: hostile}})
        session.answers.get(timeout=WAIT_S)
        session.say(hostile)
        session.finish(turn_id)

    fake_daemon.on_turn = turn
    with Terminal(["run", "hello"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        terminal.press("y")
        assert terminal.exit_code() == 0
    escapes = set(re.findall(r"\x1b[^a-zA-Z]*.", terminal.shown))
    assert escapes <= {"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[36m", "\x1b[K"}
    assert not set(terminal.shown) & set("\x07\x9b\u202e")


def test_attach_shows_what_goes_on_and_leaves_without_a_trace(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Ctrl-C detaches: the turn goes on."""
    session = FakeSession(fake_daemon, "aaaa-1", str(workspace))
    session.turn = {"turnId": "turn-1", "state": "running"}
    session.state = "working"
    fake_daemon.sessions[session.id] = session
    with Terminal(["attach"], cwd=workspace) as terminal:
        fake_daemon.wait_for("basis/session/attach")
        _until_watched(session)
        session.say("still at it")
        session.open_ask()
        terminal.until("still at it")
        terminal.until("[r] no, with a reason")
        terminal.press("n")
        fake_daemon.wait_for("basis/ask/answer")
        terminal.interrupt()
        terminal.until("left; the session goes on")

        assert terminal.exit_code() == 0
    assert fake_daemon.asked("basis/turn/cancel") == []


def test_attach_goes_on_when_the_daemon_comes_back(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Also with no turn under way; and it waits for events without using the processor."""
    session = FakeSession(fake_daemon, "aaaa-1", str(workspace))
    fake_daemon.sessions[session.id] = session
    with Terminal(["attach", "--no-start", "aaaa"], cwd=workspace) as terminal:
        _until_watched(session)
        fake_daemon.die()
        session.say("while it was away")
        fake_daemon.start()
        terminal.until("while it was away")
        before = _processor_ticks(terminal)
        terminal.read(1.0)
        assert _processor_ticks(terminal) - before < 20
        session.say("and after")
        terminal.until("and after")
        terminal.interrupt()

        assert terminal.exit_code() == 0


def _processor_ticks(terminal: Terminal) -> int:
    """Hundredths of a second the process has computed."""
    fields = Path(f"/proc/{terminal.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*[a-zA-Z]", "", shown)


def _until_count(terminal: Terminal, text: str, times: int) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while terminal.shown.count(text) < times:
        assert time.monotonic() < give_up_at, terminal.shown
        terminal.read()


def _until_watched(session: FakeSession) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not session.watchers:
        assert time.monotonic() < give_up_at
        time.sleep(0.005)
