"""Runs a fixed program for its output, without a shell."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from basis_daemon.processes.output import PipeReader
from basis_daemon.processes.table import NULL, PIPE, ProcessTable

WRITE_BYTES = 64 * 1024
"""Bytes given to a pipe at a time: what an empty one takes on Linux."""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program printed. `status` is `None` when it was ended: out of time, or it printed more than asked for."""

    stdout: bytes
    status: int | None
    timed_out: bool = False
    is_cut: bool = False


async def run_program(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout_s: float,
    max_output_bytes: int,
) -> ProgramOutput:
    """Run a program with `stdin` and return its standard output; its errors are discarded.

    Cancelling this ends it. Raises `CommandNotStarted`.
    """
    processes = ProcessTable()
    child = processes.start(argv, cwd=cwd, env=env, stdin=PIPE if stdin else NULL, stdout=PIPE)
    output = _Collected(child.stdout, max_output_bytes)
    feed = None if child.stdin is None else _Feed(child.stdin, stdin)
    try:
        await asyncio.wait([output.reader.ended], timeout=timeout_s)
        timed_out = not output.reader.ended.done()
        if timed_out or output.is_cut or not await child.wait(timeout_s):
            await child.end(grace_s=0)
    except BaseException:
        await child.end(grace_s=0)
        raise
    finally:
        output.reader.close()
        if feed is not None:
            feed.close()
        status = await processes.release(child)
    return ProgramOutput(bytes(output.data), None if timed_out or output.is_cut else status, timed_out, output.is_cut)


class _Collected:
    """Everything a pipe gives, up to a limit; beyond it reading stops."""

    def __init__(self, pipe: IO[bytes] | None, max_bytes: int) -> None:
        assert pipe is not None
        self.data = bytearray()
        self.is_cut = False
        self._max_bytes = max_bytes
        self.reader = PipeReader(pipe, self._take)

    def _take(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > self._max_bytes:
            self.is_cut = True
            del self.data[self._max_bytes :]
            self.reader.close()


class _Feed:
    """Writes to a pipe as fast as it takes it, then closes it."""

    def __init__(self, pipe: IO[bytes], data: bytes) -> None:
        self._pipe = pipe
        self._left = memoryview(data)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_writer(pipe.fileno(), self._write)

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._pipe.fileno(), self._left[:WRITE_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:
            self._left = self._left[:0]
        if not self._left:
            self.close()

    def close(self) -> None:
        """Stop writing. Idempotent."""
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()
