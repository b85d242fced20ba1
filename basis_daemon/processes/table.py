"""Every child this process runs: starting one, listing them, ending them all."""

import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
from anyio import to_thread

from basis_daemon.processes import tree
from basis_daemon.processes.children import GRACE_S, POLL_S, REAP_S, Child, ChildLabel
from basis_daemon.processes.commands import CommandNotStarted
from basis_daemon.processes.tags import inherited, new_tag

MAX_ENDED = 256
"""Children that have exited and are kept in mind before it is looked whether they left anything running."""

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
class _Ended:
    """A child that has exited; what it left running is known by its tag."""

    label: ChildLabel
    started_at: float
    leader: tree.Leader


class ProcessTable:
    """The children of one runtime: those that run, and what those that ended left running."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._ended: list[_Ended] = []
        self._look_at = MAX_ENDED

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        label: ChildLabel | None = None,
        stdin: int = NULL,
        stdout: int = NULL,
        stderr: int = NULL,
    ) -> Child:
        """Start a program in a session of its own with exactly `env`. Raises `CommandNotStarted`.

        Whoever starts a child ends it, in every case, with `release`, or with `end` and then `release`.
        """
        since, tag = tree.now_ticks(), new_tag()
        with inherited(tag):
            process = _start(argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
        label = label or ChildLabel("program", shlex.join(argv))
        child = Child(process, label, tree.Leader(process.pid, since, tag))
        self._children[child.pid] = child
        return child

    async def release(self, child: Child) -> int | None:
        """Reap an exited child, take it out of the table and return its status, negative for a signal.

        What it left running is remembered, and stays.
        """
        status = child.reap()
        self._children.pop(child.pid, None)
        # No process has a negative id: the id may be used again, so from here on only the tag counts.
        self._ended.append(_Ended(child.label, child.started_at, replace(child.leader, pid=-1)))
        if len(self._ended) > self._look_at:
            await self.running()
            self._look_at = len(self._ended) + MAX_ENDED
        return status

    async def running(self, owner: str | None = None) -> list[RunningProcess]:
        """What runs now, oldest first; with `owner`, of that session only."""
        looked_at = tuple(self._ended)
        rows, gone = await to_thread.run_sync(_look, tuple(self._children.values()), looked_at)
        self._ended = [one for one in self._ended if one not in gone]
        return [row for row in rows if owner is None or row.owner == owner]

    async def end_all(self, owner: str | None = None, grace_s: float = GRACE_S) -> None:
        """End every child and whatever children left behind; with `owner`, of that session only."""
        mine = [child for child in self._children.values() if owner is None or child.label.owner == owner]
        left = [one for one in self._ended if owner is None or one.label.owner == owner]
        async with anyio.create_task_group() as ending:
            for child in mine:
                ending.start_soon(child.end, grace_s)
        await to_thread.run_sync(_kill, [one.leader for one in left])
        self._ended = [one for one in self._ended if one not in left]
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


def _look(children: Sequence[Child], ended: Sequence[_Ended]) -> tuple[list[RunningProcess], set[_Ended]]:
    """The rows of the table, and which of those that ended have left nothing."""
    leaders = [*(child.leader for child in children), *(one.leader for one in ended)]
    young = tree.young_processes(min((leader.since for leader in leaders), default=0))
    rows = [
        _row(child.pid, child.label, child.started_at, tree.members(child.leader, among=young)) for child in children
    ]
    gone: set[_Ended] = set()
    for one in ended:
        processes = tree.members(one.leader, among=young)
        if processes:
            rows.append(_row(processes[0].pid, one.label, one.started_at, processes))
        else:
            gone.add(one)
    return sorted(rows, key=lambda row: row.started_at), gone


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


def _kill(leaders: Sequence[tree.Leader]) -> None:
    """SIGKILL until nothing is left, within `REAP_S`."""
    gives_up = time.monotonic() + REAP_S
    waiting: list[tree.Leader] = list(leaders)
    while waiting and time.monotonic() < gives_up:
        young = tree.young_processes(min(leader.since for leader in waiting))
        found = {leader: tree.members(leader, among=young) for leader in waiting}
        waiting = [leader for leader, processes in found.items() if processes]
        for leader in waiting:
            tree.signal_each(found[leader], signal.SIGKILL)
        if waiting:
            time.sleep(POLL_S)
