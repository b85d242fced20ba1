"""Where conventions are looked for: the canonical root, the global directory, and the layers between them.

Owns the one spelling of a workspace's directory and the rules every convention shares (workspace.md 2.1). Does not know
any convention: see `agents_md.py` and `config.py`.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal

from basis_daemon.errors import WorkspaceMissing, WorkspaceNotADirectory, WorkspaceUnresolvable
from basis_protocol.events import ContextFile

GLOBAL = "global"
WORKSPACE = "workspace"


class Inherit(Enum):
    """The global directory is the builder's; `None` in its place switches a convention's global half off (DI-5)."""

    GLOBAL_DIR = "inherit"


GlobalDir = Path | Literal[Inherit.GLOBAL_DIR] | None


@dataclass(frozen=True, slots=True)
class Source:
    """A directory or a file a convention is read from, and its label: `global`, `ancestor:N` or `workspace`."""

    path: Path
    scope: str

    def file(self, name: str) -> "Source":
        """What is called `name` in this directory."""
        return Source(self.path / name, self.scope)

    def report(self) -> ContextFile:
        """The same as a person is told (DI-6)."""
        return ContextFile(path=str(self.path), scope=self.scope)


def canonical_root(path: str | os.PathLike[str]) -> Path:
    """The directory itself: absolute, links followed, whatever spelling it was asked for by (WS-20, WS-26).

    Raises `WorkspaceMissing`, `WorkspaceNotADirectory`, `WorkspaceUnresolvable` (OP-4).
    """
    try:
        resolved = os.path.realpath(path, strict=True)
        mode = os.stat(resolved).st_mode
    except FileNotFoundError:
        raise WorkspaceMissing(f"there is no directory {_shown(path)}") from None
    except NotADirectoryError:
        raise WorkspaceNotADirectory(f"{_shown(path)} leads through something that is not a directory") from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not a possible path"
        raise WorkspaceUnresolvable(f"{_shown(path)} can't be resolved: {reason}") from None
    if not stat.S_ISDIR(mode):
        raise WorkspaceNotADirectory(f"{_shown(path)} is not a directory")
    try:
        resolved.encode("utf-8")
    except UnicodeEncodeError:
        raise WorkspaceUnresolvable(
            f"{_shown(path)} can't be opened: its name is not valid UTF-8, which clients could not be told",
            hint="open it through a link whose target has a UTF-8 name, or rename it",
        ) from None
    return Path(resolved)


def resolved_or_given(path: str | os.PathLike[str]) -> Path:
    """The canonical path, or `path` as it was given when it can't be resolved any more (ST-10)."""
    try:
        return Path(os.path.realpath(path, strict=True))
    except (OSError, ValueError):
        return Path(path)


def layers(
    root: Path, global_dir: Path | None, *, walk_parents: bool = False, ceiling: Path | None = None
) -> list[Source]:
    """The directories of a convention, weakest first: global, ancestors from the outside inwards, the root (CX-2).

    Only prose may be looked for in ancestors (2.11 a). `ceiling` is the outermost ancestor looked at.
    """
    found = [Source(global_dir, GLOBAL)] if global_dir is not None else []
    if walk_parents:
        found.extend(reversed(list(_ancestors(root, ceiling))))
    found.append(Source(root, WORKSPACE))
    return found


def distinct(sources: Iterable[Source]) -> list[Source]:
    """`sources` without those that reach something already mentioned (DI-3).

    The first mention is kept, so the caller decides by its reading order which label survives.
    """
    seen: set[str] = set()
    kept: list[Source] = []
    for source in sources:
        real = os.path.realpath(source.path)
        if real not in seen:
            seen.add(real)
            kept.append(source)
    return kept


def chosen_global_dir(setting: GlobalDir, inherited: Path | None) -> Path | None:
    """What a convention's own `global_dir` comes to, given the builder's."""
    return inherited if isinstance(setting, Inherit) else setting


def _ancestors(root: Path, ceiling: Path | None) -> Iterator[Source]:
    for distance, directory in enumerate(root.parents, start=1):
        if ceiling is not None and not directory.is_relative_to(ceiling):
            return
        yield Source(directory, f"ancestor:{distance}")


def _shown(path: str | os.PathLike[str]) -> str:
    """`path` as it may stand in a message: text only, whatever bytes it is made of."""
    return os.fspath(path).encode("utf-8", "backslashreplace").decode()
