"""What a project says its files are encoded in: `charset` of the nearest `.editorconfig` that has it.

Owns reading those files; nothing else in them is looked at. A file that can't be read or understood says nothing.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.runtime.tools.globs import PathGlob
from basis_daemon.runtime.tools.nofollow import open_directory, open_regular_in
from basis_daemon.runtime.tools.tool_error import ToolError

NAME = ".editorconfig"

MAX_BYTES = 64 * 1024

_SECTION = re.compile(r"\[(.+)\]\s*(?:[#;].*)?")
_PAIR = re.compile(r"([\w-]+)\s*[=:]\s*([^#;]*)")


@dataclass(frozen=True, slots=True)
class EditorConfig:
    """The charsets one file gives, in its order: later ones hold over earlier ones."""

    charsets: tuple[tuple[PathGlob, str], ...]
    is_root: bool = False

    def charset(self, relative: str) -> str | None:
        """That of a path below the file's own directory."""
        return next((charset for glob, charset in reversed(self.charsets) if glob.matches(relative)), None)


def charset_of(path: Path) -> str | None:
    """What the project says of the file at a canonical path, which need not exist. Blocking: use a thread."""
    return Charsets().of(str(path))


class Charsets:
    """The same for many files: each directory is looked at once. Blocking."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[str, EditorConfig], ...]] = {}

    def of(self, path: str) -> str | None:
        for directory, config in self._above(os.path.dirname(path)):
            charset = config.charset(path[len(directory.rstrip("/")) + 1 :])
            if charset is not None:
                return None if charset == "unset" else charset
        return None

    def _above(self, directory: str) -> tuple[tuple[str, EditorConfig], ...]:
        """The files that have a say about a directory, nearest first."""
        known = self._known.get(directory)
        if known is None:
            config = config_in(directory) if os.path.lexists(os.path.join(directory, NAME)) else None
            parent = os.path.dirname(directory)
            is_top = directory == parent or (config is not None and config.is_root)
            own = ((directory, config),) if config is not None else ()
            known = self._known[directory] = own + (() if is_top else self._above(parent))
        return known


def config_in(directory: str) -> EditorConfig | None:
    """The `.editorconfig` of one directory."""
    try:
        looked_up = open_directory(directory)
        try:
            descriptor = open_regular_in(looked_up, NAME)
        finally:
            os.close(looked_up)
        with open(descriptor, encoding="utf-8-sig", errors="replace") as file:
            return parse(file.read(MAX_BYTES))
    except OSError:
        return None


def parse(text: str) -> EditorConfig:
    charsets: list[tuple[PathGlob, str]] = []
    is_root, glob, preamble = False, None, True
    for line in map(str.strip, text.splitlines()):
        if section := _SECTION.fullmatch(line):
            glob, preamble = _glob(section[1]), False
        elif pair := _PAIR.match(line):
            name, value = pair[1].lower(), pair[2].strip().lower()
            if preamble and name == "root":
                is_root = value == "true"
            elif name == "charset" and glob is not None and value:
                charsets.append((glob, value))
    return EditorConfig(tuple(charsets), is_root)


def _glob(pattern: str) -> PathGlob | None:
    try:
        return PathGlob(pattern)
    except ToolError:
        return None
