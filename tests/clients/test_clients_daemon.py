"""`basisctl` against the real daemon and a scripted model over HTTP: whole prompts, end to end."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from basis_protocol.asks import Ask
from basis_protocol.events import RunFinished, SessionEvent, ToolCompleted
from basis_protocol.lifecycle import DaemonStatusResult
from basis_protocol.sessions import HistoryItem, SessionInfo
from support.command_line import COMMAND, WAIT_S, Terminal, basisctl
from support.model_server import Gate, ModelServer, calls, says, slow, tool


@pytest.fixture(autouse=True)
def ended_daemon(workspace: Path) -> Iterator[None]:
    """Ends the daemon that the test's first command has started."""
    yield
    basisctl("daemon", "stop", "--now", cwd=workspace)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A model whose script is filled by the test (`script`); its address is in the environment of what is run."""
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        yield server


EDIT = calls(tool("edit", {"path": "app.py", "old_string": "DELAY = 2", "new_string": "DELAY = 0.2"}))


@pytest.fixture
def app(workspace: Path) -> Path:
    path = workspace / "app.py"
    path.write_text("DELAY = 2\n")
    return path


def _daemon_pid(workspace: Path) -> int | None:
    """The running daemon's process; `None` while there is none."""
    return json.loads(basisctl("status", "--json", cwd=workspace).stdout).get("pid")


def _events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_prompt_is_answered_and_the_conversation_continued(model: ModelServer, workspace: Path) -> None:
    model.script(says("It is ", "42."), says("Twice that."))

    first = basisctl("run", "what is it?", cwd=workspace)
    second = basisctl("run", "--session", "last", "and doubled?", cwd=workspace)
    shown = basisctl("show", "last", cwd=workspace).stdout

    assert (first.returncode, first.stdout) == (0, "It is 42.\n")
    assert (second.returncode, second.stdout) == (0, "Twice that.\n")
    assert (
        shown.index("what is it?") < shown.index("It is 42.") < shown.index("and doubled?") < shown.index("Twice that.")
    )
    assert len(basisctl("sessions", "--json", cwd=workspace).stdout.splitlines()) == 1


def test_edit_without_a_person_is_denied_and_does_not_happen(model: ModelServer, workspace: Path, app: Path) -> None:
    """The effect is checked, not the message."""
    model.script(EDIT, says("I was not allowed to."))

    done = basisctl("run", "make it faster", cwd=workspace)

    assert done.returncode == 4
    assert done.stdout == "I was not allowed to.\n"
    assert app.read_text() == "DELAY = 2\n"


def test_edit_is_shown_as_a_diff_and_happens_when_allowed(model: ModelServer, workspace: Path, app: Path) -> None:
    model.script(EDIT, says("Done."))

    with Terminal(["run", "make it faster"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        assert "+DELAY = 0.2" in terminal.shown and "-DELAY = 2" in terminal.shown
        assert app.read_text() == "DELAY = 2\n"
        terminal.press("y")
        terminal.until("Done.")
        assert terminal.exit_code() == 0

    assert app.read_text() == "DELAY = 0.2\n"


def test_reason_of_a_denial_is_what_the_model_reads(model: ModelServer, workspace: Path, app: Path) -> None:
    model.script(EDIT, says("Understood."))

    with Terminal(["run", "make it faster"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        terminal.press("r")
        terminal.until("reason: ")
        terminal.press("use a constant\n")
        terminal.until("Understood.")
        assert terminal.exit_code() == 0

    assert app.read_text() == "DELAY = 2\n"
    assert "use a constant" in json.dumps(model.requests[1].body)


def test_question_is_answered_from_another_terminal(
    model: ModelServer, workspace: Path, app: Path, tmp_path: Path
) -> None:
    """The first answer decides; the terminal that asked is told by whom."""
    model.script(EDIT, says("Done."))

    with Terminal(["run", "make it faster"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        ask = json.loads(basisctl("asks", "--json", cwd=tmp_path).stdout)
        approved = basisctl("approve", ask["askId"], cwd=tmp_path)
        terminal.until("· allowed by basisctl")
        terminal.until("Done.")
        assert terminal.exit_code() == 0
        late = basisctl("deny", ask["askId"], cwd=tmp_path)

    assert approved.returncode == 0
    assert (late.returncode, late.stderr) == (1, "basisctl: too late: allowed by basisctl\n")
    assert app.read_text() == "DELAY = 0.2\n"


def test_two_terminals_see_one_session(model: ModelServer, workspace: Path) -> None:
    gate = Gate()
    model.script(slow(says("first", " second"), gate=gate, before=1))

    with Terminal(["run", "go"], cwd=workspace) as one:
        one.until("first")
        with Terminal(["attach"], cwd=workspace) as other:
            other.until("first")
            gate.open()
            one.until("first second")
            other.until("first second")
            assert one.exit_code() == 0
            other.interrupt()
            assert other.exit_code() == 0


def test_interrupt_cancels_the_turn(model: ModelServer, workspace: Path) -> None:
    gate = Gate()
    model.script(slow(says("one", "two"), gate=gate, before=1))
    run = subprocess.Popen([*COMMAND, "run", "--json", "go"], cwd=workspace, stdout=subprocess.PIPE, text=True)
    gate.wait_arrival()

    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=WAIT_S)
    gate.open()

    assert run.returncode == 130
    assert _events(out)[-1]["event"]["status"] == "cancelled"
    state = json.loads(basisctl("sessions", "--json", cwd=workspace).stdout)["state"]["kind"]
    assert state == "idle"


def test_turn_goes_on_when_the_terminal_is_closed(model: ModelServer, workspace: Path) -> None:
    gate = Gate()
    model.script(slow(says("still ", "here"), gate=gate, before=1))
    with Terminal(["run", "go"], cwd=workspace) as terminal:
        terminal.until("still")
        terminal.close()
        terminal.process.wait(WAIT_S)
    gate.open()

    with Terminal(["attach", "last"], cwd=workspace) as terminal:
        terminal.until("still here")


@pytest.mark.slow
def test_daemon_killed_in_the_middle_leaves_a_turn_to_resume(model: ModelServer, workspace: Path) -> None:
    """`kill -9` while the answer is streamed: events have no hole and no double, and the turn is carried on."""
    gate = Gate()
    model.script(slow(says(*"abcdef"), gate=gate, before=3), says("whole again"))
    run = subprocess.Popen([*COMMAND, "run", "--json", "go"], cwd=workspace, stdout=subprocess.PIPE, text=True)
    gate.wait_arrival()

    daemon = _daemon_pid(workspace)
    assert daemon is not None
    os.kill(daemon, signal.SIGKILL)
    out, _ = run.communicate(timeout=WAIT_S)
    gate.open()
    resumed = basisctl("resume", "last", cwd=workspace)

    seqs = [event["seq"] for event in _events(out) if "seq" in event]
    assert seqs == list(range(1, len(seqs) + 1))
    assert run.returncode == 1
    assert (resumed.returncode, resumed.stdout) == (0, "whole again\n")


@pytest.mark.slow
def test_question_survives_a_killed_daemon(model: ModelServer, workspace: Path, app: Path) -> None:
    """The terminal that asked reconnects, its question still stands, and its answer carries the turn on."""
    model.script(EDIT, says("Done."))

    with Terminal(["run", "make it faster"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        before = _daemon_pid(workspace)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        terminal.until_true(lambda: _daemon_pid(workspace) not in (None, before))
        terminal.press("y")
        terminal.until("Done.")
        assert terminal.exit_code() == 0

    assert app.read_text() == "DELAY = 0.2\n"
    assert len(model.requests) == 2


def test_json_output_is_the_protocols(model: ModelServer, workspace: Path, app: Path) -> None:
    """Every line of every listing is a type of the protocol, whole and by itself."""
    model.script(calls(tool("read", {"path": "app.py"})), EDIT, says("Not allowed."), EDIT, says("Done."))

    events = basisctl("run", "--json", "make it faster", cwd=workspace)
    with Terminal(["run", "--session", "last", "again"], cwd=workspace) as terminal:
        terminal.until("[r] no, with a reason")
        asks = basisctl("asks", "--json", cwd=workspace)
        terminal.press("y")
        assert terminal.exit_code() == 0
    sessions = basisctl("sessions", "--json", cwd=workspace)
    items = basisctl("show", "last", "--json", cwd=workspace)
    status = basisctl("status", "--json", cwd=workspace)

    types = [event.event for event in _typed(events.stdout, SessionEvent)]
    assert events.returncode == 4
    assert isinstance(types[-1], RunFinished) and any(isinstance(each, ToolCompleted) for each in types)
    assert [ask.tool_name for ask in _typed(asks.stdout, Ask)] == ["edit"]
    assert [session.turns for session in _typed(sessions.stdout, SessionInfo)] == [2]
    assert {"user", "assistant", "tool"} <= {item.kind for item in _typed(items.stdout, HistoryItem)}
    assert _typed(status.stdout, DaemonStatusResult)[0].data_dir == os.environ["BASIS_DATA_DIR"]


T = TypeVar("T")


def _typed(output: str, kind: type[T]) -> list[T]:
    return [msgspec.json.decode(line, type=kind) for line in output.splitlines()]


def test_bound_ends_the_turn_with_its_own_exit_code(model: ModelServer, workspace: Path, app: Path) -> None:
    model.script(calls(tool("read", {"path": "app.py"})), says("never"))

    done = basisctl("run", "--tool-budget", "0", "look", cwd=workspace)

    assert done.returncode == 3
    assert "run stopped by tool budget" in done.stderr


def test_first_prompt_without_any_model_says_how_to_connect_one(workspace: Path) -> None:
    """Nothing configured never dead-ends."""
    done = basisctl("run", "hello", cwd=workspace)

    assert done.returncode == 0
    assert "basisctl connect" in done.stdout + done.stderr
