"""What signals mean while a session is on the screen. Owns the handlers and puts the old ones back.

Closing the terminal (SIGHUP) and SIGTERM end this process only: the work belongs to the daemon.
"""

from __future__ import annotations

import os
import signal

from basisctl.exit_codes import HUNG_UP, TERMINATED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any


class Signals:
    """Counts Ctrl-C and makes it wake a `select` on `fileno()`.

    The first one raises `KeyboardInterrupt`, unless there is something to cancel: then it is only counted, and the
    second one raises.
    """

    def __init__(self) -> None:
        self.interrupts = 0
        self.was_continued = False
        self.has_something_to_cancel = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._before: dict[signal.Signals, Any] = {}
        self._wakeup_before = -1

    def __enter__(self) -> Signals:
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number, handler in (
            (signal.SIGINT, self._interrupted),
            (signal.SIGTERM, self._terminated),
            (signal.SIGHUP, self._terminated),
            (signal.SIGCONT, self._continued),
        ):
            # Under nohup SIGHUP is ignored, and is to stay so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        return self._read

    def drain(self) -> None:
        """Forget that `fileno()` was readable."""
        try:
            os.read(self._read, 512)
        except BlockingIOError:
            return

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.interrupts += 1
        if self.interrupts > self.has_something_to_cancel:
            raise KeyboardInterrupt

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(HUNG_UP if number == signal.SIGHUP else TERMINATED)

    def _continued(self, number: int, frame: FrameType | None) -> None:
        self.was_continued = True
