"""Frames to messages and back on one asyncio connection.

Owns request ids, the futures waiting for answers, and the order of things: an answer's consequences take place before
the message after it is looked at. Does not reconnect, and knows no method by name except `$/cancelRequest`.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import cast

import msgspec

from basis_client.errors import BAD_PEER, CONNECTION_LOST, ClientError
from basis_protocol.errors import METHOD_NOT_FOUND
from basis_protocol.framing import Decoder, FramingError, encode

Route = Callable[[str, bytes], None]
OnAnswer = Callable[[bytes], None]


class _Message(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"")


class _Waiting(msgspec.Struct, frozen=True):
    answer: asyncio.Future[bytes]
    on_answer: OnAnswer | None


_read_message = msgspec.json.Decoder(_Message).decode


class Link(asyncio.Protocol):
    """One connection, until `lost` is set. Notifications go to `route` as (method, params as JSON)."""

    def __init__(self, route: Route) -> None:
        self.lost = asyncio.Event()
        self._route = route
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._last_id = 0
        self._cause = ClientError("the daemon closed the connection", kind=CONNECTION_LOST)

    @classmethod
    async def over(cls, connected: socket.socket, route: Route) -> "Link":
        link = cls(route)
        try:
            connected.setblocking(False)
            await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=connected)
        except BaseException:
            connected.close()
            raise
        return link

    async def request(self, method: str, params: bytes, *, on_answer: OnAnswer | None = None) -> bytes:
        """Send a request and return its result as JSON.

        `on_answer` runs on a result before any later message is handled. Raises `ClientError`.
        """
        if self.lost.is_set():
            raise self._cause
        self._last_id += 1
        request_id = self._last_id
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = _Waiting(answer, on_answer)
        try:
            self._write(b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}', request_id, _quoted(method), params)
            return await answer
        except asyncio.CancelledError:
            self.notify("$/cancelRequest", b'{"id":%d}' % request_id)
            raise
        finally:
            del self._waiting[request_id]

    def request_nowait(self, method: str, params: bytes) -> None:
        """Send a request whose answer nobody waits for."""
        self._last_id += 1
        self._write(b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}', self._last_id, _quoted(method), params)

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification; nothing happens when the connection is gone."""
        self._write(b'{"jsonrpc":"2.0","method":%b,"params":%b}', _quoted(method), params)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- called by asyncio --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._decoder.feed(data):
                self._sort(_read_message(body))
        except (FramingError, msgspec.MsgspecError) as error:
            self._cause = ClientError(f"the peer does not speak the basis protocol: {error}", kind=BAD_PEER)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(self._cause)

    def _sort(self, message: _Message) -> None:
        if message.method is None:
            waiting = self._waiting.get(message.id) if isinstance(message.id, int) else None
            if waiting is not None and not waiting.answer.done():
                self._answer(waiting, message)
        elif message.id is None:
            self._route(message.method, bytes(message.params))
        else:
            self._write(
                b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":"this client answers no requests"}}',
                msgspec.json.encode(message.id),
                METHOD_NOT_FOUND,
            )

    def _answer(self, waiting: _Waiting, message: _Message) -> None:
        if message.error:
            waiting.answer.set_exception(ClientError.from_wire(msgspec.json.decode(message.error)))
            return
        result = bytes(message.result)
        if waiting.on_answer is not None:
            waiting.on_answer(result)
        waiting.answer.set_result(result)

    def _write(self, form: bytes, *values: bytes | int) -> None:
        if self._transport is not None and not self.lost.is_set():
            self._transport.write(encode(form % values))


def _quoted(method: str) -> bytes:
    return msgspec.json.encode(method)
