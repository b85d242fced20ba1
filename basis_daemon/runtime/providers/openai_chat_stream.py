"""Maps what the chat/completions wire streams (PV-48), in the many ways compatible servers do.

Owns which block a delta belongs to and when the answer is complete.
"""

import secrets
from typing import Any

import msgspec

from basis_daemon.runtime.providers.base import (
    BlockStarted,
    BlockStopped,
    MessageDelta,
    MessageStopped,
    ProviderEvent,
    ResponseStarted,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.errors import MalformedStream, StreamCut
from basis_daemon.runtime.providers.failures import Target, from_stream
from basis_daemon.runtime.providers.openai_shapes import (
    CallDelta,
    ChatChunk,
    ChatDelta,
    ChatUsage,
    ErrorShape,
    Function,
    OddError,
)
from basis_daemon.runtime.providers.sse import SseEvent
from basis_daemon.runtime.providers.wire import Batch, count, json_text

Json = dict[str, Any]

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}

_decode = msgspec.json.Decoder(ChatChunk).decode
_decode_error = msgspec.json.Decoder(ErrorShape).decode
"""Of an event that is one by its name alone."""


class _Call:
    """A tool call under way; its block starts once its name is known."""

    __slots__ = ("held", "id", "index", "name")

    def __init__(self) -> None:
        self.index: int | None = None
        self.id: str | None = None
        self.name = ""
        self.held: list[str] = []


class ChatMapper:
    """Maps one answer's chunks. Text and reasoning take turns; calls stay open, because their deltas may alternate."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._batch = Batch()
        self._next_index = 0
        self._prose: tuple[str, int] | None = None
        self._calls: list[_Call] = []
        self._by_wire_index: dict[int, _Call] = {}
        self._finish_reason: str | None = None
        self._was_refused = False
        self._has_started = False
        self.is_complete = False

    def feed(self, events: list[SseEvent]) -> list[ProviderEvent]:
        for name, data in events:
            try:
                chunk = _decode(data)
            except (msgspec.DecodeError, RecursionError) as error:
                raise MalformedStream(f"{self._target.label} sent an event that can't be read") from error
            if not self._has_started:
                self._has_started = True
                self._batch.add(ResponseStarted(chunk.id, chunk.model))
            if chunk.error is not None or name == b"error":
                self._fail(_decode_error(data) if chunk.error is None else chunk.error)
            if chunk.choices:
                choice = chunk.choices[0]
                if choice.delta is not None:
                    self._delta(choice.delta)
                if choice.finish_reason:
                    self._finish_reason = choice.finish_reason
            if chunk.usage is not None:
                self._batch.add(MessageDelta(usage=_usage(chunk.usage)))
        return self._batch.take()

    def finish(self, *, marked: bool) -> list[ProviderEvent]:
        if not marked and self._finish_reason is None:
            raise StreamCut(f"{self._target.label} ended the stream in the middle of the answer")
        self._close_prose()
        for call in self._calls:
            self._start(call)
            self._batch.add(BlockStopped(call.index or 0))
        self._batch.add(MessageDelta(stop_reason=self._stop_reason()))
        self._batch.add(MessageStopped())
        self.is_complete = True
        return self._batch.take()

    def _stop_reason(self) -> str:
        reason = self._finish_reason or "stop"
        if reason == "stop" and self._calls:  # some servers end calls like prose
            return "tool_use"
        return "refusal" if reason == "stop" and self._was_refused else _STOP_REASONS.get(reason, reason)

    def _delta(self, delta: ChatDelta) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._batch.delta(ThinkingDelta, self._prose_block("thinking"), thought)
        if delta.content:
            self._batch.delta(TextDelta, self._prose_block("text"), delta.content)
        if delta.refusal:
            self._was_refused = True
            self._batch.delta(TextDelta, self._prose_block("text"), delta.refusal)
        for part in delta.tool_calls or ():
            self._close_prose()
            self._call_delta(part)

    def _prose_block(self, kind: Any) -> int:
        if self._prose is not None and self._prose[0] == kind:
            return self._prose[1]
        self._close_prose()
        index = self._new_index()
        self._prose = (kind, index)
        self._batch.add(BlockStarted(index, kind))
        return index

    def _close_prose(self) -> None:
        if self._prose is not None:
            self._batch.add(BlockStopped(self._prose[1]))
            self._prose = None

    def _call_delta(self, part: CallDelta) -> None:
        call = self._call_of(part)
        function = part.function or Function()
        call.id = call.id or part.id
        if call.index is None:
            call.name += function.name or ""
        if call.name and call.id:
            self._start(call)
        text = _argument_text(function.arguments)
        if text and call.index is not None:
            self._batch.delta(ToolInputDelta, call.index, text)
        elif text:
            call.held.append(text)

    def _call_of(self, part: CallDelta) -> _Call:
        """The call a delta belongs to: by its index, unless another id shows that the server reuses indices."""
        known = self._by_wire_index.get(part.index or 0)
        if known is not None and (not part.id or known.id in (None, part.id)):
            return known
        call = _Call()
        self._calls.append(call)
        self._by_wire_index[part.index or 0] = call
        return call

    def _start(self, call: _Call) -> None:
        if call.index is not None:
            return
        call.index = self._new_index()
        self._batch.add(BlockStarted(call.index, "tool_use", call.id or f"call_{secrets.token_hex(8)}", call.name))
        for text in call.held:
            self._batch.delta(ToolInputDelta, call.index, text)

    def _new_index(self) -> int:
        self._next_index += 1
        return self._next_index - 1

    def _fail(self, error: ErrorShape | OddError) -> None:
        if not isinstance(error, ErrorShape):
            raise from_stream(self._target, None, error)
        raise from_stream(self._target, error.code or error.type, error.message)


def _argument_text(arguments: str | Json | None) -> str:
    """The argument text of a delta; some servers send an object where the wire has a string."""
    return arguments if isinstance(arguments, str) else json_text(arguments) if arguments else ""


def _usage(usage: ChatUsage) -> TokenUsage:
    cached, reasoned = usage.prompt_tokens_details, usage.completion_tokens_details
    return TokenUsage(
        input_tokens=count(usage.prompt_tokens),
        output_tokens=count(usage.completion_tokens),
        total_tokens=count(usage.total_tokens),
        cache_read_tokens=count(cached.cached_tokens) if cached else None,
        cache_creation_tokens=count(cached.cache_write_tokens) if cached else None,
        reasoning_tokens=count(reasoned.reasoning_tokens) if reasoned else None,
    )
