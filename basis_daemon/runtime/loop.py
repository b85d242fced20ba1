"""One turn: request, stream, run tools, decide whether to go on (runtime.md 3.4).

Owns the order of things within a turn and what is committed when. A round is one model answer and the results of the
calls in it; it is in the log before the next begins, so a killed process loses at most the round in flight. Emits the
wire's events through a plain synchronous `emit` and never waits for who reads them.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from itertools import count

from basis_daemon.errors import EmptyAssistantResponse, InvalidToolUseInput
from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.limits import Meter
from basis_daemon.runtime.messages import Message, Text, ToolUse
from basis_daemon.runtime.providers.base import (
    Effort,
    Provider,
    Request,
    StreamedMessage,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolChoice,
)
from basis_daemon.runtime.providers.errors import MalformedStream, ProviderError, StreamCut
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.runtime.tool_calls import CallRound
from basis_protocol.asks import Actor
from basis_protocol.events import (
    AnyEvent,
    AssistantDelta,
    AssistantMessage,
    AssistantReasoningDelta,
    Notice,
    Retry,
    Usage,
    UsageReported,
    UserMessage,
)

MAX_MALFORMED_ROUNDS = 3
"""Rounds of unparsable tool input in a row after which the turn fails (AG-22)."""

_message_ids = count(1)
_MESSAGE_PREFIX = f"msg-{os.urandom(4).hex()}"


@dataclass(kw_only=True)
class Turn:
    """A running turn: what it works on, with what, and how far it has come."""

    agent: Agent
    prompt: PromptAccepted
    provider: Provider
    model: str
    system: str | None
    effort: Effort | None
    calls: CallRound
    meter: Meter
    emit: Callable[[AnyEvent], None]
    max_output_tokens: int | None = None
    resumed: bool = False
    steering: list[PromptAccepted] = field(default_factory=list[PromptAccepted])
    final_message: str | None = None
    stopped_by: str | None = None
    baseline: str | None = None
    """Leaf before the turn: where a cancelled turn rolls back to."""
    committed: str | None = None
    """Leaf after the last complete round: where a failed turn falls back to (AG-25)."""

    @property
    def id(self) -> str:
        return self.prompt.turn_id


async def run_turn(turn: Turn) -> None:
    """Run rounds until the model has no more calls, a soft bound ends the turn, or something raises.

    Raises `RunFailure` kinds. May be cancelled at any await; everything committed until then stays committed.
    """
    if _begin(turn):
        return
    # A cancel given before this turn began takes effect here, before anything of it runs.
    await asyncio.sleep(0)
    malformed_rounds = 0
    while True:
        calls = turn.agent.transcript.pending_calls()
        if not calls:
            turn.stopped_by = turn.meter.soft_bound()
            if turn.stopped_by is not None:
                return
            turn.meter.begin_round(turn.provider.limits.max_rounds)
            message = await _ask_model(turn)
            calls = message.tool_uses()
        if not calls:
            if _absorb_steering(turn):
                continue
            if not turn.final_message:
                raise EmptyAssistantResponse("the model's answer was empty")
            return
        malformed = [call for call in calls if call.malformed is not None]
        malformed_rounds = malformed_rounds + 1 if malformed else 0
        if malformed:
            _feed_back_malformed(turn, calls, malformed_rounds)
        else:
            await _run_calls(turn, calls)
        turn.committed = turn.agent.transcript.leaf_id
        _absorb_steering(turn)


def _begin(turn: Turn) -> bool:
    """Open the turn in the log. Returns whether it is complete already: cut off right behind its answer."""
    agent = turn.agent
    if not turn.resumed:
        entry = agent.begin_turn(turn.prompt)
        turn.baseline = turn.committed = entry.parent_id
        _emit_user_message(turn, turn.prompt)
        return False
    agent.resume_turn(turn.prompt)
    mine = [entry for entry in agent.transcript if entry.turn_id == turn.id]
    turn.baseline = mine[0].parent_id
    turn.committed = mine[-1].id if mine[-1].kind != "user_turn" else turn.baseline
    answers = [entry.message.text() for entry in mine if entry.kind == "assistant_turn" and entry.message.text()]
    turn.final_message = answers[-1] if answers else None
    return mine[-1].kind == "assistant_turn" and not mine[-1].message.tool_uses()


def _emit_user_message(turn: Turn, prompt: PromptAccepted) -> None:
    by = prompt.by
    turn.emit(
        UserMessage(
            text=prompt.message.text(),
            image_count=sum(not isinstance(block, Text) for block in prompt.message.content),
            turn_id=turn.id,
            by=Actor(client=by["client"], kind=by.get("kind", "sdk"), client_id=by.get("client_id")) if by else None,
        )
    )


def _absorb_steering(turn: Turn) -> bool:
    """Add what was said meanwhile as user messages (AG-13). Returns whether there was anything."""
    waiting, turn.steering = turn.steering, []
    for prompt in waiting:
        turn.agent.absorb_steering(prompt, turn.id)
        _emit_user_message(turn, prompt)
    return bool(waiting)


# --- the model -------------------------------------------------------------------------------------------------------


async def _ask_model(turn: Turn) -> Message:
    """Get, commit and announce one assistant message, trying again as the retry budget allows (PV-52, PV-55)."""
    retry = turn.meter.options.retry
    attempt = 0
    while True:
        attempt += 1
        message_id = f"{_MESSAGE_PREFIX}-{next(_message_ids):x}"
        turn.meter.begin_request()
        try:
            streamed = await _stream(turn, message_id)
        except ProviderError as error:
            if not error.is_transient or attempt > retry.budget:
                raise
            delay_s = retry.delay_s(attempt, error.retry_after_s)
            turn.emit(
                Retry(
                    agent_id=turn.agent.id,
                    error=str(error),
                    attempt=attempt,
                    max_attempts=retry.budget,
                    next_delay_ms=round(delay_s * 1000),
                    discarded_message_id=message_id,
                )
            )
            await asyncio.sleep(delay_s)
        else:
            return _commit_answer(turn, streamed, message_id)


async def _stream(turn: Turn, message_id: str) -> StreamedMessage:
    request = Request(
        model=turn.model,
        messages=turn.agent.transcript.messages(),
        system=turn.system,
        tools=turn.calls.host.definitions(turn.provider.limits),
        tool_choice=ToolChoice(),
        max_output_tokens=turn.max_output_tokens,
        effort=turn.effort,
        session_id=turn.agent.id,
    )
    streamed = StreamedMessage()
    emit = turn.emit
    events = turn.provider.stream(request)
    try:
        async for event in events:
            try:
                streamed.apply(event)
            except ValueError as error:
                raise MalformedStream(f"the provider's stream contradicts itself: {error}") from error
            if isinstance(event, TextDelta):
                emit(AssistantDelta(text=event.text, message_id=message_id))
            elif isinstance(event, ThinkingDelta):
                emit(AssistantReasoningDelta(text=event.text, message_id=message_id))
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    if not streamed.complete:
        raise StreamCut("the provider's stream ended in the middle of the answer")
    return streamed


def _commit_answer(turn: Turn, streamed: StreamedMessage, message_id: str) -> Message:
    message = turn.agent.with_unique_call_ids(streamed.message())
    text = message.text()
    if message.content:
        turn.agent.commit("assistant_turn", message, turn.id, message_id=message_id)
    if text:
        turn.final_message = text
        turn.emit(AssistantMessage(text=text, message_id=message_id))
    _report_usage(turn, streamed.usage)
    if not message.tool_uses():
        turn.committed = turn.agent.transcript.leaf_id
    if streamed.stop_reason == "max_tokens":
        turn.emit(Notice(severity="warning", message="the answer was cut off at the model's output limit"))
    return message


def _report_usage(turn: Turn, usage: TokenUsage) -> None:
    if usage == TokenUsage():
        return
    reported = Usage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_read_tokens=usage.cache_read_tokens or 0,
        cache_creation_tokens=usage.cache_creation_tokens or 0,
        reasoning_tokens=usage.reasoning_tokens or 0,
        thoughts_tokens=usage.thoughts_tokens or 0,
    )
    turn.meter.count(reported)
    turn.emit(
        UsageReported(
            agent_id=turn.agent.id,
            input_tokens=reported.input_tokens,
            output_tokens=reported.output_tokens,
            cache_read_tokens=reported.cache_read_tokens,
            cache_creation_tokens=reported.cache_creation_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            thoughts_tokens=usage.thoughts_tokens,
        )
    )


# --- tools -----------------------------------------------------------------------------------------------------------


async def _run_calls(turn: Turn, calls: list[ToolUse]) -> None:
    turn.calls.announce(calls)
    results, details = await turn.calls.run(calls)
    turn.agent.commit("tool_exchange", Message("user", list(results)), turn.id, details=details)


def _feed_back_malformed(turn: Turn, calls: list[ToolUse], rounds: int) -> None:
    """Nothing of the round runs; the model is told what was wrong with its input (AG-20)."""
    if rounds >= MAX_MALFORMED_ROUNDS:
        raise InvalidToolUseInput(f"the model sent malformed tool input {rounds} rounds in a row")
    turn.agent.commit("tool_exchange", Message("user", list(turn.calls.refuse_malformed(calls))), turn.id)
