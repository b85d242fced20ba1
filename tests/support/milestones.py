"""Things a test waits for that happen in another thread, on another loop.

Owns the waiting, bounded. Used by the scripted servers.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Hashable
from typing import Any

WAIT_S = 5.0
"""Seconds a wait of a test lasts at most."""


class Milestones:
    """Values that become known once, waited for from any thread and any loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Hashable, Any] = {}
        self._waiting: dict[Hashable, list[concurrent.futures.Future[Any]]] = {}

    def reach(self, key: Hashable, value: Any) -> None:
        with self._lock:
            self._values[key] = value
            waiting = self._waiting.pop(key, [])
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(value)

    async def reached(self, key: Hashable) -> Any:
        return await asyncio.wait_for(asyncio.wrap_future(self._future(key)), WAIT_S)

    def wait(self, key: Hashable, timeout_s: float) -> Any:
        try:
            return self._future(key).result(timeout_s)
        except concurrent.futures.TimeoutError:
            raise TimeoutError(f"{key} was not reached within {timeout_s} s") from None

    def _future(self, key: Hashable) -> "concurrent.futures.Future[Any]":
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._lock:
            if key in self._values:
                future.set_result(self._values[key])
            else:
                self._waiting.setdefault(key, []).append(future)
        return future
