"""A daemon and a repository for the end-to-end tests."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon_process import DaemonProcess


@pytest.fixture
def daemon(clean_environment: Path) -> Iterator[DaemonProcess]:
    """A running daemon; ended after the test, whatever happened to it."""
    process = DaemonProcess(clean_environment / "data")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small git repository with one file worth reading."""
    root = tmp_path / "engine"
    root.mkdir()
    (root / "pump.py").write_text("DELAY_S = 2\n")
    subprocess.run(["git", "init", "--quiet", root], check=True, timeout=30)
    return root
