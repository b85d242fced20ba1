"""Disks that fail where a test says, and one that remembers what a power cut would have left.

They stand in for `basis_daemon.runtime.store.disk.Disk`, which is passed to a store: nothing is patched.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.runtime.store.disk import Disk


class FaultyDisk(Disk):
    """Calls `fault(name, path)` ahead of every call that changes something; what that raises, the call raises.

    `path` is that of the file meant. With `half_writes` a write whose turn to fail has come writes half its data first,
    as on a disk that fills up.
    """

    def __init__(self, fault: Callable[[str, str], None] | None = None) -> None:
        self.fault = fault or _no_fault
        self.half_writes = False
        self.calls: list[tuple[str, str]] = []
        self.turn: AbstractContextManager[object] = nullcontext()
        self._paths: dict[int, str] = {}

    def open(self, path: str, flags: int) -> int:
        with self.turn:
            if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                self._before("open", path)
            fd = super().open(path, flags)
            self._paths[fd] = path
            return fd

    def write(self, fd: int, data: memoryview) -> int:
        with self.turn:
            try:
                self._before("write", self._paths[fd])
            except OSError:
                if self.half_writes:
                    super().write(fd, data[: len(data) // 2])
                raise
            return super().write(fd, data)

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        with self.turn:
            self._before("pwrite", self._paths[fd])
            return super().pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        with self.turn:
            self._before("truncate", self._paths[fd])
            super().truncate(fd, size)

    def sync_data(self, fd: int) -> None:
        with self.turn:
            self._before("sync_data", self._paths[fd])
            super().sync_data(fd)

    def sync(self, fd: int) -> None:
        with self.turn:
            self._before("sync", self._paths[fd])
            super().sync(fd)

    def replace(self, source: str, target: str) -> None:
        with self.turn:
            self._before("replace", target)
            super().replace(source, target)

    def unlink(self, path: str) -> None:
        with self.turn:
            self._before("unlink", path)
            super().unlink(path)

    def mkdir(self, path: str) -> None:
        with self.turn:
            self._before("mkdir", path)
            super().mkdir(path)

    def remove_tree(self, path: str) -> None:
        with self.turn:
            self._before("remove_tree", path)
            super().remove_tree(path)

    def count(self, name: str) -> int:
        return sum(called == name for called, _ in self.calls)

    def _before(self, name: str, path: str) -> None:
        self.calls.append((name, path))
        self.fault(name, path)


def _no_fault(name: str, path: str) -> None:
    """Everything works."""


@dataclass
class _Name:
    """A change of a directory: a file or directory got a name, or (`inode` is `None`) lost it."""

    path: str
    inode: int | None
    source: str | None = None
    is_directory: bool = False
    is_synced: bool = False


@dataclass(frozen=True)
class Moment:
    """The instant ahead of one call. `outcomes` are states a power cut may leave then: file contents by path."""

    call: str
    promised: object
    outcomes: list[dict[str, bytes]]


class ForgetfulDisk(FaultyDisk):
    """Notes ahead of every call what a power cut at that moment could leave.

    The model: content is safe as of the file's last sync, a name as of the last sync of its directory. The rest may be
    there or not, so the extremes are noted: names that were not synced are all lost or all there, and content behind
    the safe part is missing, zeros, or half there.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(self._note)
        self._root = str(root)
        self.turn = threading.RLock()  # one call at a time, so that what is noted belongs together
        self._safe: dict[int, bytes] = {}
        self._names: list[_Name] = []
        self._held: list[int] = []  # keeps the inodes of replaced files from being given to new ones
        self.moments: list[Moment] = []
        self.promised: object = None
        """Set by the test to what the store has promised so far."""

    def open(self, path: str, flags: int) -> int:
        with self.turn:
            is_new = bool(flags & os.O_CREAT) and not os.path.lexists(path)
            fd = super().open(path, flags)
            if is_new:
                self._names.append(_Name(path, os.fstat(fd).st_ino))
            return fd

    def replace(self, source: str, target: str) -> None:
        with self.turn:
            self._held.append(os.open(source, os.O_RDONLY))
            super().replace(source, target)
            self._names.append(_Name(target, os.fstat(self._held[-1]).st_ino, source))

    def unlink(self, path: str) -> None:
        with self.turn:
            super().unlink(path)
            self._names.append(_Name(path, None))

    def mkdir(self, path: str) -> None:
        with self.turn:
            super().mkdir(path)
            self._names.append(_Name(path, None, is_directory=True))

    def sync_data(self, fd: int) -> None:
        with self.turn:
            super().sync_data(fd)
            self._synced(fd)

    def sync(self, fd: int) -> None:
        with self.turn:
            super().sync(fd)
            self._synced(fd)

    def release(self) -> None:
        for fd in self._held:
            os.close(fd)

    def _synced(self, fd: int) -> None:
        path = self._paths[fd]
        if not os.path.isdir(path):
            self._safe[os.fstat(fd).st_ino] = Path(path).read_bytes()
            return
        for name in self._names:
            name.is_synced |= os.path.dirname(name.path) == path

    def _note(self, name: str, path: str) -> None:
        call = f"{name} {os.path.relpath(path, self._root)}"
        self.moments.append(Moment(call, self.promised, list(self._outcomes())))

    def _outcomes(self) -> Iterator[dict[str, bytes]]:
        present = {os.stat(path).st_ino: path.read_bytes() for path in Path(self._root).rglob("*") if path.is_file()}
        for names in ([name for name in self._names if name.is_synced], self._names):
            files = self._files(names)
            for fate in ("missing", "zeros", "half"):
                yield {path: self._content(inode, present, fate) for path, inode in files.items()}

    def _files(self, names: list[_Name]) -> dict[str, int]:
        directories = {self._root}
        files: dict[str, int] = {}
        for name in names:
            if name.is_directory:
                if os.path.dirname(name.path) in directories:
                    directories.add(name.path)
                continue
            if name.source is not None:
                files.pop(name.source, None)
            files.pop(name.path, None)
            if name.inode is not None:
                files[name.path] = name.inode
        return {path: inode for path, inode in files.items() if os.path.dirname(path) in directories}

    def _content(self, inode: int, present: dict[int, bytes], fate: str) -> bytes:
        safe = self._safe.get(inode, b"")
        rest = present.get(inode, safe)[len(safe) :]
        unsafe = {"missing": b"", "zeros": bytes(len(rest)), "half": rest[: len(rest) // 2]}
        return safe + unsafe[fate]
