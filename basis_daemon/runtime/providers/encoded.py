"""A conversation's messages as one wire writes them, kept from one request to the next.

Owns when an encoded message may be used again. What it looks like is the wire's; whose conversation it is, the scope's.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import is_

from basis_daemon.runtime.messages import Message

MAX_KEPT_BYTES = 64 * 1024 * 1024
"""Bytes kept for all conversations of one provider together. The one asked about last always keeps its own."""


class EncodedMessages:
    """Encodes every message of a growing conversation once. One for each conversation; not thread-safe.

    Messages are frozen and told apart by identity: a request whose messages begin with the very objects of the last one
    takes their bytes over, whatever branch, rollback or compaction lies between, and pays for the rest only.
    """

    __slots__ = ("__weakref__", "_encoded", "_messages", "_setting", "_shelf", "_size")

    def __init__(self, shelf: "Shelf | None" = None) -> None:
        self._shelf = shelf
        self._setting: object = None
        self._messages: list[Message] = []
        self._encoded: list[bytes] = []
        self._size = 0

    def of(self, messages: Sequence[Message], encode: Callable[[Message], bytes], setting: object) -> Sequence[bytes]:
        """Each message's bytes, in the order of `messages`; empty where the wire has nothing for one.

        `encode` must depend on nothing but the message and `setting`, which is compared by value. A message that looks
        different while it is near the end (a cache breakpoint, say) is encoded plainly here and anew by the caller,
        who puts it in its place in a copy of what is returned: that costs the marked messages only.
        """
        if setting != self._setting:
            self.drop()
            self._setting = setting
        kept = self._common_prefix(messages)
        if kept < len(self._messages):
            self._size -= sum(map(len, islice(self._encoded, kept, None)))
            del self._messages[kept:], self._encoded[kept:]
        for message in islice(messages, kept, None):
            data = encode(message)
            self._messages.append(message)
            self._encoded.append(data)
            self._size += len(data)
        if self._shelf is not None:
            self._shelf.used(self, self._size)
        return self._encoded

    def drop(self) -> None:
        """Forget everything."""
        # New lists: a sequence that was given out stays what it was.
        self._messages, self._encoded, self._size = [], [], 0

    def _common_prefix(self, messages: Sequence[Message]) -> int:
        size = min(len(self._messages), len(messages))
        if all(map(is_, self._messages, messages)):  # the usual case, which needs no list
            return size
        return list(map(is_, self._messages, messages)).index(False)


class Shelf:
    """Bounds what all conversations of a provider keep; those that were quiet longest are dropped first."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._sizes: weakref.WeakKeyDictionary[EncodedMessages, int] = weakref.WeakKeyDictionary()

    def used(self, encoded: EncodedMessages, size: int) -> None:
        """`encoded` holds `size` bytes now and was used last."""
        self._sizes.pop(encoded, None)
        self._sizes[encoded] = size
        over = sum(self._sizes.values()) - self._max_bytes
        for other in list(self._sizes):
            if over <= 0 or other is encoded:
                return
            over -= self._sizes.pop(other)
            other.drop()


def joined(items: Iterable[bytes]) -> bytes:
    """The items of a JSON array, without its brackets; empty ones are left out."""
    return b",".join(filter(None, items))


def array_body(head: bytes, items: Iterable[bytes], tail: bytes) -> bytes:
    """`head`, the items of a JSON array and `tail`, with one copy of each: a conversation may be megabytes."""
    parts = list(filter(None, items))
    if not parts:
        return head + tail
    parts[0] = head + parts[0]
    parts[-1] += tail
    return b",".join(parts)
