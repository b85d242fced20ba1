"""The blocks of one answer on the Responses wire: found by the wire's positions, numbered by us (PV-13).

Owns which block a position stands for, and that each starts and stops once. What is said in them is the mapper's.
"""

from basis_daemon.runtime.messages import HostedBlock
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    BlockStopped,
    HostedUpdate,
    TextDelta,
    ThinkingDelta,
)
from basis_daemon.runtime.providers.wire import Batch, Delta

WHOLE = -1
"""Stands for a part's number where an item is one block: calls, reasoning, hosted tools."""

Prose = type[TextDelta] | type[ThinkingDelta]


class Block:
    """An open block; `part` is the part of its reasoning that was spoken last."""

    __slots__ = ("has_delta", "index", "kind", "part")

    def __init__(self, index: int, kind: Delta | None) -> None:
        self.index = index
        self.kind = kind
        """What its deltas are; `None` for a hosted tool's, which has none."""
        self.has_delta = False
        self.part = 0


class Blocks:
    """The open ones, by output position and part."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._open: dict[tuple[int, int], Block] = {}
        self._next_index = 0
        self._reserved: dict[int, int] = {}

    def get(self, at: int) -> Block | None:
        """The block of a call or of reasoning."""
        return self._open.get((at, WHOLE))

    def prose(self, key: tuple[int, int], kind: Prose) -> Block:
        """The block at a position, started if it is new."""
        block = self._open.get(key)
        if block is None:
            block = self._new(key, kind)
            self._batch.add(BlockStarted(block.index, "text" if kind is TextDelta else "thinking"))
        return block

    def start_call(self, at: int, kind: Delta, id: str | None, name: str, item_id: str | None) -> None:
        block = self._new((at, WHOLE), kind)
        self._batch.add(BlockStarted(block.index, "tool_use", id, name, item_id))

    def update(self, at: int, hosted: HostedBlock) -> None:
        """All that is known of what the provider does by itself at a position; the first time starts it."""
        block = self._open.get((at, WHOLE)) or self._new((at, WHOLE), None)
        self._batch.add(HostedUpdate(block.index, hosted))

    def reserve(self, at: int) -> None:
        """Keep a place for reasoning, which may turn out last of all to hold anything, ahead of what follows it."""
        if (at, WHOLE) not in self._open and at not in self._reserved:
            self._reserved[at] = self._next_index
            self._next_index += 1

    def say(self, block: Block, text: str) -> None:
        if block.kind is not None:
            block.has_delta = True
            self._batch.delta(block.kind, block.index, text)

    def fill(self, block: Block | None, whole: str | None) -> None:
        """Say the whole of a block of which no delta came (PV-28)."""
        if block is not None and whole and not block.has_delta:
            self.say(block, whole)

    def close(self, at: int | None = None) -> None:
        """Close the blocks of item `at`, or all."""
        for key in [key for key in self._open if at is None or key[0] == at]:
            self._batch.add(BlockStopped(self._open.pop(key).index))

    def _new(self, key: tuple[int, int], kind: Delta | None) -> Block:
        index = self._reserved.pop(key[0], None)
        if index is None:
            index, self._next_index = self._next_index, self._next_index + 1
        block = self._open[key] = Block(index, kind)
        return block
