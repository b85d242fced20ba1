"""One client's socket: bytes in, message bodies out; frames in, bytes out, never more than a bound of them waiting.

Owns framing, fairness between clients and the outbox bound. Does not read JSON and knows no method.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import cast

from basis_protocol import framing

log = logging.getLogger(__name__)

MAX_OUTBOX_BYTES = 16 * 1024 * 1024
"""Bytes that may wait for a client that reads slowly. One more frame than this and its socket is closed."""

HIGH_WATER_BYTES = 256 * 1024
"""Event pumps pause above this, so an unread event stays in the journal and not in the outbox."""

CLOSE_TIMEOUT_S = 2.0
"""Seconds for a client to take the last answer; after that its socket is closed."""

BODIES_PER_TURN = 64
"""Messages of one client handled before others get the loop: a burst of thousands must not delay them."""


class Channel(asyncio.Protocol):
    """The transport side of a connection. `receive` gets each message body; `fault` a sentence when framing breaks."""

    def __init__(self, receive: Callable[[bytes], None], fault: Callable[[str], None]) -> None:
        self._receive = receive
        self._fault = fault
        self._decoder = framing.Decoder()
        self._bodies: deque[bytes] = deque()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._limit = MAX_OUTBOX_BYTES
        self.closed = asyncio.Event()
        self.why_closed = ""

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        try:
            self._bodies.extend(self._decoder.feed(data))
        except framing.FramingError as error:
            self._fault(str(error))
            return
        self._deliver()

    def eof_received(self) -> None:
        self.close("the client left in the middle of a message" if self._decoder.is_mid_frame else "the client left")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._limit = MAX_OUTBOX_BYTES
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.why_closed = self.why_closed or (f"the connection broke: {exc}" if exc else "closed")
        self._bodies.clear()
        # What had come of an unfinished frame goes now, not when the collector gets round to this object.
        self._decoder = framing.Decoder()
        self._writable.set()
        self.closed.set()

    # --- ours ---

    @property
    def is_open(self) -> bool:
        return not self._is_closing

    @property
    def is_congested(self) -> bool:
        """Whether more waits to be written than pumps may add to."""
        return not self._writable.is_set()

    def send(self, frames: bytes) -> None:
        """Write whole frames; never waits. A client over the bound is disconnected instead (protocol.md 1)."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > self._limit:
            log.warning("disconnected a client that doesn't read what it is sent")
            self.abort("it doesn't read what it is sent")
            return
        # A single answer may be as large as a frame can be: it is not its reader's fault that it takes a while.
        self._limit = max(self._limit, MAX_OUTBOX_BYTES + len(frames))
        transport.write(frames)

    async def drained(self) -> None:
        """Return when the client has read enough for more, or is gone."""
        await self._writable.wait()

    def close(self, why: str) -> None:
        """Close after what was sent has been written, or cannot be."""
        if self._transport is not None and not self._transport.is_closing():
            self.why_closed = why
            self._bodies.clear()
            self._transport.close()
            asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self._transport.abort)

    def abort(self, why: str) -> None:
        """Close now; what was not read yet is lost."""
        if self._transport is not None:
            self.why_closed = self.why_closed or why
            self._transport.abort()

    @property
    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _deliver(self) -> None:
        for _ in range(BODIES_PER_TURN):
            if not self._bodies:
                break
            self._receive(self._bodies.popleft())
        if self._is_closing or self._transport is None:
            return
        if self._bodies:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._deliver)
        else:
            self._transport.resume_reading()
