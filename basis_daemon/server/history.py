"""The conversation as a client reads it: transcript entries as items, a page at a time.

Owns the mapping from entries to items and the cursors, which are entry ids. A tool's result stands with its call.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from basis_daemon.runtime.messages import Image, Text, Thinking, ToolResult, ToolUse
from basis_daemon.runtime.prompts import speaker
from basis_daemon.runtime.transcript import Entry, Transcript
from basis_daemon.server.clock import timestamp
from basis_daemon.server.error_map import InvalidParams
from basis_protocol.content import FileDiff
from basis_protocol.events import ToolCompleted
from basis_protocol.sessions import HistoryItem, SessionHistoryResult

MAX_PAGE_BYTES = 1024 * 1024
"""Text in one page; a page with more ends early, but never before its first entry."""

_KINDS = {
    "user_turn": "user",
    "canonical_context": "context",
    "memory_recall": "context",
    "delegation_request": "delegation",
    "delegation_result": "delegation",
    "compaction_summary": "summary",
}


def page(
    transcript: Transcript,
    *,
    cursor: str | None,
    direction: Literal["before", "after"],
    limit: int,
    completed: Mapping[str, ToolCompleted] | None = None,
) -> SessionHistoryResult:
    """At most about `limit` items next to `cursor`, oldest first. Raises `InvalidParams` for a cursor that is no longer
    part of the conversation."""
    entries = list(transcript)
    at = _index(entries, cursor) if cursor is not None else None
    if direction == "before":
        start, end = _backwards(entries, len(entries) if at is None else at, limit)
    else:
        start, end = _forwards(entries, 0 if at is None else at + 1, limit)
    return SessionHistoryResult(
        items=[item for index in range(start, end) for item in _items(entries, index, completed or {})],
        before_cursor=entries[start].id if 0 < start < len(entries) else None,
        after_cursor=entries[end - 1].id if 0 < end < len(entries) else None,
    )


def _index(entries: Sequence[Entry], cursor: str) -> int:
    for index, entry in enumerate(entries):
        if entry.id == cursor:
            return index
    raise InvalidParams("cursor: it is not part of this conversation (any more); start without one", field="cursor")


def _backwards(entries: Sequence[Entry], end: int, limit: int) -> tuple[int, int]:
    start, items, size = end, 0, 0
    while start > 0:
        items += _count(entries[start - 1])
        size += _size(entries[start - 1])
        if start < end and (items > limit or size > MAX_PAGE_BYTES) and not _is_result(entries[start]):
            break
        start -= 1
    return start, end


def _forwards(entries: Sequence[Entry], start: int, limit: int) -> tuple[int, int]:
    end, items, size = start, 0, 0
    while end < len(entries):
        items += _count(entries[end])
        size += _size(entries[end])
        if end > start and (items > limit or size > MAX_PAGE_BYTES) and not _is_result(entries[end]):
            break
        end += 1
    return start, end


def _is_result(entry: Entry) -> bool:
    """Results stay on the page of their calls."""
    return entry.kind == "tool_exchange"


def _count(entry: Entry) -> int:
    if _is_result(entry):
        return 0
    return max(1, len(entry.message.tool_uses()) + bool(entry.message.text()))


def _size(entry: Entry) -> int:
    return sum(len(block.text) for block in entry.message.content if isinstance(block, Text)) + sum(
        len(block.content) if isinstance(block.content, str) else 1024
        for block in entry.message.content
        if isinstance(block, ToolResult)
    )


def _items(entries: Sequence[Entry], index: int, completed: Mapping[str, ToolCompleted]) -> Iterator[HistoryItem]:
    entry = entries[index]
    if entry.kind == "assistant_turn":
        following = entries[index + 1] if index + 1 < len(entries) else None
        yield from _answer(entry)
        for call in entry.message.tool_uses():
            yield _call(entry, call, following, completed.get(call.id))
    elif not _is_result(entry):
        yield HistoryItem(
            entry_id=entry.id,
            kind=_KINDS.get(entry.kind, entry.kind),
            text=entry.message.text(),
            turn_id=entry.turn_id,
            image_count=sum(isinstance(block, Image) for block in entry.message.content),
            at=_at(entry),
            by=speaker(entry.by),
        )


def _answer(entry: Entry) -> Iterator[HistoryItem]:
    text = entry.message.text()
    reasoning = "".join(block.thinking for block in entry.message.content if isinstance(block, Thinking))
    if text or reasoning:
        yield HistoryItem(
            entry_id=entry.id,
            kind="assistant",
            text=text,
            reasoning=reasoning or None,
            turn_id=entry.turn_id,
            message_id=entry.message_id,
            at=_at(entry),
        )


def _call(entry: Entry, call: ToolUse, following: Entry | None, completed: ToolCompleted | None) -> HistoryItem:
    """A tool call with its outcome, as far as there is one: from the exchange, else from the event of its end."""
    item = HistoryItem(
        entry_id=entry.id,
        kind="tool",
        turn_id=entry.turn_id,
        tool_call_id=call.id,
        tool_name=call.name,
        input=call.input if call.malformed is None else call.malformed,
        at=_at(entry),
    )
    result = _result(call, following)
    if result is not None and following is not None:
        details: dict[str, Any] = following.details.get(call.id) or {}
        return msgspec.structs.replace(
            item,
            text=result.as_text(),
            is_error=result.is_error,
            summary=details.get("summary"),
            diff=msgspec.convert(details.get("diff") or [], list[FileDiff]),
            result_id=details.get("result_id"),
        )
    if completed is not None:
        return msgspec.structs.replace(
            item,
            summary=completed.summary,
            is_error=completed.is_error,
            diff=completed.diff,
            result_id=completed.result_id,
        )
    return item


def _result(call: ToolUse, following: Entry | None) -> ToolResult | None:
    if following is None or not _is_result(following):
        return None
    for block in following.message.content:
        if isinstance(block, ToolResult) and block.tool_use_id == call.id:
            return block
    return None


def _at(entry: Entry) -> str | None:
    return timestamp(entry.at_ms / 1000) if entry.at_ms else None
