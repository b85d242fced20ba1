"""Content-Length framing without I/O: bytes in, message bodies out. Standard library only.

Owns the header rules of LSP's base protocol. Does not read JSON and does not touch a socket.
"""

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Largest accepted body. A larger one is a `FramingError`, raised before anything is buffered for it."""

MAX_HEADER_BYTES = 8 * 1024
"""Largest accepted header block; real ones take about 40 bytes."""

_SEPARATOR = b"\r\n\r\n"


class FramingError(ValueError):
    """The byte stream is not a sequence of frames. Nothing after it can be trusted: close the connection."""


def encode(body: bytes) -> bytes:
    """Return `body` (UTF-8 JSON) as one frame."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Decoder:
    """Cuts a byte stream into message bodies. Feed it chunks of any size; it never rescans what it has seen."""

    __slots__ = ("_buffer", "_max_frame_bytes", "_need", "_scanned")

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._need: int | None = None
        self._scanned = 0
        self._max_frame_bytes = max_frame_bytes

    @property
    def is_mid_frame(self) -> bool:
        """Whether a frame has begun and not ended: end of input now means a truncated message."""
        return self._need is not None or bool(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Take the next chunk and return every body that is now complete, in order.

        Raises `FramingError` for a bad or oversized header. Bodies completed by the same chunk before the fault are
        lost with the connection; a peer that sends garbage gets no guarantees.
        """
        self._buffer += data
        bodies: list[bytes] = []
        while True:
            if self._need is None:
                end = self._buffer.find(_SEPARATOR, max(0, self._scanned - 3))
                if end < 0:
                    self._scanned = len(self._buffer)
                    if self._scanned > MAX_HEADER_BYTES:
                        raise FramingError("header block is longer than 8 KiB")
                    return bodies
                self._need = self._content_length(bytes(self._buffer[:end]))
                del self._buffer[: end + 4]
                self._scanned = 0
            if len(self._buffer) < self._need:
                return bodies
            bodies.append(bytes(self._buffer[: self._need]))
            del self._buffer[: self._need]
            self._need = None

    def _content_length(self, header: bytes) -> int:
        length: int | None = None
        for line in header.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if not colon:
                raise FramingError("header line without a colon")
            if name.strip().lower() == b"content-length":
                digits = value.strip()
                if not digits.isdigit() or len(digits) > 12:
                    raise FramingError("Content-Length is not a number")
                length = int(digits)
        if length is None:
            raise FramingError("no Content-Length header")
        if length > self._max_frame_bytes:
            raise FramingError(f"frame of {length} bytes is larger than the limit of {self._max_frame_bytes}")
        return length
