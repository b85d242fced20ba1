"""One writer a conversation: an advisory lock on a file, held for the conversation's open life (ST-19).

The kernel drops it with the process, however that ends, so there is nothing to renew and nothing to clean up. Lock
files are never removed: whoever locked a removed one would own nothing. Does not know what it protects.
"""

import contextlib
import fcntl
import os

from basis_daemon.errors import LeaseUnavailable
from basis_daemon.runtime.store.disk import Disk, failed


class Lease:
    """A held lock. Released by `release()` or when it is garbage (AG-7)."""

    __slots__ = ("_disk", "_fd")

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk = disk
        self._fd: int | None = fd

    def release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):  # the holder's number is a courtesy
                os.ftruncate(fd, 0)
            os.close(fd)

    def __del__(self) -> None:
        self.release()


def acquire(disk: Disk, path: str, what: str) -> Lease:
    """Lock the file at `path`, creating it. Raises `LeaseUnavailable` also when this process holds it already."""
    try:
        fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    except OSError as error:
        raise failed("lock", path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _holder(fd)
        os.close(fd)
        raise _unavailable(what, holder) from error
    except OSError as error:
        os.close(fd)
        raise failed("lock", path, error) from error
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return Lease(disk, fd)


def _holder(fd: int) -> int | None:
    try:
        return int(os.pread(fd, 32, 0))
    except (OSError, ValueError):
        return None


def _unavailable(what: str, holder: int | None) -> LeaseUnavailable:
    if holder == os.getpid():
        where = "in this process already"
    elif holder is None:
        where = "elsewhere"
    else:
        where = f"in process {holder}"
    return LeaseUnavailable(f"{what} is open {where}", hint="close it there first", details={"holder": holder})
