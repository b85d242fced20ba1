"""How a path from a model becomes the one path that is judged and used (runtime.md 5.2).

Owns folding, canonicalising and comparing. Touches the file system to read links only; blocking, so for a thread.
"""

import os
import sys
from pathlib import Path

from basis_daemon.errors import PolicyDenied

FOLDS_CASE = sys.platform in ("win32", "darwin")
"""Whether two spellings that differ in case are usually one file here."""

MAX_PATH_BYTES = 4096
"""Longest path most systems take. A longer one could be made step by step, but nobody could name it afterwards."""


def canonical(path: str | Path, base: Path) -> Path:
    """The canonical form of `path`, which need not exist; a relative one starts at `base` (PO-6).

    `.` and `..` are folded by their letters, then every existing prefix is resolved. Raises `PolicyDenied` for what
    can't be resolved: a path above the root, a symlink to nowhere, a loop, a file used as a directory.
    """
    text = str(path)
    if not text.strip():
        raise PolicyDenied("the path is empty")
    if "\0" in text:
        raise PolicyDenied("the path holds a NUL character")
    folded = _fold(os.path.join(base, text))
    try:
        size = len(os.fsencode(folded))
    except UnicodeEncodeError as error:
        raise PolicyDenied("the path holds characters that no file name can have") from error
    if size > MAX_PATH_BYTES:
        raise PolicyDenied(f"the path is longer than {MAX_PATH_BYTES} bytes")
    return _resolve(folded)


def _fold(path: str) -> str:
    parts: list[str] = []
    for part in path.split(os.sep):
        if part == "..":
            if not parts:
                raise PolicyDenied(f"{path} leads above the root of the file system")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return os.sep + os.sep.join(parts)


def _resolve(path: str) -> Path:
    missing: list[str] = []
    existing = path
    while True:
        try:
            return Path(os.path.realpath(existing, strict=True), *reversed(missing))
        except FileNotFoundError:
            if os.path.islink(existing):
                raise PolicyDenied(f"{path} can't be used: {existing} is a symlink to nothing") from None
            existing, name = os.path.split(existing)
            missing.append(name)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise PolicyDenied(f"{path} can't be resolved: {reason}") from error


def is_within(path: Path, root: Path, *, fold_case: bool = FOLDS_CASE) -> bool:
    """Whether `path` is `root` or below it, component by component."""
    inner, outer = path.parts, root.parts
    if fold_case:
        inner, outer = tuple(map(str.casefold, inner)), tuple(map(str.casefold, outer))
    return inner[: len(outer)] == outer
