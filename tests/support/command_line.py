"""`basisctl` as people and scripts run it: a process of its own, with pipes or with a real terminal."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

WAIT_S = 30.0
"""Bounds every wait; a loaded machine fails no test."""

COMMAND = [sys.executable, "-m", "basisctl"]


def basisctl(*arguments: str, cwd: Path, stdin: str | None = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with nothing that is a terminal."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        **options,
    )


class Terminal:
    """A process on a pseudo terminal: what it shows, and keys for it. `out` gets stdout when it is not the terminal."""

    def __init__(
        self, arguments: list[str], *, cwd: Path, environ: Mapping[str, str] | None = None, pipe_stdout: bool = False
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.shown = ""
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=cwd,
            env={**os.environ, "TERM": "xterm-256color", **(environ or {})},
            stdin=slave,
            stdout=subprocess.PIPE if pipe_stdout else slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: _take_terminal(slave),
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def until(self, text: str) -> str:
        """Read until `text` is shown; returns everything shown so far."""
        give_up_at = time.monotonic() + WAIT_S
        while text not in self.shown:
            if not self._read(give_up_at - time.monotonic()):
                raise AssertionError(f"{text!r} was not shown:\n{self.shown}")
        return self.shown

    def until_true(self, condition: Callable[[], bool]) -> None:
        """Go on reading until `condition` holds."""
        give_up_at = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < give_up_at, self.shown
            self._read(0.05)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode("utf-8", "surrogateescape"))

    def exit_code(self) -> int:
        """Read to the end and return how it ended."""
        give_up_at = time.monotonic() + WAIT_S
        while self._read(give_up_at - time.monotonic()):
            pass
        return self.process.wait(WAIT_S)

    def interrupt(self) -> None:
        """Ctrl-C, as a key: the terminal makes a signal of it."""
        self.press("\x03")

    def close(self) -> None:
        """Close the window: whoever runs in it gets SIGHUP."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def echoes(self) -> bool:
        """Whether the terminal is in its usual mode."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def read(self, timeout_s: float = 1.0) -> bool:
        """Read what is there, waiting at most so long. False when nothing came."""
        return self._read(timeout_s)

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, timeout_s))[0]:
            return False
        data = b""
        with contextlib.suppress(OSError):
            # EIO: nobody has the other end open any more.
            data = os.read(self._master, 65536)
        self.shown += data.decode("utf-8", "replace")
        return bool(data)


def _take_terminal(slave: int) -> None:
    """Make `slave` the controlling terminal of the new session, so that Ctrl-C and hanging up reach it."""
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
