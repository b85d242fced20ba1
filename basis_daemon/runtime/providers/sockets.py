"""TCP and TLS for the HTTP library, on asyncio's own protocols.

Owns opening, reading and closing of connections, and how often a stream that runs fast is read: a token every few
milliseconds would wake the process for each, though no screen shows them one by one. Knows no HTTP. Import it where it
is first used: the HTTP library is slow to load.
"""

import asyncio
import errno
import ssl
from collections.abc import Iterable
from typing import Any, cast

import httpcore2

GATHER_S = 0.02
"""Seconds between two reads of a fast stream: fifty a second look continuous, and most wake-ups are saved."""
FAST_S = 0.025
"""Reads closer to one another than this, in seconds, are those of a fast stream."""
SMALL_BYTES = 8 * 1024
"""A read above this has gathered enough: whoever is that far ahead isn't made to wait."""
FAST_READS = 8
"""Small reads in quick succession after which a stream counts as fast: neither a document's few pieces nor what comes
ahead of a first token ever wait."""
HIGH_WATER_BYTES = 512 * 1024
"""Bytes nobody has read yet above which the other side is not read from."""
SECOND_ADDRESS_S = 0.25
"""Seconds after which the next address of a host is tried beside the first (RFC 8305)."""


class Sockets(httpcore2.AsyncNetworkBackend):
    """Opens connections."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        local = None if local_address is None else (local_address, 0)
        try:
            async with asyncio.timeout(timeout):
                _, flow = await asyncio.get_running_loop().create_connection(
                    _Flow, host, port, local_addr=local, happy_eyeballs_delay=SECOND_ADDRESS_S
                )
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from (ConnectionRefusedError() if _is_refusal(error) else error)
        return _Stream(flow)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _is_refusal(error: OSError) -> bool:
    """Whether all addresses refused. Where there are several, asyncio leaves nothing of the errors but their words."""
    text = str(error)
    return text.count("[Errno ") == text.count(f"[Errno {errno.ECONNREFUSED}]") > 0


class _Flow(asyncio.Protocol):
    """What has come and nobody has read, and whether more may be written."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.buffer = bytearray()
        self.error: Exception | None = None
        self.is_over = False
        self._is_paused = False
        self._reader: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._wake()
        if len(self.buffer) > HIGH_WATER_BYTES:
            self.pause()

    def eof_received(self) -> None:
        self.is_over = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.error, self.is_over = exc, True
        self._writable.set()
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def pause(self) -> None:
        """Leave what comes to the system's buffers: nothing is woken by it."""
        if not self._is_paused and self.transport is not None and not self.is_over:
            self._is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused and self.transport is not None:
            self._is_paused = False
            if not self.is_over:
                self.transport.resume_reading()

    async def readable(self, not_before: float | None = None) -> None:
        """Return once there is something to read, or nothing will come any more.

        Until the loop's time is `not_before`, what comes is left to gather where it wakes nobody.
        """
        if self.buffer or self.is_over:
            return
        loop = asyncio.get_running_loop()
        timer = None
        if not_before is not None and not_before > loop.time():
            self.pause()
            timer = loop.call_at(not_before, self.resume)
        else:
            self.resume()
        self._reader = loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None
            if timer is not None:
                timer.cancel()

    async def writable(self) -> None:
        await self._writable.wait()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class _Stream(httpcore2.AsyncNetworkStream):
    """One connection, as the HTTP library and websockets use it."""

    def __init__(self, flow: _Flow) -> None:
        self._flow = flow
        self._read_at = 0.0
        self._fast_reads = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, at most `max_bytes`; nothing once the other side has ended."""
        flow = self._flow
        if not flow.buffer and not flow.is_over:
            not_before = self._read_at + GATHER_S if self._fast_reads >= FAST_READS else None
            try:
                async with asyncio.timeout(timeout):
                    await flow.readable(not_before)
            except TimeoutError as error:
                raise httpcore2.ReadTimeout("nothing came in time") from error
        if not flow.buffer and flow.error is not None:
            raise httpcore2.ReadError(str(flow.error)) from flow.error
        data = bytes(flow.buffer[:max_bytes])
        del flow.buffer[:max_bytes]
        if len(flow.buffer) <= HIGH_WATER_BYTES:
            flow.resume()  # an idle connection has to notice that it was closed
        self._count(len(data))
        return data

    def _count(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        is_fast = size < SMALL_BYTES and now - self._read_at < FAST_S
        self._fast_reads = self._fast_reads + 1 if is_fast else 0
        self._read_at = now

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        flow = self._flow
        if flow.transport is None or flow.is_over or flow.transport.is_closing():
            raise httpcore2.WriteError("the connection is closed") from flow.error
        self._fast_reads = 0
        flow.transport.write(buffer)
        try:
            async with asyncio.timeout(timeout):
                await flow.writable()
        except TimeoutError as error:
            raise httpcore2.WriteTimeout("it was not taken in time") from error
        if flow.error is not None:
            raise httpcore2.WriteError(str(flow.error)) from flow.error

    async def aclose(self) -> None:
        if self._flow.transport is not None:
            self._flow.transport.abort()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """The same connection, from now on in TLS; it is closed when that fails or is cancelled."""
        flow = self._flow
        assert flow.transport is not None
        try:
            async with asyncio.timeout(timeout):
                secure = await asyncio.get_running_loop().start_tls(
                    flow.transport, flow, ssl_context, server_hostname=server_hostname
                )
        except BaseException as error:
            flow.transport.abort()
            if isinstance(error, TimeoutError):
                raise httpcore2.ConnectTimeout("TLS took too long") from error
            if isinstance(error, OSError):  # with it everything `ssl` raises
                raise httpcore2.ConnectError(str(error)) from error
            raise
        if secure is None:
            raise httpcore2.ConnectError("the connection was closed ahead of TLS") from flow.error
        flow.transport = secure
        return self

    def get_extra_info(self, info: str) -> Any:
        flow = self._flow
        if info == "is_readable":
            return bool(flow.buffer) or flow.is_over
        names = {"ssl_object": "ssl_object", "client_addr": "sockname", "server_addr": "peername", "socket": "socket"}
        return None if flow.transport is None or info not in names else flow.transport.get_extra_info(names[info])
