"""Moves events from journals to one client, as fast as it reads and never faster.

Owns the client's cursors. The journal is the only buffer: a client that reads slowly has a cursor further back, and
one that falls behind what the journal kept is told so (`basis/session/lagged`) and let go.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from basis_daemon.server import frames
from basis_daemon.server.channel import Channel
from basis_daemon.server.journal import Journal, JournalTrimmed
from basis_protocol.events import SessionLagged

log = logging.getLogger(__name__)

BATCH_BYTES = 64 * 1024
"""About one socket buffer: larger writes only wait, smaller ones cost a system call each."""

PACE_S = 0.001
"""Seconds between two deliveries to one client, unless nothing came for that long. A lone event goes out at once; of a
stream that emits one by one each write then takes what a millisecond brought, at a tenth of the cost."""

LAST_BYTES = 1024 * 1024
"""What a client is still given at once of a session that ends under it."""


class Watch:
    """One client's place in one session's events: everything numbered above `cursor` is still owed."""

    __slots__ = ("_pump", "cursor", "journal", "on_lagged")

    def __init__(self, journal: Journal, cursor: int, pump: "EventPump", on_lagged: Callable[[], None]) -> None:
        self.journal = journal
        self.cursor = cursor
        self.on_lagged = on_lagged
        self._pump = pump

    def start(self) -> None:
        """Begin delivery."""
        self.journal.watch(self)
        self._pump.ready(self)

    def stop(self) -> None:
        self.journal.unwatch(self)
        self._pump.forget(self)

    def finish(self) -> None:
        """Deliver at once what is still owed, then stop: the session ends. A client too far behind is told so."""
        self._pump.deliver_rest(self)
        self.stop()

    def wake(self) -> None:
        """The journal has something new (called after each of its flushes)."""
        self._pump.ready(self)


class EventPump:
    """All watches of one connection, served in turn by one task."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._ready: dict[Watch, None] = {}
        self._signal = asyncio.Event()

    def ready(self, watch: Watch) -> None:
        self._ready[watch] = None
        self._signal.set()

    def forget(self, watch: Watch) -> None:
        self._ready.pop(watch, None)

    def deliver_rest(self, watch: Watch) -> None:
        """Everything owed to `watch`, now, if it is in memory."""
        budget = LAST_BYTES
        with suppress(JournalTrimmed):
            # More than one step: what other clients were given at this place may have been cut earlier.
            while watch.cursor < watch.journal.shown_seq and budget > 0:
                batch = watch.journal.recent(watch.cursor, budget)
                if batch is None:
                    break
                self._channel.send(batch.frames)
                watch.cursor = batch.last_seq
                budget -= len(batch.frames)
        if watch.cursor < watch.journal.shown_seq:
            self._tell_lagged(watch)

    async def run(self) -> None:
        """Deliver until cancelled."""
        loop = asyncio.get_running_loop()
        delivered_at = 0.0
        while True:
            await self._signal.wait()
            pause_s = delivered_at + PACE_S - loop.time()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            self._signal.clear()
            while self._ready:
                if self._channel.is_congested:
                    await self._channel.drained()
                    continue
                watch = next(iter(self._ready))
                del self._ready[watch]
                await self._deliver(watch)
            delivered_at = loop.time()

    async def _deliver(self, watch: Watch) -> None:
        try:
            batch = watch.journal.recent(watch.cursor, BATCH_BYTES)
            if batch is None:
                batch = await watch.journal.replay(watch.cursor, BATCH_BYTES)
        except JournalTrimmed:
            self._let_go(watch)
            return
        if not batch.frames or not watch.journal.is_watched_by(watch):
            return
        self._channel.send(batch.frames)
        watch.cursor = batch.last_seq
        if watch.cursor < watch.journal.shown_seq:
            # Back to the end of the line: other sessions of this client get their turn.
            self._ready[watch] = None

    def _let_go(self, watch: Watch) -> None:
        watch.stop()
        self._tell_lagged(watch)
        watch.on_lagged()

    def _tell_lagged(self, watch: Watch) -> None:
        session_id = watch.journal.session_id
        self._channel.send(
            frames.notification("basis/session/lagged", SessionLagged(session_id=session_id, seq=watch.cursor))
        )
        log.info("a client fell behind", extra={"session": session_id, "seq": watch.cursor})
