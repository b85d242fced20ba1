"""Every child this process runs: starting one, listing them, ending them all."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
from anyio import to_thread

from basis_daemon.processes import tree
from basis_daemon.processes.children import GRACE_S, POLL_S, REAP_S, Child, ChildLabel
from basis_daemon.processes.commands import CommandNotStarted

PIPE = subprocess.PIPE
NULL = subprocess.DEVNULL


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A row of the table. `started_at` is seconds since the epoch; `rss_bytes` is that of the child's whole tree."""

    pid: int
    what: str
    command: str
    owner: str | None
    started_at: float
    age_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class _LeftBehind:
    """What still runs of a child that has exited. Known by its processes: the id of its session may be used again."""

    label: ChildLabel
    started_at: float
    leader: tree.Leader
    processes: Sequence[tree.Process]


class ProcessTable:
    """The children of one runtime: those that run, and what those that ended left running."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._left_behind: list[_LeftBehind] = []

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        label: ChildLabel | None = None,
        marker: str | None = None,
        stdin: int = NULL,
        stdout: int = NULL,
        stderr: int = NULL,
    ) -> Child:
        """Start a program in a session of its own with exactly `env`. Raises `CommandNotStarted`.

        Whoever starts a child ends it, in every case, with `release`, or with `end` and then `release`.
        """
        since = tree.now_ticks()
        process = _start(argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
        label = label or ChildLabel("program", shlex.join(argv))
        child = Child(process, label, tree.Leader(process.pid, since, marker))
        self._children[child.pid] = child
        return child

    async def release(self, child: Child) -> int | None:
        """Reap an exited child, take it out of the table and return its status, negative for a signal.

        What it left running is remembered, and stays.
        """
        status = child.reap()
        self._children.pop(child.pid, None)
        if _group_lives(child.pid):
            leader = child.leader
            processes = await to_thread.run_sync(lambda: tree.members(leader))
            # No process has a negative id: from here on only these processes and their descendants count.
            self._left_behind.append(_LeftBehind(child.label, child.started_at, replace(leader, pid=-1), processes))
        return status

    async def running(self, owner: str | None = None) -> list[RunningProcess]:
        """What runs now, oldest first; with `owner`, of that session only."""
        rows, self._left_behind = await to_thread.run_sync(_look, tuple(self._children.values()), self._left_behind)
        return [row for row in rows if owner is None or row.owner == owner]

    async def end_all(self, owner: str | None = None, grace_s: float = GRACE_S) -> None:
        """End every child and whatever children left behind; with `owner`, of that session only."""
        mine = [child for child in self._children.values() if owner is None or child.label.owner == owner]
        left = [group for group in self._left_behind if owner is None or group.label.owner == owner]
        async with anyio.create_task_group() as ending:
            for child in mine:
                ending.start_soon(child.end, grace_s)
        await to_thread.run_sync(_kill, left)
        self._left_behind = [group for group in self._left_behind if group not in left]
        for child in mine:
            await self.release(child)


def _start(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: int, stdout: int, stderr: int
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=0, start_new_session=True
        )
    except OSError as error:
        place = f"the working directory {cwd}" if str(error.filename) == str(cwd) else argv[0]
        raise CommandNotStarted(f"{place} can't be used: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise CommandNotStarted(f"the command can't be started: {error}") from error


def _look(
    children: Sequence[Child], left_behind: Sequence[_LeftBehind]
) -> tuple[list[RunningProcess], list[_LeftBehind]]:
    """The rows of the table, and those left behind that still run."""
    everything = tree.all_processes()
    rows = [
        _row(child.pid, child.label, child.started_at, tree.members(child.leader, among=everything))
        for child in children
    ]
    still: list[_LeftBehind] = []
    for group in left_behind:
        processes = tree.members(group.leader, known=group.processes, among=everything)
        if processes:
            still.append(replace(group, processes=processes))
            rows.append(_row(processes[0].pid, group.label, group.started_at, processes))
    return sorted(rows, key=lambda row: row.started_at), still


def _row(pid: int, label: ChildLabel, started_at: float, processes: Sequence[tree.Process]) -> RunningProcess:
    return RunningProcess(
        pid=pid,
        what=label.what,
        command=label.command,
        owner=label.owner,
        started_at=started_at,
        age_s=max(time.time() - started_at, 0.0),
        rss_bytes=sum(process.rss_bytes for process in processes),
    )


def _group_lives(group: int) -> bool:
    with suppress(PermissionError):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
    return True


def _kill(groups: Sequence[_LeftBehind]) -> None:
    """SIGKILL until nothing is left, within `REAP_S`."""
    gives_up = time.monotonic() + REAP_S
    waiting = list(groups)
    while waiting and time.monotonic() < gives_up:
        everything = tree.all_processes()
        found = [tree.members(group.leader, known=group.processes, among=everything) for group in waiting]
        waiting = [replace(group, processes=one) for group, one in zip(waiting, found, strict=True) if one]
        for group in waiting:
            tree.signal_each(group.processes, signal.SIGKILL)
        if waiting:
            time.sleep(POLL_S)
