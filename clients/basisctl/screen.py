"""The two outputs and the one status line. Answers go to stdout, everything else to stderr.

Owns where the cursor is: a status line is only drawn on a line of its own and taken away before anything is written.
Does not know what it prints; callers hand in text that is `visible` already.
"""

from __future__ import annotations

import errno
import io
import os
import sys

from basisctl.render import DIM, Style

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

STREAM_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)
"""The reader went away, the terminal hung up, or the stream was closed from the start."""


class OutputGone(Exception):
    """Nobody reads stdout any more; with an error number, it took no more (a full disk), and the person was told."""


class Screen:
    """stdout and stderr of this process."""

    def __init__(self, environ: Mapping[str, str], *, is_json: bool = False, is_verbose: bool = False) -> None:
        # `None` when the descriptor was closed before we started.
        self._out: TextIO | None = sys.stdout
        self._err: TextIO | None = sys.stderr
        for stream in (self._out, self._err):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        is_capable = environ.get("TERM", "dumb") not in ("dumb", "")
        self.is_json = is_json
        self.out_is_terminal = _is_terminal(self._out)
        self.err_is_terminal = _is_terminal(self._err)
        self.tells_all = self.err_is_terminal or is_verbose
        """Whether progress lines are wanted; failures and notices always are (CL-35)."""
        self._has_status_line = self.err_is_terminal and is_capable
        has_colour = is_capable and not environ.get("NO_COLOR")
        self.out_style = Style(has_colour=has_colour and self.out_is_terminal)
        self.style = Style(has_colour=has_colour and self.err_is_terminal)
        self._status = ""
        self._is_status_drawn = False
        self._out_mid_line = False

    @property
    def is_mid_line(self) -> bool:
        """Whether an answer's line has begun and not ended."""
        return self._out_mid_line

    def answer(self, text: str) -> None:
        """Write to stdout. Raises `OutputGone`."""
        if not text:
            return
        self._take_status_away()
        self._write_out(text)
        self._out_mid_line = not text.endswith("\n")
        self._draw_status()

    def end_line(self) -> None:
        """End the answer's line, if one has begun."""
        if self._out_mid_line:
            self.answer("\n")

    def line(self, text: str) -> None:
        """Write one line, or several, to stderr."""
        self._take_status_away()
        if self._out_mid_line and self.out_is_terminal and self.err_is_terminal:
            self._write_out("\n")
            self._out_mid_line = False
        self._write_err(text + "\n")
        self._draw_status()

    def fits(self, text: str) -> bool:
        """Whether `text`, with a line above it and two below, is on the screen at once."""
        return text.count("\n") + 4 <= _terminal_size().lines

    def bare(self, text: str) -> None:
        """Write to stderr as it is, with no status line around: what a prompt needs."""
        self._take_status_away()
        self._write_err(text)

    def status(self, text: str) -> None:
        """Show `text` in the status line until it is replaced; nothing to show takes it away."""
        if text == self._status and self._is_status_drawn == bool(text):
            return
        self._status = text
        if text:
            self._draw_status()
        else:
            self._take_status_away()

    @property
    def wants_ticks(self) -> bool:
        """Whether a status line is in sight, whose clock should move on."""
        return self._has_status_line and bool(self._status)

    def _draw_status(self) -> None:
        may_draw = self._has_status_line and not (self._out_mid_line and self.out_is_terminal)
        if may_draw and self._status:
            self._write_err("\r\033[K" + self.style(DIM, _fit(self._status)))
            self._is_status_drawn = True

    def _take_status_away(self) -> None:
        if self._is_status_drawn:
            self._write_err("\r\033[K")
            self._is_status_drawn = False

    def _write_out(self, text: str) -> None:
        try:
            if self._out is None:
                raise OutputGone
            self._out.write(text)
            self._out.flush()
        except OSError as error:
            self._out = _abandon(self._out)
            if error.errno in STREAM_GONE:
                raise OutputGone from error
            self._write_err(f"basisctl: can't write the output: {os.strerror(error.errno or 0)}\n")
            raise OutputGone(error.errno) from error

    def _write_err(self, text: str) -> None:
        # A lost stderr is no reason to stop: the answer may well have a reader.
        try:
            if self._err is not None:
                self._err.write(text)
                self._err.flush()
        except OSError:
            self._err = _abandon(self._err)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def _abandon(stream: TextIO | None) -> None:
    """Point a dead stream at nothing, so that the interpreter's last flush has nothing to complain about."""
    if stream is not None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def _terminal_size() -> os.terminal_size:
    try:
        columns, lines = os.get_terminal_size(2)
    except OSError:
        columns = lines = 0
    return os.terminal_size((columns or 80, lines or 24))


def _fit(text: str) -> str:
    """Cut `text` to the terminal's width: a status line that wraps can't be taken away again."""
    columns = _terminal_size().columns
    if text.isascii():
        return text if len(text) < columns else text[: columns - 2] + "…"
    from unicodedata import east_asian_width

    width = 0
    for at, character in enumerate(text):
        width += 2 if east_asian_width(character) in "WF" else 1
        if width > columns - 2:
            return text[:at] + "…"
    return text
