"""What the loop itself adds to a round of a turn, for conversations of any length: no daemon, a tool that does nothing.

The first rows have a provider that answers at once, so the loop is all there is: commit, tools, request. The others go
over a real wire, from the answer's last byte to the arrival of the next request: writing the request grows with it.
"""

import asyncio
import itertools
import json
import os
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from basis_daemon.processes import LocalExecutor
from basis_daemon.redact import Secret
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import Message, Text
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.prompts import new_prompt
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    BlockStopped,
    Limits,
    MessageStopped,
    ModelInfo,
    Provider,
    ProviderEvent,
    Request,
    TextDelta,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.registry import ProviderChoice, ProviderRegistry
from basis_daemon.runtime.runtime import ProviderSettings, Runtime
from basis_daemon.runtime.sessions import Session, SessionOptions
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.tools.base import FunctionTool, ToolSpec
from basis_daemon.runtime.tools.registry import ToolRegistry
from basis_daemon.workspace.approval import AllowAll, ApprovalGate
from bench.table import Row
from support.model_server import ModelServer, calls, says, tool

ITEMS = (10, 1_000, 10_000)


class AtOnce:
    """A provider that asks for a tool until it has answered `rounds` times. Notes when each request came."""

    id = label = "at-once"
    limits = Limits()

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.came: list[float] = []

    async def stream(self, request: Request) -> AsyncGenerator[ProviderEvent]:
        self.came.append(time.perf_counter())
        if len(self.came) > self.rounds:
            for event in (BlockStarted(0, "text"), TextDelta(0, "done"), BlockStopped(0), MessageStopped()):
                yield event
            return
        yield BlockStarted(0, "tool_use", id=f"c{len(self.came)}", name="nothing")
        yield ToolInputDelta(0, "{}")
        yield BlockStopped(0)
        yield MessageStopped()

    async def list_models(self) -> list[ModelInfo]:
        return []

    def scope(self) -> "AtOnce":
        return self

    async def aclose(self) -> None:
        return


async def _nothing(context: object, input: object) -> str:
    return "done"


def _session(provider: Provider, providers: ProviderRegistry, directory: Path, items: int) -> tuple[Session, Runtime]:
    """A conversation with that many items in its past, on disk."""
    registry = ToolRegistry()
    registry.register(FunctionTool(ToolSpec("nothing", "Does nothing."), _nothing))
    runtime = Runtime(
        store=FileStore(directory),
        registry=registry,
        providers=providers,
        executor=LocalExecutor(),
        defaults=ProviderSettings(),
    )
    session = runtime.create_session(
        SessionOptions(
            runtime_identifier="basis:/bench",
            base_dir=directory,
            provider=provider,
            model=ModelInfo("m", provider.id),
            policy=RuntimePolicy(),
            authorizer=ApprovalGate(),
            environment={},
            roster=lambda name: True,
        )
    )
    first = new_prompt("begin")
    session.agent.accept(first)
    session.agent.begin_turn(first)
    for number in range(items - 1):
        is_answer = number % 2 == 0
        message = Message("assistant" if is_answer else "user", [Text(f"item {number}: " + "word " * 20)])
        session.agent.commit("assistant_turn" if is_answer else "user_turn", message, first.turn_id)
    return session, runtime


async def _run(session: Session) -> None:
    prompt = new_prompt("go")
    session.agent.accept(prompt)
    ended = await session.run(prompt, emit=lambda event: None, approver=AllowAll(), options=TurnOptions())
    assert ended.status == "ok", ended.error


def _scripted(items: int, rounds: int) -> list[float]:
    with tempfile.TemporaryDirectory() as directory:
        provider = AtOnce(rounds)
        session, runtime = _session(provider, ProviderRegistry(), Path(directory), items)
        asyncio.run(_run(session))
        session.close()
        runtime.store.close()
    return [(after - before) * 1000 for before, after in itertools.pairwise(provider.came)]


def _over_http(items: int, rounds: int) -> list[float]:
    def respond(request: object) -> object:
        done = sum(item.get("role") == "tool" for item in request.items)  # type: ignore[attr-defined]
        return says("done") if done >= rounds else calls(tool("nothing", {}))

    async def run(server: ModelServer, directory: Path) -> None:
        providers = ProviderRegistry()
        choice = ProviderChoice("openai", Secret("k"), server.base_url, "chat_completions", None)
        session, runtime = _session(providers.get(choice), providers, directory, items)
        await _run(session)
        session.close()
        await runtime.aclose()

    with (
        tempfile.TemporaryDirectory() as directory,
        ModelServer(respond=respond) as server,  # type: ignore[arg-type]
    ):
        asyncio.run(run(server, Path(directory)))
        return [
            (after.arrived_at - before.ending.at) * 1000
            for before, after in itertools.pairwise(server.requests)
            if before.ending is not None
        ]


def _bare(rounds: int) -> float:
    """What a round has to cost: three short lines appended to a file, which is the answer, the call and its result."""
    line = json.dumps({"record": "entry", "entry": {"message": "x" * 200}}).encode() + b"\n"
    with tempfile.TemporaryFile(buffering=0) as file:
        started = time.perf_counter()
        for _ in range(rounds * 2):
            os.write(file.fileno(), line)
        return (time.perf_counter() - started) * 1000 / rounds


def measure(quick: bool) -> list[Row]:
    rounds = 20 if quick else 200
    floor = _bare(rounds)
    rows = [
        Row(f"round of the loop alone, {items:,} items before", "ms", _scripted(items, rounds), floor, "two writes")
        for items in ITEMS
    ]
    http_rounds = 5 if quick else 40
    return rows + [
        Row(f"the same over HTTP, {items:,} items before", "ms", _over_http(items, http_rounds)) for items in ITEMS
    ]
