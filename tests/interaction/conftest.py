"""A daemon and a repository for the end-to-end tests."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon import DaemonProcess


@pytest.fixture
def stopped_daemon(clean_environment: Path, request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    """A daemon's places; whatever runs on them is ended after the test. Its log is shown when the test fails."""
    process = DaemonProcess(clean_environment / "data")
    yield process
    process.close()
    request.node.add_report_section("call", "daemon.log", process.log[-20_000:])


@pytest.fixture
def daemon(stopped_daemon: DaemonProcess) -> DaemonProcess:
    return stopped_daemon.start()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small git repository with one file worth reading."""
    root = tmp_path / "engine"
    root.mkdir()
    (root / "pump.py").write_text("DELAY_S = 2\n")
    subprocess.run(["git", "init", "--quiet", root], check=True, timeout=30)
    return root
