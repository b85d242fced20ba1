"""One answer out of its events: collected, checked for contradictions, its tool input parsed.

Owns what a stream may and may not say (PV-11), and when a call's input is no JSON object. Knows no wire.
"""

from collections.abc import Iterable
from typing import cast

import msgspec

from basis_daemon.runtime.messages import (
    ContentBlock,
    HostedBlock,
    HostedWebSearch,
    Json,
    Message,
    Text,
    Thinking,
    ToolUse,
)
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
    TokenUsage,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.errors import MalformedStream

MAX_ANSWER_CHARS = 64 * 1024 * 1024
"""Characters of text, reasoning and tool input in one answer: a hundred times what the largest models can say."""


class StreamedMessage:
    """Collects one answer from its events and refuses streams that contradict themselves (PV-11)."""

    __slots__ = ("_blocks", "_open", "_size", "complete", "model", "response_id", "stop_reason", "usage")

    def __init__(self) -> None:
        self._blocks: dict[int, _Open | _Hosted] = {}
        self._open: set[int] = set()
        self._size = 0
        self.complete = False
        self.response_id: str | None = None
        self.model: str | None = None
        self.stop_reason: str | None = None
        self.usage = TokenUsage()

    def apply(self, event: ProviderEvent) -> None:
        """Take the next event. Raises `ValueError` saying what is wrong with it, and `MalformedStream` for too much."""
        match event:
            case TextDelta(index, text) | ThinkingDelta(index, text):
                kind = "text" if isinstance(event, TextDelta) else "thinking"
                self._add(index, kind, text)
            case ToolInputDelta(index, json):
                self._add(index, "tool_use", json)
            case BlockStarted():
                if event.index in self._blocks:
                    raise ValueError(f"block {event.index} started twice")
                self._blocks[event.index] = _Open(event)
                self._open.add(event.index)
            case HostedUpdate():
                self._update_hosted(event)
            case ThinkingSealed():
                self._block(event.index, "thinking").sealed = event
            case BlockStopped(index):
                if index not in self._open:
                    raise ValueError(f"block {index} stopped but not open")
                self._open.discard(index)
            case MessageDelta(stop_reason, usage):
                self.stop_reason = stop_reason or self.stop_reason
                self.usage = self.usage.merged(usage) if usage else self.usage
            case ResponseStarted(id, model):
                self.response_id, self.model = id, model
            case MessageStopped():
                if self._open:
                    raise ValueError(f"the message ended inside block {min(self._open)}")
                self.complete = True

    def _add(self, index: int, kind: str, text: str) -> None:
        self._block(index, kind).parts.append(text)
        self._size += len(text)
        if self._size > MAX_ANSWER_CHARS:
            raise MalformedStream(f"the provider's answer is longer than {MAX_ANSWER_CHARS} characters")

    def _update_hosted(self, event: HostedUpdate) -> None:
        if isinstance(event.block, HostedWebSearch) and _is_deeper([event.block.action], MAX_INPUT_DEPTH + 1):
            raise MalformedStream("the provider's stream holds a value that is nested too deeply")
        known = self._blocks.get(event.index)
        if known is None:
            self._blocks[event.index] = _Hosted(event.block)
            self._open.add(event.index)
        elif isinstance(known, _Hosted) and event.index in self._open:
            known.content = event.block
        else:
            raise ValueError(f"an update for block {event.index}, which is not an open hosted one")

    def message(self) -> Message:
        """The assistant message so far, blocks in index order; empty text blocks are left out."""
        blocks = [self._blocks[index].block() for index in sorted(self._blocks)]
        return Message("assistant", [b for b in blocks if not (isinstance(b, Text) and not b.text)])

    def _block(self, index: int, kind: str) -> "_Open":
        block = self._blocks.get(index)
        if block is None or index not in self._open:
            raise ValueError(f"a delta for block {index}, which is not open")
        if isinstance(block, _Hosted):
            raise ValueError(f"a {kind} delta for a hosted block")
        if block.start.kind != kind:
            raise ValueError(f"a {kind} delta for a {block.start.kind} block")
        return block


class _Hosted:
    __slots__ = ("content",)

    def __init__(self, content: HostedBlock) -> None:
        self.content = content

    def block(self) -> ContentBlock:
        return self.content


class _Open:
    __slots__ = ("parts", "sealed", "start")

    def __init__(self, start: BlockStarted) -> None:
        self.start = start
        self.parts: list[str] = []
        self.sealed: ThinkingSealed | None = None

    def block(self) -> ContentBlock:
        text = "".join(self.parts)
        if self.start.kind == "text":
            return Text(text)
        if self.start.kind == "thinking":
            sealed = self.sealed or ThinkingSealed(self.start.index)
            return Thinking(
                text,
                signature=sealed.signature,
                encrypted_content=sealed.encrypted_content,
                id=sealed.id,
                provenance=sealed.provenance,
                redacted=sealed.redacted,
            )
        value, malformed = parse_tool_input(text)
        start = self.start
        return ToolUse(
            start.id or "",
            start.name or "",
            value,
            malformed=malformed,
            item_id=start.item_id,
            signature=start.signature,
            provenance=start.provenance,
        )


MAX_INPUT_DEPTH = 100
"""Levels of nesting in what a call or hosted work was begun with. No real one comes near; far below what any reader of
the log can take."""

_tool_input = msgspec.json.Decoder(dict[str, Json])


def parse_tool_input(text: str) -> tuple[dict[str, Json], str | None]:
    """Parse a call's accumulated argument text: `(input, None)`, or `({}, text)` when it is no JSON object.

    Nothing at all is an empty object (PV-15).
    """
    if not text.strip():
        return {}, None
    try:
        value = _tool_input.decode(text)
    except (msgspec.DecodeError, RecursionError):  # the latter: nested deeper than anything can be read
        return {}, text
    return ({}, text) if _is_deeper(value, MAX_INPUT_DEPTH) else (value, None)


def _is_deeper(value: Json, levels: int) -> bool:
    """Whether `value` nests deeper than `levels`; walks level by level, so that depth costs no stack."""
    level: list[Json] = [value]
    for _ in range(levels):
        level = [item for holder in level for item in _items(holder) if isinstance(item, dict | list)]
        if not level:
            return False
    return True


def _items(holder: Json) -> Iterable[Json]:
    return cast(dict[str, Json], holder).values() if isinstance(holder, dict) else holder
