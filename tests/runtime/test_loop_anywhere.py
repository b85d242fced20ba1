"""A run can be ended wherever it is, and what it leaves is whole (runtime.md 3.8)."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.limits import ProviderRetry, TurnOptions
from basis_daemon.runtime.messages import ToolResult
from basis_daemon.runtime.permissions import ApprovalAnswer, Approver
from basis_daemon.runtime.providers.errors import TransportError
from basis_daemon.runtime.providers.scripted import (
    ScriptedCall,
    ScriptedProvider,
    ScriptedTurn,
    failure,
    text,
    tool_calls,
)
from basis_daemon.runtime.store.base import AgentRecord, AnyLogRecord, ConversationLog, EntryAdded
from basis_daemon.runtime.store.volatile import VolatileStore
from basis_daemon.runtime.strategy import Continue, RoundContext, RoundDecision
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolSpec
from basis_daemon.runtime.typed_output import Accept, OutputSpec, OutputWanted
from basis_protocol.events import AssistantDelta
from support.conversations import Allow, Counter, new_conversation, roles

pytestmark = pytest.mark.anyio


class Held:
    """A place a run can be caught in: it says when it got there, and stays until it is cancelled."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.left = 0

    async def stay(self, *_: Any) -> Any:
        self.reached.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.left += 1

    async def approve(self, request: object) -> ApprovalAnswer:
        await self.stay()
        raise AssertionError

    def on_round(self, context: RoundContext) -> Awaitable[RoundDecision]:
        async def decide() -> RoundDecision:
            await self.stay()
            return Continue()

        return decide()

    def judge(self, value: object) -> Awaitable[Accept]:
        return self.stay()


BUMP = tool_calls(ScriptedCall("held", {}, id="a"), ScriptedCall("held", {}, id="b"))
SPEC = OutputSpec("x", "x", {"type": "object"}).reserve()

PHASES: dict[str, tuple[ScriptedTurn, int]] = {
    "opening": (ScriptedTurn(delay_s=3600), 0),
    "streaming": (ScriptedTurn(chunks=("a",), pending=True), 0),
    "retrying": (failure(TransportError("down")), 0),
    "exclusive tool": (BUMP, 1),
    "parallel tools": (BUMP, 2),
    "permission prompt": (BUMP, 1),
    "strategy": (text("a"), 1),
    "validator": (tool_calls(ScriptedCall(SPEC.tool_name, {})), 1),
}


@pytest.mark.parametrize("bound", ["cancel", "deadline"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_run_ends_at_once_wherever_it_is(
    model: ScriptedProvider, tmp_path: Path, phase: str, bound: str
) -> None:
    """AG-27, AG-28, D-35, PV-54: a cancel takes the turn back, a deadline the round; what was cut short is told."""
    held, cancel = Held(), CancelSignal()
    turn, most_left = PHASES[phase]
    model.push(turn)
    execution = "read_only_parallel" if phase == "parallel tools" else "exclusive_local_mutation"
    side_effect = "local_state" if phase == "permission prompt" else "none"
    tool = FunctionTool(ToolSpec("held", "x", execution=execution, side_effect=side_effect), held.stay)  # type: ignore[arg-type]
    conversation = new_conversation(model, tmp_path, tool)
    approver: Approver = held if phase == "permission prompt" else Allow()
    options = TurnOptions(
        cancel=cancel,
        deadline_s=0.05 if bound == "deadline" else None,
        strategy=held if phase == "strategy" else None,
        retry=ProviderRetry(base_delay_s=3600, max_delay_s=3600),
    )
    output = OutputWanted(SPEC, held.judge) if phase == "validator" else None

    async def cancels() -> None:
        if most_left:
            await held.reached.wait()
        elif phase == "streaming":
            while not conversation.seen(AssistantDelta):
                await anyio.lowlevel.checkpoint()
        while not model.recorded_requests():
            await anyio.lowlevel.checkpoint()
        cancel.set("enough")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            if bound == "cancel":
                tasks.start_soon(cancels)
            outcome = await conversation.session.run(
                conversation.accept("go"),
                emit=conversation.events.append,
                approver=approver,
                options=options,
                output=output,
            )

    assert held.left == most_left
    if bound == "cancel":
        assert (outcome.status, outcome.error) == ("cancelled", "enough") and roles(conversation) == []
    else:
        assert (outcome.status, outcome.stopped_by) == ("error", "deadline")
        assert roles(conversation) == (["user_turn", "assistant_turn"] if phase == "strategy" else [])
    model.push(text("still here"))
    assert (await conversation.say("hello?")).final_message == "still here"


class Counting(VolatileStore):
    """Counts what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[tuple[AnyLogRecord, ...]] = []

    def create(self, record: AgentRecord) -> ConversationLog:
        log = super().create(record)
        append = log.append

        def counted(*records: AnyLogRecord) -> None:
            self.appends.append(records)
            append(*records)

        log.append = counted  # type: ignore[method-assign]
        return log


async def test_nothing_is_written_while_an_answer_streams(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-30, D-34: a prompt, a turn's start with its message, the answer, the end; however many deltas there were."""
    store = Counting()
    model.push(ScriptedTurn(chunks=tuple(f"{number} " for number in range(1000))))
    conversation = new_conversation(model, tmp_path, store=store)
    await conversation.say("go")
    assert len(conversation.seen(AssistantDelta)) == 1000
    assert len(store.appends) == 4
    assert sum(isinstance(record, EntryAdded) for records in store.appends for record in records) == 2


async def test_the_result_of_a_run_is_its_last_message(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-16: of this run, never of one before."""
    model.push(text("first"))
    model.push(tool_calls(ScriptedCall("bump", {"n": 1}), saying="a"))
    model.push(text("b"))
    model.push(text(""))
    conversation = new_conversation(model, tmp_path, counter.tool())
    assert (await conversation.say("1")).final_message == "first"
    assert (await conversation.say("2")).final_message == "b"
    assert (await conversation.say("3")).final_message is None


async def test_a_prompt_whose_answer_was_empty_is_not_in_the_way(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-14, AG-25: nothing was committed, so the prompt is off the conversation and can be carried on."""
    model.push(text(""))
    model.push(text("now"))
    conversation = new_conversation(model, tmp_path)
    await conversation.say("hi")
    assert roles(conversation) == []
    prompt = conversation.session.agent.resumable
    assert prompt is not None
    assert (await conversation.run(prompt, resumed=True)).final_message == "now"


async def test_a_round_that_was_committed_has_a_result_for_every_call(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-28, AG-29: also for those a failing sibling or a limit kept from running."""

    async def breaks(context: ToolContext, input: dict[str, Any]) -> str:
        raise LookupError("gone")

    model.push(
        tool_calls(
            ScriptedCall("breaks", {}, id="a"), ScriptedCall("nowhere", {}, id="b"), ScriptedCall("bump", {}, id="c")
        )
    )
    model.push(text("ok"))
    conversation = new_conversation(model, tmp_path, counter.tool(), FunctionTool(ToolSpec("breaks", "x"), breaks))
    await conversation.say("go")
    results = conversation.session.agent.transcript[2].message.content
    assert [block.tool_use_id for block in results if isinstance(block, ToolResult)] == ["a", "b", "c"]
    assert all(isinstance(block, ToolResult) and block.is_error for block in results)
