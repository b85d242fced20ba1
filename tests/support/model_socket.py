"""The scripted model over a websocket: the same answers, a message for each event.

Owns the handshake and the frames, by way of a library that shares nothing with the client under test. What is answered
is decided by `model_server.py`, as over HTTP.
"""

import json
from collections.abc import Callable
from typing import Any

from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from support.model_connection import Answer, Body


class ModelSocket:
    """One connection that has been asked to become a websocket. Bytes in and out; no I/O."""

    def __init__(self, write: Callable[[bytes], None], received: Callable[[bytes], None]) -> None:
        self._write = write
        self._received = received
        self._protocol = ServerProtocol(max_size=None)

    def accept(self, request: bytes, headers: dict[str, str]) -> None:
        """Answer the handshake whose bytes were `request`, with `headers` beside those of the protocol."""
        self._protocol.receive_data(request)
        (asked,) = self._protocol.events_received()
        assert isinstance(asked, Request)
        response = self._protocol.accept(asked)
        for name, value in headers.items():
            response.headers[name] = value
        self._protocol.send_response(response)
        self._flush()

    def feed(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for frame in self._protocol.events_received():
            if getattr(frame, "opcode", None) is Opcode.TEXT:
                self._received(frame.data)  # type: ignore[union-attr]
        self._flush()

    def close(self, code: int | None) -> None:
        """Say goodbye with `code`; `None` says nothing."""
        if code is not None:
            self._protocol.send_close(code)
            self._flush()

    def framed(self, data: bytes) -> bytes:
        """An event of a stream as a frame: its data alone."""
        _, found, event = data.partition(b"data: ")
        self._protocol.send_text(event.rstrip(b"\n") if found else data)
        return b"".join(self._protocol.data_to_send())

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._write(data)


class FramedBody(Body):
    """Sends pieces as frames instead of chunks."""

    def __init__(self, socket: ModelSocket, *rest: Any) -> None:
        super().__init__(*rest)
        self._socket = socket

    def _add(self, data: bytes) -> bool:
        if self._bytes_left is not None:
            self._bytes_left -= len(data)
            if self._bytes_left <= 0:
                return False
        self._chunks += self._socket.framed(data)
        return True

    def _end_chunk(self) -> None:
        """Frames need no ends."""


def error_message(answer: Answer) -> bytes:
    """An error status as the message that stands for it."""
    data = b"".join(piece.data for piece in answer.pieces)
    try:
        error = json.loads(data)["error"]
    except (ValueError, KeyError, TypeError):
        error = {"message": data.decode("utf-8", "replace")}
    return json.dumps(
        {"type": "error", "status": answer.status, "error": error, "headers": dict(answer.headers)}
    ).encode()
