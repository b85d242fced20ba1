"""Tool results kept in full where the model was shown a cut one, for paging (TL-36, `basis/tool/result`).

Owns their ids, their files and how long they are kept: the newest `KEPT` of an agent, for `KEPT_S`. Does not decide
what is cut: see `tools/output.py`. Offsets count bytes of UTF-8; a page never splits a character.
"""

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from basis_daemon.errors import InvalidInput, StoreError
from basis_daemon.runtime.store.disk import MAX_FILE_BYTES, Disk, failed, make_directory, write_all

KEPT = 200
KEPT_S = 7 * 24 * 3600
MEMORY_BYTES = 32 << 20
"""What one conversation's results may take in memory, where there is no disk to put them on."""

DIRECTORY_NAME = "results"

_ID = re.compile(r"r-([0-9a-f]{16})-[0-9a-f]{8}\Z")
_LONGEST_CHARACTER = 4


class Page(NamedTuple):
    """`next_offset` is `None` with the last page. `total_bytes` is the whole result's."""

    text: str
    next_offset: int | None
    total_bytes: int


class ResultStore:
    """Full tool results of one conversation: beside its other files, or in memory where it has none. Thread-safe."""

    def __init__(self, directory: Callable[[], Path | None], *, disk: Disk | None = None) -> None:
        """`directory` names the conversation's own directory, `None` as long as it has none; asked at every call."""
        self._directory = directory
        self._disk = disk or Disk()
        self._memory = _MemoryResults()

    def write(self, text: str) -> str:
        """Keep `text`; return its id. Raises `StoreError`. File work: use a thread."""
        data = _encode(text)
        place = self._place()
        if len(data) > place.max_bytes:
            raise StoreError(f"a tool result of {len(data)} bytes is too large to be kept")
        return place.write(data)

    def page(self, result_id: str, offset: int = 0, limit: int = 65536) -> Page:
        """At most `limit` bytes from `offset`, but never less than one character.

        Raises `InvalidInput` for an id that was never given out or whose result is not kept any more, `StoreError`.
        """
        if not _ID.match(result_id):
            raise _unknown(result_id)
        data, total = self._place().read(result_id, offset, limit + 2 * _LONGEST_CHARACTER)
        return _cut(data, offset, limit, total)

    def _place(self) -> "_FileResults | _MemoryResults":
        directory = self._directory()
        return self._memory if directory is None else _FileResults(f"{directory}/{DIRECTORY_NAME}", self._disk)


class _FileResults:
    """One file a result. The directory is made with the first."""

    max_bytes = MAX_FILE_BYTES

    def __init__(self, directory: str, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk

    def write(self, data: bytes) -> str:
        result_id = _new_id()
        path = self._path(result_id)
        try:
            self._create(path, data)
        except OSError as error:
            raise failed("keep a tool result in", path, error) from error
        self._prune()
        return result_id

    def read(self, result_id: str, offset: int, limit: int) -> tuple[bytes, int]:
        path = self._path(result_id)
        try:
            fd = self._disk.open(path, os.O_RDONLY)
            try:
                return os.pread(fd, limit, offset), os.fstat(fd).st_size
            finally:
                self._disk.close(fd)
        except FileNotFoundError as error:
            raise _unknown(result_id) from error
        except OSError as error:
            raise failed("read", path, error) from error

    def _path(self, result_id: str) -> str:
        return f"{self._directory}/{result_id}.txt"

    def _create(self, path: str, data: bytes) -> None:
        make_directory(self._disk, self._directory)
        fd = self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        try:
            write_all(self._disk, fd, data)
        except OSError:
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
            raise
        finally:
            self._disk.close(fd)

    def _prune(self) -> None:
        with contextlib.suppress(OSError):  # tried again with the next result
            names = os.listdir(self._directory)
            for result_id in _outlived(name.removesuffix(".txt") for name in names):
                self._disk.unlink(self._path(result_id))


class _MemoryResults:
    max_bytes = MEMORY_BYTES

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, bytes] = {}
        self._total_bytes = 0

    def write(self, data: bytes) -> str:
        result_id = _new_id()
        with self._lock:
            self._kept[result_id] = data
            self._total_bytes += len(data)
            for old in _outlived(self._kept):
                self._drop(old)
            while self._total_bytes > MEMORY_BYTES:
                self._drop(next(iter(self._kept)))
        return result_id

    def read(self, result_id: str, offset: int, limit: int) -> tuple[bytes, int]:
        with self._lock:
            data = self._kept.get(result_id)
        if data is None:
            raise _unknown(result_id)
        return data[offset : offset + limit], len(data)

    def _drop(self, result_id: str) -> None:
        self._total_bytes -= len(self._kept.pop(result_id))


def _new_id() -> str:
    """Ids sort by age."""
    return f"r-{time.time_ns():016x}-{os.urandom(4).hex()}"


def _unknown(result_id: str) -> InvalidInput:
    return InvalidInput(
        f"there is no tool result {result_id!r}", hint=f"results are kept for 7 days, the newest {KEPT} of a session"
    )


def _outlived(names: Iterable[str]) -> Iterator[str]:
    """Ids that are too old or too many. Names that are no ids are left alone."""
    ids = sorted((name for name in names if _ID.match(name)), reverse=True)
    oldest_ns = time.time_ns() - KEPT_S * 1_000_000_000
    for place, result_id in enumerate(ids):
        if place >= KEPT or int(result_id[2:18], 16) < oldest_ns:
            yield result_id


def _encode(text: str) -> bytes:
    # Half a surrogate pair has no UTF-8 and could not be sent to a client either.
    return text.encode("utf-8", "backslashreplace")


def _cut(data: bytes, offset: int, limit: int, total: int) -> Page:
    """One page from `data`, the bytes at `offset` and a few more than `limit` of them."""
    start = 0
    while start < len(data) and _is_inside(data[start]):
        start += 1  # the offset points into a character: it belongs to the page before
    end = min(start + limit, len(data))
    while end < len(data) and end > start and _is_inside(data[end]):
        end -= 1
    if end == start and start < len(data):  # the limit is less than a character
        end += 1
        while end < len(data) and _is_inside(data[end]):
            end += 1
    following = offset + end
    return Page(data[start:end].decode("utf-8", "replace"), following if following < total else None, total)


def _is_inside(byte: int) -> bool:
    """Whether this byte continues a character of UTF-8."""
    return byte & 0xC0 == 0x80
