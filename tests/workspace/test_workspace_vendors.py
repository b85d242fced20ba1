"""Whole turns on the wires that are one vendor's: tools, reasoning, usage, what goes wrong (runtime.md 2.10)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from basis_daemon.workspace.builder import WorkspaceBuilder
from basis_daemon.workspace.spec import RunSpec
from basis_protocol.events import AssistantReasoningDelta, Retry, ToolCompleted, UsageReported
from support.model_server import ModelRequest, Turn, Usage, breaks, calls, fails, says, thinks, tool
from support.sdk import Person, say, scene, with_model_server

pytestmark = pytest.mark.anyio

VENDORS = {"anthropic": "claude-opus-4-6", "gemini": "gemini-3-pro"}
SEAL, OF_CALL = "c2VhbGVk", "b2YgY2FsbA=="


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest) -> str:
    return request.param


def at(vendor: str) -> Callable[[WorkspaceBuilder], WorkspaceBuilder]:
    """The scripted model in the place of `vendor`, whose wire is spoken because of its name (PR-4)."""
    return lambda builder: builder.with_provider(vendor)


async def test_a_turn_reads_a_file_and_reports_what_it_cost(tmp_path: Path, vendor: str) -> None:
    """PV-41, PV-47, 2.6: its reasoning is shown, and goes back sealed with the result of the call."""
    usage = Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=5)
    look = thinks("I look first.", encrypted=SEAL) + calls(
        tool("read", {"path": "notes.txt"}, signature=OF_CALL), usage=usage
    )
    async with scene(
        tmp_path, look, says("done", usage=usage), files={"notes.txt": "seen"}, model=VENDORS[vendor], shape=at(vendor)
    ) as on:
        run = on.workspace.prepare()
        told = await say(run, "look", Person())
        total = run.record.usage
        run.close()
        _, second = on.server.requests

    assert told.report.succeeded and told.report.final_message == "done" and told.report.provider == vendor
    assert "".join(event.text for event in told.of(AssistantReasoningDelta)) == "I look first."
    assert not told.one(ToolCompleted).is_error
    assert "seen" in str(second.tool_results) and SEAL.encode() in second.data
    assert (OF_CALL.encode() in second.data) is (vendor == "gemini")
    reported = told.of(UsageReported)
    assert [(event.input_tokens, event.output_tokens, event.cache_read_tokens) for event in reported] == [
        (100, 20, 64),
        (100, 20, 64),
    ]
    thought = total.reasoning_tokens if vendor == "anthropic" else total.thoughts_tokens
    assert (total.input_tokens, total.output_tokens, total.cache_read_tokens, thought) == (200, 40, 128, 10)


async def test_what_is_sealed_outlives_the_process(tmp_path: Path, vendor: str) -> None:
    """PV-41: it is read back from the store and sent to the model it is from."""
    look = thinks("hm", encrypted=SEAL) + calls(tool("ls", {}, signature=OF_CALL))
    script = [look, says("done"), says("again")]
    async with scene(tmp_path, *script, model=VENDORS[vendor], shape=at(vendor)) as on:
        run = on.workspace.prepare()
        await say(run, "look")
        run.close()
        again = await asyncio.to_thread(on.workspace.resume, run.agent_id)
        told = await say(again, "and?")
        again.close()
        last = on.server.requests[-1]
    assert told.report.final_message == "again" and SEAL.encode() in last.data


async def test_a_conversation_moves_from_one_vendor_to_the_other(tmp_path: Path, vendor: str) -> None:
    """PV-41: with its calls and their results; what was sealed stays behind."""
    other = next(name for name in VENDORS if name != vendor)
    look = thinks("hm", encrypted=SEAL) + calls(tool("ls", {}, signature=OF_CALL))
    async with scene(tmp_path, look, says("done"), says("moved"), model=VENDORS[vendor], shape=at(vendor)) as on:
        run = on.workspace.prepare()
        await say(run, "look")
        run.close()
        async with await at(other)(with_model_server(on.repo, on.server.base_url, on.store)).open() as workspace:
            run = await asyncio.to_thread(workspace.resume, run.agent_id)
            run.set_model(VENDORS[other])
            told = await say(run, "and?")
            run.close()
        last = on.server.requests[-1]
    assert told.report.final_message == "moved", told.report.error
    assert SEAL.encode() not in last.data and OF_CALL.encode() not in last.data
    assert [name for _, name, _ in last.tool_calls] == ["ls"] and len(last.tool_results) == 1


async def test_an_overloaded_vendor_is_asked_again(tmp_path: Path, vendor: str) -> None:
    """PV-16, PV-52, PV-55: by a status, and in the middle of the answer, of which nothing is kept."""
    script = [
        fails(529 if vendor == "anthropic" else 503),
        breaks(code="overloaded", after=says("half")),
        says("whole"),
    ]
    async with scene(tmp_path, *script, model=VENDORS[vendor], shape=at(vendor)) as on:
        run = on.workspace.prepare()
        told = await say(run, "look")
        kept = [entry.message.text() for entry in run.transcript]
        run.close()
    assert told.report.succeeded and len(told.of(Retry)) == 2
    assert kept == ["look", "whole"]


async def test_a_refusal_without_a_word_fails_the_turn_and_says_why(tmp_path: Path, vendor: str) -> None:
    """PV-16, PV-47: never an empty answer."""
    async with scene(tmp_path, says(stop="content_filter"), model=VENDORS[vendor], shape=at(vendor)) as on:
        run = on.workspace.prepare()
        told = await say(run, "look")
        run.close()
    assert told.report.status == "error" and len(on.server.requests) == 1
    assert ("refuses" if vendor == "anthropic" else "SAFETY") in (told.report.error or "")


async def test_an_effort_reaches_the_model_or_fails_the_turn_before_anything_is_sent(
    tmp_path: Path, vendor: str
) -> None:
    """PR-9, PV-44, D-33"""
    async with scene(tmp_path, says("a"), model=VENDORS[vendor], shape=at(vendor)) as on:
        run = on.workspace.prepare(RunSpec(effort="low"))
        assert (await say(run, "look")).report.succeeded
        run.set_effort("xhigh")
        told = await say(run, "look")
        run.close()
    assert told.report.status == "error" and "xhigh" in (told.report.error or "")
    assert len(on.server.requests) == 1 and b'"low"' in on.server.requests[0].data


class Bug(msgspec.Struct):
    line: int


async def test_a_turn_can_end_with_a_value(tmp_path: Path, vendor: str) -> None:
    """PV-23, PV-46, PV-47: the answering tool is forced, in the words of the wire."""

    def give(request: ModelRequest) -> Turn:
        (name,) = [name for name in request.tool_names if name.startswith("basis_terminal_")]
        assert f'"{name}"' in str(request.body.get("tool_choice") or request.body["toolConfig"]).replace("'", '"')
        return calls(tool(name, {"line": 3}))

    async with scene(tmp_path, give, model=VENDORS[vendor], shape=at(vendor)) as on:
        run = on.workspace.prepare()
        done = await run.output("which bug?", Bug, emit=lambda event: None, approver=Person())
        run.close()
    assert done.value == Bug(3)
