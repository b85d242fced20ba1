"""Fixtures of the server's tests: a real daemon process, and the daemon's own parts on a running loop."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from basis_daemon.server.work import Work
from support.daemon import DaemonProcess


@pytest.fixture
def data_dir(clean_environment: Path) -> Path:
    """A data directory short enough for a socket below it."""
    return clean_environment / "data"


@pytest.fixture
def stopped_daemon(data_dir: Path, request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    """A daemon's places, with nothing running on them yet. Its log is shown when the test fails."""
    daemon = DaemonProcess(data_dir)
    yield daemon
    daemon.close()
    request.node.add_report_section("call", "daemon.log", daemon.log[-20_000:])


@pytest.fixture
def daemon(stopped_daemon: DaemonProcess) -> DaemonProcess:
    return stopped_daemon.start()


@pytest.fixture
async def work() -> AsyncIterator[Work]:
    """The daemon's own task group; whatever is left in it at the end is cancelled."""
    async with asyncio.TaskGroup() as group:
        mine = asyncio.current_task()
        yield Work(group)
        for task in asyncio.all_tasks():
            if task is not mine and task in group._tasks:  # type: ignore[attr-defined]
                task.cancel()
