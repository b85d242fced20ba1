"""`basisctl run` without a terminal, as scripts use it."""

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from support.command_line import COMMAND, WAIT_S, basisctl
from support.fake_daemon import FakeDaemon, FakeSession, Json, NoAnswer, Refusal, begin

HOSTILE = "red\x1b[31m title\x1b]0;owned\x07 back\x08\x08 c1\x9b2J \u202egnp.exe\u2066 zero\u200bwidth \U000e0041tag"


def test_answer_goes_to_stdout_and_nothing_else_does(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """CL-35: the answer's text, once, with its newline."""
    done = basisctl("run", "what", "is it?", cwd=workspace)

    assert (done.returncode, done.stdout, done.stderr) == (0, "the answer is 42\n", "")
    assert fake_daemon.asked("basis/session/prompt")[0]["input"] == [{"type": "text", "text": "what is it?"}]


def test_prompt_is_read_from_standard_input(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """CL-2."""
    done = basisctl("run", "-", cwd=workspace, stdin="line one\nline two\n")

    assert done.returncode == 0
    assert fake_daemon.asked("basis/session/prompt")[0]["input"][0]["text"] == "line one\nline two\n"


@pytest.mark.parametrize("stdin", ["", "  \n"])
def test_blank_prompt_is_refused_before_anything_is_sent(stdin: str, fake_daemon: FakeDaemon, workspace: Path) -> None:
    """CL-2: blank standard input is an error."""
    done = basisctl("run", "-", cwd=workspace, stdin=stdin)

    assert done.returncode == 2
    assert "the prompt is empty" in done.stderr
    assert fake_daemon.requests == []


def test_closed_standard_streams_do_not_matter(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """A cron job may have closed them all: the turn runs, and the exit code still says how it went."""
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.join(COMMAND)} run hello <&- >out.txt 2>&-"],
        cwd=workspace,
        timeout=WAIT_S,
        check=False,
    )

    assert done.returncode == 0
    assert (workspace / "out.txt").read_text() == "the answer is 42\n"


def test_closed_standard_output_is_a_reader_that_left(fake_daemon: FakeDaemon, workspace: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.join(COMMAND)} run hello >&-"], cwd=workspace, timeout=WAIT_S, check=False
    )

    assert done.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full is Linux's")
@pytest.mark.parametrize(("stream", "code"), [(">", 1), ("2>", 0)])
def test_output_to_a_full_disk_fails_in_a_sentence(
    fake_daemon: FakeDaemon, workspace: Path, stream: str, code: int
) -> None:
    """A full standard error is no reason to stop."""
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.join(COMMAND)} run hello {stream}/dev/full"],
        cwd=workspace,
        timeout=WAIT_S,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert ("No space left" in done.stderr) == (stream == ">")


def test_json_is_the_events_as_they_came_one_a_line(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Every line of stdout is the params of one `basis/session/event`, in order and complete."""
    done = basisctl("run", "--json", "hello", cwd=workspace)

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines == fake_daemon.sessions["session-1"].journal
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert done.stdout.isascii()
    assert done.returncode == 0


def test_workspace_and_its_environment_are_sent(
    fake_daemon: FakeDaemon, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """protocol.md 6: commands run with this environment; what only describes the terminal is left out."""
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere/venv")
    monkeypatch.setenv("TMUX", "/tmp/tmux,1,2")
    monkeypatch.setenv("BASIS_TASK_ID", "another-task")
    (workspace / "link").symlink_to(workspace)

    basisctl("run", "-C", "link", "hello", cwd=workspace)

    opened = fake_daemon.asked("basis/workspace/open")[0]
    assert opened["path"] == str(workspace)
    assert opened["env"]["VIRTUAL_ENV"] == "/somewhere/venv"
    assert opened["env"]["PATH"] == os.environ["PATH"]
    assert not {"TERM", "TMUX", "BASIS_TASK_ID", "_", "PWD"} & set(opened["env"])


def test_environment_that_is_not_text_is_left_out(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Bytes that aren't UTF-8 can't be said in JSON; they must not cost the connection."""
    done = subprocess.run(
        [*COMMAND, "run", b"caf\xe9"],
        cwd=workspace,
        env={**os.environb, b"ODD": b"\xff\xfe"},
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )

    assert done.returncode == 0
    assert "ODD" not in fake_daemon.asked("basis/workspace/open")[0]["env"]
    assert fake_daemon.asked("basis/session/prompt")[0]["input"][0]["text"] == "caf\ufffd"


def test_options_of_the_session_and_bounds_are_passed_on(fake_daemon: FakeDaemon, workspace: Path) -> None:
    options = ["--model", "m", "--effort", "high", "--approve", "never"]
    bounds = ["--deadline", "2m", "--tool-budget", "0", "--token-budget", "9"]
    done = basisctl("run", *options, *bounds, "hello", cwd=workspace)

    assert done.returncode == 0
    assert fake_daemon.asked("basis/session/new")[0]["config"] == {"model": "m", "effort": "high", "mode": "never"}
    sent = fake_daemon.asked("basis/session/prompt")[0]
    assert sent["bounds"] == {"deadlineMs": 120_000, "toolBudget": 0, "tokenBudget": 9}


def test_session_is_continued_by_the_beginning_of_its_id(fake_daemon: FakeDaemon, workspace: Path) -> None:
    for name in ("aaaa-1", "aabb-2"):
        fake_daemon.sessions[name] = FakeSession(fake_daemon, name, str(workspace))

    done = basisctl("run", "--session", "aab", "go on", cwd=workspace)
    ambiguous = basisctl("run", "--session", "aa", "go on", cwd=workspace)
    unknown = basisctl("run", "--session", "b", "go on", cwd=workspace)

    assert (done.returncode, done.stdout) == (0, "the answer is 42\n")
    assert fake_daemon.asked("basis/session/prompt")[0]["sessionId"] == "aabb-2"
    assert ambiguous.returncode == 2 and "could be 2 sessions: aaaa-1, aabb-2" in ambiguous.stderr
    assert unknown.returncode == 2 and "there is no session 'b'" in unknown.stderr


def test_last_continues_the_newest_session_of_the_workspace(fake_daemon: FakeDaemon, workspace: Path) -> None:
    fake_daemon.sessions["newest"] = FakeSession(fake_daemon, "newest", str(workspace))

    basisctl("run", "--session", "last", "go on", cwd=workspace)

    assert fake_daemon.asked("basis/session/list")[0] == {"workspace": str(workspace), "limit": 1}
    assert fake_daemon.asked("basis/session/prompt")[0]["sessionId"] == "newest"


def _ends(status: str, **fields: object):
    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.finish(turn_id, status, **fields)

    return turn


@pytest.mark.parametrize(
    ("status", "fields", "code", "said"),
    [
        ("ok", {}, 0, ""),
        ("error", {"message": "the provider refused"}, 1, "run failed: the provider refused"),
        ("cancelled", {"message": "by nvim"}, 1, "run cancelled: by nvim"),
        ("interrupted", {}, 1, "next: basisctl resume session-1"),
        ("ok", {"stoppedBy": "tool_budget"}, 3, "run stopped by tool budget"),
        ("error", {"stoppedBy": "deadline", "message": "too late"}, 3, "run stopped by deadline: too late"),
    ],
)
def test_exit_code_says_how_the_turn_ended(
    status: str, fields: Json, code: int, said: str, fake_daemon: FakeDaemon, workspace: Path
) -> None:
    """workspace.md 11.2: 0 finished, 1 failed, 3 a bound tripped, even if there is an answer."""
    fake_daemon.on_turn = _ends(status, **fields)

    done = basisctl("run", "hello", cwd=workspace)

    assert done.returncode == code
    assert said in done.stderr


def _denied_for_lack_of_a_person(session: FakeSession, turn_id: str) -> None:
    begin(session, turn_id)
    call = {"toolCallId": "call-1", "toolName": "edit"}
    session.emit("tool_queued", **call, summary="edit src/app.py")
    session.emit(
        "permission_requested", requestId="p", **call, description="edit", preview={"type": "call", "input": {}}
    )
    session.emit("permission_resolved", requestId="p", **call, outcome="denied")
    session.emit("tool_completed", **call, summary="denied: nobody was there", isError=True)
    session.say("I could not edit the file.")
    session.finish(turn_id)


def test_denial_for_lack_of_a_person_has_its_own_exit_code(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """peers.md 5.3: a run without a terminal never hangs on a question, and scripts can tell."""
    fake_daemon.on_turn = _denied_for_lack_of_a_person

    done = basisctl("run", "edit it", cwd=workspace)

    assert done.returncode == 4
    assert fake_daemon.asked("basis/session/prompt")[0]["unattended"]["policy"] == "deny"
    assert done.stdout == "I could not edit the file.\n"
    assert "✗ edit src/app.py: denied: nobody was there" in done.stderr
    assert "--approve always" in done.stderr


def test_denial_by_a_person_elsewhere_is_an_ordinary_end(fake_daemon: FakeDaemon, workspace: Path) -> None:
    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.open_ask()
        session.close_ask("ask-1", {"client": "nvim", "kind": "nvim"}, "deny", reason="not now")
        resolved = {"requestId": "p", "toolCallId": "call-1", "toolName": "spawn", "outcome": "denied"}
        session.emit("permission_resolved", **resolved)
        session.finish(turn_id)

    fake_daemon.on_turn = turn

    done = basisctl("run", "hello", cwd=workspace)

    assert done.returncode == 0
    assert "· denied by nvim: not now" in done.stderr


def test_hostile_text_is_shown_and_never_obeyed(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """No control, direction or invisible character of a model or a tool reaches any output as itself."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        call = {"toolCallId": HOSTILE, "toolName": HOSTILE}
        session.emit("tool_queued", **call, summary=HOSTILE)
        session.emit("tool_started", **call)
        session.emit("tool_progress", **call, progress=HOSTILE)
        diff = [{"path": HOSTILE, "patch": f"--- a\n+++ b\n@@ -1 +1 @@\n-{HOSTILE}\n+\n"}]
        session.emit("tool_completed", **call, summary=HOSTILE, isError=False, diff=diff)
        session.emit("tool_completed", **call, summary=HOSTILE, isError=True)
        session.emit("notice", severity="warning", message=HOSTILE)
        session.emit("retry", agentId="a", error=HOSTILE, attempt=1, maxAttempts=2, nextDelayMs=10)
        session.emit("task_updated", taskId="t", kind=HOSTILE, status=HOSTILE, title=HOSTILE)
        session.emit("error", message=HOSTILE)
        session.say(HOSTILE)
        session.finish(turn_id, "error", message=f"failed {HOSTILE}")

    fake_daemon.on_turn = turn

    text = basisctl("run", "--verbose", "hello", cwd=workspace)
    lines = basisctl("run", "--json", "hello", cwd=workspace)

    for output in (text.stdout, text.stderr, lines.stdout, lines.stderr):
        assert not set(output) & set("\x1b\x07\x08\x9b\u202e\u2066\u200b\U000e0041")
    assert "red␛[31m title␛]0;owned␇ back␈␈ c1<U+009B>2J <U+202E>gnp.exe<U+2066>" in text.stdout
    assert json.loads(lines.stdout.splitlines()[-1])["event"]["message"] == f"failed {HOSTILE}"


def test_text_of_a_discarded_attempt_never_reaches_a_pipe(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """A reader that can't unread gets only what is final."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.emit("assistant_delta", text="half an ans", messageId="m-1")
        retry = {"error": "cut", "attempt": 1, "maxAttempts": 3, "nextDelayMs": 1, "discardedMessageId": "m-1"}
        session.emit("retry", agentId="a", **retry)
        session.say("the whole answer", "m-2")
        session.finish(turn_id)

    fake_daemon.on_turn = turn

    done = basisctl("run", "hello", cwd=workspace)

    assert done.stdout == "the whole answer\n"
    assert "retrying in 0.0 s (1 of 3): cut" in done.stderr


def test_events_and_fields_of_a_newer_daemon_are_ignored(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """protocol.md 2: unknown fields, event types and enum values are ignored, always."""

    def turn(session: FakeSession, turn_id: str) -> None:
        session.emit("weather_changed", degrees=21)
        begin(session, turn_id)
        session.emit("info_changed", state={"kind": "contemplating", "since": "", "detail": ""}, mood="fine")
        session.emit("notice", severity="cosmic", message="hm")
        session.say("fine")
        session.finish(turn_id)

    fake_daemon.on_turn = turn

    done = basisctl("run", "hello", cwd=workspace)

    assert (done.returncode, done.stdout) == (0, "fine\n")


def test_reader_that_leaves_ends_the_command_and_not_the_turn(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """A broken pipe is no traceback, and no cancelled turn."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        for number in range(2000):
            session.say(f"line {number} " + "x" * 100, f"m-{number}")
        session.finish(turn_id)

    fake_daemon.on_turn = turn
    run = subprocess.Popen(
        [*COMMAND, "run", "hello"], cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None and run.stderr is not None
    assert run.stdout.readline().startswith("line 0 ")
    run.stdout.close()

    assert run.wait(WAIT_S) == 141
    assert "Traceback" not in run.stderr.read()
    run.stderr.close()
    assert fake_daemon.asked("basis/turn/cancel") == []


def test_refusal_names_what_to_do(fake_daemon: FakeDaemon, workspace: Path) -> None:
    def refuse(*_: object) -> None:
        raise Refusal("no_credential", "no key was found", hint="export OPENAI_API_KEY=…")

    fake_daemon.handlers["basis/session/prompt"] = refuse

    text = basisctl("run", "hello", cwd=workspace)
    lines = basisctl("run", "--json", "hello", cwd=workspace)

    assert (text.returncode, text.stdout) == (1, "")
    assert text.stderr == "basisctl: no key was found\nnext: export OPENAI_API_KEY=…\n"
    assert json.loads(lines.stdout) == {
        "error": "no key was found",
        "code": "no_credential",
        "next": "export OPENAI_API_KEY=…",
    }


def test_problems_of_the_workspaces_files_are_shown_and_its_notices_left_to_the_conversation(
    fake_daemon: FakeDaemon, workspace: Path
) -> None:
    problem = {
        "file": "/r/.basis/config.json",
        "line": 3,
        "column": 5,
        "kind": "config_invalid",
        "message": "not a word",
    }
    fake_daemon.handlers["basis/workspace/open"] = lambda _, params: {
        "path": params["path"],
        "notices": ["no key was found: basisctl connect openai"],
        "diagnostics": [problem],
    }

    done = basisctl("run", "hello", cwd=workspace)

    assert "no key was found" not in done.stderr  # the daemon says it in the stream, to every client alike
    assert "warning: /r/.basis/config.json:3:5: not a word" in done.stderr


# --- signals --------------------------------------------------------------------------------------------------------


def _started(fake_daemon: FakeDaemon, workspace: Path) -> subprocess.Popen[str]:
    run = subprocess.Popen(
        [*COMMAND, "run", "hello"], cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    fake_daemon.wait_for("basis/session/prompt")
    return run


def _waits_for_cancel(session: FakeSession, turn_id: str) -> None:
    begin(session, turn_id)
    if session.cancelled.wait(WAIT_S):
        session.finish(turn_id, "cancelled", message="cancelled by basisctl")


def test_interrupt_cancels_the_turn_and_waits_for_its_end(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Ctrl-C: the daemon rolls the turn back, and the exit code is the shell's for an interrupt."""
    fake_daemon.on_turn = _waits_for_cancel
    run = _started(fake_daemon, workspace)

    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=WAIT_S)

    assert run.returncode == 130
    assert fake_daemon.asked("basis/turn/cancel") == [{"sessionId": "session-1", "turnId": "turn-1"}]
    assert "run cancelled" in err


def test_second_interrupt_leaves_at_once(fake_daemon: FakeDaemon, workspace: Path) -> None:
    fake_daemon.on_turn = begin
    run = _started(fake_daemon, workspace)

    run.send_signal(signal.SIGINT)
    fake_daemon.wait_for("basis/turn/cancel")
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=WAIT_S)

    assert run.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_closing_the_terminal_leaves_the_turn_alone(
    number: signal.Signals, code: int, fake_daemon: FakeDaemon, workspace: Path
) -> None:
    """Only Ctrl-C cancels; a closed window or a logout does not."""
    fake_daemon.on_turn = begin
    run = _started(fake_daemon, workspace)

    run.send_signal(number)
    run.communicate(timeout=WAIT_S)

    assert run.returncode == code
    assert fake_daemon.asked("basis/turn/cancel") == []


# --- a daemon that dies ---------------------------------------------------------------------------------------------


def test_daemon_that_dies_in_the_middle_costs_nothing(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Every event once and in order, across a daemon that was killed and came back."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        for number in range(10):
            session.say(f"part {number}", f"m-{number}")
            if number in (3, 7):
                fake_daemon.die()
                session.say(f"unseen {number}", f"u-{number}")
                fake_daemon.start()
                fake_daemon.wait_for("basis/session/attach", times=2 if number == 3 else 3)
        session.finish(turn_id)

    fake_daemon.on_turn = turn

    done = basisctl("run", "--json", "--no-start", "hello", cwd=workspace)

    assert [json.loads(line) for line in done.stdout.splitlines()] == fake_daemon.sessions["session-1"].journal
    assert done.returncode == 0
    environments = [params["env"] for params in fake_daemon.asked("basis/workspace/open")]
    assert len(environments) == 3 and environments[0] == environments[2]


def test_events_sent_twice_are_shown_once(fake_daemon: FakeDaemon, workspace: Path) -> None:
    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.say("once")
        for seq in range(1, len(session.journal) + 1):
            session.resend(seq)
        session.finish(turn_id)

    fake_daemon.on_turn = turn

    done = basisctl("run", "hello", cwd=workspace)

    assert (done.returncode, done.stdout) == (0, "once\n")


def test_reader_that_lagged_attaches_again_and_misses_nothing(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """protocol.md 1: after `basis/session/lagged` the client comes back from where it was."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.say("before", "m-1")
        session.lag(2)
        session.say("after", "m-2")
        session.finish(turn_id)

    fake_daemon.on_turn = turn

    done = basisctl("run", "hello", cwd=workspace)

    assert (done.returncode, done.stdout) == (0, "before\nafter\n")


def test_prompt_whose_acceptance_was_lost_is_not_sent_twice(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """The daemon died between accepting the prompt and saying so: the running turn is recognised as ours."""
    accept = fake_daemon.handlers["basis/session/prompt"]

    def accept_and_die(connection: object, params: Json) -> None:
        accept(connection, params)  # pyright: ignore[reportArgumentType]
        fake_daemon.die()
        fake_daemon.start()
        session = fake_daemon.sessions[params["sessionId"]]
        begin(session, "turn-1")
        session.say("done")
        session.emit("run_finished", turnId="turn-1", status="ok")
        raise NoAnswer

    fake_daemon.handlers["basis/session/prompt"] = accept_and_die

    done = basisctl("run", "--no-start", "hello", cwd=workspace)

    assert (done.returncode, done.stdout) == (0, "done\n")
    assert len(fake_daemon.asked("basis/session/prompt")) == 1


def test_prompt_that_died_with_its_session_is_sent_again(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """The daemon died before it accepted: nothing of the session is left, so it is begun again under the same id."""
    accept = fake_daemon.handlers["basis/session/prompt"]

    def die_first(*_: object) -> None:
        fake_daemon.handlers["basis/session/prompt"] = accept
        fake_daemon.die()
        fake_daemon.sessions.clear()
        fake_daemon.start()
        raise NoAnswer

    fake_daemon.handlers["basis/session/prompt"] = die_first

    done = basisctl("run", "--no-start", "hello", cwd=workspace)

    assert (done.returncode, done.stdout) == (0, "the answer is 42\n")
    assert fake_daemon.asked("basis/session/new")[1]["sessionId"] == "session-1"


def test_turn_that_died_with_the_daemon_is_reported_as_interrupted(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """Nobody carries it on by itself: a tool may have run already."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        assert session.turn is not None
        session.turn["state"] = "interrupted"
        session.state = "interrupted"
        fake_daemon.die()
        fake_daemon.start()

    fake_daemon.on_turn = turn

    done = basisctl("run", "--no-start", "hello", cwd=workspace)

    assert done.returncode == 1
    assert "run interrupted" in done.stderr
    assert "next: basisctl resume session-1" in done.stderr


def test_events_too_old_to_replay_are_made_up_for(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """A snapshot with `reset` stands for what is missing; what was shown already isn't shown again."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.say("shown", "m-1")
        fake_daemon.wait_for("basis/session/prompt")
        fake_daemon.die()
        session.say("missed", "m-2")
        session.kept_from = len(session.journal) + 1
        fake_daemon.start()
        fake_daemon.wait_for("basis/session/attach", times=2)
        session.say("after", "m-3")
        session.finish(turn_id)

    attach = fake_daemon.handlers["basis/session/attach"]

    def attach_with_items(connection: object, params: Json) -> Json:
        result = attach(connection, params)  # pyright: ignore[reportArgumentType]
        if "snapshot" in result:
            texts = {"m-1": "shown", "m-2": "missed"}
            result["snapshot"]["items"] = [
                {"entryId": name, "kind": "assistant", "text": text, "messageId": name, "turnId": "turn-1"}
                for name, text in texts.items()
            ]
        return result

    fake_daemon.handlers["basis/session/attach"] = attach_with_items
    fake_daemon.on_turn = turn

    done = basisctl("run", "--no-start", "hello", cwd=workspace)

    assert (done.returncode, done.stdout) == (0, "shown\nmissed\nafter\n")
    assert "events were missed" in done.stderr


def test_session_that_is_deleted_under_its_turn_ends_the_command(fake_daemon: FakeDaemon, workspace: Path) -> None:
    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        session.emit("info_changed", state={"kind": "ended", "since": "", "detail": "deleted"})

    fake_daemon.on_turn = turn

    done = basisctl("run", "hello", cwd=workspace)

    assert done.returncode == 1
    assert "run interrupted: the session was deleted" in done.stderr


@pytest.mark.slow
def test_daemon_that_stopped_on_purpose_is_not_started_again(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """One that ends takes its socket's path away: a client that watches doesn't undo `basisctl daemon stop`."""

    def turn(session: FakeSession, turn_id: str) -> None:
        begin(session, turn_id)
        fake_daemon.path.unlink()
        fake_daemon.die()

    fake_daemon.on_turn = turn

    done = basisctl("run", "hello", cwd=workspace)

    assert done.returncode == 5
    assert "no daemon is running" in done.stderr
    assert not fake_daemon.path.exists()
    assert not (fake_daemon.path.parent.parent / "log").exists()
