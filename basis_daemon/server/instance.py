"""One daemon a user: the kernel's lock decides, and the socket is bound while it is held (architecture.md 5).

Standard library only: this runs before anything heavy is imported, so that a client can connect within milliseconds
of the start and is answered when the daemon is up. Process ids are written for diagnostics and never decide anything.
"""

import errno
import fcntl
import json
import os
import socket
import stat
from collections.abc import Mapping
from typing import cast

BACKLOG = 1024
"""Connections the kernel holds while the daemon is still importing: fifty clients may start at once."""


class AlreadyRunning(Exception):
    """Another process holds the lock. `str()` says which, as far as it said so itself."""


class UnusablePlace(Exception):
    """A directory that can't be used, or a socket path that is somebody else's. `str()` says what to do."""


class Instance:
    """The held lock and the listening socket. The lock goes with the process; nothing has to be cleaned up."""

    def __init__(self, lock_fd: int, lock_path: str, listening: socket.socket, socket_path: str) -> None:
        self.left_by_previous = _facts(lock_fd)
        """What a daemon that never got to release this instance had said of itself; empty after an orderly end."""
        self._lock_fd = lock_fd
        self._lock_path = lock_path
        self.listening = listening
        self._socket_path = socket_path
        self._inode = os.stat(socket_path).st_ino

    def describe(self, facts: Mapping[str, object]) -> None:
        """Write who holds the lock into it: for people, and for the next daemon if this one is killed."""
        os.ftruncate(self._lock_fd, 0)
        os.pwrite(self._lock_fd, json.dumps(dict(facts)).encode() + b"\n", 0)

    def is_in_place(self) -> bool:
        """Whether clients still find this daemon: the lock and the socket it holds are what their paths lead to. A
        cleaner of temporary directories may have taken either, and a daemon nobody can find must not keep the lock."""
        try:
            lock, place = os.fstat(self._lock_fd), os.stat(self._lock_path)
            return (lock.st_dev, lock.st_ino) == (place.st_dev, place.st_ino) and (
                os.stat(self._socket_path).st_ino == self._inode
            )
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # it can't be told just now

    def release(self) -> None:
        """Close the socket and take its path away, if it is still ours; then let the lock go."""
        self.listening.close()
        try:
            if os.stat(self._socket_path).st_ino == self._inode:
                os.unlink(self._socket_path)
        except FileNotFoundError:
            pass
        os.ftruncate(self._lock_fd, 0)
        os.close(self._lock_fd)


def claim(lock_path: str, socket_path: str) -> Instance:
    """Take the lock and bind the socket. Raises `AlreadyRunning`, `UnusablePlace`, `OSError`."""
    for directory in (os.path.dirname(lock_path), os.path.dirname(socket_path)):
        _make_private(directory)
    lock_fd = _lock(lock_path)
    try:
        return Instance(lock_fd, lock_path, _bind(socket_path), socket_path)
    except BaseException:
        os.close(lock_fd)
        raise


def _facts(lock_fd: int) -> dict[str, object]:
    try:
        facts = json.loads(os.pread(lock_fd, 4096, 0))
    except ValueError:
        return {}
    return cast("dict[str, object]", facts) if isinstance(facts, dict) else {}


def _lock(path: str) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 500, 0).decode("utf-8", "replace").strip()
        os.close(fd)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise AlreadyRunning(holder) from None
        raise
    return fd


def _make_private(directory: str) -> None:
    """Create `directory` for this user alone, or check that an existing one can't be tampered with by others."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    found = os.stat(directory)
    if found.st_uid not in (os.getuid(), 0):
        raise UnusablePlace(
            f"{directory} belongs to another user: set BASIS_DATA_DIR and BASIS_SOCKET to places of yours"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        raise UnusablePlace(f"{directory} can be written by other users: chmod 700 it, or set BASIS_SOCKET elsewhere")


def _bind(path: str) -> socket.socket:
    """Listen on `path`, which appears only once somebody listens. Bound by its short name: the limit on the length of a
    socket's path then holds for the path clients use, not for a longer temporary one."""
    directory, name = os.path.split(path)
    if _is_live(path):
        raise UnusablePlace(f"a daemon with another data directory listens on {path}: set BASIS_SOCKET")
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise UnusablePlace(f"{path} is no socket and is left alone: set BASIS_SOCKET to another place")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.getcwd()
    os.chdir(directory)
    try:
        temporary = f".{os.getpid()}.new"
        if os.path.lexists(temporary):
            os.unlink(temporary)
        listening.bind(temporary)
        os.chmod(temporary, 0o600)
        listening.listen(BACKLOG)
        listening.setblocking(False)
        os.rename(temporary, name)
    except BaseException:
        listening.close()
        raise
    finally:
        os.chdir(before)
    return listening


def _is_live(path: str) -> bool:
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(1.0)
        probe.connect(path)
    except OSError:
        return False
    finally:
        probe.close()
    return True
