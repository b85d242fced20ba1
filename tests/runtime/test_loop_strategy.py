"""What a host decides at the end of each round (runtime.md 3.5)."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.providers.errors import TransportError
from basis_daemon.runtime.providers.scripted import ScriptedCall, ScriptedProvider, failure, text, tool_calls
from basis_daemon.runtime.strategy import (
    Continue,
    EffortChange,
    Inject,
    RoundContext,
    RoundDecision,
    RoundToolResult,
    Stop,
)
from basis_protocol.events import UserMessage
from support.conversations import Counter, new_conversation, roles

pytestmark = pytest.mark.anyio

BUMP = tool_calls(ScriptedCall("bump", {"n": 1}, id="c1"), saying="counting")


class Strategy:
    """Decides as it was told, one after the other, and then lets things take their course."""

    def __init__(self, *decisions: RoundDecision) -> None:
        self.decisions = list(decisions)
        self.seen: list[RoundContext] = []

    def on_round(self, context: RoundContext) -> RoundDecision:
        self.seen.append(context)
        return self.decisions.pop(0) if self.decisions else Continue()


async def test_a_strategy_is_told_where_the_run_stands(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-17: at both kinds of boundary, with every attempt counted; it may be asynchronous."""
    for turn in (failure(TransportError("down")), BUMP, text("done")):
        model.push(turn)
    told = Strategy()

    class Later:
        def on_round(self, context: RoundContext) -> Awaitable[RoundDecision]:
            async def decide() -> RoundDecision:
                await anyio.lowlevel.checkpoint()
                return told.on_round(context)

            return decide()

    conversation = new_conversation(model, tmp_path, counter.tool())
    outcome = await conversation.say("go", options=TurnOptions(strategy=Later()))

    assert outcome.final_message == "done"
    first, last = told.seen
    assert (first.boundary, first.rounds_completed, first.model_requests, first.transport_retries) == (
        "tool_results_committed",
        1,
        2,
        1,
    )
    assert first.tool_results == (RoundToolResult("c1", "bump", is_error=False),)
    assert first.assistant_message.text() == "counting"
    assert (last.boundary, last.rounds_completed, last.tool_results) == ("assistant_message_committed", 2, ())


async def test_what_it_injects_is_said_as_the_user_even_behind_a_final_answer(
    model: ScriptedProvider, tmp_path: Path
) -> None:
    """AG-18."""
    model.push(text("done"))
    model.push(text("really done"))
    conversation = new_conversation(model, tmp_path)
    outcome = await conversation.say("go", options=TurnOptions(strategy=Strategy(Inject("are you sure?"))))
    assert outcome.final_message == "really done"
    assert roles(conversation) == ["user_turn", "assistant_turn", "user_turn", "assistant_turn"]
    assert [event.text for event in conversation.seen(UserMessage)] == ["go", "are you sure?"]


async def test_it_may_end_the_run_after_a_round_of_calls(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-18: successfully, with what was said on the way."""
    model.push(BUMP)
    conversation = new_conversation(model, tmp_path, counter.tool())
    outcome = await conversation.say("go", options=TurnOptions(strategy=Strategy(Stop())))
    assert (outcome.status, outcome.final_message, outcome.stopped_by) == ("ok", "counting", None)
    assert counter.ran == [{"n": 1}]


async def test_it_may_change_how_hard_the_model_thinks_for_this_run_alone(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-18: keep, set, clear; the session's own effort stays, also on disk."""
    for turn in (BUMP, BUMP, BUMP, text("done"), text("again")):
        model.push(turn)
    conversation = new_conversation(model, tmp_path, counter.tool())
    conversation.session.agent.change(effort="low")
    strategy = Strategy(Continue(EffortChange("high")), Continue(), Inject("more", EffortChange(None)))

    await conversation.say("go", options=TurnOptions(strategy=strategy))
    await conversation.say("and?")

    efforts = [request.effort for request in model.recorded_requests()]
    assert efforts == ["low", "high", "high", None, "low"]
    assert conversation.session.agent.record.effort == "low"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_strategy_that_raises_fails_the_run(model: ScriptedProvider, tmp_path: Path, is_async: bool) -> None:
    """AG-19: the round before it stays."""

    def broken(context: RoundContext) -> RoundDecision:
        raise ValueError("no idea")

    async def later(context: RoundContext) -> RoundDecision:
        return broken(context)

    class Broken:
        on_round: Callable[..., RoundDecision | Awaitable[RoundDecision]] = staticmethod(later if is_async else broken)

    model.push(text("done"))
    conversation = new_conversation(model, tmp_path)
    outcome = await conversation.say("go", options=TurnOptions(strategy=Broken()))
    assert outcome.status == "error" and "no idea" in (outcome.error or "")
    assert roles(conversation) == ["user_turn", "assistant_turn"]
