"""Text files as tools see them: read whole, decoded without loss, and encoded as they were.

Owns size limits, and which encoding new text gets. Paths given here are canonical and authorised (see `policy.py`).
What bytes mean is worked out in `charsets.py`; files are put in place by `file_writes.py`.
"""

import errno
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.runtime.tools import charsets, editorconfig
from basis_daemon.runtime.tools.nofollow import NotRegular, open_directory, open_regular_in
from basis_daemon.runtime.tools.tool_error import ToolError

MAX_FILE_BYTES = 10 * 1024 * 1024
"""Largest file that is read or written (BT-9)."""

ABSENT = "absent"
"""Digest of a file that isn't there."""

MAX_NAMED_CHARS = 8
"""Characters a refusal names of those that an encoding lacks."""


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
        """`text` in this file's encoding. Raises `ToolError` naming the characters that it lacks."""
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            if self.encoding.startswith("utf-"):
                raise ToolError(f"the text can't be written: {error.reason} (character {error.start})") from error
            raise ToolError(self._lacking(text)) from error

    def _lacking(self, text: str) -> str:
        lacking = [char for char in dict.fromkeys(text) if not _has(self.encoding, char)]
        named = ", ".join(f"{char!r} (U+{ord(char):04X})" for char in lacking[:MAX_NAMED_CHARS])
        more = f" and {len(lacking) - MAX_NAMED_CHARS} more" if len(lacking) > MAX_NAMED_CHARS else ""
        return f"the file is in the encoding {self.encoding}, which lacks {named}{more}; nothing was changed"


def _has(encoding: str, char: str) -> bool:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


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
        """Its text. Raises `ToolError` for what is no text, or text in an encoding nothing tells."""
        return decode(self.data, path)


def digest(data: bytes) -> str:
    """What a ledger remembers of a version."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def decode(data: bytes, path: Path) -> TextFile:
    """The text of the file at `path`, which is believed about its encoding. Blocking. Raises `ToolError`."""
    try:
        found = charsets.decode(data, path.name, lambda: editorconfig.charset_of(path))
    except charsets.NotText as reason:
        raise ToolError(f"{path} {reason}") from reason
    return TextFile(found.text, found.encoding, found.bom)


def for_text(file: TextFile | None, path: Path, text: str) -> TextFile:
    """How `text` is to stand at `path`: as the file there does, if that settles it. Plain ASCII doesn't: what comes to
    it is encoded as the text says, or as the project does; so is a new file. Blocking."""
    if file is not None and (file.bom or not file.text.isascii() or text.isascii()):
        return file
    if file is not None and file.encoding != "utf-8":
        return file
    stated = charsets.usable(charsets.stated_in(text[: charsets.HEAD_BYTES].encode("utf-8", "replace"), path.name))
    if stated is not None:
        return TextFile(text, stated)
    configured = editorconfig.charset_of(path)
    encoding = charsets.usable(configured) or "utf-8"
    is_marked = encoding.startswith("utf-16") or (configured == "utf-8-bom" and file is None)
    if file is not None and encoding.startswith("utf-16"):
        return file
    return TextFile(text, encoding, charsets.BOMS[encoding] if is_marked else b"")


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
        require_size(path, status.st_size)
        data = file.read(MAX_FILE_BYTES + 1)
    require_size(path, len(data))
    return Stored(data, Version.of(status), status)


def require_size(path: Path, size: int) -> None:
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
