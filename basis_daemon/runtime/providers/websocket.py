"""A websocket over the shared HTTP connections: opened, read, written and closed from whichever task needs it.

Owns one connection. Has no task of its own: it is read only while an answer is awaited, and looked at once more before
it is used again. What its messages mean is `responses_socket.py`'s.
"""

import base64
import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from basis_daemon.runtime.providers.errors import MalformedStream, ProviderError, TransportError
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.http import Call, HttpPool, open_upgrade
from basis_daemon.runtime.providers.websocket_frames import (
    BinaryMessage,
    Close,
    FrameParser,
    Ping,
    TextMessage,
    close_frame,
    pong_frame,
    text_frame,
)

if TYPE_CHECKING:
    import httpcore2

READ_BYTES = 65_536
CLOSE_TIMEOUT_S = 1.0
"""Seconds the server gets to take the frame that says goodbye."""
PEEK_TIMEOUT_S = 0.5
"""Seconds for reading what is known to lie in an idle socket."""
_ACCEPT_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class SocketClosed(Exception):
    """The connection is over: by the server's close frame with `code`, or without one."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class WebSocket:
    """One open connection. One reader at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._ending = AsyncExitStack()
        self._stream: httpcore2.AsyncNetworkStream | None = None
        self._parser = FrameParser()
        self._end: SocketClosed | None = None
        """The server's goodbye, once it was read."""
        self._opened_at = time.monotonic()

    @classmethod
    async def open(cls, pool: HttpPool, call: Call) -> "WebSocket":
        """Connect to where `call` would post. Raises `ProviderError` kinds, of a refused handshake too."""
        socket = cls(call.target)
        key = base64.b64encode(os.urandom(16)).decode()
        answered: dict[str, str] = {}
        handshake = replace(
            call,
            method="GET",
            body=None,
            headers={**_handshake_headers(call.headers), "sec-websocket-key": key},
            idle_timeout_s=call.connect_timeout_s,
            on_headers=answered.update,  # and not the caller's, whom an open socket must not keep alive
        )
        socket._stream = await socket._ending.enter_async_context(open_upgrade(pool, handshake))
        if call.on_headers is not None:
            call.on_headers(answered)
        if answered.get("sec-websocket-accept") != _accept(key):
            await socket.drop()
            raise MalformedStream(f"{call.target.label} agreed to a websocket and to none of ours")
        return socket

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._opened_at

    async def send(self, text: bytes, timeout_s: float) -> None:
        """Raises `SocketClosed`, and `TransportError` when the server doesn't take it in time."""
        await self._write(text_frame(text), timeout_s)

    async def receive(self, timeout_s: float) -> list[bytes]:
        """The text messages that one read completes, at least one. Answers pings on the way.

        Raises `SocketClosed`, `TransportError` after `timeout_s` seconds of silence (PV-18), and `MalformedStream` for
        a binary message; texts ahead of that one in the same read are lost, as is the answer they belong to.
        """
        while True:
            texts = await self._messages(await self._read(timeout_s))
            if texts:
                return texts

    async def is_usable(self) -> bool:
        """Whether the connection still stands. Takes note of what came while nobody read: pings, or its end."""
        import httpcore2

        assert self._stream is not None
        while self._stream.get_extra_info("is_readable"):
            try:
                if await self._messages(await self._read(PEEK_TIMEOUT_S)):
                    return False  # an answer nobody asked for
            except (SocketClosed, ProviderError, httpcore2.ProtocolError):
                return False
        return True

    async def close(self) -> None:
        """Say goodbye, in bounded time, and close the connection."""
        try:
            with anyio.CancelScope(shield=True):
                await self._write(close_frame(), CLOSE_TIMEOUT_S)
        except (SocketClosed, TransportError):
            pass  # it was over already
        await self.drop()

    async def drop(self) -> None:
        """Close the connection without a word."""
        with anyio.CancelScope(shield=True):
            await self._ending.aclose()

    def abandon(self) -> None:
        """Cut the connection from any thread, when nobody is left who could await `close`."""
        import socket

        raw = self._stream.get_extra_info("socket") if self._stream is not None else None
        try:
            if raw is not None:
                raw.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # closed already

    # --- bytes

    async def _messages(self, data: bytes) -> list[bytes]:
        texts: list[bytes] = []
        for message in self._parser.feed(data):
            match message:
                case TextMessage(text):
                    texts.append(text)
                case Ping(payload):
                    await self._write(pong_frame(payload), CLOSE_TIMEOUT_S)
                case Close(code, reason):
                    self._end = SocketClosed(code, self._target.clean(reason))
                    break
                case BinaryMessage():
                    raise MalformedStream(f"{self._target.label} sent a binary message, where the wire has text")
        if self._end is not None and not texts:
            raise self._end
        return texts

    async def _read(self, timeout_s: float) -> bytes:
        import httpcore2

        assert self._stream is not None
        if self._end is not None:
            raise self._end
        try:
            data = await self._stream.read(READ_BYTES, timeout=timeout_s)
        except httpcore2.ReadTimeout as error:
            raise TransportError(f"{self._target.label} was silent for too long") from error
        except httpcore2.NetworkError as error:
            raise SocketClosed from error
        if not data:
            raise SocketClosed
        return data

    async def _write(self, data: bytes, timeout_s: float) -> None:
        import httpcore2

        assert self._stream is not None
        try:
            await self._stream.write(data, timeout=timeout_s)
        except httpcore2.WriteTimeout as error:
            raise TransportError(f"{self._target.label} did not take the request in time") from error
        except httpcore2.NetworkError as error:
            raise SocketClosed from error


def _handshake_headers(headers: Mapping[str, str]) -> dict[str, str]:
    about_a_body = ("content-type", "accept", "content-encoding")
    kept = {name: value for name, value in headers.items() if name not in about_a_body}
    return {**kept, "connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}


def _accept(key: str) -> str:
    return base64.b64encode(hashlib.sha1((key + _ACCEPT_GUID).encode(), usedforsecurity=False).digest()).decode()
