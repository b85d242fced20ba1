"""The thread of a store that makes what was written survive a power cut (group commit, architecture.md 5).

Owns when files are synced and who is told. Everybody who asks while one round of syncs is under way shares the next,
and what nobody asks about is part of a round within `DELAY_S` of being marked. The calls of a round run side by side:
a file system commits its journal once for all who wait for it. What is synced: see `log.py`.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Protocol

logger = logging.getLogger(__name__)

DELAY_S = 0.1
"""Seconds a marked target may wait when nobody asks for it: what a power cut can take of a turn."""

IDLE_S = 5.0
"""Seconds without work after which the thread ends. The next mark starts another."""

SIDE_BY_SIDE = 6
"""Calls of one round at a time: a turn's end needs three, and a few sessions may end theirs together."""

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Flushable(Protocol):
    """Something whose unsynced writes can be pushed to the disk. Hashed by identity."""

    def begin_flush(self) -> Sequence[Callable[[], None]]:
        """Calls that together sync everything written before this one, in any order, on any thread. Both raise
        `OSError`."""
        ...

    def end_flush(self, error: Exception | None) -> Exception | None:
        """The calls are done, or one of them (or `begin_flush`) failed. Returns what those who asked are told."""
        ...


class GroupCommit:
    """Thread-safe. Its threads start with the first work and never keep the process alive."""

    def __init__(self, *, delay_s: float = DELAY_S, idle_s: float = IDLE_S) -> None:
        self._delay_s = delay_s
        self._idle_s = idle_s
        self._wake = threading.Condition(threading.Lock())
        self._due: dict[Flushable, float] = {}  # oldest first, as all wait equally long
        self._asked: dict[Flushable, list[_Waiter]] = {}
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def mark(self, target: Flushable) -> None:
        """Have `target` synced within the delay. Costs a microsecond."""
        with self._wake:
            if target in self._due:
                return
            is_first = not self._due
            self._due[target] = time.monotonic() + self._delay_s
            if is_first:
                self._rouse()

    async def commit(self, target: Flushable) -> None:
        """Return when a sync of `target` that began after this call is done. Raises what its `end_flush` returned."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        with self._wake:
            self._asked.setdefault(target, []).append((loop, done))
            self._rouse()
        await done

    def close(self) -> None:
        """Sync what is marked and end the thread. Blocks meanwhile. Later work starts it again."""
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
        from concurrent.futures import ThreadPoolExecutor  # slow to import, and not needed at start

        with ThreadPoolExecutor(SIDE_BY_SIDE, "basis-store-sync") as pool:
            while (taken := self._next()) is not None:
                _sync_all(pool, taken)
                del taken  # an idle thread must not keep a closed conversation alive

    def _next(self) -> dict[Flushable, list[_Waiter]] | None:
        """Wait for something to do. `None` ends the thread."""
        with self._wake:
            while True:
                wait_s = self._due_in_s()
                if self._asked or wait_s <= 0:
                    return self._take()
                if self._due:
                    self._wake.wait(wait_s)
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

    def _take(self) -> dict[Flushable, list[_Waiter]]:
        """Everything asked for, then everything due."""
        taken, self._asked = self._asked, {}
        for target in taken:
            self._due.pop(target, None)
        while self._due_in_s() <= 0:
            target = next(iter(self._due))
            del self._due[target]
            taken[target] = []
        return taken


class _Flush:
    """One target in one round. Whoever finishes the last of its calls ends it."""

    def __init__(self, target: Flushable, waiters: list[_Waiter]) -> None:
        self._target = target
        self._waiters = waiters
        self._lock = threading.Lock()
        self._left = 1
        self._error: Exception | None = None

    def begin(self) -> list[Callable[[], None]]:
        calls: Sequence[Callable[[], None]] = ()
        try:
            calls = self._target.begin_flush()
        except Exception as error:
            self._note(error)
        self._left += len(calls)
        self._one_less()
        return [partial(self._run, call) for call in calls]

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._note(error)
        self._one_less()

    def _note(self, error: Exception) -> None:
        if not isinstance(error, OSError):
            logger.error("a sync failed unexpectedly", exc_info=error)
        with self._lock:
            self._error = self._error or error

    def _one_less(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        try:
            told = self._target.end_flush(self._error)
        except Exception as error:
            logger.exception("a sync ended unexpectedly")
            told = error
        if told is not None:
            logger.warning("a sync failed: %s", told)
        for loop, done in self._waiters:
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, done, told)


def _sync_all(pool: Executor, taken: dict[Flushable, list[_Waiter]]) -> None:
    calls = [call for target, waiters in taken.items() for call in _Flush(target, waiters).begin()]
    running = [_submitted(pool, call) for call in calls[:-1]]
    if calls:
        calls[-1]()  # a single one, the usual case, needs no other thread
    for one in running:
        one.result()


def _submitted(pool: Executor, call: Callable[[], None]) -> "Future[None]":
    try:
        return pool.submit(call)
    except RuntimeError:  # the interpreter is ending and starts no threads any more
        call()
        done: Future[None] = Future()
        done.set_result(None)
        return done


def _settle(done: "asyncio.Future[None]", error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
