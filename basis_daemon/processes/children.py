"""One running child and everything it starts: waiting for it, ending it, reaping it.

Needs a running event loop; everything happens on it. See `table.py` for starting one.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import anyio
from anyio import to_thread

from basis_daemon.processes import tree

GRACE_S = 0.5
"""Seconds between asking a tree to end and ending it (PO-12)."""

REAP_S = 2.0
"""Seconds after which ending a tree gives up on what SIGKILL doesn't end: a process stuck in the kernel."""

POLL_S = 0.02
"""How often a dying tree is looked at; nothing tells when a process that isn't a child ends."""


@dataclass(frozen=True, slots=True)
class ChildLabel:
    """What a child is, for people. `owner` is the session it belongs to."""

    what: str
    command: str
    owner: str | None = None


class Child:
    """A started process and all it starts in turn. Made by `ProcessTable.start`."""

    def __init__(self, process: subprocess.Popen[bytes], label: ChildLabel, leader: tree.Leader) -> None:
        self.label = label
        self.leader = leader
        self.started_at = time.time()
        """Seconds since the epoch."""
        self._process = process
        self._members: Sequence[tree.Process] = ()
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._watch()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        """Whether the process itself has ended. What it started may still run."""
        return self._exited.done()

    @property
    def stdin(self) -> IO[bytes] | None:
        """The child's pipes, where they were asked for: unbuffered and blocking."""
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes] | None:
        return self._process.stdout

    @property
    def stderr(self) -> IO[bytes] | None:
        return self._process.stderr

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the process to exit; false if it didn't in time. May be called and cancelled any number of times."""
        await asyncio.wait([self._exited], timeout=timeout_s)
        return self._exited.done()

    def reap(self) -> int | None:
        """Exit status, negative for a signal. `None` while it runs: it is reaped when it ends, unasked.

        Once it is reaped the process id means nothing.
        """
        status = self._process.poll()
        if status is None:
            self._exited.add_done_callback(lambda _: self._process.poll())
        return status

    async def end(self, grace_s: float = GRACE_S) -> None:
        """End the whole tree: SIGTERM, a grace, SIGKILL until nothing is left (PO-12). Idempotent; reaping is left.

        Cancelling this shortens it: everything known is killed at once. Whoever can should call it again then.
        """
        if self._is_over or self._process.returncode is not None:
            return
        try:
            with anyio.CancelScope(shield=True):
                await self._end(grace_s)
        except asyncio.CancelledError:
            self.kill_nowait()
            raise
        self._is_over = True

    def kill_nowait(self) -> None:
        """SIGKILL everything known to belong to this child."""
        if self._process.returncode is None:
            tree.signal_group(self.pid, signal.SIGKILL)
        tree.signal_each(self._members, signal.SIGKILL)

    async def _end(self, grace_s: float) -> None:
        grace_ends = self._loop.time() + grace_s
        await self._sweep(signal.SIGTERM)
        await self.wait(grace_s)
        # Looked at again and again: nothing announces the end of a process that isn't a child.
        while not await self._is_gone() and self._loop.time() < grace_ends:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        gives_up = self._loop.time() + REAP_S
        # Nothing twice in a row: a process that is just being started or replaced can be overlooked once.
        quiet = 0
        while self._loop.time() < gives_up:
            quiet = quiet + 1 if not await self._sweep(signal.SIGKILL) and self.has_exited else 0
            if quiet == 2:
                break
            await asyncio.sleep(POLL_S)

    async def _sweep(self, number: signal.Signals) -> Sequence[tree.Process]:
        self._members = await to_thread.run_sync(tree.sweep, self.leader, number, self._members)
        return self._members

    async def _is_gone(self) -> bool:
        if self.has_exited:
            self._members = await to_thread.run_sync(lambda: tree.members(self.leader, known=self._members))
        return self.has_exited and not self._members

    def _watch(self) -> None:
        """Notice the exit without reaping: until `reap` the id stays reserved, so its group can be signalled safely."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._poll()
        else:
            self._loop.add_reader(descriptor, self._on_exit, descriptor)

    def _on_exit(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._exited.set_result(None)

    def _poll(self) -> None:
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            self._loop.call_later(POLL_S, self._poll)
        else:
            self._exited.set_result(None)
