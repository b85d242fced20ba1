"""Maps what the Responses wire streams (2.7, 2.8).

Owns the order of blocks and what is kept of them. Fields that servers leave out are filled in from later events.
"""

from collections.abc import Callable
from typing import ClassVar

import msgspec

from basis_daemon.runtime.messages import Provenance
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    BlockStopped,
    MessageDelta,
    MessageStopped,
    ProviderEvent,
    ResponseStarted,
    TextDelta,
    ThinkingDelta,
    ThinkingSealed,
    TokenUsage,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.errors import MalformedStream, StreamCut
from basis_daemon.runtime.providers.failures import Target, from_stream
from basis_daemon.runtime.providers.openai_shapes import (
    ErrorShape,
    Item,
    Response,
    ResponsesEvent,
    ResponseUsage,
    TypedOnly,
)
from basis_daemon.runtime.providers.sse import SseEvent
from basis_daemon.runtime.providers.wire import Batch, Delta

_STOP_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}

_decode = msgspec.json.Decoder(ResponsesEvent).decode
_decode_type = msgspec.json.Decoder(TypedOnly).decode


class _Block:
    """An open block; `part` is the part of its reasoning that was spoken last."""

    __slots__ = ("has_delta", "index", "kind", "part")

    def __init__(self, index: int, kind: Delta) -> None:
        self.index = index
        self.kind = kind
        self.has_delta = False
        self.part = 0


Prose = type[TextDelta] | type[ThinkingDelta]
_WHOLE = -1
"""Stands for a part's number where an item is one block: calls and reasoning."""


class ResponsesMapper:
    """Maps one answer's events. Blocks are found by the wire's positions and numbered by us (PV-13)."""

    def __init__(self, target: Target, provenance: Provenance) -> None:
        self._target = target
        self._provenance = provenance
        self._batch = Batch()
        self._blocks: dict[tuple[int, int], _Block] = {}
        self._next_index = 0
        self._reserved: dict[int, int] = {}
        self._done: set[int | str] = set()
        self._has_started = self._has_reasoned = self._has_called = self._was_refused = False
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
            elif event.error is not None and not event.type:
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

    # --- deltas

    def _on_start(self, event: ResponsesEvent) -> None:
        if not self._has_started:
            self._has_started = True
            response = event.response or Response()
            self._batch.add(ResponseStarted(response.id, response.model))

    def _on_text(self, event: ResponsesEvent) -> None:
        if event.delta:
            self._say(self._block((event.output_index, event.content_index), TextDelta), event.delta)

    def _on_refusal(self, event: ResponsesEvent) -> None:
        self._was_refused = True
        self._on_text(event)

    def _on_reasoning(self, event: ResponsesEvent) -> None:
        if not event.delta:
            return
        block = self._block((event.output_index, _WHOLE), ThinkingDelta)
        part = max(event.summary_index, event.content_index)
        if block.has_delta and part != block.part:
            self._say(block, "\n\n")
        block.part = part
        self._say(block, event.delta)

    def _on_arguments(self, event: ResponsesEvent) -> None:
        block = self._blocks.get((event.output_index, _WHOLE))
        if block is not None and event.delta:
            self._say(block, event.delta)

    # --- items

    def _on_item_added(self, event: ResponsesEvent) -> None:
        if event.item is not None and event.item.type == "function_call":
            self._call(event.output_index, event.item)
        elif event.item is not None and event.item.type == "reasoning":
            self._reserve(event.output_index)

    def _on_text_done(self, event: ResponsesEvent) -> None:
        self._fill_prose((event.output_index, event.content_index), TextDelta, event.text or event.refusal)

    def _on_arguments_done(self, event: ResponsesEvent) -> None:
        self._fill(self._blocks.get((event.output_index, _WHOLE)), event.arguments)

    def _on_item_done(self, event: ResponsesEvent) -> None:
        if event.item is not None:
            self._item_done(event.output_index, event.item, is_last_word=False)

    def _item_done(self, at: int, item: Item, *, is_last_word: bool) -> None:
        """Take over what deltas left out (PV-28) and close the item's blocks."""
        match item.type:
            case "message":
                for part, content in enumerate(item.content or ()):
                    self._was_refused |= content.type == "refusal"
                    self._fill_prose((at, part), TextDelta, content.text or content.refusal)
            case "function_call":
                self._call(at, item)
                self._fill(self._blocks.get((at, _WHOLE)), item.arguments)
            case "reasoning":
                self._reserve(at)
                words = "\n\n".join(part.text or "" for part in item.summary or item.content or ())
                self._fill_prose((at, _WHOLE), ThinkingDelta, words)
                if not item.encrypted_content and not is_last_word:
                    return  # it may still come with the whole response (PV-30)
                self._seal(at, item)
            case _:
                return
        self._done |= {at, item.id or at}
        self._close(at)

    def _call(self, at: int, item: Item) -> None:
        if (at, _WHOLE) in self._blocks or at in self._done:
            return
        self._has_called = True
        item_id = item.id if self._has_reasoned else None
        block = self._new_block((at, _WHOLE), ToolInputDelta)
        self._batch.add(BlockStarted(block.index, "tool_use", item.call_id or item.id, item.name or "", item_id))

    def _seal(self, at: int, item: Item) -> None:
        if item.encrypted_content:
            block = self._block((at, _WHOLE), ThinkingDelta)
            self._batch.add(
                ThinkingSealed(
                    block.index, encrypted_content=item.encrypted_content, id=item.id, provenance=self._provenance
                )
            )

    # --- blocks

    def _block(self, key: tuple[int, int], kind: Prose) -> _Block:
        block = self._blocks.get(key)
        if block is None:
            block = self._new_block(key, kind)
            self._batch.add(BlockStarted(block.index, "text" if kind is TextDelta else "thinking"))
        return block

    def _new_block(self, key: tuple[int, int], kind: Delta) -> _Block:
        index = self._reserved.pop(key[0], None)
        if index is None:
            index, self._next_index = self._next_index, self._next_index + 1
        block = self._blocks[key] = _Block(index, kind)
        return block

    def _reserve(self, at: int) -> None:
        """Keep a place for reasoning, which may turn out last of all to hold anything, ahead of what follows it."""
        self._has_reasoned = True
        if (at, _WHOLE) not in self._blocks and at not in self._reserved:
            self._reserved[at] = self._next_index
            self._next_index += 1

    def _say(self, block: _Block, text: str) -> None:
        block.has_delta = True
        self._batch.delta(block.kind, block.index, text)

    def _fill_prose(self, key: tuple[int, int], kind: Prose, whole: str | None) -> None:
        if whole and key[0] not in self._done:
            self._fill(self._block(key, kind), whole)

    def _fill(self, block: _Block | None, whole: str | None) -> None:
        """Say the whole of a block of which no delta came (PV-28)."""
        if block is not None and whole and not block.has_delta:
            self._say(block, whole)

    def _close(self, at: int | None = None) -> None:
        """Close the blocks of item `at`, or all."""
        for key in [key for key in self._blocks if at is None or key[0] == at]:
            self._batch.add(BlockStopped(self._blocks.pop(key).index))

    # --- the end

    def _on_end(self, event: ResponsesEvent) -> None:
        response = event.response or Response()
        if response.error is not None:
            self._on_failed(event)
        self._on_start(event)
        for at, item in enumerate(response.output or ()):
            if at not in self._done and (item.id is None or item.id not in self._done):
                self._item_done(at, item, is_last_word=True)
        self._close()
        self._batch.add(MessageDelta(self._stop_reason(response), _usage(response.usage)))
        self._batch.add(MessageStopped())
        self.is_complete = True

    def _stop_reason(self, response: Response) -> str:
        if response.incomplete_details is not None and response.incomplete_details.reason:
            reason = response.incomplete_details.reason
            return _STOP_REASONS.get(reason, reason)
        if self._has_called:
            return "tool_use"
        return "refusal" if self._was_refused else "end_turn"

    def _on_failed(self, event: ResponsesEvent) -> None:
        error = (event.response and event.response.error) or ErrorShape()
        raise from_stream(self._target, error.code or error.type, error.message)

    def _on_error(self, event: ResponsesEvent) -> None:
        inner = event.error
        if isinstance(inner, str):
            raise from_stream(self._target, event.code, inner)
        inner = inner or ErrorShape()
        raise from_stream(self._target, event.code or inner.code or inner.type, event.message or inner.message)

    # --- which is for which

    _HANDLERS: ClassVar[dict[str, Callable[["ResponsesMapper", ResponsesEvent], None]]] = {
        "response.created": _on_start,
        "response.in_progress": _on_start,
        "response.output_item.added": _on_item_added,
        "response.output_text.delta": _on_text,
        "response.output_text.done": _on_text_done,
        "response.refusal.delta": _on_refusal,
        "response.refusal.done": _on_text_done,
        "response.reasoning_summary_text.delta": _on_reasoning,
        "response.reasoning_text.delta": _on_reasoning,
        "response.function_call_arguments.delta": _on_arguments,
        "response.function_call_arguments.done": _on_arguments_done,
        "response.output_item.done": _on_item_done,
        "response.completed": _on_end,
        "response.incomplete": _on_end,
        "response.failed": _on_failed,
        "error": _on_error,
    }


def _usage(usage: ResponseUsage | None) -> TokenUsage | None:
    if usage is None:
        return None
    cached, reasoned = usage.input_tokens_details, usage.output_tokens_details
    return TokenUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=cached.cached_tokens if cached else None,
        reasoning_tokens=reasoned.reasoning_tokens if reasoned else None,
    )
