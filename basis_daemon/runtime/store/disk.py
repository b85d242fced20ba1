"""The few operating system calls the store changes files with, and the errors they are turned into.

Owns modes and flags (directories 0700, files 0600, no symlink followed when writing: ST-8, ST-31) and the translation
of `OSError`. A test passes a `Disk` of its own to make any single call fail. Does not know what the files mean.
"""

import errno
import fcntl
import os
import sys

from basis_daemon.errors import StoreError

MAX_FILE_BYTES = 256 << 20
"""No larger file is read or written: a load must not exhaust memory (ST-31)."""

_READ_BYTES = 64 << 10
_HINTS = {
    errno.ENOSPC: "free some disk space; everything stored so far is intact",
    errno.EDQUOT: "free some of your disk quota; everything stored so far is intact",
    errno.EACCES: "check who owns the directory and its permissions",
    errno.EPERM: "check who owns the directory and its permissions",
    errno.EROFS: "the file system is mounted read-only",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


class Disk:
    """The real thing. Every method raises `OSError`."""

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)

    def sync_data(self, fd: int) -> None:
        """Content and length of a file reach the disk."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def sync(self, fd: int) -> None:
        """Everything about a file, or the entries of a directory, reach the disk."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and what it holds. Symlinks inside are removed, never followed (ST-30)."""
        import shutil  # rare, and slow to import

        shutil.rmtree(path)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write `data` at the end; one call unless the system takes less at a time."""
    view = memoryview(data)
    while view:
        view = view[disk.write(fd, view) :]


def write_whole(disk: Disk, path: str, data: bytes) -> None:
    """Make a file hold `data`. Not atomic: give it a name nobody reads."""
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        write_all(disk, fd, data)
    finally:
        disk.close(fd)


def sync_path(disk: Disk, path: str) -> None:
    """Sync a file or directory by name."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        disk.sync(fd)
    finally:
        disk.close(fd)


def read_whole(disk: Disk, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
    """The content of a file, `None` if there is none. Raises `StoreError`."""
    try:
        fd = disk.open(path, os.O_RDONLY)
        try:
            data = os.read(fd, _READ_BYTES)
            if len(data) < _READ_BYTES:
                return data
            parts = [data]
            total = len(data)
            while total <= max_bytes and (data := os.read(fd, _READ_BYTES)):
                parts.append(data)
                total += len(data)
        finally:
            disk.close(fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise failed("read", path, error) from error
    if total > max_bytes:
        raise too_large(path, max_bytes)
    return b"".join(parts)


def make_directory(disk: Disk, path: str) -> bool:
    """Create one directory, mode 0700. True if it was not there. Raises `OSError`."""
    try:
        disk.mkdir(path)
    except FileExistsError:
        return False
    return True


def failed(operation: str, path: str, error: OSError) -> StoreError:
    """The error a caller sees: what was tried, where, and why it did not work (ST-28)."""
    reason = error.strerror or type(error).__name__
    return StoreError(
        f"could not {operation} {path}: {reason}",
        hint=_HINTS.get(error.errno or 0),
        details={"path": path, "errno": errno.errorcode.get(error.errno or 0, "")},
    )


def too_large(path: str, max_bytes: int) -> StoreError:
    return StoreError(f"{path} is larger than the {max_bytes} bytes a store file may have", details={"path": path})
