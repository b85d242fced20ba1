"""Where one reader stands in one session's numbered events. No I/O, standard library only.

Numbers start at 1 and have no holes, so one integer is all there is to remember: what was seen, what is old, and
whether something is missing. That is what makes "nothing lost, nothing twice" hold across reconnections.
"""

from __future__ import annotations

NEXT = "next"
"""The event that was due: show it."""

OLD = "old"
"""Seen before: drop it."""

GAP = "gap"
"""Something before it is missing: attach again after `seen`."""


class Cursor:
    """The last event number seen, or `None` while no place in the stream is known."""

    __slots__ = ("seen",)

    def __init__(self, seen: int | None = None) -> None:
        self.seen = seen

    def take(self, seq: int) -> str:
        """Say what to do with event `seq`, and move on if it is the one that was due."""
        if self.seen is None or seq == self.seen + 1:
            self.seen = seq
            return NEXT
        return OLD if seq <= self.seen else GAP

    def attached(self, *, after_seq: int | None, seq: int, has_snapshot: bool) -> None:
        """Take the answer to an attach: events above `after_seq` follow, or, with a snapshot, those above `seq`."""
        self.seen = seq if has_snapshot or after_seq is None else after_seq
