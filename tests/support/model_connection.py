"""One connection of the scripted model: keep-alive, chunked bodies, websockets, clients that leave in the middle.

Owns bytes and pacing. What is answered is decided by `model_server.py`.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.model_turns import Delivery, Failure
from support.model_wires import Piece, compact, error_body

if TYPE_CHECKING:
    from support.model_socket import ModelSocket

SWITCHING_PROTOCOLS = 101
Ended = Callable[[Any], None]
AS_IT_COMES = Delivery()
FLUSH_BYTES = 65_536
"""Body bytes gathered before they are written."""
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


def _nobody(_: Any) -> None:
    """Nobody asked how it ended."""


@dataclass(frozen=True)
class Answer:
    """A response: status, headers, the pieces of its body, how they travel, and who is told how it ended."""

    status: int
    headers: Mapping[str, str]
    pieces: Iterable[Piece]
    delivery: Delivery = AS_IT_COMES
    ended: Ended = _nobody

    @classmethod
    def of_json(
        cls,
        status: int,
        value: Any,
        *,
        delivery: Delivery = AS_IT_COMES,
        ended: Ended = _nobody,
    ) -> "Answer":
        return cls(
            status, {"content-type": "application/json"}, [Piece(compact(value).encode(), False)], delivery, ended
        )

    @classmethod
    def of_failure(cls, failure: Failure, ended: Ended) -> "Answer":
        body = error_body(failure.status) if failure.body is None else failure.body
        data = (
            body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        )
        headers = {"content-type": "application/json", **failure.headers}
        return cls(failure.status, headers, [Piece(data, False)], failure.delivery, ended)


class Connection(asyncio.Protocol):
    """Reads requests one after another and answers each before the next."""

    def __init__(
        self,
        number: int,
        arrived: Callable[[int, str, str, dict[str, str], bytes], Answer],
        tasks: asyncio.TaskGroup,
        registry: "set[Connection]",
    ) -> None:
        self._number = number
        self._arrived = arrived
        self._tasks = tasks
        self._registry = registry
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._answering: asyncio.Task[None] | None = None
        self._is_lost = False
        self._socket: ModelSocket | None = None
        self._messages: list[bytes] = []
        self._handshake: tuple[str, dict[str, str]] | None = None

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._writable.set()
        self._registry.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._registry.discard(self)
        if self._answering is not None:
            self._answering.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.feed(data)
        else:
            self._buffer += data
        self._next()

    def abort(self) -> None:
        """Drop the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # --- one request --------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        if self._answering is not None or self._is_lost:
            return
        if self._handshake is not None:
            self._next_message(*self._handshake)
            return
        head = bytes(self._buffer)
        request = self._parse()
        if request is not None:
            answer = self._arrived(self._number, *request)
            if answer.status == SWITCHING_PROTOCOLS:
                self._switch(request[1], request[2], head, answer.headers)
                return
            self._answering = self._tasks.create_task(self._send(answer))

    def _switch(self, target: str, headers: dict[str, str], head: bytes, added: Mapping[str, str]) -> None:
        """Go on as a websocket, each of whose messages is a request."""
        from support.model_socket import ModelSocket  # wants a library that is there for tests alone

        self._socket = ModelSocket(self._write, self._messages.append)
        self._handshake = (target, headers)
        self._socket.accept(head, dict(added))

    def _next_message(self, target: str, headers: dict[str, str]) -> None:
        if self._messages:
            answer = self._arrived(self._number, "POST", target, headers, self._messages.pop(0))
            self._answering = self._tasks.create_task(self._send(answer))

    def _parse(self) -> tuple[str, str, dict[str, str], bytes] | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        taken = self._body(headers, end + 4)
        if taken is None:
            return None
        body, after = taken
        del self._buffer[:after]
        return method, target, headers, body

    def _body(self, headers: dict[str, str], start: int) -> tuple[bytes, int] | None:
        """The body and the position after it, or `None` while it is incomplete."""
        if "chunked" not in headers.get("transfer-encoding", ""):
            end = start + int(headers.get("content-length", 0))
            return (bytes(self._buffer[start:end]), end) if len(self._buffer) >= end else None
        body = bytearray()
        while (line := self._buffer.find(b"\r\n", start)) >= 0:
            size = int(self._buffer[start:line].split(b";")[0], 16)
            if len(self._buffer) < line + 4 + size:
                return None
            body += self._buffer[line + 2 : line + 2 + size]
            start = line + 4 + size
            if not size:
                return bytes(body), start
        return None

    # --- one answer ---------------------------------------------------------------------------------------------------

    async def _send(self, answer: Answer) -> None:
        try:
            how = await self._deliver(answer)
        except asyncio.CancelledError:
            answer.ended("client_left")
            if not self._is_lost:
                raise
            return
        answer.ended(how)
        self._answering = None
        if how == "sent":
            self._next()

    async def _deliver(self, answer: Answer) -> str:
        delivery = answer.delivery
        if delivery.hang_before_headers:
            await asyncio.Event().wait()
        if self._socket is not None:
            return await self._deliver_messages(self._socket, answer)
        reason = REASONS.get(answer.status, "Scripted")
        fields = {**answer.headers, "transfer-encoding": "chunked"}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._write(f"HTTP/1.1 {answer.status} {reason}\r\n{head}\r\n".encode("latin-1"))
        body = Body(self._write, self._writable, delivery)
        if await body.send(answer.pieces):
            self._write(b"0\r\n\r\n")
            return "sent"
        if delivery.cut_how == "end":
            self._write(b"0\r\n\r\n")
        elif delivery.cut_how == "reset":
            self._reset()
        elif self._transport is not None:
            self._transport.close()
        return "cut"

    async def _deliver_messages(self, socket: "ModelSocket", answer: Answer) -> str:
        from support.model_socket import FramedBody, error_message

        if answer.status >= 400:
            self._write(socket.framed(error_message(answer)))
            return "sent"
        body = FramedBody(socket, self._write, self._writable, answer.delivery)
        if await body.send(answer.pieces):
            return "sent"
        if answer.delivery.cut_how == "reset":
            self._reset()
        elif self._transport is not None:
            socket.close(answer.delivery.close_code)
            self._transport.close()
        return "cut"

    def _reset(self) -> None:
        """Close without the handshake of a regular end: the client's next read fails."""
        if self._transport is not None:
            linger_not = struct.pack("ii", 1, 0)
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._is_lost:
            self._transport.write(data)


class Body:
    """Sends the pieces of one body as its delivery says, joining what need not be apart into one write."""

    def __init__(self, write: Callable[[bytes], None], writable: asyncio.Event, delivery: Delivery) -> None:
        self._write = write
        self._writable = writable
        self._delivery = delivery
        self._chunk = bytearray()
        self._chunks = bytearray()
        self._deltas = 0
        self._bytes_left = delivery.cut_after_bytes
        self._junk = delivery.junk

    async def send(self, pieces: Iterable[Piece]) -> bool:
        """True when everything was sent, false when the script cuts it short."""
        for piece in _with_end(pieces):
            if not await self._before(piece):
                await self._flush()
                return False
            if piece is not None and not self._add(piece.data):
                await self._flush()
                return False
            if len(self._chunks) > FLUSH_BYTES:
                await self._flush()
        await self._flush()
        return True

    async def _before(self, piece: Piece | None) -> bool:
        """Do what the delivery wants ahead of `piece` (`None` is the end); false when it ends the body here."""
        delivery = self._delivery
        if self._junk is not None and self._is_at(delivery.junk_after_deltas, piece):
            self._add(self._junk)
            self._junk = None
        if self._is_at(delivery.cut_after_deltas, piece):
            return False
        if self._is_at(delivery.hang_after_deltas, piece):
            await self._flush()
            await asyncio.Event().wait()
        if piece is None or not piece.is_delta:
            return True
        if delivery.delay_s:
            await self._flush()
            await asyncio.sleep(delivery.delay_s)
        if delivery.gate and delivery.gate_before in (None, self._deltas):
            await self._flush()
            await delivery.gate.passage()
        self._deltas += 1
        return True

    def _is_at(self, deltas: int | None, piece: Piece | None) -> bool:
        """Whether exactly `deltas` deltas are out; 0 is ahead of the first delta, behind the opening events."""
        return deltas is not None and self._deltas >= deltas and (deltas > 0 or piece is None or piece.is_delta)

    def _add(self, data: bytes) -> bool:
        """Append to the body; false when the script's byte limit falls inside `data`."""
        if self._bytes_left is not None:
            data = data[: self._bytes_left]
            self._bytes_left -= len(data)
        self._chunk += data
        if len(self._chunk) >= (self._delivery.burst_bytes or 0):
            self._end_chunk()
        return self._bytes_left is None or self._bytes_left > 0

    def _end_chunk(self) -> None:
        if self._chunk:
            self._chunks += b"%x\r\n%b\r\n" % (len(self._chunk), self._chunk)
            self._chunk.clear()

    async def _flush(self) -> None:
        self._end_chunk()
        if self._chunks:
            self._write(bytes(self._chunks))
            self._chunks.clear()
            await self._writable.wait()


def _with_end(pieces: Iterable[Piece]) -> Iterator[Piece | None]:
    yield from pieces
    yield None
