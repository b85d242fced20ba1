"""Putting files in place: each in one step, several together or not at all (BT-4, BT-9).

Owns what is true of every write: what was read is still what is there, permissions stay, nothing is seen half-written.
New contents are written beside their files first, so that what can fail for want of space or rights has failed before
anything is changed. Then each file is exchanged by a rename; if one can't be, those before it are exchanged back. A
process killed in between leaves some files new and some old, each whole, and the old ones beside as `.basis-….old`.
"""

import errno
import logging
import os
import secrets
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.runtime.tools.nofollow import open_directory
from basis_daemon.runtime.tools.text_files import Stored, Version, refusal, require_size
from basis_daemon.runtime.tools.tool_error import ToolError

logger = logging.getLogger(__name__)

_commit = threading.Lock()
"""Held while files are compared with what was read and exchanged, so that two sessions can't both pass the test."""

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""What a file system says that has no hard links, or none between these two places."""


class StaleFile(ToolError):
    """The file is not the one that was read: somebody else wrote it."""

    kind = "stale_file"


@dataclass(frozen=True, slots=True)
class FileChange:
    """What is to become of one path. Without `expected` there must be no file, and missing directories are made; with
    `data` as `None` the file is removed. Contents that come from `moved_from` keep that file's identity."""

    path: Path
    expected: Stored | None
    data: bytes | None
    moved_from: Path | None = None
    permissions: os.stat_result | None = None
    """Whose permissions a new file gets; `None` is the usual ones."""


def replace(path: Path, data: bytes, *, expected: Stored | None) -> None:
    """Put `data` in the file's place in one step; permissions stay (BT-9).

    Raises `StaleFile` if the file isn't the one expected, and `ToolError`.
    """
    commit([FileChange(path, expected, data)])


def commit(changes: Sequence[FileChange]) -> None:
    """Make all changes or none. Raises `StaleFile`, `ToolError`; then everything is as it was."""
    made_directories: list[Path] = []
    try:
        with ExitStack() as done:
            exchanges = [_staged(change, made_directories, done) for change in changes]
            with _commit:
                for exchange in exchanges:
                    exchange.attempt(exchange.require_unchanged)
                for exchange in exchanges:
                    exchange.attempt(exchange.fetch_moved)
                _exchange_all(exchanges)
    except BaseException:
        for directory in reversed(made_directories):
            with suppress(OSError):  # it is somebody else's by now
                os.rmdir(directory)
        raise


def _staged(change: FileChange, made_directories: list[Path], done: ExitStack) -> "_Exchange":
    if change.data is not None:
        require_size(change.path, len(change.data))
    is_new = change.expected is None
    if is_new:
        made_directories += reversed([path for path in change.path.parents if not os.path.lexists(path)])
    try:
        directory = open_directory(str(change.path.parent), create=is_new)
    except OSError as error:
        raise refusal(change.path, error) from error
    done.callback(os.close, directory)
    exchange = _Exchange(change, directory)
    done.callback(exchange.tidy)
    exchange.attempt(exchange.stage)
    return exchange


def _exchange_all(exchanges: Sequence["_Exchange"]) -> None:
    made: list[_Exchange] = []
    try:
        for exchange in exchanges:
            made.append(exchange)
            # Nothing follows the last one that could fail, so nothing has to be kept for taking it back.
            exchange.attempt(exchange.make if exchange is exchanges[-1] else exchange.make_revocably)
    except BaseException:
        for exchange in reversed(made):
            exchange.take_back()
        raise


class _Exchange:
    """One change on its way: staged beside its file, made, and taken back if a later one can't be made."""

    def __init__(self, change: FileChange, directory: int) -> None:
        self._change = change
        self._directory = directory
        self._name = change.path.name
        token = secrets.token_hex(8)
        self._new = f".basis-{token}.tmp"
        self._old = f".basis-{token}.old"
        self._is_made = False
        self._has_old = False

    def attempt(self, step: Callable[[], None]) -> None:
        """Carry a step out. Raises `ToolError` about this path for what the system says."""
        try:
            step()
        except OSError as error:
            raise refusal(self._change.path, error) from error

    def stage(self) -> None:
        """Do what may fail and changes nothing yet."""
        change = self._change
        if change.expected is not None:
            self._require_writable(change.expected.status)
        if change.data is not None and change.moved_from is None:
            self._write_new(change.data)

    def require_unchanged(self) -> None:
        expected = self._change.expected
        try:
            now = Version.of(os.stat(self._name, dir_fd=self._directory, follow_symlinks=False))
        except FileNotFoundError:
            now = None
        if now != (None if expected is None else expected.version):
            raise StaleFile(
                f"{self._change.path} was changed by somebody else just now; nothing was written. Read it again."
            )

    def fetch_moved(self) -> None:
        """Have a file that moves here beside its place, by another name of the same file where there are such."""
        change = self._change
        if change.moved_from is None or change.data is None:
            return
        origin = open_directory(str(change.moved_from.parent))
        try:
            os.link(
                change.moved_from.name,
                self._new,
                src_dir_fd=origin,
                dst_dir_fd=self._directory,
                follow_symlinks=False,
            )
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._write_new(change.data)
        finally:
            os.close(origin)

    def make(self) -> None:
        if self._change.data is None:
            os.unlink(self._name, dir_fd=self._directory)
        elif self._change.expected is None:
            self._put_new_in_place()
        else:
            self._rename(self._new, self._name)
        self._is_made = True

    def make_revocably(self) -> None:
        if self._change.expected is not None:
            self._keep_old()
        if self._change.data is None:
            with suppress(FileNotFoundError):  # where it could not be linked it was renamed
                self.make()
            self._is_made = True
        else:
            self.make()

    def take_back(self) -> None:
        """Have things as they were before `make_revocably`. What can't be put back stays beside its place."""
        try:
            if self._has_old:
                self._rename(self._old, self._name)
            elif self._is_made and self._change.expected is None:
                os.unlink(self._name, dir_fd=self._directory)
        except OSError:
            self._has_old = False
            logger.exception("%s could not be taken back; as it was it stands in %s", self._change.path, self._old)

    def tidy(self) -> None:
        for name in (self._new, *([self._old] if self._has_old else [])):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._directory)

    def _require_writable(self, status: os.stat_result) -> None:
        """A rename asks the directory only; a protected file must not be replaced by that, not even by root."""
        if not status.st_mode & 0o222 or not os.access(self._name, os.W_OK, dir_fd=self._directory):
            raise ToolError(f"{self._change.path} is read-only ({stat.filemode(status.st_mode)})")

    def _write_new(self, data: bytes) -> None:
        expected = self._change.expected
        permissions = expected.status if expected is not None else self._change.permissions
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._new, flags, 0o666, dir_fd=self._directory)
        with open(descriptor, "wb") as file:
            if permissions is not None:
                _copy_permissions(descriptor, permissions)
            file.write(data)
            if permissions is not None:
                file.flush()
                # Writing took the set-id bits away again, unless root wrote.
                os.fchmod(descriptor, stat.S_IMODE(permissions.st_mode))

    def _put_new_in_place(self) -> None:
        try:
            # A link fails where a rename would replace what appeared meanwhile.
            self._link(self._new, self._name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._rename(self._new, self._name)

    def _keep_old(self) -> None:
        try:
            self._link(self._name, self._old)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._rename(self._name, self._old)
        self._has_old = True

    def _link(self, source: str, target: str) -> None:
        os.link(source, target, src_dir_fd=self._directory, dst_dir_fd=self._directory, follow_symlinks=False)

    def _rename(self, source: str, target: str) -> None:
        os.rename(source, target, src_dir_fd=self._directory, dst_dir_fd=self._directory)


def _copy_permissions(descriptor: int, status: os.stat_result) -> None:
    # The owner before the mode: changing the owner clears the set-id bits. Only root may give a file away.
    with suppress(PermissionError):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
