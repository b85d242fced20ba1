"""The open log of one conversation on disk: appends, the record beside it, and what is not on the disk yet.

Owns the append file and the conversation's lease. `append` and `save` are called on the owner's thread, an event loop
as a rule, and are a few small system calls; a flush runs on the store's sync threads. Does not read: see `recovery.py`.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from basis_daemon.errors import CorruptStore, StoreError
from basis_daemon.runtime.store.agent_file import NEWER, promote, write_newer
from basis_daemon.runtime.store.base import AgentRecord, AnyLogRecord
from basis_daemon.runtime.store.codec import HEADER, encode_agent, encode_append
from basis_daemon.runtime.store.disk import Disk, failed, sync_path, write_all
from basis_daemon.runtime.store.lease import Lease
from basis_daemon.runtime.store.recovery import LogEnd
from basis_daemon.runtime.store.sync import GroupCommit

logger = logging.getLogger(__name__)

LOG_NAME = "transcript.jsonl"


class _Unsynced:
    """What a power cut would take. Made with the first write, gone when it has reached the disk."""

    __slots__ = ("directory", "lines", "parent", "record")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.record: bytes | None = None
        self.directory = False
        """Names in the conversation's directory changed."""
        self.parent = False
        """The directory itself is new."""

    def older(self, other: "_Unsynced") -> None:
        """Take back what an earlier, failed flush was to sync."""
        self.lines[:0] = other.lines
        self.record = self.record or other.record
        self.directory = self.directory or other.directory
        self.parent = self.parent or other.parent


class FileLog:
    """Implements `ConversationLog`. Between turns it holds one descriptor, the lease's, and no buffer."""

    __slots__ = (
        "__weakref__",
        "_commits",
        "_directory",
        "_disk",
        "_fd",
        "_flushing",
        "_is_closed",
        "_is_suspect",
        "_is_torn",
        "_lease",
        "_lock",
        "_max_bytes",
        "_size",
        "_synced_bytes",
        "_unsynced",
    )

    def __init__(
        self, *, directory: str, lease: Lease, commits: GroupCommit, disk: Disk, end: LogEnd, max_bytes: int
    ) -> None:
        self._directory = directory
        self._lease = lease
        self._commits = commits
        self._disk = disk
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._size = self._synced_bytes = end.whole_bytes
        self._is_torn = end.file_bytes > end.whole_bytes
        self._unsynced: _Unsynced | None = None
        self._is_suspect = False  # a sync failed: the system may have dropped what it could not write
        self._flushing: _Unsynced | None = None
        self._is_closed = False

    @property
    def directory(self) -> Path | None:
        return Path(self._directory)

    @property
    def _path(self) -> str:
        return f"{self._directory}/{LOG_NAME}"

    def append(self, *records: AnyLogRecord) -> None:
        if not records:
            return
        line = encode_append(records)
        with self._lock:
            self._require_open()
            data = line if self._size else HEADER + line
            if self._size + len(data) > self._max_bytes:
                raise StoreError(f"{self._path} is full", hint="start a new session", details={"path": self._path})
            try:
                self._write(data)
            except OSError as error:
                self._mend()
                raise failed("append to", self._path, error) from error
            self._size += len(data)
            self._pending().lines.append(data)
        self._commits.mark(self)

    def save(self, record: AgentRecord) -> None:
        data = encode_agent(record, time.time_ns())
        with self._lock:
            self._require_open()
            try:
                write_newer(self._disk, self._directory, data)
            except OSError as error:
                raise failed("save the record in", self._directory, error) from error
            pending = self._pending()
            pending.record = data
            pending.directory = True
        self._commits.mark(self)

    def adopt_newer(self, data: bytes, *, directory_is_new: bool = False) -> None:
        """A record that stands under its newer name already has to be synced with the next flush."""
        with self._lock:
            pending = self._pending()
            pending.record = data
            pending.directory = True
            pending.parent = directory_is_new

    async def sync(self) -> None:
        with self._lock:
            if self._unsynced is None and self._flushing is None:
                return
        try:
            await self._commits.commit(self)
        except StoreError as error:  # shared by all who waited: each gets one of its own to raise
            raise StoreError(str(error), hint=error.hint, details=error.details) from error

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            is_dirty = self._unsynced is not None
            if not is_dirty and self._flushing is None:
                self._drop_descriptor()
        # From here on a flush only syncs; what another process does to the files now is not touched.
        self._lease.release()
        if is_dirty:
            self._commits.mark(self)

    def __del__(self) -> None:
        # Forgotten without `close` (AG-7). Takes no lock and hands nothing over: it may run in the middle of anything.
        if hasattr(self, "_is_closed"):
            self._is_closed = True
            self._drop_descriptor()
            self._lease.release()

    # --- on the owner's thread, with the lock held ---

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"the session in {self._directory} is closed")

    def _pending(self) -> _Unsynced:
        if self._unsynced is None:
            self._unsynced = _Unsynced()
        return self._unsynced

    def _write(self, data: bytes) -> None:
        fd = self._descriptor()
        if self._is_torn:
            self._disk.truncate(fd, self._size)
        self._is_torn = True  # until the whole line is there
        write_all(self._disk, fd, data)
        self._is_torn = False

    def _mend(self) -> None:
        """Cut half a line off again. Where even that fails, the next append tries first, and readers ignore it."""
        if self._fd is not None and self._is_torn:
            with contextlib.suppress(OSError):
                self._disk.truncate(self._fd, self._size)
                self._is_torn = False

    def _descriptor(self) -> int:
        if self._fd is None:
            self._fd = self._open()
        return self._fd

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
        if self._size == 0:
            flags |= os.O_CREAT
            self._pending().directory = True
        fd = self._disk.open(self._path, flags)
        if not self._is_torn and (found := os.fstat(fd).st_size) != self._size:
            self._disk.close(fd)
            raise CorruptStore(
                f"{self._path} has {found} bytes instead of {self._size}: something else wrote to it",
                hint="nothing was changed; open the session again",
                details={"path": self._path},
            )
        return fd

    def _drop_descriptor(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):  # nothing unsynced goes through this descriptor any more
                self._disk.close(fd)

    # --- on the threads of `GroupCommit` ---

    def begin_flush(self) -> Sequence[Callable[[], None]]:
        """What makes everything written so far safe. The three are independent: a record has its final name only
        after all of them."""
        with self._lock:
            batch = self._flushing = self._unsynced
            self._unsynced = None
            fd = self._fd
            is_suspect = self._is_suspect and not self._is_closed
        if batch is None:
            return ()
        if is_suspect:
            self._write_again(batch)
        calls: list[Callable[[], None]] = []
        if batch.directory:
            calls.append(lambda: self._sync_names(batch))
        if batch.record is not None:
            calls.append(lambda: sync_path(self._disk, f"{self._directory}/{NEWER}"))
        if batch.lines and fd is not None:
            calls.append(lambda: self._disk.sync_data(fd))
        return calls

    def end_flush(self, error: Exception | None) -> Exception | None:
        if self._is_closed and isinstance(error, FileNotFoundError):
            error = None  # the conversation was forgotten, or the next owner gave the record its final name
        with self._lock:
            batch, self._flushing = self._flushing, None
            if batch is not None:
                self._settle(batch, is_safe=error is None)
        return failed("sync", self._directory, error) if isinstance(error, OSError) else error

    def _sync_names(self, batch: _Unsynced) -> None:
        sync_path(self._disk, self._directory)
        if batch.parent:
            sync_path(self._disk, os.path.dirname(self._directory))

    def _write_again(self, batch: _Unsynced) -> None:
        """After a failed sync a system may count pages as written that are not. So they are made dirty once more."""
        if batch.lines:
            fd = self._disk.open(self._path, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                view, at = memoryview(b"".join(batch.lines)), self._synced_bytes
                while view:
                    written = self._disk.pwrite(fd, view, at)
                    view, at = view[written:], at + written
            finally:
                self._disk.close(fd)
        with self._lock:
            is_newest = self._unsynced is None or self._unsynced.record is None
            if batch.record is not None and is_newest and not self._is_closed:
                write_newer(self._disk, self._directory, batch.record)

    def _settle(self, batch: _Unsynced, *, is_safe: bool) -> None:
        self._is_suspect = not is_safe
        if is_safe:
            self._synced_bytes += sum(map(len, batch.lines))
            self._promote(batch)
        elif not self._is_closed:
            self._pending().older(batch)
        if self._unsynced is None or (self._is_closed and not is_safe):
            self._drop_descriptor()

    def _promote(self, batch: _Unsynced) -> None:
        is_newest = self._unsynced is None or self._unsynced.record is None
        if batch.record is None or not is_newest or self._is_closed:
            return
        try:
            promote(self._disk, self._directory)
        except OSError as error:
            # Safe all the same: it is on the disk, and readers look under the newer name first.
            logger.warning("%s keeps its record under %s: %s", self._directory, NEWER, error)
