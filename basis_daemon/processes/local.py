"""Runs shell commands on this machine (runtime.md 5.3)."""

import asyncio
import signal
from collections.abc import Callable
from typing import IO

from basis_daemon.processes.children import ChildLabel
from basis_daemon.processes.commands import CommandNotStarted, CommandOutput, CommandRequest
from basis_daemon.processes.output import CappedOutput, LineStream, PipeReader
from basis_daemon.processes.table import PIPE, ProcessTable

SHELL = "/bin/sh"

DRAIN_S = 2.0
"""Seconds to go on reading after the command exited while something it started holds its output open (PO-14)."""

QUIET_S = 0.5
"""Within those, silence that long ends the reading: a server left running in the background says nothing more."""


class LocalExecutor:
    """The POSIX shell. Each command leads a session of its own; its standard input is empty."""

    def __init__(self, processes: ProcessTable | None = None) -> None:
        self.processes = processes or ProcessTable()

    async def run(self, request: CommandRequest) -> CommandOutput:
        """Run a command to its end. Cancelling this ends the whole process tree first. Raises `CommandNotStarted`.

        A command for another place never runs here (PO-15).
        """
        if request.target is not None:
            raise CommandNotStarted(f"commands for {request.target!r} can't be run here: this is the local machine")
        loop = asyncio.get_running_loop()
        started = loop.time()
        child = self.processes.start(
            (SHELL, "-c", request.command),
            cwd=request.cwd,
            env=request.env,
            label=ChildLabel(request.what, request.command, request.owner),
            stdout=PIPE,
            stderr=PIPE,
        )
        stdout = _Stream("stdout", child.stdout, request)
        stderr = _Stream("stderr", child.stderr, request)
        try:
            timed_out = not await child.wait(request.timeout_s)
            if timed_out:
                await child.end()
            held_open = not await _drain(stdout.reader, stderr.reader) and not timed_out
        except BaseException:
            await child.end()
            raise
        finally:
            stdout.close()
            stderr.close()
            status = await self.processes.release(child)
        stdout.raise_failure()
        stderr.raise_failure()
        return CommandOutput(
            stdout=stdout.kept.text(),
            stderr=stderr.kept.text(),
            status=None if timed_out or status is None or status < 0 else status,
            timed_out=timed_out,
            stdout_truncated=stdout.kept.is_cut,
            stderr_truncated=stderr.kept.is_cut,
            duration_s=loop.time() - started,
            note=_note(status, timed_out=timed_out, held_open=held_open),
        )


class _Stream:
    """One of a command's two outputs: kept, and passed on line by line if anybody listens."""

    def __init__(self, label: str, pipe: IO[bytes] | None, request: CommandRequest) -> None:
        assert pipe is not None
        self.kept = CappedOutput(request.max_output_bytes_per_stream)
        self._lines = _line_stream(label, request.on_output)
        sinks = [self.kept.feed] if self._lines is None else [self.kept.feed, self._lines.feed]
        self.reader = PipeReader(pipe, *sinks)

    def close(self) -> None:
        self.reader.close()
        if self._lines is not None and self.reader.failure is None:
            self._lines.close()

    def raise_failure(self) -> None:
        if self.reader.failure is not None:
            raise self.reader.failure


def _line_stream(label: str, emit: Callable[[str], None] | None) -> LineStream | None:
    return None if emit is None else LineStream(label, emit, asyncio.get_running_loop().time)


async def _drain(*readers: PipeReader) -> bool:
    """Read until every pipe is closed. False if something still holds one: it is not waited for (PO-14)."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DRAIN_S
    quiet_since = loop.time()
    while open_ends := [reader.ended for reader in readers if not reader.ended.done()]:
        quiet_since = max(quiet_since, *(reader.last_read_at for reader in readers))
        patience = min(deadline, quiet_since + QUIET_S) - loop.time()
        if patience <= 0:
            return False
        await asyncio.wait(open_ends, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    return True


def _note(status: int | None, *, timed_out: bool, held_open: bool) -> str | None:
    notes: list[str] = []
    if status is not None and status < 0 and not timed_out:
        notes.append(f"ended by signal {_signal_name(-status)}")
    if held_open:
        notes.append("a process it started still runs; what that prints from now on is not seen")
    return "; ".join(notes) or None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
