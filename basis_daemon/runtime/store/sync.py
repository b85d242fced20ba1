"""The one thread of a store that makes what was written survive a power cut (group commit, architecture.md 5).

Owns when files are synced and who is told. Everybody who asks about one target while it waits its turn shares one
flush, and what nobody asks about is flushed within `DELAY_S` of being marked. What a flush does: see `log.py`.
"""

import asyncio
import logging
import threading
import time
from typing import Protocol

from basis_daemon.errors import StoreError

logger = logging.getLogger(__name__)

DELAY_S = 0.1
"""Seconds a marked target may wait when nobody asks for it: what a power cut can take of a turn."""

IDLE_S = 5.0
"""Seconds without work after which the thread ends. The next mark starts another."""

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Flushable(Protocol):
    """Something whose unsynced writes can be pushed to the disk. Hashed by identity."""

    def flush(self) -> None:
        """Sync everything written before this call. Runs on the sync thread. Raises `StoreError`."""
        ...


class GroupCommit:
    """Thread-safe. The thread starts with the first work and never keeps the process alive."""

    def __init__(self, *, delay_s: float = DELAY_S, idle_s: float = IDLE_S) -> None:
        self._delay_s = delay_s
        self._idle_s = idle_s
        self._wake = threading.Condition(threading.Lock())
        self._due: dict[Flushable, float] = {}  # oldest first, as all wait equally long
        self._asked: dict[Flushable, list[_Waiter]] = {}
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._served_waiter = False

    def mark(self, target: Flushable) -> None:
        """Have `target` flushed within the delay. Costs a microsecond."""
        with self._wake:
            if target in self._due:
                return
            is_first = not self._due
            self._due[target] = time.monotonic() + self._delay_s
            if is_first:
                self._rouse()

    async def commit(self, target: Flushable) -> None:
        """Return when a flush of `target` that began after this call is done. Raises what it raised."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        with self._wake:
            self._asked.setdefault(target, []).append((loop, done))
            self._rouse()
        await done

    def close(self) -> None:
        """Flush what is marked and end the thread. Blocks meanwhile. Later work starts it again."""
        with self._wake:
            thread = self._thread
            if thread is None:
                return
            self._is_closing = True
            self._wake.notify()
        thread.join()

    def _rouse(self) -> None:
        if self._thread is not None:
            self._wake.notify()
            return
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="basis-store-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            target, waiters = work
            _tell(waiters, _flush(target))
            del work, target, waiters  # an idle thread must not keep a closed conversation alive

    def _next(self) -> tuple[Flushable, list[_Waiter]] | None:
        """Wait for a target whose turn has come. `None` ends the thread."""
        with self._wake:
            while True:
                due_in_s = self._due_in_s()
                # Somebody waits for those asked for; but the others' bound must hold under load, so they alternate.
                if self._asked and not (due_in_s <= 0 and self._served_waiter):
                    self._served_waiter = True
                    return self._take(next(iter(self._asked)))
                if due_in_s <= 0:
                    self._served_waiter = False
                    return self._take(next(iter(self._due)))
                if self._due:
                    self._wake.wait(due_in_s)
                    continue
                is_roused = not self._is_closing and self._wake.wait(self._idle_s)
                if not is_roused and not self._due and not self._asked:
                    self._thread = None
                    return None

    def _due_in_s(self) -> float:
        """Seconds until the oldest marked target is due; `inf` with none, nothing while closing."""
        for deadline in self._due.values():
            return 0.0 if self._is_closing else deadline - time.monotonic()
        return float("inf")

    def _take(self, target: Flushable) -> tuple[Flushable, list[_Waiter]]:
        self._due.pop(target, None)
        return target, self._asked.pop(target, [])


def _flush(target: Flushable) -> Exception | None:
    try:
        target.flush()
    except StoreError as error:
        logger.warning("a sync failed: %s", error)
        return error
    except Exception as error:
        logger.exception("a sync failed unexpectedly")
        return error
    return None


def _tell(waiters: list[_Waiter], error: Exception | None) -> None:
    for loop, done in waiters:
        try:
            loop.call_soon_threadsafe(_settle, done, error)
        except RuntimeError:  # the loop has closed: nobody waits any more
            logger.debug("a waiter's loop is closed")


def _settle(done: "asyncio.Future[None]", error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
