"""What a process prints: always drained, kept up to a cap with its beginning and its end, passed on line by line.

Owns the cap (PO-13), the line stream (SP-15) and its rate. Knows nothing of processes.
"""

import asyncio
import codecs
import os
import re
from collections.abc import Callable
from typing import IO

READ_BYTES = 64 * 1024
"""Bytes taken from a pipe at a time: the size of a pipe on Linux."""

SMALL_CAP_BYTES = 256
"""Below this there is no room for a marker and two halves: only the head is kept (PO-13)."""

MAX_LINE_CHARS = 2000
"""A longer line is passed on in part; the kept output has all of it."""

LINES_PER_S = 200
"""Lines passed on live, sustained. Every line becomes an event that is stored; a person reads no faster."""

BURST_LINES = 1000
"""Lines passed on at once before the rate applies."""


class CappedOutput:
    """The first and the last bytes of a stream of any length, in bounded memory."""

    def __init__(self, cap_bytes: int) -> None:
        self._cap = max(cap_bytes, 0)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    @property
    def is_cut(self) -> bool:
        return self._total > self._cap

    def feed(self, data: bytes) -> None:
        self._total += len(data)
        room = self._cap - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._cap:
                del self._tail[: -self._cap or None]

    def text(self) -> str:
        """What was kept; invalid UTF-8 is replaced. Head, marker and tail together fit the cap."""
        if not self.is_cut:
            return self._head.decode("utf-8", "replace")
        if self._cap < SMALL_CAP_BYTES:
            return _whole_chars_before(bytes(self._head)).decode("utf-8", "replace")
        room = self._cap - len(_marker(self._total))
        head = _whole_chars_before(bytes(self._head[: room // 2]))
        tail = _whole_chars_after((self._head + self._tail)[-(room - room // 2) :])
        marker = _marker(self._total - len(head) - len(tail))
        return head.decode("utf-8", "replace") + marker + tail.decode("utf-8", "replace")


def _marker(elided_bytes: int) -> str:
    return f"\n[... {elided_bytes} bytes elided ...]\n"


def _whole_chars_before(data: bytes) -> bytes:
    """`data` without a UTF-8 sequence that was cut off at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
        return data[:-back] if length > back else data
    return data


def _whole_chars_after(data: bytes | bytearray) -> bytes:
    """`data` without the rest of a UTF-8 sequence that was cut off at its start."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return bytes(data[start:])


_LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")
"""A carriage return ends a line too, so that progress bars move; at the end of a chunk it may be half of CRLF."""


class LineStream:
    """Passes lines on as they arrive, no faster than a person could follow; says how many it left out."""

    def __init__(self, label: str, emit: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._prefix = f"{label}: "
        self._emit = emit
        self._clock = clock
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        self._allowance = float(BURST_LINES)
        self._last = clock()
        self._skipped = 0

    def feed(self, data: bytes) -> None:
        text = self._partial + self._decoder.decode(data)
        allowed = self._refill()
        # Beyond the rate lines are only counted: a flood must not cost the loop a call for each of them.
        *lines, self._partial = _LINE_END.split(text, maxsplit=allowed) if allowed else (text,)
        for line in lines:
            self._pass_on(line)
        if len(lines) == allowed:
            self._skipped += self._partial.count("\n")
            self._partial = self._partial.rpartition("\n")[2]
        if len(self._partial) > MAX_LINE_CHARS:
            self._pass_on(self._partial)
            self._partial = ""

    def close(self) -> None:
        """Pass on what is left: the last line without an end, and the count of what was left out."""
        rest = (self._partial + self._decoder.decode(b"", final=True)).rstrip("\r")
        self._partial = ""
        self._report_skipped()
        if rest:
            self._emit(self._prefix + rest[:MAX_LINE_CHARS])

    def _refill(self) -> int:
        now = self._clock()
        self._allowance = min(self._allowance + (now - self._last) * LINES_PER_S, BURST_LINES)
        self._last = now
        return int(self._allowance)

    def _pass_on(self, line: str) -> None:
        if self._allowance < 1:
            self._skipped += 1
            return
        self._allowance -= 1
        self._report_skipped()
        self._emit(self._prefix + line[:MAX_LINE_CHARS])

    def _report_skipped(self) -> None:
        if self._skipped:
            self._emit(f"{self._prefix}[{self._skipped} lines not shown live]")
            self._skipped = 0


class PipeReader:
    """Drains one pipe on the loop, and closes it."""

    def __init__(self, pipe: IO[bytes], *sinks: Callable[[bytes], None]) -> None:
        self._pipe = pipe
        self._fd = pipe.fileno()
        os.set_blocking(self._fd, False)
        self._sinks = list(sinks)
        self.failure: Exception | None = None
        """What the first failing sink raised. It is fed no more; draining goes on."""
        self._loop = asyncio.get_running_loop()
        self.last_read_at = self._loop.time()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done once every process that could write has closed its end."""
        self._loop.add_reader(self._fd, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.last_read_at = self._loop.time()
        for sink in tuple(self._sinks):
            try:
                sink(data)
            except Exception as error:
                self.failure = self.failure or error
                self._sinks.remove(sink)

    def close(self) -> None:
        """Stop reading. Idempotent."""
        if not self.ended.done():
            self._loop.remove_reader(self._fd)
            self._pipe.close()
            self.ended.set_result(None)
