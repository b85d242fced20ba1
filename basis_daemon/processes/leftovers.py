"""Ending what commands of a process that was killed have left running.

Nobody reads what such a command prints or waits for its end, and the work it was started for is told that it was cut
short and may be done again: two of it at once would be worse than none.
"""

import logging
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

from basis_daemon.processes import tree
from basis_daemon.processes.children import GRACE_S, POLL_S, REAP_S
from basis_daemon.processes.tags import instance_of

logger = logging.getLogger(__name__)


def end_leftovers(instance: int) -> int:
    """End every process that carries a tag of `instance` (`tags.INSTANCE` of the process that is gone): SIGTERM, a
    grace, SIGKILL. Returns how many there were. Blocking: use a thread."""
    found = _carriers(instance)
    for process in found:
        logger.warning("ending %s, left running by a daemon that was killed", _described(process.pid))
    begun = time.monotonic()
    left: Sequence[tree.Process] = found
    tree.signal_each(left, signal.SIGTERM)
    while left and time.monotonic() < begun + GRACE_S + REAP_S:
        time.sleep(POLL_S)
        left = _carriers(instance)
        if time.monotonic() > begun + GRACE_S:
            tree.signal_each(left, signal.SIGKILL)
    return len(found)


def _carriers(instance: int) -> list[tree.Process]:
    return [
        process
        for process in tree.young_processes(0)
        if process.tag is not None and instance_of(process.tag) == instance and not process.is_dead
    ]


def _described(pid: int) -> str:
    """The process and the name of its program; its arguments may hold what no log should."""
    name = "?"
    with suppress(OSError):
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return f"process {pid} ({name})"
