"""Asks on disk: one small file each in `<data>/asks/`, replaced atomically. Blocking: callers on a loop use a thread.

Owns the format and how long decided ones are kept. Decides nothing.
"""

import logging
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from basis_daemon.server.clock import seconds
from basis_protocol.asks import Ask, AskDecided

log = logging.getLogger(__name__)

KEPT_DECIDED_S = 7 * 24 * 3600
"""Seconds a decided ask is kept, so that a client that answers late is told who decided, what and when."""

KEPT_DECIDED = 2000
"""At most this many decided asks are kept; the oldest go first."""


class AskRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An ask and, once there is one, its answer."""

    ask: Ask
    turn_id: str
    decided: AskDecided | None = None
    pattern: str | None = None
    withdrawn: bool = False
    """The daemon closed it because its question went away: nobody's answer, and never taken for one."""


_decoder = msgspec.json.Decoder(AskRecord)


class AskFiles:
    """The directory of asks. Ids come from this daemon and are safe as names."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self) -> list[AskRecord]:
        """Every readable ask, oldest first; decided ones past their time are removed. Unreadable files are left alone
        and logged."""
        records: list[AskRecord] = []
        with suppress(FileNotFoundError):
            for path in sorted(self._directory.glob("*.json")):
                try:
                    records.append(_read(path))
                except (OSError, ValueError, RecursionError) as error:
                    log.warning("skipped an unreadable ask", extra={"file": path.name, "problem": str(error)})
        records.sort(key=lambda record: record.ask.created_at)
        return self._without_expired(records)

    def write(self, record: AskRecord) -> None:
        """Keep `record` so that it survives a power cut. Raises `OSError`; what was there before then still stands."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(record.ask.ask_id)
        temporary = path.with_suffix(".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, msgspec.json.encode(record) + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
        self._sync_directory()

    def remove(self, ask_id: str) -> None:
        self._path(ask_id).unlink(missing_ok=True)

    def _path(self, ask_id: str) -> Path:
        return self._directory / f"{ask_id}.json"

    def _sync_directory(self) -> None:
        fd = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _without_expired(self, records: list[AskRecord]) -> list[AskRecord]:
        oldest = time.time() - KEPT_DECIDED_S
        decided = [record for record in records if record.decided is not None]
        surplus = {record.ask.ask_id for record in decided[: max(0, len(decided) - KEPT_DECIDED)]}
        kept: list[AskRecord] = []
        for record in records:
            if record.decided is not None and (record.ask.ask_id in surplus or seconds(record.decided.at) < oldest):
                self.remove(record.ask.ask_id)
            else:
                kept.append(record)
        return kept


def _read(path: Path) -> AskRecord:
    """Raises `OSError`, and `ValueError` for what this daemon would not have written: a name that is not the id's, a
    time that is none."""
    record = _decoder.decode(path.read_bytes())
    if path.name != f"{record.ask.ask_id}.json":
        raise ValueError("the file is not named after its ask")
    for at in (record.ask.created_at, record.ask.expires_at, record.decided.at if record.decided else None):
        if at is not None:
            seconds(at)
    return record


def _write_all(fd: int, data: bytes) -> None:
    """A disk that is almost full takes a part, and says no only to the rest."""
    while data:
        data = data[os.write(fd, data) :]
