"""The audit trail of one store: `<root>/audit.jsonl`, or memory (runtime.md 7.4).

Owns the file and its rotation. One line an event: `{schema, at, scope, event_type, payload}`, `at` in whole seconds.
Recording puts an event into memory; a thread that lives only while there is something to do appends it. Several
processes may write to one file. Nothing is on disk before the first event of an agent.
"""

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.store.disk import Disk, write_all

logger = logging.getLogger(__name__)

FILE_NAME = "audit.jsonl"
MAX_FILE_BYTES = 50 << 20
"""A larger file is set aside as `audit.jsonl.1`, in place of the one before."""

MAX_WAITING = 10_000
"""Events that wait for the disk. Beyond it the oldest go: a disk that is stuck must not take the memory as well."""

IDLE_S = 1.0
"""Seconds the thread stays for more to come."""

KEPT_IN_MEMORY = 10_000


class AuditEvent(NamedTuple):
    at: int
    """Seconds since the epoch."""
    scope: str
    event_type: str
    payload: Mapping[str, Json]


class MemoryAudit:
    """The trail of a store in memory: the newest `KEPT_IN_MEMORY` events."""

    def __init__(self) -> None:
        self.events: deque[AuditEvent] = deque(maxlen=KEPT_IN_MEMORY)

    def record_audit_event(self, scope: str, event_type: str, payload: Mapping[str, Json]) -> None:
        self.events.append(AuditEvent(int(time.time()), scope, event_type, dict(payload)))

    def close(self) -> None:
        """Nothing is pending, ever."""


class FileAudit:
    """The trail of a store on disk. Thread-safe."""

    def __init__(self, root: Path, *, disk: Disk | None = None, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = os.path.join(root, FILE_NAME)
        self._disk = disk or Disk()
        self._max_bytes = max_file_bytes
        self._wake = threading.Condition(threading.Lock())
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._is_failing = False

    def record_audit_event(self, scope: str, event_type: str, payload: Mapping[str, Json]) -> None:
        """Raises `TypeError` for a payload that is no JSON."""
        event = {"schema": 1, "at": int(time.time()), "scope": scope, "event_type": event_type, "payload": payload}
        line = msgspec.json.encode(event) + b"\n"
        with self._wake:
            self._waiting.append(line)
            if not scope.startswith("agent:"):
                return  # goes with the first event of an agent: a runtime that was only built leaves no trace
            self._is_closing = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="basis-audit", daemon=True)
                self._thread.start()
            else:
                self._wake.notify()

    def close(self) -> None:
        with self._wake:
            thread = self._thread
            self._is_closing = True
            self._wake.notify()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (lines := self._next()) is not None:
            try:
                self._append(lines)
                self._is_failing = False
            except OSError as error:
                if not self._is_failing:  # once, not for every event
                    logger.warning("events are missing in the audit trail %s: %s", self._path, error.strerror)
                self._is_failing = True

    def _next(self) -> bytes | None:
        """What there is to write. `None` ends the thread."""
        with self._wake:
            if not self._waiting and not self._is_closing:
                self._wake.wait(IDLE_S)
            if not self._waiting:
                self._thread = None
                return None
            lines = b"".join(self._waiting)
            self._waiting.clear()
            return lines

    def _append(self, lines: bytes) -> None:
        fd = self._disk.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
        try:
            write_all(self._disk, fd, lines)
            if os.fstat(fd).st_size > self._max_bytes:
                self._rotate(fd)
        finally:
            self._disk.close(fd)

    def _rotate(self, fd: int) -> None:
        """Set the file aside, unless another process has done so already."""
        fcntl.flock(fd, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self._path).st_ino == os.fstat(fd).st_ino:
                self._disk.replace(self._path, f"{self._path}.1")


def audit_for(root: Path | None) -> MemoryAudit | FileAudit:
    """The trail of the store at `root`, or of one in memory. Touches nothing."""
    return MemoryAudit() if root is None else FileAudit(root)
