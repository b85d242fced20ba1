"""What turns and conversations cost: from reported tokens and known prices, kept, and unknown where it is not known."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.runtime.providers.definition import WireName
from basis_daemon.workspace.builder import WorkspaceBuilder
from basis_protocol.events import RunFinished, Usage, UsageReported
from support.model_server import ModelServer, calls, says, tool
from support.model_server import Usage as Reported
from support.sdk import Told, say, with_model_server
from support.workspaces import sample_repository

pytestmark = pytest.mark.anyio


def row(server: ModelServer, *, model: str = "scripted", **fields: Any) -> dict[str, Any]:
    """A price for a model at the scripted endpoint."""
    return {"provider": f"openai@{server.base_url.rstrip('/')}", "model": model, "input": "2", "output": "10", **fields}


def price_file(directory: Path, *rows: dict[str, Any]) -> Path:
    """A person's own prices, in a global directory."""
    directory.mkdir(exist_ok=True)
    (directory / "prices.json").write_text(json.dumps({"schema": 1, "prices": rows}))
    return directory


def priced(tmp_path: Path, server: ModelServer, *rows: dict[str, Any]) -> WorkspaceBuilder:
    repo = sample_repository(tmp_path / "repo")
    builder = with_model_server(repo, server.base_url, tmp_path / "store")
    return builder.with_global_dir(price_file(tmp_path / "g", *rows))


def expected(usage: Usage, *, input: int = 2000, output: int = 10_000) -> int:
    """Billionths of a dollar at so many of them a token."""
    return usage.input_tokens * input + usage.output_tokens * output


def usage_of(told: Told) -> Usage:
    return told.report.usage


async def test_a_turn_costs_what_its_responses_did_and_a_conversation_what_its_turns_did(tmp_path: Path) -> None:
    """Usage per response, per turn and in the record; the price is of the model that answered."""
    async with (
        ModelServer(calls(tool("read", {"path": "README.md"})), says("One."), says("Two.")) as server,
        await priced(tmp_path, server, row(server)).open() as workspace,
    ):
        run = workspace.prepare()
        first, second = await say(run, "One?"), await say(run, "Two?")
        total = run.record.usage
        run.close()
    reported = first.of(UsageReported)
    assert len(reported) == 2 and {event.model for event in reported} == {"scripted"}
    assert sum(event.cost_nano_usd or 0 for event in reported) == usage_of(first).cost_nano_usd
    for usage in (usage_of(first), usage_of(second), total):
        assert usage.total_tokens > 0 and usage.priced_tokens == usage.total_tokens
        assert usage.cost_nano_usd == expected(usage)
    assert first.one(RunFinished).usage == usage_of(first)
    assert total == usage_of(first) + usage_of(second)


async def test_a_price_that_is_not_known_is_no_price_and_no_guess(tmp_path: Path) -> None:
    """An endpoint under a vendor's id is not billed as the vendor."""
    async with ModelServer(says("One.")) as server:
        builder = priced(tmp_path, server, {**row(server), "provider": "openai"}, row(server, model="another"))
        async with await builder.open() as workspace:
            run = workspace.prepare()
            told = await say(run, "One?")
            run.close()
    assert told.one(UsageReported).cost_nano_usd is None
    assert usage_of(told).priced_tokens == 0 and usage_of(told).cost_nano_usd == 0 and usage_of(told).total_tokens > 0


async def test_a_conversation_that_changed_to_a_model_without_a_price_is_known_to_be_priced_in_part(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(says("One."), says("Two.")) as server,
        await priced(tmp_path, server, row(server)).open() as workspace,
    ):
        run = workspace.prepare()
        first = usage_of(await say(run, "One?"))
        run.set_model("unheard-of")
        await say(run, "Two?")
        total = run.record.usage
        run.close()
    assert total.cost_nano_usd == first.cost_nano_usd
    assert total.priced_tokens == first.total_tokens < total.total_tokens


async def test_a_price_that_changes_changes_no_past(tmp_path: Path) -> None:
    """The cost is written with the usage; another process reads it back as it was."""
    async with ModelServer(says("One."), says("Two.")) as server:
        builder = priced(tmp_path, server, row(server))
        async with await builder.open() as workspace:
            run = workspace.prepare()
            first = usage_of(await say(run, "One?"))
            run.close()
        price_file(tmp_path / "g", row(server, input="20", output="100"))
        async with await builder.open() as workspace:
            again = await asyncio.to_thread(workspace.resume, run.agent_id)
            assert again.record.usage == first
            second = usage_of(await say(again, "Two?"))
            assert second.cost_nano_usd == expected(second, input=20_000, output=100_000)
            assert again.record.usage.cost_nano_usd == first.cost_nano_usd + second.cost_nano_usd
            again.close()


@pytest.mark.parametrize("wire", ["chat_completions", "responses", "anthropic_messages"])
async def test_what_is_written_to_the_cache_is_billed_as_that(tmp_path: Path, wire: WireName) -> None:
    """2.6: inside the input, apart from what was read."""
    cached = Reported(input_tokens=100, output_tokens=10, cached_tokens=60, written_tokens=30)
    async with (
        ModelServer(says("One.", usage=cached)) as server,
        await priced(tmp_path, server, row(server, cache_read="0.5", cache_write="2.5"))
        .with_provider("openai", base_url=server.base_url, wire=wire)
        .open() as workspace,
    ):
        run = workspace.prepare()
        told = (await say(run, "?")).one(UsageReported)
        run.close()
    assert (told.cache_read_tokens, told.cache_creation_tokens) == (60, 30)
    assert told.cost_nano_usd == 10 * 2000 + 60 * 500 + 30 * 2500 + 10 * 10_000


async def test_cached_tokens_without_a_price_of_their_own_leave_the_cost_unknown(tmp_path: Path) -> None:
    """And with one they are billed apart from the rest of the input (2.6)."""
    cached = Reported(input_tokens=100, output_tokens=10, cached_tokens=60)
    async with ModelServer(says("One.", usage=cached), says("Two.", usage=cached)) as server:
        costs: list[int | None] = []
        for extra in ({}, {"cache_read": "0.5"}):
            async with await priced(tmp_path, server, row(server, **extra)).open() as workspace:
                run = workspace.prepare()
                costs.append((await say(run, "?")).one(UsageReported).cost_nano_usd)
                run.close()
    assert costs == [None, 40 * 2000 + 60 * 500 + 10 * 10_000]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("{"),
        lambda path: path.unlink() or path.mkdir(),
        lambda path: path.unlink() or os.mkfifo(path),
    ],
)
async def test_a_price_file_that_can_not_be_used_costs_nobody_a_session(
    tmp_path: Path, spoil: Callable[[Path], Any]
) -> None:
    """It is said, naming the file; the shipped prices hold."""
    async with ModelServer(says("One.")) as server:
        builder = priced(tmp_path, server, row(server))
        spoil(tmp_path / "g" / "prices.json")
        with anyio.fail_after(10):
            async with await builder.open() as workspace:
                assert any("prices.json is not used" in notice for notice in workspace.notices)
                assert workspace.prices.find("anthropic", "claude-opus-5") is not None
                run = workspace.prepare()
                assert (await say(run, "One?")).report.succeeded
                run.close()


async def test_what_answers_on_this_machine_costs_nothing_and_that_is_known(tmp_path: Path) -> None:
    """Free is a price."""
    async with ModelServer() as server:
        builder = priced(tmp_path, server).with_provider("rehearsal")
        async with await builder.open() as workspace:
            run = workspace.prepare()
            told = await say(run, "hello")
            run.close()
    usage = usage_of(told)
    assert usage.cost_nano_usd == 0 and usage.priced_tokens == usage.total_tokens
