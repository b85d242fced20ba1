"""Fixtures of the server's tests: a repository, sessions in it, and the daemon's own task group."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from basis_daemon.server.work import Work
from support.daemon import OpenSession
from support.model_server import ModelServer
from support.raw_client import RawClient


@pytest.fixture
def data_dir(clean_environment: Path) -> Path:
    """A data directory short enough for a socket below it."""
    return clean_environment / "data"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A small repository."""
    root = tmp_path / "repo"
    root.mkdir()
    (root / "a.txt").write_text("alpha\n")
    return root


@pytest.fixture
def environment(model: ModelServer, clean_environment: Path) -> dict[str, str]:
    """What a client sends with `workspace/open`: the scripted model's address and a key."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(clean_environment),
        "BASIS_BASE_URL": model.base_url,
        "BASIS_API_KEY": "key-of-the-tests",
    }


@pytest.fixture
def open_session(repo: Path, environment: dict[str, str]) -> OpenSession:
    """Opens the repository, makes a session, attaches to it and returns its id."""

    def opened(client: RawClient, **params: Any) -> str:
        client.call("basis/workspace/open", {"path": str(repo), "env": environment})
        session_id = client.call("basis/session/new", {"workspace": str(repo), **params})["sessionId"]
        client.call("basis/session/attach", {"sessionId": session_id})
        return session_id

    return opened


@pytest.fixture
async def work() -> AsyncIterator[Work]:
    """The daemon's own task group; whatever is left in it at the end is cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            yield Work(group)
            raise Over
    except* Over:
        pass


class Over(Exception):
    """The test is over; leaving a task group with it cancels what is left."""
