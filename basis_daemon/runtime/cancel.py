"""Two promises about ending a turn: cancel abandons it, stop lets the round finish and keeps it (TO-2).

Owns the signals. A signal is set once, from any task of the loop that runs the turn.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Signal:
    """A one-way flag that can be polled and awaited."""

    __slots__ = ("_callbacks", "_event", "reason")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._callbacks: list[Callable[[], object]] = []
        self.reason: str | None = None

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self, reason: str | None = None) -> None:
        """Give the signal. Later calls change nothing."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()
            for callback in tuple(self._callbacks):
                callback()

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Generator[None]:
        """Within the block, `callback` is called once when the signal is given; at once if it already was."""
        self._callbacks.append(callback)
        try:
            if self.is_set:
                callback()
            yield
        finally:
            self._callbacks.remove(callback)

    async def wait(self) -> None:
        await self._event.wait()


class CancelSignal(Signal):
    """Hard: the turn fails with `Cancelled` wherever it is and is rolled back."""

    __slots__ = ()


class StopSignal(Signal):
    """Graceful: the turn ends at the next round boundary and what was committed stays."""

    __slots__ = ()
