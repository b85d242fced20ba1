"""Server-sent events out of bytes, as they come (PV-17).

Owns the format. Does no I/O and knows no wire: it is fed whatever the network read and gives back what became whole.
"""

from basis_daemon.runtime.providers.errors import MalformedStream

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""An event beyond this is a broken or hostile server; the whole stream is given up."""

_BOM = b"\xef\xbb\xbf"

SseEvent = tuple[bytes, bytes]
"""The event's name (empty when unnamed) and its data."""


class SseParser:
    """Feed it bytes in any pieces. Every byte is looked at once.

    `[DONE]` is no event: it sets `is_done`, and nothing behind it is given out. Nor is an event that isn't followed by
    a blank line.
    """

    __slots__ = ("_after_cr", "_at_start", "_data", "_limit", "_name", "_partial", "_size", "is_done")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._partial: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._size = 0
        self._after_cr = False
        self._at_start = True
        self.is_done = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events completed by `chunk`. Raises `MalformedStream` on one that is too large."""
        if self.is_done:
            return []
        self._size += len(chunk)
        lines = self._lines(chunk)
        events: list[SseEvent] = []
        for line in lines:
            if line[:5] == b"data:":
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    self._data.clear()
                    if data == b"[DONE]":
                        self.is_done = True
                        break
                    events.append((self._name, data))
                self._name = b""
            elif line[:6] == b"event:":
                self._name = line[7:] if line[6:7] == b" " else line[6:]
            elif line == b"data":
                self._data.append(b"")
        if self._size > self._limit:
            self._measure(events)
        return events

    def _lines(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their ends; what is left over is kept for the next."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk[chunk[:1] == b"\n" :]
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        last = lines.pop()
        if lines and self._partial:
            lines[0] = b"".join((*self._partial, lines[0]))
            self._partial.clear()
        if lines and self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        if last:
            self._partial.append(last)
        return lines

    def _measure(self, events: list[SseEvent]) -> None:
        """Set the size to what is pending; refuse it, and any event just completed, beyond the limit."""
        # Lines count as well: there may be millions of empty ones.
        self._size = sum(map(len, self._partial)) + sum(map(len, self._data)) + len(self._data)
        if max(self._size, *(len(data) for _, data in events), 0) > self._limit:
            raise MalformedStream(f"an event of the provider's stream is larger than {self._limit} bytes")
