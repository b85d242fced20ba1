"""The conversation as a tree of entries with one active path (runtime.md 3.10).

Owns the entries, their parents and the active leaf. Does no I/O: `store/` writes entries and reads them back.
"""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Literal

import msgspec

from basis_daemon.runtime.messages import Message, ToolResult, ToolUse

EntryKind = Literal[
    "user_turn",
    "assistant_turn",
    "tool_exchange",
    "canonical_context",
    "memory_recall",
    "delegation_request",
    "delegation_result",
    "compaction_summary",
]

_counter = count(1)


def new_entry_id() -> str:
    """`entry-<hex>-<hex>`, unique across processes (AG-37)."""
    return f"entry-{time.time_ns():x}-{next(_counter):x}{os.urandom(2).hex()}"


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One entry. `details` is opaque JSON by tool call id, never sent to a provider (TL-3)."""

    id: str
    parent_id: str | None = None
    kind: EntryKind
    message: Message
    turn_id: str | None = None
    at_ms: int = 0
    message_id: str | None = None
    details: dict[str, Any] = {}


class Transcript:
    """All entries ever said, and which of them are the conversation now. Not thread-safe."""

    def __init__(self, entries: Iterable[Entry] = (), *, leaf: str | None = None) -> None:
        self._by_id: dict[str, Entry] = {}
        self._path: list[Entry] = []
        for entry in entries:
            self._by_id[entry.id] = entry
        if leaf is not None:
            self._path = self._chain(leaf)

    def __len__(self) -> int:
        """Entries on the active path."""
        return len(self._path)

    def __iter__(self) -> Iterator[Entry]:
        """The active path, root first."""
        return iter(self._path)

    def __getitem__(self, index: int) -> Entry:
        return self._path[index]

    @property
    def leaf(self) -> Entry | None:
        """The last entry of the active path."""
        return self._path[-1] if self._path else None

    @property
    def leaf_id(self) -> str | None:
        return self._path[-1].id if self._path else None

    def get(self, entry_id: str) -> Entry | None:
        """Any entry of the tree, on the path or off it."""
        return self._by_id.get(entry_id)

    def tree(self) -> Iterator[Entry]:
        """Every entry, on the path or off it, in the order they were said."""
        return iter(self._by_id.values())

    def append(self, entry: Entry) -> None:
        """Make `entry` the new leaf. Its `parent_id` must be the present leaf."""
        if entry.parent_id != self.leaf_id:
            raise ValueError(f"entry {entry.id} does not continue the conversation")
        if entry.id in self._by_id:
            raise ValueError(f"entry {entry.id} is in the conversation already")
        self._by_id[entry.id] = entry
        self._path.append(entry)

    def move_to(self, entry_id: str | None) -> int:
        """Make an entry of the tree the leaf (`None` empties the path). Returns how many entries left the path (AG-39).

        Raises `KeyError` for an unknown entry, `ValueError` for a broken chain; then nothing has changed.
        """
        before = {entry.id for entry in self._path}
        path = self._chain(entry_id) if entry_id is not None else []
        self._path = path
        return len(before - {entry.id for entry in path})

    def messages(self) -> list[Message]:
        """The active path as provider messages."""
        return [entry.message for entry in self._path]

    def pending_calls(self) -> list[ToolUse]:
        """Calls of the last assistant message that have no result yet, in order (AG-29)."""
        leaf = self.leaf
        return leaf.message.tool_uses() if leaf is not None and leaf.kind == "assistant_turn" else []

    def results(self) -> dict[str, ToolResult]:
        """Every tool result on the active path by call id."""
        return {
            block.tool_use_id: block
            for entry in self._path
            if entry.kind == "tool_exchange"
            for block in entry.message.content
            if isinstance(block, ToolResult)
        }

    def _chain(self, leaf: str) -> list[Entry]:
        chain: list[Entry] = []
        seen: set[str] = set()
        at: str | None = leaf
        while at is not None:
            if at in seen:
                raise ValueError(f"entry {at} is its own ancestor")
            seen.add(at)
            entry = self._by_id.get(at)
            if entry is None and chain:
                raise ValueError(f"entry {chain[-1].id} continues {at}, which does not exist")
            if entry is None:
                raise KeyError(f"there is no entry {at}")
            chain.append(entry)
            at = entry.parent_id
        chain.reverse()
        return chain
