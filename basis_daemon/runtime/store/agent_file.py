"""`agent.json` of one conversation, replaced so that no moment of a crash or a power cut leaves it torn (ST-7, ST-8).

A save renames a finished temporary file to `agent.json.new`: that survives `kill -9`. The sync thread then syncs that
file and its directory, and only after that renames it to `agent.json`: what bears the final name has always been on the
disk. Readers take the newer one if it is whole, which after a power cut it may not be, else the other.
"""

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

from basis_daemon.errors import CorruptStore
from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.runtime.store.codec import AgentFile, NewerSchema, decode_agent
from basis_daemon.runtime.store.disk import Disk, read_whole, write_whole

FINAL = "agent.json"
NEWER = "agent.json.new"
_TEMPORARY = ".agent.json.tmp"


class Saved(NamedTuple):
    """A record as found. `data` is what its file holds; `is_synced` is true when that bears the final name."""

    file: AgentFile
    data: bytes
    is_synced: bool


def read_agent(disk: Disk, directory: str) -> Saved | None:
    """The newest whole record, `None` where no conversation was committed. Raises `CorruptStore`, `StoreError`."""
    newer_path = f"{directory}/{NEWER}"
    if newer := read_whole(disk, newer_path):
        try:
            return Saved(decode_agent(newer, newer_path), newer, is_synced=False)
        except NewerSchema:
            raise
        except CorruptStore:
            pass  # torn by a power cut before its sync was done: nobody was told that it is kept
    path = f"{directory}/{FINAL}"
    data = read_whole(disk, path)
    return None if data is None else Saved(decode_agent(data, path), data, is_synced=True)


def write_newer(disk: Disk, directory: str, data: bytes) -> None:
    """Put an encoded record where readers find it first. Not synced. Raises `OSError`; readers then find what they did
    before."""
    temporary = f"{directory}/{_TEMPORARY}"
    try:
        write_whole(disk, temporary, data)
        disk.replace(temporary, f"{directory}/{NEWER}")
    except OSError:
        with contextlib.suppress(OSError):
            disk.unlink(temporary)
        raise


def remove_agent(disk: Disk, directory: str) -> None:
    """Take the conversation away from every reader. Raises `OSError`."""
    # The newest goes last: as long as anything is left to read, it is the newest.
    for name in (FINAL, NEWER, _TEMPORARY):
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(f"{directory}/{name}")


def promote(disk: Disk, directory: str) -> None:
    """Give the synced newer record its final name. Raises `OSError`."""
    disk.replace(f"{directory}/{NEWER}", f"{directory}/{FINAL}")


def listing(files: Iterable[AgentFile], runtime_identifier: str | None) -> list[AgentRecord]:
    """What a list shows: conversations of one identifier or of all, most recently used first (ST-25, ST-26)."""
    shown = [
        file
        for file in files
        if file.record.kind == "conversation" and runtime_identifier in (None, file.record.runtime_identifier)
    ]
    shown.sort(key=lambda file: (-file.record.updated_at, -file.saved_ns, file.record.created_at, file.record.id))
    return [file.record for file in shown]
