"""Fixtures of the loop's tests: a scripted model, a store on disk, a tool that counts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from basis_daemon.runtime.providers.scripted import ScriptedProvider
from basis_daemon.runtime.store.files import FileStore
from support.conversations import Counter, close_conversations
from support.model_server import ModelServer


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """A scripted model. Conversations with it are closed ahead of it."""
    async with ModelServer() as running:
        yield running
        await close_conversations()


@pytest.fixture
async def model() -> AsyncIterator[ScriptedProvider]:
    """A model behind no wire. Conversations with it are closed behind the test."""
    yield ScriptedProvider()
    await close_conversations()


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


@pytest.fixture
async def counter() -> Counter:
    return Counter()
