"""Any model, any interruption: what is left is always a conversation (runtime.md 3.8)."""

import asyncio
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basis_daemon.runtime.cancel import CancelSignal, StopSignal
from basis_daemon.runtime.limits import ProviderRetry, TurnOptions
from basis_daemon.runtime.messages import Message, ToolResult
from basis_daemon.runtime.providers.base import TokenUsage
from basis_daemon.runtime.providers.errors import InvalidRequest, TransportError
from basis_daemon.runtime.providers.scripted import (
    ScriptedCall,
    ScriptedProvider,
    ScriptedTurn,
    failure,
    text,
    tool_calls,
)
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolOutput, ToolSpec
from basis_protocol.events import ToolCompleted, ToolQueued
from support.conversations import Conversation, close_conversations, new_conversation

pytestmark = pytest.mark.anyio

Action = Literal["ok", "raise", "cancel", "stop", "steer", "follow up", "idle", "terminate", "wait"]

CALLS = st.builds(
    ScriptedCall,
    name=st.sampled_from(["act", "act", "act", "look", "nowhere"]),
    input=st.fixed_dictionaries({"do": st.sampled_from(Action.__args__)}),
    id=st.sampled_from(["a", "b", "same"]),
    raw=st.none() | st.sampled_from(["{", "[]", ""]),
)
USAGE = st.none() | st.builds(TokenUsage, st.integers(0, 40), st.integers(0, 40))
ANSWERS = (
    st.builds(lambda words, usage: ScriptedTurn(tuple(words), usage=usage), st.lists(st.text(max_size=3)), USAGE)
    | st.builds(lambda calls, word: tool_calls(*calls, saying=word), st.lists(CALLS, min_size=1, max_size=4), st.text())
    | st.sampled_from([failure(TransportError("cut"), after=["ha"]), failure(InvalidRequest("no"))])
)


@dataclass
class World:
    """What the tool does when it is called, and to whom."""

    conversation: Conversation
    cancel: CancelSignal
    stop: StopSignal


def acting(worlds: list[World], name: str, execution: Any) -> FunctionTool:
    async def act(context: ToolContext, input: dict[str, Any]) -> ToolOutput:
        world = worlds[-1]
        assert context.agent is not None
        match input.get("do"):
            case "raise":
                raise LookupError("gone")
            case "cancel":
                world.cancel.set()
                await anyio.sleep_forever()
            case "stop":
                world.stop.set()
            case "steer":
                world.conversation.session.steering.steer("and this")
            case "follow up":
                world.conversation.session.steering.follow_up("and that")
            case "idle":
                context.agent.request_idle()
            case "wait":
                await anyio.lowlevel.checkpoint()
            case _:
                pass
        return ToolOutput("done", terminate=input.get("do") == "terminate")

    return FunctionTool(ToolSpec(name, "x", execution=execution), act)


def assert_whole(messages: list[Message]) -> None:
    """AG-29: what a provider would be sent next is valid."""
    for number, message in enumerate(messages):
        uses = [use.id for use in message.tool_uses()]
        if uses:
            results = messages[number + 1].content
            assert [block.tool_use_id for block in results if isinstance(block, ToolResult)] == uses
            assert len(set(uses)) == len(uses)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    turns=st.lists(st.lists(ANSWERS, max_size=4), min_size=1, max_size=3),
    options=st.builds(
        TurnOptions,
        max_rounds=st.integers(1, 4),
        token_budget=st.none() | st.integers(1, 100),
        tool_budget=st.none() | st.integers(0, 4),
        model_budget=st.none() | st.integers(1, 4),
        rollback=st.sampled_from(["round", "run"]),
        retry=st.just(ProviderRetry(budget=1, base_delay_s=0, max_delay_s=0)),
    ),
    carries_on=st.booleans(),
)
async def test_whatever_a_model_does_the_conversation_is_whole(
    tmp_path: Path, turns: list[list[ScriptedTurn]], options: TurnOptions, carries_on: bool
) -> None:
    """AG-25, AG-28, AG-29, AG-49: after every turn, in memory and as read back, and each call has one end."""
    directory = tmp_path / os.urandom(4).hex()
    model, worlds = ScriptedProvider(), list[World]()
    store = await asyncio.to_thread(FileStore, directory)
    tools = acting(worlds, "act", "exclusive_local_mutation"), acting(worlds, "look", "read_only_parallel")
    conversation = await asyncio.to_thread(new_conversation, model, tmp_path, *tools, store=store)
    agent = conversation.session.agent
    for answers in turns:
        model._turns[len(model._requests) :] = [*answers, *[text("the end")] * 5]  # type: ignore[reportPrivateUsage]
        worlds.append(World(conversation, CancelSignal(), StopSignal()))
        bounds = replace(options, cancel=worlds[-1].cancel, stop=worlds[-1].stop)
        prompt = agent.resumable if carries_on else None
        before = len(agent.transcript)
        with anyio.fail_after(10):
            outcome = await conversation.run(
                prompt or conversation.accept("go"), options=bounds, resumed=prompt is not None
            )
        assert_whole(agent.transcript.messages())
        assert agent.transcript.pending_message() is None
        assert outcome.status in ("ok", "error", "cancelled")
        assert outcome.status != "cancelled" or len(agent.transcript) <= before
        assert agent.outcomes[outcome.turn_id] == outcome
    loaded = await asyncio.to_thread(store.peek, agent.id)
    assert loaded.transcript.messages() == agent.transcript.messages()
    assert (loaded.failed or loaded.interrupted) == agent.resumable
    ended = [event.tool_call_id for event in conversation.seen(ToolCompleted)]
    assert len(set(ended)) == len(ended)
    assert set(ended) <= {event.tool_call_id for event in conversation.seen(ToolQueued)}
    await close_conversations()
