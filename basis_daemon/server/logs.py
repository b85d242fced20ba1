"""The daemon's log: one JSON object a line in `<data>/log/daemon.log`, rotated by size.

Owns the format. What is logged is up to the callers, who never log payloads, prompts or secrets: ids, kinds and counts
are passed as `extra` and become fields.
"""

import json
import logging
import os
import sys
from pathlib import Path

from basis_daemon.server.clock import timestamp

MAX_BYTES = 4 * 1024 * 1024
KEPT_FILES = 3

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}


def configure(directory: Path, level: str, *, foreground: bool) -> None:
    """Send everything to the log file, and to standard error in the foreground. Raises `OSError`."""
    handlers: list[logging.Handler] = [LogFile(directory)]
    if foreground:
        handlers.append(logging.StreamHandler(sys.stderr))
    for handler in handlers:
        handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=handlers, force=True)
    # These libraries log what they carry at INFO.
    for name in ("pygls", "asyncio", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """A record as one JSON object; what was passed as `extra` stands beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class LogFile(logging.Handler):
    """Appends to `daemon.log`; a full one becomes `daemon.log.1`, and so on. A line is one small `write`."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / "daemon.log"
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record).encode("utf-8", "backslashreplace") + b"\n"
            if self._size + len(line) > MAX_BYTES:
                self._rotate()
            self._size += os.write(self._fd, line)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        super().close()
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _rotate(self) -> None:
        for number in range(KEPT_FILES - 1, 0, -1):
            older = self._path.with_name(f"daemon.log.{number}")
            newer = self._path.with_name(f"daemon.log.{number - 1}") if number > 1 else self._path
            if newer.exists():
                os.replace(newer, older)
        os.close(self._fd)
        self._fd = self._open()
        self._size = 0
