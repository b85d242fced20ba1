"""Maps what the Responses wire streams (2.7, 2.8).

Owns what is kept of an answer. Fields that servers leave out are filled in from later events.
"""

from collections.abc import Callable
from typing import ClassVar

import msgspec

from basis_daemon.runtime.messages import HostedBlock, Provenance
from basis_daemon.runtime.providers.base import (
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
from basis_daemon.runtime.providers.errors import MalformedStream, SocketEnded, StreamCut
from basis_daemon.runtime.providers.failures import Target, from_status, from_stream
from basis_daemon.runtime.providers.openai_hosted import HOSTED_ITEMS, hosted_block, status_in, with_status
from basis_daemon.runtime.providers.openai_responses_blocks import WHOLE, Blocks, Prose
from basis_daemon.runtime.providers.openai_shapes import (
    ErrorShape,
    Item,
    Response,
    ResponsesEvent,
    ResponseUsage,
    TypedOnly,
)
from basis_daemon.runtime.providers.sse import SseEvent
from basis_daemon.runtime.providers.wire import Batch, count, json_text

_STOP_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}

_decode = msgspec.json.Decoder(ResponsesEvent).decode
_decode_type = msgspec.json.Decoder(TypedOnly).decode


CONNECTION_LIMIT = "websocket_connection_limit_reached"
"""The vendor ends a websocket that has been open for an hour, at its next request."""


class ResponsesMapper:
    """Maps one answer's events."""

    def __init__(self, target: Target, provenance: Provenance) -> None:
        self._target = target
        self._provenance = provenance
        self._batch = Batch()
        self._blocks = Blocks(self._batch)
        self._hosted: dict[int, HostedBlock] = {}
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
            elif event.output_index in self._hosted:
                self._on_hosted_status(event)
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
            self._blocks.say(self._blocks.prose((event.output_index, event.content_index), TextDelta), event.delta)

    def _on_refusal(self, event: ResponsesEvent) -> None:
        self._was_refused = True
        self._on_text(event)

    def _on_reasoning(self, event: ResponsesEvent) -> None:
        if not event.delta:
            return
        block = self._blocks.prose((event.output_index, WHOLE), ThinkingDelta)
        part = max(event.summary_index, event.content_index)
        if block.has_delta and part != block.part:
            self._blocks.say(block, "\n\n")
        block.part = part
        self._blocks.say(block, event.delta)

    def _on_arguments(self, event: ResponsesEvent) -> None:
        block = self._blocks.get(event.output_index)
        if block is not None and event.delta:
            self._blocks.say(block, event.delta)

    # --- items

    def _on_item_added(self, event: ResponsesEvent) -> None:
        if event.item is None:
            return
        if event.item.type == "function_call":
            self._call(event.output_index, event.item)
        elif event.item.type == "reasoning":
            self._has_reasoned = True
            self._blocks.reserve(event.output_index)
        elif event.item.type in HOSTED_ITEMS:
            self._update_hosted(event.output_index, hosted_block(event.item))

    def _on_text_done(self, event: ResponsesEvent) -> None:
        self._fill_prose((event.output_index, event.content_index), TextDelta, event.text or event.refusal)

    def _on_arguments_done(self, event: ResponsesEvent) -> None:
        self._blocks.fill(self._blocks.get(event.output_index), event.arguments)

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
                self._blocks.fill(self._blocks.get(at), _argument_text(item))
            case "reasoning":
                self._has_reasoned = True
                self._blocks.reserve(at)
                words = "\n\n".join(part.text or "" for part in item.summary or item.content or ())
                self._fill_prose((at, WHOLE), ThinkingDelta, words)
                if not item.encrypted_content and not is_last_word:
                    return  # it may still come with the whole response (PV-30)
                self._seal(at, item)
            case kind if kind in HOSTED_ITEMS:
                self._update_hosted(at, hosted_block(item))
                del self._hosted[at]
            case _:
                return
        self._done |= {at, item.id or at}
        self._blocks.close(at)

    def _call(self, at: int, item: Item) -> None:
        if self._blocks.get(at) is not None or at in self._done:
            return
        self._has_called = True
        item_id = item.id if self._has_reasoned else None
        self._blocks.start_call(at, ToolInputDelta, item.call_id or item.id, item.name or "", item_id)

    def _seal(self, at: int, item: Item) -> None:
        if item.encrypted_content:
            block = self._blocks.prose((at, WHOLE), ThinkingDelta)
            self._batch.add(
                ThinkingSealed(
                    block.index, encrypted_content=item.encrypted_content, id=item.id, provenance=self._provenance
                )
            )

    def _fill_prose(self, key: tuple[int, int], kind: Prose, whole: str | None) -> None:
        if whole and key[0] not in self._done:
            self._blocks.fill(self._blocks.prose(key, kind), whole)

    # --- what the vendor runs itself

    def _update_hosted(self, at: int, block: HostedBlock) -> None:
        self._hosted[at] = block
        self._blocks.update(at, block)

    def _on_hosted_status(self, event: ResponsesEvent) -> None:
        status = status_in(event.type)
        if status is not None:
            self._update_hosted(event.output_index, with_status(self._hosted[event.output_index], status))

    # --- the end

    def _on_end(self, event: ResponsesEvent) -> None:
        response = event.response or Response()
        if response.error is not None:
            self._on_failed(event)
        self._on_start(event)
        for at, item in enumerate(response.output or ()):
            if at not in self._done and (item.id is None or item.id not in self._done):
                self._item_done(at, item, is_last_word=True)
        self._blocks.close()
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
        if not isinstance(error, ErrorShape):
            raise from_stream(self._target, None, error)
        raise from_stream(self._target, error.code or error.type, error.message)

    def _on_error(self, event: ResponsesEvent) -> None:
        inner = event.error
        if inner is not None and not isinstance(inner, ErrorShape):
            raise from_stream(self._target, event.code, inner)
        inner = inner or ErrorShape()
        if CONNECTION_LIMIT in (inner.code, event.code):
            raise SocketEnded(f"{self._target.label} wants a new connection: this one has been open for too long")
        status = event.status_code if event.status is None else event.status
        if isinstance(status, int) and not 200 <= status < 300:
            headers = {name.lower(): str(value) for name, value in (event.headers or {}).items()}
            raise from_status(self._target, status, headers, json_text({"error": inner}))
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
        input_tokens=count(usage.input_tokens),
        output_tokens=count(usage.output_tokens),
        total_tokens=count(usage.total_tokens),
        cache_read_tokens=count(cached.cached_tokens) if cached else None,
        cache_creation_tokens=count(cached.cache_write_tokens) if cached else None,
        reasoning_tokens=count(reasoned.reasoning_tokens) if reasoned else None,
    )


def _argument_text(item: Item) -> str | None:
    """The arguments of a call; some servers have an object where the wire has a string."""
    return json_text(item.arguments) if isinstance(item.arguments, dict) else item.arguments
