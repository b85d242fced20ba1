"""Fixtures of the editors' tests: a repository, an editor's environment, and Neovims to be."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.daemon import DaemonProcess
from support.model_server import ModelServer
from support.nvim import Nvim
from support.raw_client import RawClient

OpenNvim = Callable[..., Nvim]


@pytest.fixture
def stopped_daemon(stopped_daemon: DaemonProcess) -> Iterator[DaemonProcess]:
    """As everywhere; a daemon that an editor of the test has started on these places ends too."""
    yield stopped_daemon
    stopped_daemon.close()
    with suppress(OSError, EOFError), RawClient(stopped_daemon.socket) as client:
        client.initialize()
        client.call("basis/daemon/stop", {"mode": "now"})
        client.is_closed_by_daemon()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A small repository."""
    root = tmp_path / "repo"
    root.mkdir()
    (root / "a.txt").write_text("alpha\nbeta\ngamma\n")
    return root


@pytest.fixture
def environment(model: ModelServer, clean_environment: Path, stopped_daemon: DaemonProcess) -> dict[str, str]:
    """An editor's environment: where the daemon is, the scripted model's address and a key."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(clean_environment),
        "LANG": "C.UTF-8",
        "XDG_STATE_HOME": str(clean_environment / "state"),
        "BASIS_DATA_DIR": str(stopped_daemon.data),
        "BASIS_SOCKET": stopped_daemon.socket,
        "BASIS_BASE_URL": model.base_url,
        "BASIS_API_KEY": "key-of-the-tests",
    }


@pytest.fixture
def open_nvim(repo: Path, environment: dict[str, str]) -> Iterator[OpenNvim]:
    """Starts Neovims in the repository; all of them end with the test."""
    opened: list[Nvim] = []

    def start(*arguments: str, directory: Path = repo, **variables: str) -> Nvim:
        nvim = Nvim(directory, {**environment, **variables}, *arguments)
        opened.append(nvim)
        return nvim

    yield start
    for nvim in opened:
        nvim.close()


@pytest.fixture
def nvim(open_nvim: OpenNvim, daemon: DaemonProcess) -> Nvim:
    """A Neovim beside a daemon that runs."""
    return open_nvim()
