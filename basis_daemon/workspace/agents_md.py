"""Context documents: what AGENTS.md files along the way to a repository say, and how a model is shown it.

Owns finding, reading and framing them (workspace.md 2.2). The text is a repository's own and goes only to models and to
clients attached to that workspace.
"""

import html
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.errors import ContextUnreadable
from basis_daemon.paths import open_regular
from basis_daemon.workspace.discovery import (
    GlobalDir,
    Inherit,
    Source,
    chosen_global_dir,
    distinct,
    layers,
)
from basis_protocol.events import ContextFile

FILE_NAME = "AGENTS.md"
FALLBACK_NAME = "CLAUDE.md"
"""Tried where there is no AGENTS.md, as long as the name is the default one (CX-1)."""

PREAMBLE = (
    "The following documents were found for this workspace. They are ordered from general to specific: "
    "where two of them disagree, the later one holds."
)


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """Which documents are looked for. `ceiling` is the outermost ancestor looked at; by default all of them are."""

    file_name: str = FILE_NAME
    global_dir: GlobalDir = Inherit.GLOBAL_DIR
    walk_parents: bool = True
    ceiling: Path | None = None
    enabled: bool = True

    @classmethod
    def disabled(cls) -> "ContextConfig":
        """Look for no document at all."""
        return cls(enabled=False)


@dataclass(frozen=True, slots=True)
class ContextDocument:
    """One document, `content` exactly as it is on disk (CX-6)."""

    path: Path
    scope: str
    content: str

    def __repr__(self) -> str:
        return f"ContextDocument(path={str(self.path)!r}, scope={self.scope!r}, {len(self.content)} characters)"


@dataclass(frozen=True, slots=True)
class WorkspaceContext:
    """The documents of one workspace, weakest first. `root` is `None` when they were given, not found (CX-11)."""

    root: Path | None = None
    documents: tuple[ContextDocument, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.documents

    @property
    def files(self) -> list[ContextFile]:
        """Where each document is, for reports (DI-6)."""
        return [ContextFile(path=str(document.path), scope=document.scope) for document in self.documents]

    def render(self) -> str:
        """The block a model is shown: a preamble and one `<context>` element per document, or nothing (CX-7)."""
        if not self.documents:
            return ""
        return "\n\n".join([PREAMBLE, *(_framed(document) for document in self.documents)])


def discover_context(root: Path, config: ContextConfig, *, global_dir: Path | None) -> WorkspaceContext:
    """Find and read the documents of `root`, which is canonical. Blocking file work.

    Raises `ContextUnreadable` for one that exists but is no readable UTF-8 text (CX-5); blank ones are left out (CX-4).
    """
    if not config.enabled:
        return WorkspaceContext(root)
    places = layers(
        root,
        chosen_global_dir(config.global_dir, global_dir),
        walk_parents=config.walk_parents,
        ceiling=config.ceiling,
    )
    names = (FILE_NAME, FALLBACK_NAME) if config.file_name == FILE_NAME else (config.file_name,)
    found = distinct(file for place in places if (file := _document_in(place, names)) is not None)
    documents = [ContextDocument(file.path, file.scope, _read(file.path)) for file in found]
    return WorkspaceContext(root, tuple(document for document in documents if document.content.strip()))


def _document_in(place: Source, names: tuple[str, ...]) -> Source | None:
    """A directory's one document: the first of `names` that exists there (CX-1)."""
    for name in names:
        path = place.path / name
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _unreadable(path, error.strerror or "it can't be reached") from None
        return place.file(name)
    return None


def _read(path: Path) -> str:
    try:
        # A FIFO of that name must not hold up the opening of a repository.
        with open_regular(path) as file:
            return file.read().decode("utf-8")
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not UTF-8 text") from None
    except OSError as error:
        raise _unreadable(path, error.strerror or "reading it failed") from None


def _unreadable(path: Path, reason: str) -> ContextUnreadable:
    return ContextUnreadable(
        f"the context document {path} can't be read: {reason}",
        hint="make it readable UTF-8 text, or remove it",
        details={"path": str(path)},
    )


def _framed(document: ContextDocument) -> str:
    path = html.escape(str(document.path)).replace("\n", "&#10;")
    return f'<context path="{path}" scope="{document.scope}">\n{document.content.rstrip()}\n</context>'
