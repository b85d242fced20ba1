"""A number that a child and everything it starts carries, and can't lose by accident.

On Linux a process inherits its resource limits whatever it does: changing session, losing its parent and clearing its
environment leave them alone. The limit on real-time CPU time is unlimited practically everywhere and counts nothing
here; as a soft limit beyond any possible use it is a tag that `/proc` shows. A process that raises it on purpose loses
it: this finds, it does not confine.
"""

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import count

_LIMIT: int | None = getattr(resource, "RLIMIT_RTTIME", None)
"""`None` where the system is no Linux."""

_FIRST = 1 << 62
"""Microseconds: over a hundred thousand years. Every tag is above it."""

_COUNTER_BITS = 22

INSTANCE = int.from_bytes(os.urandom(4), "big")
"""This process, among all that ever tag children."""

_counter = count(1)


def new_tag() -> int | None:
    """A tag no other child has; `None` where processes can't be tagged."""
    return None if _LIMIT is None else _tag(INSTANCE, next(_counter))


def instance_of(tag: int) -> int:
    """The `INSTANCE` that gave a tag."""
    return (tag - _FIRST) >> _COUNTER_BITS


def _tag(instance: int, number: int) -> int:
    return _FIRST + (instance << _COUNTER_BITS) + number % (1 << _COUNTER_BITS)


@contextmanager
def inherited(tag: int | None) -> Generator[None]:
    """While this is open, what this thread starts carries `tag`. Open it for one start, on the loop's thread."""
    if tag is None or _LIMIT is None:
        yield
        return
    soft, hard = resource.getrlimit(_LIMIT)
    if hard != resource.RLIM_INFINITY:
        yield
        return
    resource.setrlimit(_LIMIT, (tag, hard))
    try:
        yield
    finally:
        resource.setrlimit(_LIMIT, (soft, hard))


def tag_of(pid: int) -> int | None:
    """The tag a process carries, if it has one and this system tells."""
    text = b""
    with suppress(OSError), open(f"/proc/{pid}/limits", "rb") as file:
        text = file.read()
    _, found, rest = text.partition(b"Max realtime timeout")
    word = rest.split(maxsplit=1)[0] if found else b""
    return int(word) if word.isdigit() and int(word) > _FIRST else None
