"""Two promises about ending a turn: cancel abandons it, stop lets the round finish and keeps it (TO-2).

Owns the signals. A signal is set once, from any task of the loop that runs the turn.
"""

import asyncio


class Signal:
    """A one-way flag that can be polled and awaited."""

    __slots__ = ("_event", "reason")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason: str | None = None

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self, reason: str | None = None) -> None:
        """Give the signal. Later calls change nothing."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


class CancelSignal(Signal):
    """Hard: the turn fails with `Cancelled` wherever it is and is rolled back."""

    __slots__ = ()


class StopSignal(Signal):
    """Graceful: the turn ends at the next round boundary and what was committed stays."""

    __slots__ = ()
