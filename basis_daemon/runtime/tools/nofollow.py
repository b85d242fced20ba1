"""Opening by canonical path without following a single link (PO-7, PO-9).

A path was resolved and authorised; between then and now somebody may have put a symlink in its place. Here every
component is opened from the one before it, and a link among them is an error, so what is opened is what was authorised.
Standard library only: the search process imports this file by itself.
"""

import os
import stat
from contextlib import suppress

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotRegular(OSError):
    """A device, FIFO, socket or directory where a file was expected."""


def open_directory(path: str, *, create: bool = False) -> int:
    """A descriptor to look names up in; `create` makes what is missing. A link raises `NotADirectoryError`."""
    current = os.open("/", _DIRECTORY)
    for name in path.split("/"):
        if not name:
            continue
        try:
            below = _open_below(current, name, create)
        finally:
            os.close(current)
        current = below
    return current


def _open_below(parent: int, name: str, create: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return os.open(name, _DIRECTORY, dir_fd=parent)


def open_regular_in(directory: int, name: str) -> int:
    """A descriptor to read a regular file with. Raises `NotRegular` without opening anything else, and `OSError`."""
    _require_regular(os.stat(name, dir_fd=directory, follow_symlinks=False))
    descriptor = os.open(name, _FILE, dir_fd=directory)
    try:
        _require_regular(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise NotRegular("a symlink")
    if stat.S_ISDIR(status.st_mode):
        raise NotRegular("a directory")
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular("a device, pipe or socket")


class Opener:
    """Opens many files; keeps the last directory open, so files of one directory cost one look-up."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._directory = -1

    def open(self, path: str) -> int:
        """A descriptor to read the regular file at a canonical absolute path. Raises `OSError`."""
        parent, name = os.path.split(path)
        if parent != self._path:
            self.close()
            self._directory = open_directory(parent)
            self._path = parent
        return open_regular_in(self._directory, name)

    def close(self) -> None:
        if self._path is not None:
            os.close(self._directory)
            self._path = None
