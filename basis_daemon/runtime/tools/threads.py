"""File work off the event loop that stops when the call is cancelled."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


class Stopped(Exception):
    """The call this work was for is gone. Seen by nobody but the worker thread."""


class Stop:
    """Asked between steps of a long piece of work, and before the one that changes something."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raise `Stopped` if the work is no longer wanted."""
        if self._event.is_set():
            raise Stopped


async def in_thread(work: Callable[[Stop], T]) -> T:
    """Run `work` in a thread. Cancelling tells it to stop and waits until it has, so nothing is changed afterwards."""
    stop = Stop()
    running = asyncio.get_running_loop().run_in_executor(None, work, stop)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise
