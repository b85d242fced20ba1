"""The client's side of RFC 6455: frames out of bytes, bytes out of text. No I/O.

Owns the format, as far as text in both directions needs it. Extensions are not offered, so none has to be understood.
"""

import os
from dataclasses import dataclass

from basis_daemon.runtime.providers.errors import MalformedStream

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A message beyond this is a broken or hostile server, as with an event of a stream over HTTP."""

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_MAX_CONTROL_BYTES = 125


@dataclass(frozen=True, slots=True)
class TextMessage:
    data: bytes


@dataclass(frozen=True, slots=True)
class BinaryMessage:
    """Something no server of ours has a reason to send."""


@dataclass(frozen=True, slots=True)
class Ping:
    payload: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """The server ends the connection; 1005 stands for no code given."""

    code: int
    reason: str


Message = TextMessage | BinaryMessage | Ping | Close


def text_frame(data: bytes) -> bytes:
    """One text message in one frame."""
    return _frame(_TEXT, data)


def pong_frame(payload: bytes) -> bytes:
    return _frame(_PONG, payload)


def close_frame(code: int = 1000) -> bytes:
    return _frame(_CLOSE, code.to_bytes(2, "big"))


def _frame(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    key = os.urandom(4)
    return b"".join((bytes([0x80 | opcode]), length, key, _masked(payload, key)))


def _masked(payload: bytes, key: bytes) -> bytes:
    # As one large number: a loop over bytes takes a second for ten megabytes, this a hundredth of it.
    size = len(payload)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(mask, "little")).to_bytes(size, "little")


class FrameParser:
    """Feed it bytes in any pieces."""

    __slots__ = ("_buffer", "_limit", "_opcode", "_parts", "_size")

    def __init__(self, *, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._limit = max_message_bytes
        self._buffer = bytearray()
        self._opcode: int | None = None
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Message]:
        """The messages completed by `data`. Raises `MalformedStream` for what breaks the format or is too large."""
        self._buffer += data
        messages: list[Message] = []
        at = 0
        while (frame := self._frame(at)) is not None:
            first, start, at = frame
            message = self._take(first, bytes(self._buffer[start:at]))
            if message is not None:
                messages.append(message)
        del self._buffer[:at]
        return messages

    def _frame(self, at: int) -> tuple[int, int, int] | None:
        """First byte, start and end of the payload of the frame that begins at `at`; `None` while it isn't whole."""
        buffer = self._buffer
        if len(buffer) < at + 2:
            return None
        first, size = buffer[at], buffer[at + 1]
        if size & 0x80:
            raise MalformedStream("the server sent a masked frame")
        start = at + 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(buffer) < start + width:
                return None
            size = int.from_bytes(buffer[start : start + width], "big")
            start += width
        if self._size + size > self._limit:
            raise MalformedStream(f"a message of the provider's socket is larger than {self._limit} bytes")
        return (first, start, start + size) if len(buffer) >= start + size else None

    def _take(self, first: int, payload: bytes) -> Message | None:
        is_final, opcode = bool(first & 0x80), first & 0x0F
        if first & 0x70:
            raise MalformedStream("the server used an extension nobody asked for")
        if opcode >= _CLOSE:
            if not is_final or len(payload) > _MAX_CONTROL_BYTES:
                raise MalformedStream("the server sent a control frame that is too long or in parts")
            return _control(opcode, payload)
        if (opcode == _CONTINUATION) != (self._opcode is not None):
            raise MalformedStream("the server sent the parts of a message out of order")
        return self._data(opcode, payload, is_final)

    def _data(self, opcode: int, payload: bytes, is_final: bool) -> Message | None:
        if self._opcode is None:
            self._opcode = opcode
        if payload:  # of empty parts there may be millions
            self._parts.append(payload)
        self._size += len(payload)
        if not is_final:
            return None
        opcode, data = self._opcode, b"".join(self._parts)
        self._opcode, self._size = None, 0
        self._parts.clear()
        if opcode not in (_TEXT, _BINARY):
            raise MalformedStream(f"the server sent a frame of unknown kind {opcode}")
        return TextMessage(data) if opcode == _TEXT else BinaryMessage()


def _control(opcode: int, payload: bytes) -> Message | None:
    if opcode == _CLOSE:
        code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
        return Close(code, payload[2:].decode("utf-8", "replace"))
    if opcode == _PING:
        return Ping(payload)
    if opcode == _PONG:
        return None
    raise MalformedStream(f"the server sent a frame of unknown kind {opcode}")
