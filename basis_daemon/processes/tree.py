"""Finding and ending everything a process has started.

A child leads a session of its own, so a signal to its group reaches what it started the ordinary way. On Linux,
processes that left the group are found as well: by session, by parent, and by the tag they inherited (`tags.py`), which
neither a new session nor a lost parent nor a cleared environment takes away. On other systems only the group is
reached. Nothing here confines anything.
"""

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from basis_daemon.processes.tags import tag_of

_PROC = "/proc"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """A running process as the kernel describes it. `pid` with `started` identifies it for good."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    """Clock ticks after boot."""
    rss_bytes: int
    is_dead: bool
    tag: int | None = None


@dataclass(frozen=True, slots=True)
class Leader:
    """The process a tree began with. `since` (ticks) is not later than its start: nothing older is part of the tree."""

    pid: int
    since: int
    tag: int | None = None


def now_ticks() -> int:
    """The present in the unit of `Process.started`, one tick early to be safe. 0 where there is no such clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return 0 if clock is None else int(time.clock_gettime(clock) * _TICKS_PER_S) - 1


def read_process(pid: int) -> Process | None:
    """The process of that id, if it exists and this system can tell."""
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The command name stands in parentheses and may hold anything, parentheses and spaces included.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        started=int(fields[19]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
        is_dead=fields[0] in (b"Z", b"X"),
    )


def young_processes(since: int) -> list[Process]:
    """Every other process that was started at `since` (ticks) or later, with its tag; none where there is no `/proc`.

    Reads hundreds of small files: use a thread.
    """
    try:
        names = os.listdir(_PROC)
    except OSError:
        return []
    found = [read_process(int(name)) for name in names if name.isdigit()]
    return [
        replace(process, tag=tag_of(process.pid))
        for process in found
        if process is not None and process.started >= since and process.pid != os.getpid()
    ]


def members(leader: Leader, *, known: Sequence[Process] = (), among: Sequence[Process] | None = None) -> list[Process]:
    """Living processes of the tree: the leader's session and group, carriers of its tag, and their descendants.

    `known` are members found earlier; their descendants count although the leader may be gone. `among` saves a scan.
    """
    young = young_processes(leader.since) if among is None else among
    remembered = {(process.pid, process.started) for process in known}
    ours = {
        process.pid
        for process in young
        if process.started >= leader.since
        and (_belongs(process, leader) or (process.pid, process.started) in remembered)
    }
    while more := {process.pid for process in young if process.parent in ours} - ours:
        ours |= more
    return [process for process in young if process.pid in ours and not process.is_dead]


def _belongs(process: Process, leader: Leader) -> bool:
    if process.tag is not None and process.tag == leader.tag:
        return True
    return leader.pid in (process.pid, process.session, process.group)


def sweep(leader: Leader, number: signal.Signals, known: Sequence[Process] = ()) -> list[Process]:
    """Signal the whole tree and return the members there were. The leader must not have been reaped.

    Members are looked for first: once a parent is gone, nothing links its children to the tree.
    """
    found = members(leader, known=known)
    signal_group(leader.pid, number)
    signal_each([process for process in found if process.group != leader.pid], number)
    return found


def signal_group(leader_pid: int, number: signal.Signals) -> None:
    """Signal a group at once. Its leader must not have been reaped: the id is then still its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, number)


def signal_each(processes: Iterable[Process], number: signal.Signals) -> None:
    """Signal processes that are still the ones they were when found."""
    for process in processes:
        now = read_process(process.pid)
        if now is not None and now.started == process.started:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
