"""Maps what the Messages wire streams (2.10).

Owns the order of blocks and what is kept of them. What the vendor does itself in between (searching tools or the web)
is told as hosted blocks; kinds of blocks that are not known are passed over (PV-16, PV-46).
"""

from collections.abc import Callable
from typing import ClassVar

import msgspec

from basis_daemon.runtime.messages import HostedBlock, Provenance
from basis_daemon.runtime.providers.anthropic_hosted import asking, begun, found, input_of
from basis_daemon.runtime.providers.anthropic_shapes import (
    BlockShape,
    ErrorShape,
    MessagesEvent,
    MessageShape,
    StopDetails,
    TypedOnly,
)
from basis_daemon.runtime.providers.anthropic_usage import Counts
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    BlockStopped,
    HostedUpdate,
    MessageDelta,
    MessageStopped,
    ProviderEvent,
    ResponseStarted,
    TextDelta,
    ThinkingDelta,
    ThinkingSealed,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.errors import AnswerBlocked, MalformedStream, StreamCut
from basis_daemon.runtime.providers.failures import Target, from_stream
from basis_daemon.runtime.providers.sse import SseEvent
from basis_daemon.runtime.providers.wire import Batch, Delta, json_text

_STOP_REASONS = {"stop_sequence": "end_turn", "model_context_window_exceeded": "max_tokens"}
"""Theirs that have another name here; the others are the same words."""

_decode = msgspec.json.Decoder(MessagesEvent).decode
_decode_type = msgspec.json.Decoder(TypedOnly).decode


class _Block:
    """An open block: its number here, what its deltas are, and what it is made of so far that can't go out yet."""

    __slots__ = ("asked", "has_delta", "index", "kind", "seal", "start")

    def __init__(self, index: int, kind: Delta, start: BlockShape) -> None:
        self.index = index
        self.kind = kind
        self.start = start
        self.has_delta = False
        self.seal = start.signature or None
        self.asked: list[str] = []
        """The input of something the vendor runs itself."""


class MessagesMapper:
    """Maps one answer's events. Blocks are found by the wire's positions and numbered by us (PV-13)."""

    def __init__(self, target: Target, provenance: Provenance) -> None:
        self._target = target
        self._provenance = provenance
        self._batch = Batch()
        self._blocks: dict[int, _Block | None] = {}
        """By the wire's position; `None` for one that is passed over."""
        self._hosted: dict[str, tuple[int, HostedBlock]] = {}
        """By the vendor's id: our number, and what is known; open until the result is there."""
        self._next_index = 0
        self._counts = Counts()
        self._stop_reason: str | None = None
        self._stop_details: StopDetails | None = None
        self._has_started = self._has_spoken = self._has_called = False
        self.is_complete = False

    def feed(self, events: list[SseEvent]) -> list[ProviderEvent]:
        for name, data in events:
            if self.is_complete:
                break
            try:
                event = _decode(data)
            except (msgspec.DecodeError, RecursionError) as error:
                if self._is_unknown(data):
                    continue
                raise MalformedStream(f"{self._target.label} sent an event that can't be read") from error
            handler = self._HANDLERS.get(event.type or name.decode("utf-8", "replace"))
            if handler is not None:
                handler(self, event)
            elif event.error is not None:
                self._on_error(event)
        return self._batch.take()

    def finish(self, *, marked: bool) -> list[ProviderEvent]:
        raise StreamCut(f"{self._target.label} ended the stream in the middle of the answer")

    def _is_unknown(self, data: bytes) -> bool:
        """Whether an event that doesn't fit is of a type this adapter has no use for (PV-16)."""
        try:
            return _decode_type(data).type not in {"", *self._HANDLERS}
        except (msgspec.DecodeError, RecursionError):
            return False

    # --- the message

    def _on_start(self, event: MessagesEvent) -> None:
        message = event.message or MessageShape()
        if not self._has_started:
            self._has_started = True
            self._batch.add(ResponseStarted(message.id, message.model))
        self._counts.take(message.usage)

    def _on_message_delta(self, event: MessagesEvent) -> None:
        if event.delta is not None:
            self._stop_reason = event.delta.stop_reason or self._stop_reason
            self._stop_details = event.delta.stop_details or self._stop_details
        self._counts.take(event.usage)  # beside `delta`, not in it (D-6)

    def _on_stop(self, event: MessagesEvent) -> None:
        self._start_late()
        for at in list(self._blocks):
            self._stop(at)
        for index, _ in self._hosted.values():
            self._batch.add(BlockStopped(index))
        reason = self._reason()
        if reason == "refusal" and not self._has_spoken:
            raise AnswerBlocked(self._refusal())
        self._batch.add(MessageDelta(reason, self._counts.usage()))
        self._batch.add(MessageStopped())
        self.is_complete = True

    def _reason(self) -> str:
        reason = self._stop_reason or ("tool_use" if self._has_called else "end_turn")
        return _STOP_REASONS.get(reason, reason)

    def _refusal(self) -> str:
        details = self._stop_details or StopDetails()
        why = self._target.clean(details.explanation or details.category or "")
        return f"{self._target.label} refuses to answer this" + (f": {why}" if why else "")

    def _start_late(self) -> None:
        if not self._has_started:
            self._on_start(MessagesEvent())

    # --- blocks

    def _on_block_start(self, event: MessagesEvent) -> None:
        self._start_late()
        if event.index in self._blocks:
            raise MalformedStream(f"{self._target.label} began a block twice")
        start = event.content_block or BlockShape()
        self._blocks[event.index] = None
        match start.type:
            case "text":
                self._blocks[event.index] = _Block(self._new_index(), TextDelta, start)
                self._say(event.index, TextDelta, start.text)
            case "thinking" | "redacted_thinking":
                self._blocks[event.index] = _Block(self._new_index(), ThinkingDelta, start)
                self._say(event.index, ThinkingDelta, start.thinking)
            case "tool_use":
                self._has_called = self._has_spoken = True
                block = self._blocks[event.index] = _Block(self._new_index(), ToolInputDelta, start)
                self._batch.add(BlockStarted(block.index, "tool_use", start.id, start.name or ""))
            case "server_tool_use":
                self._begin_hosted(event.index, start)
            case kind if kind.endswith("_tool_result"):
                self._end_hosted(start)
            case _:
                pass

    def _on_block_delta(self, event: MessagesEvent) -> None:
        delta = event.delta
        if delta is None:
            return
        if delta.text is not None:
            self._say(event.index, TextDelta, delta.text)
        elif delta.partial_json is not None:
            self._say(event.index, ToolInputDelta, delta.partial_json)
        elif delta.thinking is not None:
            self._say(event.index, ThinkingDelta, delta.thinking)
        elif delta.signature is not None:
            block = self._block(event.index, ThinkingDelta)
            if block is not None:
                block.seal = delta.signature

    def _say(self, at: int, kind: Delta, text: str | None) -> None:
        if not text:
            return
        block = self._block(at, kind)
        if block is None:
            return
        if not block.has_delta:
            self._has_spoken = True
            self._begin(block)
        if block.start.type == "server_tool_use":
            block.asked.append(text)
        else:
            self._batch.delta(kind, block.index, text)

    def _begin(self, block: _Block) -> None:
        """Tell of a block once it holds something; of calls and hosted work it was told at once."""
        block.has_delta = True
        if block.kind is not ToolInputDelta:
            self._batch.add(BlockStarted(block.index, "text" if block.kind is TextDelta else "thinking"))

    def _block(self, at: int, kind: Delta) -> _Block | None:
        """The block at the wire's position; `None` if it is one that is passed over (PV-11)."""
        try:
            block = self._blocks[at]
        except KeyError:
            raise MalformedStream(f"{self._target.label} sent a piece of a block that it had not begun") from None
        if block is not None and block.kind is not kind:
            raise MalformedStream(f"{self._target.label} sent a piece that does not belong to its block")
        return block

    def _on_block_stop(self, event: MessagesEvent) -> None:
        self._stop(event.index)

    def _stop(self, at: int) -> None:
        block = self._blocks.pop(at, None)
        if block is None:
            return
        if block.start.type == "server_tool_use":
            self._asked_hosted(block)
            return
        if block.kind is ToolInputDelta and not block.has_delta:
            self._batch.delta(ToolInputDelta, block.index, _whole_input(block.start))
        elif block.kind is ThinkingDelta:
            self._seal(block)
        if block.has_delta or block.kind is ToolInputDelta:
            self._batch.add(BlockStopped(block.index))

    def _seal(self, block: _Block) -> None:
        is_redacted = block.start.type == "redacted_thinking"
        if not block.seal and not (is_redacted and block.start.data):
            return
        if not block.has_delta:
            self._begin(block)
        self._batch.add(
            ThinkingSealed(
                block.index,
                signature=block.seal,
                encrypted_content=block.start.data if is_redacted else None,
                provenance=self._provenance,
                redacted=is_redacted,
            )
        )

    def _new_index(self) -> int:
        self._next_index += 1
        return self._next_index - 1

    # --- what the vendor does itself

    def _begin_hosted(self, at: int, start: BlockShape) -> None:
        known = begun(start)
        if known is None:
            return
        block = self._blocks[at] = _Block(self._new_index(), ToolInputDelta, start)
        self._tell(known.id, block.index, known)

    def _asked_hosted(self, block: _Block) -> None:
        """The vendor knows what it is going to look for."""
        index, known = self._hosted.get(block.start.id or "", (None, None))
        if index is not None and known is not None:  # else the result was there first
            self._tell(known.id, index, asking(known, input_of(block.start, "".join(block.asked))))

    def _end_hosted(self, start: BlockShape) -> None:
        index, known = self._hosted.pop(start.tool_use_id or "", (None, None))
        if index is not None and known is not None:
            self._batch.add(HostedUpdate(index, found(known, start.content)))
            self._batch.add(BlockStopped(index))

    def _tell(self, id: str, index: int, block: HostedBlock) -> None:
        self._has_spoken = True
        self._hosted[id] = (index, block)
        self._batch.add(HostedUpdate(index, block))

    # --- failures

    def _on_error(self, event: MessagesEvent) -> None:
        error = event.error
        if error is not None and not isinstance(error, ErrorShape):
            raise from_stream(self._target, None, error)
        error = error or ErrorShape()
        raise from_stream(self._target, error.type, error.message)

    # --- which is for which

    _HANDLERS: ClassVar[dict[str, Callable[["MessagesMapper", MessagesEvent], None]]] = {
        "content_block_delta": _on_block_delta,
        "content_block_start": _on_block_start,
        "content_block_stop": _on_block_stop,
        "message_start": _on_start,
        "message_delta": _on_message_delta,
        "message_stop": _on_stop,
        "error": _on_error,
    }


def _whole_input(start: BlockShape) -> str:
    """The input of a call of which no piece came: some servers send it along with the beginning (PV-28)."""
    return json_text(start.input) if start.input else ""
