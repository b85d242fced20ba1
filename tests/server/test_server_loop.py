"""The daemon in this process, under the guard that fails a test whose code blocks the event loop."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from basis_daemon.paths import Paths
from basis_daemon.server import instance
from basis_daemon.server.app import Daemon
from basis_protocol.lifecycle import DaemonInfo
from support.daemon import OpenSession
from support.model_server import ModelServer, calls, says, tool
from support.raw_client import RawClient

pytestmark = pytest.mark.anyio


@pytest.fixture
async def socket_path(data_dir: Path) -> AsyncIterator[str]:
    """The socket of a daemon that runs on this test's own loop."""
    paths = Paths(data=data_dir, socket=data_dir / "run" / "daemon.sock", config=None)
    held = await asyncio.to_thread(instance.claim, str(paths.lock), str(paths.socket))
    info = DaemonInfo(version="0", pid=1, instance_id="test", started_at="2026-01-01T00:00:00.000Z")
    daemon = Daemon(held, paths, info)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(daemon.run())
        yield str(paths.socket)
        with anyio.fail_after(20):
            client = await asyncio.to_thread(connect, str(paths.socket))
            await asyncio.to_thread(client.call, "basis/daemon/stop", {"mode": "now"})
            await running
            client.socket.close()
    await asyncio.to_thread(held.release)


def connect(path: str) -> RawClient:
    client = RawClient(path)
    client.initialize()
    return client


async def test_nothing_a_client_asks_for_blocks_the_loop(
    socket_path: str, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """House rule: file trees, imports and disk syncs are a thread's work."""
    model.script(
        calls(tool("write", {"path": "b.txt", "content": "x"}), tool("read", {"path": "a.txt"})),
        says("written"),
        calls(tool("spawn", {"input": "!echo hi"})),
        says("said"),
    )

    def conversation() -> None:
        client = connect(socket_path)
        session_id = open_session(client)
        session = {"sessionId": session_id}
        for text in ("write", "say"):
            client.call("basis/session/prompt", {**session, "input": [{"type": "text", "text": text}]})
            ask = client.events_until("ask_opened")[-1]["event"]["ask"]
            client.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})
            client.events_until("run_finished")
        client.call("basis/session/setConfig", {**session, "option": "mode", "value": "always"})
        client.call("basis/session/rename", {**session, "title": "renamed"})
        client.call("basis/session/list", {"workspace": str(repo)})
        client.call("basis/session/history", session)
        client.call("basis/workspace/describe", {"path": str(repo)})
        client.call("basis/file/search", {"workspace": str(repo), "query": "a"})
        client.call("basis/model/list", {})
        client.call("basis/daemon/status")
        client.call("basis/daemon/processes")
        client.call("basis/session/close", session)
        client.call("basis/session/attach", {**session, "afterSeq": 1})
        client.events_until("run_finished")
        client.call("basis/session/delete", session)
        client.call("basis/workspace/close", {"path": str(repo)})
        client.socket.close()

    with anyio.fail_after(30):
        await asyncio.to_thread(conversation)
