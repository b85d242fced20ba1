"""Connections under the HTTP library (`providers/sockets.py`): nothing lost, nothing left open, fast ones gathered."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import httpcore2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_daemon.runtime.providers.sockets import HIGH_WATER_BYTES, Sockets

pytestmark = pytest.mark.anyio
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connected(serve: Serve) -> AsyncGenerator[httpcore2.AsyncNetworkStream]:
    """A connection to a server that does `serve` with it and then closes it."""
    served = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except OSError:  # the client is gone
            pass
        finally:
            writer.transport.abort()
            served.set()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        stream = await Sockets().connect_tcp("127.0.0.1", server.sockets[0].getsockname()[1], timeout=5)
        try:
            with anyio.fail_after(10):
                yield stream
        finally:
            await stream.aclose()
            with anyio.fail_after(5, shield=True):
                await served.wait()


async def read_all(stream: httpcore2.AsyncNetworkStream, max_bytes: int = 65536) -> list[bytes]:
    """Every read until the other side ends."""
    reads: list[bytes] = []
    while data := await stream.read(max_bytes, timeout=5):
        assert len(data) <= max_bytes
        reads.append(data)
    return reads


async def test_reads_of_a_fast_stream_are_gathered_and_nothing_is_lost() -> None:
    """The per-token budget: a token every millisecond doesn't wake the process for each."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(200):
            writer.write(b"%04d" % number)
            await asyncio.sleep(0.001)
        writer.write_eof()
        await _.read()

    async with connected(serve) as stream:
        reads = await read_all(stream)
    assert b"".join(reads) == b"".join(b"%04d" % number for number in range(200))
    assert len(reads) < 100


async def test_end_of_a_fast_stream_comes_with_its_last_bytes() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(30):
            writer.write(b"x")
            await asyncio.sleep(0.001)
        writer.write(b"last")
        writer.write_eof()
        await reader.read()

    async with connected(serve) as stream:
        assert b"".join(await read_all(stream)).endswith(b"last")
        assert await stream.read(10, timeout=1) == b""


@settings(deadline=None, max_examples=25)
@given(pieces=st.lists(st.binary(min_size=1, max_size=3000), min_size=1, max_size=40), max_bytes=st.integers(1, 5000))
async def test_bytes_come_in_order_whatever_their_pieces(pieces: list[bytes], max_bytes: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        await reader.read()

    async with connected(serve) as stream:
        assert b"".join(await read_all(stream, max_bytes)) == b"".join(pieces)


async def test_server_far_ahead_is_not_read_without_bound() -> None:
    """What nobody reads stays with the sender: its writes stop being taken, and go on once somebody reads."""
    total = 64 * HIGH_WATER_BYTES
    blocked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)
        for _ in range(64):
            writer.write(b"y" * HIGH_WATER_BYTES)
            with anyio.move_on_after(0.05) as scope:
                await writer.drain()
            if scope.cancelled_caught:
                blocked.set()
                await writer.drain()
        writer.write_eof()
        await reader.read()

    async with connected(serve) as stream:
        first = await stream.read(1, timeout=5)
        await blocked.wait()
        assert len(first) + sum(map(len, await read_all(stream))) == total


async def test_connection_that_was_ahead_still_notices_its_end() -> None:
    """Else one that is kept for the next request would only fail with it."""
    size = HIGH_WATER_BYTES + 8
    sent, end = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)
        writer.write(b"z" * size)
        await writer.drain()
        sent.set()
        await end.wait()

    async with connected(serve) as stream:
        await sent.wait()
        for _ in range(100):  # all of it comes before any is taken
            await anyio.lowlevel.checkpoint()
        while size:
            size -= len(await stream.read(65536, timeout=5))
        assert not stream.get_extra_info("is_readable")
        end.set()
        while not stream.get_extra_info("is_readable"):
            await anyio.lowlevel.checkpoint()
        assert await stream.read(10, timeout=5) == b""


async def test_silence_ends_a_read_in_time_and_the_connection_can_still_be_read() -> None:
    """PV-18."""
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(b"late")
        await reader.read()

    async with connected(serve) as stream:
        with pytest.raises(httpcore2.ReadTimeout):
            await stream.read(10, timeout=0.02)
        go.set()
        assert await stream.read(10, timeout=5) == b"late"


async def test_cancelled_read_loses_nothing() -> None:
    """CV-7: in the middle of a fast stream too."""
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(20):
            writer.write(b"%02d" % number)
            await asyncio.sleep(0.001)
        await go.wait()
        writer.write(b"end")
        writer.write_eof()
        await reader.read()

    async with connected(serve) as stream:
        seen = b""
        while len(seen) < 40:
            with anyio.move_on_after(0.003):
                seen += await stream.read(100, timeout=5)
        with anyio.move_on_after(0.01):
            await stream.read(100, timeout=5)
        go.set()
        assert seen + b"".join(await read_all(stream)) == b"".join(b"%02d" % n for n in range(20)) + b"end"


async def test_connection_that_is_reset_fails_the_read_and_every_write() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        import socket
        import struct

        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with connected(serve) as stream:
        await stream.write(b"x", timeout=5)
        with pytest.raises(httpcore2.ReadError):
            await stream.read(10, timeout=5)
        with pytest.raises(httpcore2.WriteError):
            await stream.write(b"y", timeout=5)


async def test_server_that_takes_nothing_ends_a_write_in_time() -> None:
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()  # the reader stops taking once its buffer is full

    async with connected(serve) as stream:
        with pytest.raises(httpcore2.WriteTimeout):
            await stream.write(b"z" * (64 << 20), timeout=0.1)
        over.set()


async def test_idle_connection_that_was_closed_is_known_to_be() -> None:
    """So that the pool gives out another instead of sending a request into nothing."""
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closed.wait()

    async with connected(serve) as stream:
        assert not stream.get_extra_info("is_readable")
        closed.set()
        assert await stream.read(1, timeout=5) == b""
        assert stream.get_extra_info("is_readable")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_refused_connection_is_known_for_one_whatever_the_addresses(host: str, unused_tcp_port: int) -> None:
    """Of several addresses' errors asyncio keeps the words alone."""
    with pytest.raises(httpcore2.ConnectError) as caught:
        await Sockets().connect_tcp(host, unused_tcp_port, timeout=5)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


@pytest.fixture
async def unused_tcp_port() -> int:
    """A port nobody listens at."""
    async with await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0) as server:
        return server.sockets[0].getsockname()[1]
