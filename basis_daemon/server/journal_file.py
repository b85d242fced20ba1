"""The file a session's events are kept in: `events.jsonl`, and `events.previous.jsonl` from before the last rotation.

One line an event, `{"seq":N,"time":…,"event":…}`, numbers rising by one. Owns the format, rotation, what a torn tail
means, and finding a number without reading everything. Knows no clients. Appending is one `write`; reading may be done
on another thread while appending goes on.
"""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

CURRENT = "events.jsonl"
PREVIOUS = "events.previous.jsonl"

SEGMENT_BYTES = 8 * 1024 * 1024
"""A segment is closed beyond this; two are kept, so the newest 8 to 16 MiB can be replayed."""

_LINE_START = b'{"seq":'
_PROBE_BYTES = 4096


class _Line(msgspec.Struct):
    """The parts of a line, the event itself skipped over."""

    seq: int
    time: str
    event: msgspec.Raw


_lines = msgspec.json.Decoder(_Line)


class JournalFile:
    """Appender. One per live session; it holds the store's lease, so there is no second writer."""

    def __init__(self, directory: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._fd: int | None = None
        self._size = 0
        self._current_first: int | None = None
        self.first_seq: int | None = None
        """The oldest number that can be read back; `None` when there is none."""

    def recover(self) -> int:
        """Drop a torn last line (a crash in mid-write); return the newest number, 0 if none. Blocking: use a thread."""
        with suppress(FileNotFoundError):
            _drop_torn_tail(self._directory / CURRENT)
        previous, current = (_span(path) for path in self._paths())
        newest = current or previous
        if current is None and (last := _last_number(self._directory / CURRENT)) is not None:
            # It begins with what is no event. Its numbers were given once and must not be given to others.
            self.restart()
            return last
        if newest is None:
            return 0
        self.first_seq = newest[0]
        self._current_first = current[0] if current else None
        # A previous segment that does not reach up to the current one can't be given in order: it is ignored.
        if current and previous and previous[1] + 1 == current[0]:
            self.first_seq = previous[0]
        return newest[1]

    def append(self, lines: bytes, first_seq: int) -> None:
        """Write whole lines, the first of them numbered `first_seq`; they survive `kill -9` when this returns.

        Raises `OSError`, having written nothing.
        """
        if self._size > self._segment_bytes:
            self._rotate()
        fd = self._descriptor()
        written = 0
        try:
            while written < len(lines):
                written += os.write(fd, lines[written:] if written else lines)
        except OSError:
            if written:
                os.ftruncate(fd, self._size)
            raise
        self._size += written
        if self._current_first is None:
            self._current_first = first_seq
        if self.first_seq is None:
            self.first_seq = first_seq

    def restart(self) -> None:
        """Throw away what is there: numbers are missing between it and what comes next."""
        self.close()
        for path in self._paths():
            path.unlink(missing_ok=True)
        self.first_seq = self._current_first = None

    def give_up(self, number: int) -> None:
        """That event can't be read back: whoever lacks it has to start from a snapshot."""
        if self.first_seq is not None:
            self.first_seq = max(self.first_seq, number + 1)

    def close(self) -> None:
        """Let the descriptor go. The next append opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def read(self, after_seq: int, max_bytes: int) -> list[bytes]:
        """Return lines numbered above `after_seq` without their newline, oldest first: about `max_bytes`, at least one
        if there is one. Blocking, thread-safe. The caller checks that the first is the one it wants: a rotation may
        have taken it away."""
        for path in self._paths():
            lines = _read_after(path, after_seq, max_bytes)
            if lines:
                return lines
        return []

    def _paths(self) -> tuple[Path, Path]:
        return self._directory / PREVIOUS, self._directory / CURRENT

    def _descriptor(self) -> int:
        if self._fd is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(self._directory / CURRENT, flags, 0o600)
            self._size = os.fstat(self._fd).st_size
        return self._fd

    def _rotate(self) -> None:
        self.close()
        os.replace(self._directory / CURRENT, self._directory / PREVIOUS)
        self._size = 0
        self.first_seq, self._current_first = self._current_first, None


def sequence(line: bytes) -> int | None:
    """The number of a line, or `None` if it isn't one of ours."""
    end = line.find(b",", len(_LINE_START), len(_LINE_START) + 24)
    if end < 0 or not line.startswith(_LINE_START):
        return None
    digits = line[len(_LINE_START) : end]
    return int(digits) if digits.isdigit() else None


def is_event(line: bytes, number: int) -> bool:
    """Whether `line` is the whole event of that number: what is shown to clients was looked at before."""
    try:
        line.decode()
        return _lines.decode(line).seq == number and line.startswith(_LINE_START)
    except (ValueError, RecursionError):
        return False


def _span(path: Path) -> tuple[int, int] | None:
    """First and last number of a segment."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            first = sequence(_line_at(file.fileno(), 0, size))
            last_start = _last_line_start(file.fileno(), size)
            last = sequence(_line_at(file.fileno(), last_start, size))
    except FileNotFoundError:
        return None
    return (first, last) if first is not None and last is not None else None


def _last_number(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            return sequence(_line_at(file.fileno(), _last_line_start(file.fileno(), size), size))
    except FileNotFoundError:
        return None


def _drop_torn_tail(path: Path) -> None:
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        while size:
            start = _last_line_start(file.fileno(), size)
            line = os.pread(file.fileno(), size - start, start)
            # A crash of the machine can leave a hole of zeros: a line is whole if it also reads as ours to its end.
            if line.endswith(b"}\n") and sequence(line) is not None:
                break
            size = start
        file.truncate(size)


def _last_line_start(fd: int, size: int) -> int:
    """Offset of the line that ends at `size` (with or without its newline)."""
    end = size - 1
    while end > 0:
        begin = max(0, end - _PROBE_BYTES)
        at = os.pread(fd, end - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def _line_at(fd: int, offset: int, size: int) -> bytes:
    """The beginning of the line at `offset`: enough of it for its number."""
    return os.pread(fd, min(64, size - offset), offset)


def _read_after(path: Path, after_seq: int, max_bytes: int) -> list[bytes]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        size = os.fstat(fd).st_size
        return _cut(fd, _find(fd, after_seq + 1, size), size, max_bytes)
    finally:
        os.close(fd)


def _find(fd: int, wanted: int, size: int) -> int:
    """Offset of the first line numbered `wanted` or more; `size` when there is none. Numbers rise, so it bisects."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        start = _next_line_start(fd, middle, size) if middle else 0
        number = sequence(_line_at(fd, start, size)) if start < size else None
        if number is None or number >= wanted:
            high = middle
        else:
            low = middle + 1
    return _next_line_start(fd, low, size) if low else 0


def _next_line_start(fd: int, offset: int, size: int) -> int:
    """The first line start at or after `offset`."""
    at = offset - 1
    while at < size:
        chunk = os.pread(fd, _PROBE_BYTES, at)
        if not chunk:
            break
        newline = chunk.find(b"\n")
        if newline >= 0:
            return at + newline + 1
        at += len(chunk)
    return size


def _cut(fd: int, start: int, size: int, max_bytes: int) -> list[bytes]:
    """Whole lines from `start`: about `max_bytes` of them, but at least one."""
    data = os.pread(fd, max_bytes, start)
    end = data.rfind(b"\n")
    while end < 0 and start + len(data) < size:
        more = os.pread(fd, max_bytes, start + len(data))
        if not more:
            break
        data += more
        end = data.rfind(b"\n")
    return data[:end].split(b"\n") if end > 0 else []
