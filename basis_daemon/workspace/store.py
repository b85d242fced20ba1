"""Conversations by workspace: the identifier they are tagged with, listing them, removing one (workspace.md 8).

Owns the tag and the one mapping from a directory to a store. Needs no runtime, credential or network (ST-28). Every
function is synchronous file work: callers on a loop use a thread (ST-32).
"""

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.workspace.discovery import resolved_or_given
from basis_protocol.address import data_dir

PREFIX = "basis:"
"""Keeps these rows apart from those of other programs, which are tagged `default` (ST-7)."""


@dataclass(frozen=True, slots=True)
class PersistedSession:
    """A conversation on disk, as a list shows it. Times are seconds since the epoch (ST-24)."""

    agent_id: str
    name: str
    messages: int
    created_at: int | None = None
    updated_at: int | None = None

    @classmethod
    def of(cls, record: AgentRecord) -> "PersistedSession":
        return cls(record.id, record.name, record.messages, record.created_at or None, record.updated_at or None)


def runtime_identifier(workspace: str | os.PathLike[str]) -> str:
    """`basis:` and the canonical path, verbatim; a path that is gone is used as it was given (ST-5, ST-10)."""
    return identifier_of(resolved_or_given(workspace))


def identifier_of(root: Path) -> str:
    """The tag of a path that is canonical already. Touches no disk."""
    return f"{PREFIX}{root}"


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where conversations are kept when nobody says otherwise: `<data>/store`. Raises `address.NoDataDirectory`."""
    return data_dir(environ) / "store"


def store_in(directory: Path) -> FileStore:
    """The store whose root is `directory`: the only place that decides this (ST-4)."""
    return FileStore(directory)


def list_in(directory: Path, workspace: str | os.PathLike[str]) -> list[PersistedSession]:
    """The conversations of one workspace, most recently used first, without subagents and teammates (ST-25, ST-26).

    A directory never written to gives an empty list and is not created. Raises `LegacyStore`, `StoreError`.
    """
    with closing(store_in(directory)) as store:
        records = store.list(runtime_identifier(workspace))
    return [PersistedSession.of(record) for record in records if record.kind == "conversation"]


def forget_in(directory: Path, agent_id: str) -> None:
    """Remove a conversation for good; one that isn't there is fine (ST-27). A live one must be stopped first.

    Raises `LeaseUnavailable` when somebody has it open, `LegacyStore`, `StoreError`.
    """
    with closing(store_in(directory)) as store:
        store.forget(agent_id)
