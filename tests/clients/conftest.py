"""A scripted daemon at the address that clients of this test will look at, and a directory to work in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from basis_protocol import address
from support.fake_daemon import FakeDaemon


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "repository"
    directory.mkdir()
    return directory


@pytest.fixture
def fake_daemon() -> Iterator[FakeDaemon]:
    with FakeDaemon(address.socket_path()) as daemon:
        yield daemon
