"""A person who has chosen nothing is told what was found on this machine; it is offered, never used (local servers)."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from basis_daemon.runtime.runtime import Runtime
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.events import Notice, RunStarted
from support.sdk import say
from support.workspaces import sample_repository

pytestmark = pytest.mark.anyio

ANSWERS = {
    "/api/version": {"version": "0.13.5"},
    "/api/tags": {"models": [{"name": "qwen3:8b", "details": {"family": "qwen3", "families": ["qwen3"]}}]},
}


@pytest.fixture
def ollama() -> Iterator[tuple[str, list[str]]]:
    """Something that answers as Ollama does; its address, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            answer = ANSWERS.get(self.path)
            self.send_response(200 if answer else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answer or {}).encode())

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("switch", ["on", "off"])
async def test_a_first_prompt_with_nothing_configured_says_which_server_was_found(
    tmp_path: Path, ollama: tuple[str, list[str]], switch: str
) -> None:
    address, asked = ollama
    repo = sample_repository(tmp_path / "repo")
    environment = {"PATH": "/usr/bin:/bin", "OLLAMA_HOST": address, "BASIS_DETECT": switch}
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        builder = Workspace.builder(repo).with_runtime(runtime).with_environment(environment)
        async with await builder.with_global_dir(None).open() as workspace:
            run = workspace.prepare()
            first = await say(run, "hello")
            second = await say(run, "hello again")

    notices = [notice.message for notice in first.of(Notice)]
    assert isinstance(first.events[0], RunStarted) and first.report.provider == "rehearsal"
    assert any("No model is connected" in notice for notice in notices)
    assert any("qwen3:8b" in notice for notice in notices) == (switch == "on")
    assert second.of(Notice) == []
    assert bool(asked) == (switch == "on")
