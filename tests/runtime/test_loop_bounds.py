"""What ends a turn early, and what is said to it meanwhile (runtime.md 3.3, 3.7, workspace.md 4.4-4.5)."""

from pathlib import Path

import anyio
import pytest

from basis_daemon.runtime.cancel import CancelSignal, StopSignal
from basis_daemon.runtime.limits import TurnOptions
from basis_protocol.events import (
    AssistantDelta,
    Branched,
    UserMessage,
)
from support.conversations import Allow, Conversation, Counter, new_conversation, roles
from support.model_server import Gate, ModelServer, calls, hangs, rate_limits, says, slow, tool

pytestmark = pytest.mark.anyio


async def test_cancelling_leaves_the_conversation_as_it_was_before_the_prompt(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """TO-2: rounds of the cancelled turn are off the path, and watchers are told."""
    counter.leave.clear()
    server.script(says("hello"), calls(tool("bump", {"n": 1})))
    conversation = new_conversation(server, tmp_path, counter.tool())
    await conversation.say("first")
    cancel = CancelSignal()

    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            await counter.entered.wait()
            cancel.set("asked to")

        tasks.start_soon(stop)
        with anyio.fail_after(5):
            outcome = await conversation.say("second", options=TurnOptions(cancel=cancel))

    assert outcome.status == "cancelled"
    assert roles(conversation) == ["user_turn", "assistant_turn"]
    assert conversation.seen(Branched)[0].abandoned_entries == 2


@pytest.mark.parametrize("where", ["opening", "streaming", "waiting to retry"])
async def test_cancelling_interrupts_the_provider_wherever_it_is(
    server: ModelServer, tmp_path: Path, where: str
) -> None:
    """AG-27, PV-54."""
    server.script({"opening": hangs(), "streaming": hangs(says("a", "b"), after_deltas=1)}.get(where, rate_limits(50)))
    conversation = new_conversation(server, tmp_path)
    cancel = CancelSignal()

    async def stop() -> None:
        await server.request(0)
        if where != "opening":
            await server.ending(0) if where == "waiting to retry" else await wait_for(conversation, AssistantDelta)
        cancel.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        with anyio.fail_after(5):
            prompt = conversation.accept("hi")
            outcome = await conversation.session.run(
                prompt,
                emit=conversation.events.append,
                approver=Allow(),
                options=TurnOptions(cancel=cancel),
            )
    assert outcome.status == "cancelled"
    if where != "waiting to retry":
        assert (await server.ending(0)).how == "client_left"


async def wait_for(conversation: Conversation, kind: type) -> None:
    while not conversation.seen(kind):
        await anyio.lowlevel.checkpoint()


async def test_a_deadline_ends_the_turn_and_is_named(server: ModelServer, tmp_path: Path) -> None:
    """BD-2."""
    server.script(hangs())
    conversation = new_conversation(server, tmp_path)
    with anyio.fail_after(5):
        outcome = await conversation.say("hi", options=TurnOptions(deadline_s=0.05))
    assert (outcome.status, outcome.stopped_by) == ("error", "deadline")


async def test_a_tool_budget_admits_a_batch_as_a_unit(server: ModelServer, tmp_path: Path, counter: Counter) -> None:
    """TL-31."""
    server.script(calls(tool("bump", {"n": 1}), tool("bump", {"n": 2})))
    conversation = new_conversation(server, tmp_path, counter.tool())
    outcome = await conversation.say("go", options=TurnOptions(tool_budget=1))
    assert (outcome.status, outcome.stopped_by) == ("error", "tool_budget")
    assert counter.ran == []


async def test_a_token_budget_lets_the_crossing_round_finish(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """BD-3, TO-3: graceful, everything kept, no final message."""
    server.script(calls(tool("bump", {"n": 1})))
    conversation = new_conversation(server, tmp_path, counter.tool())
    outcome = await conversation.say("go", options=TurnOptions(token_budget=1))
    assert (outcome.status, outcome.stopped_by, outcome.final_message) == ("ok", "token_budget", None)
    assert counter.ran == [{"n": 1}] and roles(conversation)[-1] == "tool_exchange"


async def test_a_stop_ends_the_turn_at_the_round_boundary(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AG-10, TO-2."""
    stop = StopSignal()
    counter.leave.clear()
    server.script(calls(tool("bump", {"n": 1})))
    conversation = new_conversation(server, tmp_path, counter.tool())

    async def later() -> None:
        await counter.entered.wait()
        stop.set()
        counter.leave.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(later)
        outcome = await conversation.say("go", options=TurnOptions(stop=stop))

    assert (outcome.status, outcome.stopped_by) == ("ok", "stop_requested")
    assert counter.ran == [{"n": 1}] and roles(conversation)[-1] == "tool_exchange"


async def test_steering_is_said_after_the_round_in_which_it_came(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AG-23, AG-24."""
    counter.leave.clear()
    server.script(calls(tool("bump", {"n": 1})), says("as you wish"))
    conversation = new_conversation(server, tmp_path, counter.tool())

    async def steer() -> None:
        await counter.entered.wait()
        conversation.session.steer(conversation.accept("rather not"))
        counter.leave.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(steer)
        outcome = await conversation.say("go")

    assert outcome.final_message == "as you wish"
    assert server.requests[1].prompt == "rather not"
    assert conversation.session.agent.queued == []
    assert [event.text for event in conversation.seen(UserMessage)] == ["go", "rather not"]


async def test_steering_that_comes_with_the_last_answer_is_answered_too(server: ModelServer, tmp_path: Path) -> None:
    """AG-13."""
    gate = Gate()
    server.script(slow(says("one", " two"), gate=gate, before=1), says("three"))
    conversation = new_conversation(server, tmp_path)

    async def steer() -> None:
        await gate.arrival()
        conversation.session.steer(conversation.accept("and then?"))
        gate.open()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(steer)
        outcome = await conversation.say("go")

    assert outcome.final_message == "three"
    assert roles(conversation) == ["user_turn", "assistant_turn", "user_turn", "assistant_turn"]
