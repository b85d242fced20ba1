"""Reading a conversation back: from the lines of its log to where it stood (ST-21, ST-23, AG-29).

Owns what the records mean together. The log is the only source: there is no second file that says which entries are
live, so nothing can disagree with it. Changes no file, so it can be repeated at any time.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from basis_daemon.errors import CorruptStore
from basis_daemon.runtime.store.base import (
    AgentRecord,
    AnyLogRecord,
    CallFinished,
    CallStarted,
    EntryAdded,
    LeafMoved,
    LoadedConversation,
    PromptAccepted,
    PromptWithdrawn,
    TurnEnded,
    TurnStarted,
)
from basis_daemon.runtime.store.codec import LogLine, check_header, decode_lines
from basis_daemon.runtime.store.disk import MAX_FILE_BYTES, Disk, failed, too_large
from basis_daemon.runtime.transcript import BranchError, Entry, Transcript, identified

KEPT_OUTCOMES = 64
"""Ended turns whose outcome a client may still ask for."""

_BATCH_BYTES = 256 << 10
"""Decoded at a time: small enough that other threads run in between, so a long load in a thread stalls no loop."""


class LogEnd(NamedTuple):
    """Where the whole lines of a log end, and how long the file is. The rest is a line cut short by a crash."""

    whole_bytes: int
    file_bytes: int


class Replay:
    """Feed it every record in order, then `finish`."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._leaf: str | None = None
        self._waiting: dict[str, PromptAccepted] = {}
        self._begun: dict[str, PromptAccepted] = {}
        self._running: str | None = None
        self._failed: PromptAccepted | None = None
        self._started_calls: set[str] = set()
        self._finished_calls: dict[str, CallFinished] = {}
        self._outcomes: dict[str, TurnEnded] = {}

    def feed_lines(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            if isinstance(line, list):
                for record in line:
                    self.feed(record)
            else:
                self.feed(line)

    def feed(self, record: AnyLogRecord) -> None:
        # Entries are nearly all there is in a long log, so they come before the general match.
        if type(record) is EntryAdded:
            entry = identified(record.entry, len(self._entries), self._leaf)
            self._entries.append(entry)
            self._leaf = entry.id
            if self._started_calls or self._finished_calls:
                self._round_done()
        else:
            self._feed_rare(record)

    def finish(self, record: AgentRecord, path: str) -> LoadedConversation:
        """Raises `CorruptStore` when the active path is broken."""
        try:
            transcript = Transcript(self._entries, leaf=self._leaf)
        except BranchError as error:
            raise CorruptStore(f"{path}: {error}", details={"path": path}) from error
        return LoadedConversation(
            record=record,
            transcript=transcript,
            queued=list(self._waiting.values()),
            interrupted=self._begun.get(self._running) if self._running is not None else None,
            failed=self._failed,
            started_calls=frozenset(self._started_calls),
            finished_calls=self._finished_calls,
            outcomes=self._outcomes,
        )

    def _feed_rare(self, record: AnyLogRecord) -> None:
        match record:
            case LeafMoved():
                self._leaf = record.entry_id
                self._round_done()
            case PromptAccepted():
                self._waiting[record.turn_id] = record
            case PromptWithdrawn():
                self._waiting.pop(record.turn_id, None)
            case TurnStarted():
                self._start(record)
            case TurnEnded():
                self._end(record)
            case CallStarted():
                self._started_calls.add(record.tool_use_id)
            case CallFinished():
                self._finished_calls[record.tool_use_id] = record
            case EntryAdded():
                self.feed(record)

    def _start(self, record: TurnStarted) -> None:
        if not record.resumed:
            self._round_done()
        if (prompt := self._waiting.pop(record.turn_id, None)) is not None:
            self._begun[record.turn_id] = prompt
        self._running, self._failed = record.turn_id, None
        self._outcomes.pop(record.turn_id, None)  # carried on: the old outcome does not hold any more

    def _end(self, record: TurnEnded) -> None:
        self._round_done()
        if self._running == record.turn_id:
            self._running = None
            self._failed = self._begun.get(record.turn_id) if record.status == "error" else None
        self._waiting.pop(record.turn_id, None)
        self._outcomes.pop(record.turn_id, None)
        self._outcomes[record.turn_id] = record
        if len(self._outcomes) > KEPT_OUTCOMES:
            oldest = next(iter(self._outcomes))
            del self._outcomes[oldest]
            self._begun.pop(oldest, None)

    def _round_done(self) -> None:
        """The calls in flight are covered by an entry, or void."""
        self._started_calls.clear()
        self._finished_calls.clear()


def recover(
    disk: Disk, path: str, record: AgentRecord, *, max_bytes: int = MAX_FILE_BYTES
) -> tuple[LoadedConversation, LogEnd]:
    """Read the log at `path`; a missing one is an empty conversation. Raises `CorruptStore`, `StoreError`."""
    replay = Replay()
    try:
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return replay.finish(record, path), LogEnd(0, 0)
    except OSError as error:
        raise failed("read", path, error) from error
    try:
        end = _read(fd, path, replay, max_bytes)
    except OSError as error:
        raise failed("read", path, error) from error
    finally:
        disk.close(fd)
    return replay.finish(record, path), end


def _read(fd: int, path: str, replay: Replay, max_bytes: int) -> LogEnd:
    line, whole, total, rest = 1, 0, 0, b""
    # A line longer than a batch is read in ever larger pieces: joining them stays linear.
    while data := os.read(fd, max(_BATCH_BYTES, len(rest))):
        total += len(data)
        if total > max_bytes:
            raise too_large(path, max_bytes)
        data = rest + data
        cut = data.rfind(b"\n") + 1
        body, rest = data[:cut], data[cut:]
        whole += cut
        if line == 1 and body:
            head, _, body = body.partition(b"\n")
            check_header(head, path)
            line = 2
        replay.feed_lines(decode_lines(body, path, line))
        line += body.count(b"\n")
    return LogEnd(whole, total)
