"""What a host does with one conversation: values, queues, branches, carrying on (workspace.md 4.2, 4.7, 4.11)."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from basis_daemon.errors import EmptyPrompt, NothingToResume
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import Json, Text, image_url
from basis_daemon.runtime.prompts import new_prompt
from basis_daemon.runtime.reports import OutputFailure
from basis_daemon.runtime.transcript import UnknownEntry
from basis_daemon.runtime.typed_output import Accept, OutputMismatch, OutputMissing, OutputSpec, Reject
from basis_daemon.workspace.run import PreparedRun
from basis_protocol.events import AnyEvent, Branched, Notice, RunFinished, RunStarted, UserMessage
from support.model_server import Scripted, calls, fails, says, tool
from support.sdk import Person, say, scene

pytestmark = pytest.mark.anyio


class Bug(msgspec.Struct):
    line: int
    what: str = ""


def gives(value: dict[str, Any]) -> Scripted:
    """A turn that answers through whichever answering tool is offered."""
    return lambda request: calls(
        *[tool(name, value) for name in request.tool_names if name.startswith("basis_terminal_")]
    )


def wanted(run: PreparedRun, events: list[AnyEvent], kind: Any, **more: Any) -> Any:
    return run.output("which bug?", kind, emit=events.append, approver=Person(), **more)


async def test_a_turn_can_end_with_a_value_of_a_type(tmp_path: Path) -> None:
    """OU-1, OU-2, OU-4, RS-2: between the same bookends; the report has no final message."""
    events: list[AnyEvent] = []
    async with scene(tmp_path, calls(tool("ls", {})), gives({"line": 3, "what": "off by one"})) as on:
        run = on.workspace.prepare()
        done = await wanted(run, events, Bug, keeps_tools=True)
        with pytest.raises(EmptyPrompt):
            await run.output(" ", Bug, emit=events.append, approver=Person())
        run.close()

    assert done.value == Bug(3, "off by one")
    assert (done.report.succeeded, done.report.final_message) == (True, None)
    assert isinstance(events[0], RunStarted) and isinstance(events[-1], RunFinished) and events[-1].status == "ok"


async def test_a_value_of_another_type_is_a_failed_turn_with_its_report(tmp_path: Path) -> None:
    """OU-3: `run_finished` says error before the exception is seen."""
    events: list[AnyEvent] = []
    async with scene(tmp_path, gives({"line": "three"}), says("which one?")) as on:
        run = on.workspace.prepare()
        with pytest.raises(OutputFailure) as mismatch:
            await wanted(run, events, Bug)
        with pytest.raises(OutputFailure) as missing:
            await wanted(run, events, Bug)
        run.close()

    assert isinstance(mismatch.value.__cause__, OutputMismatch) and isinstance(missing.value.__cause__, OutputMissing)
    assert (mismatch.value.report.status, mismatch.value.report.model) == ("error", "scripted")
    assert [event.status for event in events if isinstance(event, RunFinished)] == ["error", "error"]


async def test_a_validator_sees_each_try(tmp_path: Path) -> None:
    """AG-48, SE-3: also with a reserved name, made ahead of the turn."""

    def judge(value: Json) -> Accept | Reject:
        return Accept({**value, "what": "seen"}) if value["line"] else Reject("lines begin at 1")

    reservation = OutputSpec.of(Bug).reserve()
    events: list[AnyEvent] = []
    async with scene(tmp_path, gives({"line": 0}), gives({"line": 1})) as on:
        run = on.workspace.prepare()
        done = await wanted(run, events, reservation, validator=judge)
        run.close()
        offered = on.server.requests[0].tool_names

    assert done.value == {"line": 1, "what": "seen"} and offered == [reservation.tool_name]


async def test_a_cancelled_typed_turn_is_told_from_a_failed_one(tmp_path: Path) -> None:
    """TO-1, OU-3."""
    options, cancel = TurnOptions().cancellable()
    cancel.set("changed my mind")
    async with scene(tmp_path) as on:
        run = on.workspace.prepare()
        with pytest.raises(OutputFailure, match="changed my mind") as caught:
            await wanted(run, [], Bug, options=options)
        run.close()
    assert caught.value.report.status == "cancelled"


async def test_a_failed_turn_is_carried_on(tmp_path: Path) -> None:
    """AG-6, AG-49, D-41, SE-12: under options of its own; once there is nothing left of it, that is said."""
    async with scene(tmp_path, fails(400), says("now")) as on:
        run = on.workspace.prepare()
        events: list[AnyEvent] = []
        with pytest.raises(NothingToResume):
            await run.resume_turn(emit=events.append, approver=Person())
        failed = await say(run, "go")
        report = await run.resume_turn(emit=events.append, approver=Person(), options=TurnOptions(deadline_s=20))
        with pytest.raises(NothingToResume):
            await run.resume_turn(emit=events.append, approver=Person())
        run.close()
    assert failed.report.failure is not None and failed.report.failure.category == "terminal"
    assert (report.final_message, report.failure) == ("now", None)


async def test_what_was_queued_runs_one_after_the_other(tmp_path: Path) -> None:
    """AG-24: accepted prompts first, then what was said and no turn has taken; then there is nothing."""
    async with scene(tmp_path, says("one"), says("two"), says("three")) as on:
        run = on.workspace.prepare()
        events: list[AnyEvent] = []
        person = Person()
        await say(run, "first")
        run.accept(new_prompt("second"))
        run.steering.follow_up("third")
        second = await run.run_queued(emit=events.append, approver=person)
        third = await run.run_queued(emit=events.append, approver=person)
        run.close()
    assert second is not None and second.final_message == "three"
    assert [event.text for event in events if isinstance(event, UserMessage)] == ["second", "third"]
    assert third is None


async def test_only_what_was_said_can_start_a_run_too(tmp_path: Path) -> None:
    """AG-24."""
    async with scene(tmp_path, says("one")) as on:
        run = on.workspace.prepare()
        run.steering.steer("by the way")
        report = await run.run_queued(emit=lambda event: None, approver=Person())
        run.close()
    assert report is not None and report.final_message == "one"


async def test_a_conversation_can_be_taken_another_way(tmp_path: Path) -> None:
    """BR-1, BR-2, BR-3: alternatives are told of and can be gone back to."""
    async with scene(tmp_path, says("A"), says("B"), says("C")) as on:
        run = on.workspace.prepare()
        events: list[AnyEvent] = []
        await say(run, "a")
        fork = run.leaf
        await say(run, "b")
        with pytest.raises(UnknownEntry):
            run.branch_from("entry-0-0")
        assert run.branch_from(fork, emit=events.append) == 2
        await say(run, "c")
        run.close()
        said = on.server.requests[2].conversation
    assert events == [Branched(entry_id=fork, abandoned_entries=2)]
    assert said == [("user", "a"), ("assistant", "A"), ("user", "c")]
    assert [entry.message.text() for entry in run.abandoned] == ["b", "B"]
    assert [entry.message.text() for entry in run.children(fork)] == ["b", "c"]


async def test_a_prompt_may_be_blocks(tmp_path: Path) -> None:
    """AG-3: text, one block, several; none at all is no prompt, and nothing is written then."""
    async with scene(tmp_path, says("1"), says("2")) as on:
        run = on.workspace.prepare()
        events: list[AnyEvent] = []
        with pytest.raises(EmptyPrompt):
            await run.send([], emit=events.append, approver=Person())
        assert not run.is_persisted and events == []
        await run.send(Text("one"), emit=events.append, approver=Person())
        await run.send(["see", image_url("https://x.test/a.png")], emit=events.append, approver=Person())
        run.close()
    told = [event for event in events if isinstance(event, UserMessage)]
    assert [(event.text, event.image_count) for event in told] == [("one", 0), ("see", 1)]


async def test_a_stop_ahead_of_the_answer_is_no_failure_and_no_answer(tmp_path: Path) -> None:
    """TO-2, TO-3, TO-4: ok, nothing as its final message, a notice, and the tool's work stays."""
    options, stop = TurnOptions().stoppable()

    class Stopping(Person):
        async def approve(self, request: Any) -> Any:
            stop.set("enough")
            return await super().approve(request)

    async with scene(tmp_path, says("let me") + calls(tool("write", {"path": "n.txt", "content": "x"}))) as on:
        run = on.workspace.prepare()
        told = await say(run, "go", Stopping(), options)
        run.close()
        assert (on.repo / "n.txt").read_text() == "x"
    assert (told.report.status, told.report.final_message, told.report.stopped_by) == ("ok", None, "stop_requested")
    assert "ended before its answer" in told.of(Notice)[-1].message


async def test_a_turn_cancelled_before_it_began_leaves_nothing(tmp_path: Path) -> None:
    """TO-2."""
    cancel = CancelSignal()
    cancel.set()
    async with scene(tmp_path) as on:
        run = on.workspace.prepare()
        with anyio.fail_after(5):
            told = await say(run, "go", options=TurnOptions(cancel=cancel))
        run.close()
    assert told.report.status == "cancelled" and len(run.transcript) == 0
