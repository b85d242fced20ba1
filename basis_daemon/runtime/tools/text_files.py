"""Text files as tools see them: read whole, decoded without loss, replaced in one step.

Owns size limits, encodings and the atomic write. Paths given here are canonical and authorised (see `policy.py`).
"""

import errno
import hashlib
import os
import secrets
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.runtime.tools.nofollow import NotRegular, open_directory, open_regular_in
from basis_daemon.runtime.tools.tool_error import ToolError

MAX_FILE_BYTES = 10 * 1024 * 1024
"""Largest file that is read or written (BT-9)."""

ABSENT = "absent"
"""Digest of a file that isn't there."""

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_UTF_32_BOMS = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")

_commit = threading.Lock()
"""Held while a file is compared with what was read and renamed over, so that two sessions can't both pass the test."""


class StaleFile(ToolError):
    """The file is not the one that was read: somebody else wrote it."""

    kind = "stale_file"


@dataclass(frozen=True, slots=True)
class Version:
    """Tells one state of a file on disk from another without reading it."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Version":
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text and how it stands on disk. `text` keeps its line endings and lacks the byte order mark."""

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""

    def encode(self, text: str) -> bytes:
        """`text` in this file's encoding. Raises `ToolError` for what no file can hold: half a surrogate pair."""
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise ToolError(f"the text can't be written: {error.reason} (character {error.start})") from error


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as it was on disk at one moment."""

    data: bytes
    version: Version
    status: os.stat_result

    @property
    def digest(self) -> str:
        return digest(self.data)

    def decode(self, path: Path) -> TextFile:
        """Its text. Raises `ToolError` for what isn't UTF-8, or UTF-16 with a byte order mark."""
        return decode(self.data, path)


def digest(data: bytes) -> str:
    """What a ledger remembers of a version."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def decode(data: bytes, path: Path) -> TextFile:
    bom, encoding = next(((bom, name) for bom, name in _BOMS if data.startswith(bom)), (b"", "utf-8"))
    if data.startswith(_UTF_32_BOMS):
        raise ToolError(f"{path} is UTF-32 text; only UTF-8 and UTF-16 are read and written")
    try:
        text = data[len(bom) :].decode(encoding)
    except UnicodeDecodeError as error:
        if b"\0" in data:
            raise ToolError(_binary(path, data)) from error
        raise ToolError(
            f"{path} is not {encoding.upper()} text (byte {error.start}); files in other encodings are neither read "
            "nor changed here. A command can convert it."
        ) from error
    if "\0" in text:
        raise ToolError(_binary(path, data))
    return TextFile(text, encoding, bom)


def _binary(path: Path, data: bytes) -> str:
    return f"{path} is a binary file of {len(data)} bytes; it can't be shown or changed as text"


def read(path: Path) -> Stored | None:
    """The file at `path`; `None` if there is none. Raises `ToolError` for what can't be read as a file."""
    try:
        directory = open_directory(str(path.parent))
        try:
            descriptor = open_regular_in(directory, path.name)
        finally:
            os.close(directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(path, error) from error
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        _require_size(path, status.st_size)
        data = file.read(MAX_FILE_BYTES + 1)
    _require_size(path, len(data))
    return Stored(data, Version.of(status), status)


def replace(path: Path, data: bytes, *, expected: Stored | None) -> None:
    """Put `data` in the file's place in one step; permissions stay (BT-9).

    Without `expected` the file must not exist, and missing directories are made. Raises `StaleFile` if the file isn't
    the one expected, and `ToolError`.
    """
    _require_size(path, len(data))
    try:
        directory = open_directory(str(path.parent), create=expected is None)
        try:
            _replace_in(directory, path, data, expected)
        finally:
            os.close(directory)
    except OSError as error:
        raise refusal(path, error) from error


def _replace_in(directory: int, path: Path, data: bytes, expected: Stored | None) -> None:
    if expected is not None:
        _require_writable(directory, path, expected.status)
    temporary = f".basis-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666, dir_fd=directory)
    try:
        with open(descriptor, "wb") as file:
            if expected is not None:
                _copy_permissions(descriptor, expected.status)
            file.write(data)
            if expected is not None:
                file.flush()
                # Writing took the set-id bits away again, unless root wrote.
                os.fchmod(descriptor, stat.S_IMODE(expected.status.st_mode))
        with _commit:
            _require_unchanged(directory, path, expected)
            _put_in_place(directory, temporary, path.name, is_new=expected is None)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)


def _require_writable(directory: int, path: Path, status: os.stat_result) -> None:
    """A rename asks the directory only; a protected file must not be replaced by that, not even by root."""
    if not status.st_mode & 0o222 or not os.access(path.name, os.W_OK, dir_fd=directory):
        raise ToolError(f"{path} is read-only ({stat.filemode(status.st_mode)})")


def _copy_permissions(descriptor: int, status: os.stat_result) -> None:
    # The owner before the mode: changing the owner clears the set-id bits. Only root may give a file away.
    with suppress(PermissionError):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))


def _require_unchanged(directory: int, path: Path, expected: Stored | None) -> None:
    try:
        now = Version.of(os.stat(path.name, dir_fd=directory, follow_symlinks=False))
    except FileNotFoundError:
        now = None
    if now != (None if expected is None else expected.version):
        raise StaleFile(f"{path} was changed by somebody else just now; nothing was written. Read it again.")


def _put_in_place(directory: int, temporary: str, name: str, *, is_new: bool) -> None:
    if is_new:
        try:
            # A link fails where a rename would replace what appeared meanwhile.
            os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


def _require_size(path: Path, size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise ToolError(
            f"{path}: {size} bytes are more than the {MAX_FILE_BYTES} a file tool reads or writes; use a command"
        )


def refusal(path: Path, error: OSError) -> ToolError:
    """What went wrong with a file, for the model."""
    match error:
        case NotRegular():
            reason = f"is {error}"
        case FileExistsError():
            reason = "was created by somebody else just now; nothing was written. Read it first"
        case _ if error.errno in (errno.ELOOP, errno.ENOTDIR):
            reason = "can't be used: a part of its path is not a directory, or was replaced by a link"
        case _:
            reason = f"can't be used: {(error.strerror or str(error)).lower()}"
    return ToolError(f"{path} {reason}")
