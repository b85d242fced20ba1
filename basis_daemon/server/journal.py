"""Numbered, replayable events of one session.

Owns the numbers (from 1, without holes), the order, what is kept in memory and on disk, and the rule that no watcher
is shown a number the file lacks: events of one turn of the loop are written by one `write`, then shown (ADR 0002).
Does not know who is watching, nor what events mean.
"""

import asyncio
import logging
from bisect import bisect_left
from itertools import accumulate, takewhile
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from basis_daemon.errors import StoreError
from basis_daemon.server.clock import timestamp
from basis_daemon.server.journal_file import JournalFile, is_event
from basis_protocol.events import AnyEvent, AssistantDelta, AssistantReasoningDelta, Event

log = logging.getLogger(__name__)

WINDOW_BYTES = 512 * 1024
"""Newest events kept in memory while a session is busy; older ones are read back from the file."""

MERGED_TEXT_BYTES = 8 * 1024
"""Deltas of one turn of the loop are joined up to about this much text: still a small step for who paints it."""

UNWRITTEN_BYTES = 4 * 1024 * 1024
"""Events kept for a full disk to have room again; beyond it the file starts anew at the newest."""


class JournalTrimmed(Exception):
    """The events asked for are no longer kept (or never were): the watcher has to start from a snapshot."""


class Watcher(Protocol):
    """Whoever wants to be told that there is more to read. Told after the events are in the file."""

    def wake(self) -> None: ...


class Batch(NamedTuple):
    """Consecutive events as frames ready for a socket. `last_seq` is the number of the last one."""

    frames: bytes
    last_seq: int


class Journal:
    """One session's events. Everything but `recover` and `replay` is synchronous and stays on the loop."""

    def __init__(self, session_id: str, *, last_seq: int = 0, file: JournalFile | None = None) -> None:
        self.session_id = session_id
        self.last_seq = last_seq
        """Number of the newest event."""
        self.shown_seq = last_seq
        """Number of the newest event that watchers may see: it is in the file."""
        self._file = file
        self._tails: list[bytes] = []
        """Events in memory, oldest first, each as its file line without the leading `{`. The last one is `last_seq`
        unless a delta is still open."""
        self._bytes = 0
        self._unwritten = 0
        self._open: _OpenDelta | None = None
        self._is_scheduled = False
        self._watchers: dict[Watcher, None] = {}
        self._batch: tuple[int, Batch] | None = None
        self._prefix = b'\r\n\r\n{"jsonrpc":"2.0","method":"basis/session/event","params":{"sessionId":%b,' % (
            msgspec.json.encode(session_id)
        )

    @classmethod
    def recover(cls, session_id: str, directory: Path) -> "Journal":
        """The journal of a session whose files are in `directory`. Blocking: use a thread. Raises `StoreError`."""
        file = JournalFile(directory)
        try:
            last_seq = file.recover()
        except OSError as error:
            raise StoreError(f"the events of {session_id} can't be read: {error.strerror or error}") from error
        return cls(session_id, last_seq=last_seq, file=file)

    # --- writing ---

    def append(self, event: AnyEvent) -> int:
        """Number `event` and keep it. It is written and shown when this turn of the loop ends."""
        if isinstance(event, AssistantDelta | AssistantReasoningDelta):
            if self._open is not None and self._open.takes(event):
                self._open.add(event.text)
                return self.last_seq
            self._close_delta()
            self.last_seq += 1
            self._open = _OpenDelta(event)
        else:
            self._close_delta()
            self.last_seq += 1
            self._keep(event)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)
        elif self._bytes > 2 * WINDOW_BYTES:
            # Somebody emits without ever letting the loop turn: memory stays bounded all the same.
            self.flush()
        return self.last_seq

    def flush(self) -> None:
        """Write what is not written and show it to watchers."""
        self._is_scheduled = False
        self._close_delta()
        if self.shown_seq == self.last_seq and not self._unwritten:
            return
        self._write()
        self.shown_seq = self.last_seq
        self._trim()
        for watcher in tuple(self._watchers):
            watcher.wake()

    async def bind(self, directory: Path) -> None:
        """From now on events are kept in `directory`, beginning with those in memory (a session's first prompt has
        just given it a place on disk)."""
        file = JournalFile(directory)
        await asyncio.to_thread(file.restart)
        self._close_delta()
        self._file = file
        self._unwritten = len(self._tails)
        self.flush()

    def release(self) -> None:
        """Give memory and the descriptor back; everything is read from the file from now on. For idle sessions."""
        self.flush()
        if self._file is None or self._unwritten:
            return
        self._tails.clear()
        self._bytes = 0
        self._batch = None
        self._file.close()

    # --- reading ---

    @property
    def is_on_disk(self) -> bool:
        return self._file is not None

    @property
    def memory_bytes(self) -> int:
        """Bytes of events kept in memory."""
        return self._bytes

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def is_watched_by(self, watcher: Watcher) -> bool:
        return watcher in self._watchers

    def can_replay(self, after_seq: int) -> bool:
        """Whether every event above `after_seq` is still kept. False for a number this journal never gave."""
        return self._first_kept() - 1 <= after_seq <= self.last_seq

    def recent(self, after_seq: int, max_bytes: int) -> Batch | None:
        """Events above `after_seq` from memory, about `max_bytes` of them; empty when there are none.

        Returns `None` when they are on disk only. Raises `JournalTrimmed`.
        """
        if after_seq == self.shown_seq:
            return Batch(b"", after_seq)
        if not self.can_replay(after_seq):
            raise JournalTrimmed
        if self._batch is not None and self._batch[0] == after_seq:
            return self._batch[1]
        first = self._first_in_memory()
        if after_seq + 1 < first:
            return None
        start = after_seq + 1 - first
        end = min(self._fill(start, max_bytes), self.shown_seq + 1 - first)
        batch = self._frame(self._tails[start:end], after_seq)
        # Twenty clients at the same place read the same bytes: framing them once is most of the work saved.
        self._batch = (after_seq, batch)
        return batch

    async def replay(self, after_seq: int, max_bytes: int) -> Batch:
        """Events above `after_seq` from the file. Repeating or cancelling it loses nothing. Raises `JournalTrimmed`."""
        if self._file is None or not self.can_replay(after_seq):
            raise JournalTrimmed
        file, shown = self._file, self.shown_seq
        tails = await asyncio.to_thread(_tails_after, file, after_seq, shown, max_bytes)
        if tails is None:
            file.give_up(after_seq + 1)
            raise JournalTrimmed
        return self._frame(tails, after_seq)

    def newest_lines(self, count: int) -> list[bytes]:
        """The newest `count` events of the file, as lines. Blocking: use a thread."""
        if self._file is None:
            return []
        lines: list[bytes] = []
        at = max(0, self.shown_seq - count, (self._file.first_seq or 1) - 1)
        while at < self.shown_seq:
            more = self._file.read(at, 256 * 1024)
            if not more:
                break
            lines += more
            at += len(more)
        return lines

    # --- below ---

    def _keep(self, event: Event) -> None:
        tail = b'"seq":%d,"time":"%b","event":%b}' % (
            self.last_seq,
            timestamp().encode(),
            msgspec.json.encode(event),
        )
        self._tails.append(tail)
        self._bytes += len(tail)
        self._unwritten += self._file is not None

    def _close_delta(self) -> None:
        if self._open is not None:
            event, self._open = self._open.event(), None
            self._keep(event)

    def _write(self) -> None:
        if self._file is None or not self._unwritten:
            return
        tails = self._tails[-self._unwritten :]
        try:
            self._file.append(b"{" + b"\n{".join(tails) + b"\n", self.last_seq + 1 - len(tails))
        except OSError as error:
            # The person still sees the turn end. After a restart such a client knows numbers the file lacks, and is
            # given a snapshot (`can_replay` is false for them).
            log.error("cannot write the journal", extra={"session": self.session_id, "problem": str(error)})
            return
        self._unwritten = 0

    def _trim(self) -> None:
        if self._bytes <= WINDOW_BYTES:
            return
        limit = UNWRITTEN_BYTES if self._unwritten else WINDOW_BYTES // 2
        drop = 0
        while self._bytes > limit and drop < len(self._tails) - 1:
            self._bytes -= len(self._tails[drop])
            drop += 1
        del self._tails[:drop]
        if self._file is not None and self._unwritten > len(self._tails):
            self._unwritten = len(self._tails)
            self._file.restart()

    def _first_in_memory(self) -> int:
        return self.last_seq + 1 - len(self._tails) - (self._open is not None)

    def _first_kept(self) -> int:
        on_disk = self._file.first_seq if self._file is not None else None
        return self._first_in_memory() if on_disk is None else on_disk

    def _fill(self, start: int, max_bytes: int) -> int:
        """Index after the last event of a batch that starts at `start`."""
        sizes = list(accumulate(len(tail) for tail in self._tails[start : start + max_bytes // 64]))
        return start + max(1, bisect_left(sizes, max_bytes))

    def _frame(self, tails: list[bytes], after_seq: int) -> Batch:
        prefix = self._prefix
        # 4 is the CR LF CR LF the prefix begins with; 1 is the closing brace of the message.
        extra = len(prefix) - 4 + 1
        return Batch(
            b"".join([b"Content-Length: %d%b%b}" % (extra + len(tail), prefix, tail) for tail in tails]),
            after_seq + len(tails),
        )


class _OpenDelta:
    """Consecutive deltas of one message that came in one turn of the loop."""

    __slots__ = ("_first", "_parts", "_size")

    def __init__(self, first: AssistantDelta | AssistantReasoningDelta) -> None:
        self._first = first
        self._parts = [first.text]
        self._size = len(first.text)

    def takes(self, event: AssistantDelta | AssistantReasoningDelta) -> bool:
        return (
            type(event) is type(self._first)
            and event.message_id == self._first.message_id
            and self._size < MERGED_TEXT_BYTES
        )

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)

    def event(self) -> Event:
        if len(self._parts) == 1:
            return self._first
        return type(self._first)(text="".join(self._parts), message_id=self._first.message_id)


def _tails_after(file: JournalFile, after_seq: int, shown_seq: int, max_bytes: int) -> list[bytes] | None:
    """Consecutive tails above `after_seq` from disk; `None` when the first of them is gone or damaged."""
    for _ in range(2):
        lines = file.read(after_seq, max_bytes)[: shown_seq - after_seq]
        whole = list(takewhile(lambda numbered: is_event(numbered[1], numbered[0]), enumerate(lines, after_seq + 1)))
        if whole:
            return [line[1:] for _, line in whole]
        # A rotation between looking into one segment and the other hides the middle; the second look finds it.
    return None
