"""Single keys from the person at the terminal, only while they are asked something.

Owns the terminal's mode and puts it back. What was typed before the question was shown is thrown away: it was not an
answer to it.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
import termios
import tty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

READ_BYTES = 1024


class Keyboard:
    """The terminal this process is controlled from. `fileno` is readable when `keys` has something."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    @classmethod
    def find(cls, *, is_stdin_taken: bool) -> Keyboard | None:
        """The keyboard of a person who is there: stdin when it is a terminal, or, when the prompt itself was read from
        stdin, the controlling terminal. `None` when nobody is."""
        if is_stdin_taken:
            try:
                return cls(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
            except OSError:
                return None
        # sys.stdin is None when it was closed before we started.
        return cls(sys.stdin.fileno()) if sys.stdin and sys.stdin.isatty() else None

    def fileno(self) -> int:
        return self._descriptor

    @property
    def is_listening(self) -> bool:
        return self._before is not None

    def listen(self) -> None:
        """Take keys one by one, without echo; Ctrl-C stays a signal. What was typed so far is dropped."""
        if self._before is None:
            self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSAFLUSH)
        self._decoder.reset()

    def rest(self) -> None:
        """Give the terminal back as it was."""
        if self._before is not None:
            # A terminal that hung up has nothing to be given back.
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            self._before = None

    def keys(self) -> str | None:
        """Return what was pressed, which may be no (or not yet a whole) character; `None` when the terminal is gone."""
        try:
            pressed = os.read(self._descriptor, READ_BYTES)
        except OSError:
            return None
        return self._decoder.decode(pressed) if pressed else None
