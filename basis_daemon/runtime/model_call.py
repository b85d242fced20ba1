"""One answer of the model: request, stream, try again, commit, report usage (runtime.md 2.11, 3.4).

Owns what happens between a round's begin and its committed assistant message. Emits text as it comes; nothing is
committed before the answer is whole.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from itertools import count

import msgspec

from basis_daemon.runtime.messages import Json, Message
from basis_daemon.runtime.observers import RuntimeEventKind
from basis_daemon.runtime.providers.base import ProviderWait, Request, TextDelta, ThinkingDelta, TokenUsage
from basis_daemon.runtime.providers.errors import MalformedStream, ProviderError, StreamCut
from basis_daemon.runtime.providers.streamed import StreamedMessage
from basis_daemon.runtime.tool_host import available_choice
from basis_daemon.runtime.turn import Turn
from basis_protocol.events import (
    AssistantDelta,
    AssistantMessage,
    AssistantReasoningDelta,
    InfoChanged,
    Notice,
    Retry,
    SessionState,
    Usage,
    UsageReported,
)

_message_ids = count(1)
_MESSAGE_PREFIX = f"msg-{os.urandom(4).hex()}"


async def ask_model(turn: Turn) -> Message:
    """Get, commit and announce one assistant message, trying again as the retry budget allows (PV-52, PV-55)."""
    retry = turn.meter.options.retry
    attempt = 0
    while True:
        attempt += 1
        message_id = f"{_MESSAGE_PREFIX}-{next(_message_ids):x}"
        turn.meter.begin_request()
        _notify(turn, "model_request_started", attempt=attempt)
        try:
            streamed = await _stream(turn, message_id)
        except ProviderError as error:
            _notify(turn, "model_request_finished", attempt=attempt, outcome="error", error=error.kind)
            if not error.is_transient or attempt > retry.budget:
                raise
            delay_s = max(retry.delay_s(attempt, error.retry_after_s), error.held_s)
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
            if delay_s > error.held_s:  # else the request waits in its lane, where it keeps its place
                await asyncio.sleep(delay_s)
        else:
            _notify(turn, "model_request_finished", attempt=attempt, outcome="ok")
            message = _commit_answer(turn, streamed, message_id)
            _notify(turn, "model_response_finished", stop_reason=streamed.stop_reason, calls=len(message.tool_uses()))
            return message


def _notify(turn: Turn, kind: RuntimeEventKind, **payload: Json) -> None:
    observers = turn.calls.host.observers
    observers.notify(kind, turn.agent.id, provider=turn.provider.id, model=turn.model, turn_id=turn.id, **payload)


def _system(turn: Turn) -> str | None:
    """What the host said, then the skills there are now (AG-2)."""
    skills = turn.calls.host.skill_list(turn.provider.limits)
    return "\n\n".join(part for part in (turn.system, skills) if part) or None


async def _stream(turn: Turn, message_id: str) -> StreamedMessage:
    tools = turn.calls.host.definitions(turn.provider.limits)
    request = Request(
        model=turn.model,
        messages=turn.agent.transcript.messages(),
        system=_system(turn),
        tools=tools,
        tool_choice=available_choice(turn.tool_choice, tools),
        max_output_tokens=turn.max_output_tokens,
        effort=turn.effort,
        session_id=turn.agent.id,
        turn_id=turn.id,
        options=turn.request_options,
        on_wait=lambda wait: turn.emit(InfoChanged(state=_state(wait))),
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
    _report_usage(turn, streamed)
    if streamed.stop_reason == "max_tokens":
        turn.emit(Notice(severity="warning", message="the answer was cut off at the model's output limit"))
    return message


def _report_usage(turn: Turn, streamed: StreamedMessage) -> None:
    usage = streamed.usage
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
    model = streamed.model or turn.model
    cost = _cost(turn, model, usage, reported)
    if cost is not None:
        reported = msgspec.structs.replace(reported, cost_nano_usd=cost, priced_tokens=reported.total_tokens)
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
            model=model,
            cost_nano_usd=cost,
        )
    )


def _cost(turn: Turn, model: str, usage: TokenUsage, reported: Usage) -> int | None:
    """What the response cost. Kept with the usage: a price that changes later changes no past. Not known where one side
    of it was not counted; what tools of the vendor's own read is paid for as input."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    billed = msgspec.structs.replace(reported, input_tokens=usage.input_tokens + (usage.tool_input_tokens or 0))
    tier = turn.request_options.responses.service_tier
    # Lists give the standard price; what is asked for faster or later is billed otherwise.
    return turn.pricing(turn.provider.id, model, billed) if tier in (None, "default") else None


# --- waiting for the provider ----------------------------------------------------------------------------------------


def _state(wait: ProviderWait | None) -> SessionState:
    """What the turn is doing while its request is held back, and once it no longer is."""
    since = _timestamp(datetime.now(UTC))
    if wait is None:
        return SessionState(kind="working", since=since, detail="")
    is_paused = wait.reason == "rate_limit"
    why = "the provider asked for a pause" if is_paused else "enough requests are under way"
    ahead = f"{wait.ahead} {'requests go' if wait.ahead > 1 else 'request goes'} first" if wait.ahead else ""
    return SessionState(
        kind="waiting_provider",
        since=since,
        detail=", ".join(filter(None, (why, ahead))),
        until=None if wait.until is None else _timestamp(datetime.fromtimestamp(wait.until, UTC)),
        cause=wait.reason,
    )


def _timestamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
