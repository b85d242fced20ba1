"""The conversation as a tree of entries with one active path (runtime.md 3.10).

Owns the entries, their parents and the active leaf. Does no I/O: `store/` writes entries and reads them back.
"""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Literal

import msgspec

from basis_daemon.errors import UsageError
from basis_daemon.runtime.artifacts import CompactionSummary, DelegationArtifact, DelegationEdge
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


class BranchError(UsageError):
    """The conversation can't be carried on from where it was asked to be (AG-40). Nothing has changed."""

    kind = "branch"


class UnknownEntry(BranchError):
    kind = "unknown_entry"


class BrokenChain(BranchError):
    """An entry continues one that does not exist, or is its own ancestor."""

    kind = "broken_chain"


class NotABranchPoint(BranchError):
    """The entry is inside an exchange: a call would be left without its result (AG-29)."""

    kind = "not_a_branch_point"


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One entry. `details` is opaque JSON by tool call id, never sent to a provider (TL-3)."""

    id: str = ""
    """Empty only in a log that was written without ids: see `identified`."""
    parent_id: str | None = None
    kind: EntryKind
    message: Message
    turn_id: str | None = None
    at_ms: int = 0
    message_id: str | None = None
    by: dict[str, Any] = {}
    """Who said it, as the host told."""
    details: dict[str, Any] = {}
    delegation: DelegationArtifact | None = None
    edge: DelegationEdge | None = None
    summary: CompactionSummary | None = None

    @property
    def is_sent(self) -> bool:
        """Whether providers are sent the message. What a subagent was asked and said stands in the call already."""
        return self.edge is None or self.edge.kind != "subagent"


def identified(entry: Entry, number: int, previous: str | None) -> Entry:
    """`entry` with an id and a parent, if it was written without (AG-41): the same ones at every load, since what is
    said later refers to them. `number` is its place in the log."""
    if entry.id:
        return entry
    return msgspec.structs.replace(entry, id=f"entry-0-{number:x}", parent_id=entry.parent_id or previous)


_SPOKEN = ("user_turn", "assistant_turn")


class Transcript:
    """All entries ever said, and which of them are the conversation now. Not thread-safe.

    What a round needs of it costs the same however long the conversation is.
    """

    def __init__(self, entries: Iterable[Entry] = (), *, leaf: str | None = None) -> None:
        """Raises `BranchError` kinds when `leaf` can't be reached."""
        self._by_id: dict[str, Entry] = {}
        self._path: list[Entry] = []
        self._messages: list[Message] = []
        self._spoken = 0
        for entry in entries:
            self._by_id[entry.id] = entry
        if leaf is not None:
            self._follow(self._chain(leaf))

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

    @property
    def spoken(self) -> int:
        """Messages of a person or a model on the active path."""
        return self._spoken

    def archived(self) -> list[Entry]:
        """Every entry off the path, in the order they were said (AG-39)."""
        path = {entry.id for entry in self._path}
        return [entry for entry in self._by_id.values() if entry.id not in path]

    def children(self, entry_id: str | None) -> list[Entry]:
        """What continues an entry, on the path or off it; `None` asks for the beginnings."""
        return [entry for entry in self._by_id.values() if entry.parent_id == entry_id]

    def append(self, entry: Entry) -> None:
        """Make `entry` the new leaf. Its `parent_id` must be the present leaf."""
        if entry.parent_id != self.leaf_id:
            raise ValueError(f"entry {entry.id} does not continue the conversation")
        if entry.id in self._by_id:
            raise ValueError(f"entry {entry.id} is in the conversation already")
        self._by_id[entry.id] = entry
        self._extend(entry)

    def check_branch_point(self, entry_id: str) -> None:
        """Raises `UnknownEntry`, and `NotABranchPoint` where a call would be orphaned or an edge cut (AG-40, BR-2)."""
        entry = self._by_id.get(entry_id)
        if entry is None:
            raise _unknown(entry_id)
        if entry.kind in ("delegation_request", "delegation_result"):
            raise NotABranchPoint(f"entry {entry_id} belongs to work that was handed on; choose the one before it")
        if entry.message.role == "assistant" and entry.message.tool_uses():
            raise NotABranchPoint(f"entry {entry_id} waits for results of its calls; choose the one before or after it")

    def move_to(self, entry_id: str | None) -> int:
        """Make an entry of the tree the leaf (`None` empties the path). Returns how many entries left the path (AG-39).

        Raises `UnknownEntry` and `BrokenChain`; then nothing has changed.
        """
        for left, entry in enumerate(reversed(self._path)):
            if entry.id == entry_id:  # a way back: most are short
                self._shorten(left)
                return left
        before = {entry.id for entry in self._path}
        path = self._chain(entry_id) if entry_id is not None else []
        self._follow(path)
        return len(before - {entry.id for entry in path})

    def messages(self) -> list[Message]:
        """The active path as provider messages, in a list of the caller's own (AG-43: wires merge what they must)."""
        return self._messages.copy()

    def pending_calls(self) -> list[ToolUse]:
        """Calls of the last assistant message that have no result yet, in order (AG-29)."""
        leaf = self.leaf
        return leaf.message.tool_uses() if leaf is not None and leaf.kind == "assistant_turn" else []

    def pending_message(self) -> Message | None:
        """The assistant message at the leaf whose calls have no result yet."""
        leaf = self.leaf
        is_pending = leaf is not None and leaf.kind == "assistant_turn" and leaf.message.tool_uses()
        return leaf.message if leaf is not None and is_pending else None

    def results(self) -> dict[str, ToolResult]:
        """Every tool result on the active path by call id."""
        return {
            block.tool_use_id: block
            for entry in self._path
            if entry.kind == "tool_exchange"
            for block in entry.message.content
            if isinstance(block, ToolResult)
        }

    def _follow(self, path: list[Entry]) -> None:
        self._path, self._messages, self._spoken = [], [], 0
        for entry in path:
            self._extend(entry)

    def _extend(self, entry: Entry) -> None:
        self._path.append(entry)
        self._spoken += entry.kind in _SPOKEN
        if entry.is_sent:
            self._messages.append(entry.message)

    def _shorten(self, by: int) -> None:
        for _ in range(by):
            entry = self._path.pop()
            self._spoken -= entry.kind in _SPOKEN
            if entry.is_sent:
                self._messages.pop()

    def _chain(self, leaf: str) -> list[Entry]:
        chain: list[Entry] = []
        seen: set[str] = set()
        at: str | None = leaf
        while at is not None:
            if at in seen:
                raise BrokenChain(f"entry {at} is its own ancestor")
            seen.add(at)
            entry = self._by_id.get(at)
            if entry is None and chain:
                raise BrokenChain(f"entry {chain[-1].id} continues {at}, which does not exist")
            if entry is None:
                raise _unknown(at)
            chain.append(entry)
            at = entry.parent_id
        chain.reverse()
        return chain


def _unknown(entry_id: str) -> UnknownEntry:
    return UnknownEntry(f"there is no entry {entry_id}", hint="the conversation's history lists its entries")
