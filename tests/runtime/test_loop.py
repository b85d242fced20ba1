"""A turn, round by round (runtime.md 3.4-3.6), against a scripted model over real HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.runtime.messages import ToolResult
from basis_daemon.runtime.permissions import ApprovalAnswer
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolError, ToolOutput, ToolSpec
from basis_protocol.events import (
    AssistantDelta,
    AssistantMessage,
    ToolCompleted,
    ToolProgress,
    ToolQueued,
    UsageReported,
    UserMessage,
)
from support.conversations import Allow, Counter, new_conversation, roles
from support.model_server import ModelServer, calls, says, tool

pytestmark = pytest.mark.anyio


async def test_an_answer_streams_and_ends_with_its_whole_text(server: ModelServer, tmp_path: Path) -> None:
    server.script(says("Hel", "lo"))
    conversation = new_conversation(server, tmp_path)

    outcome = await conversation.say("hi")

    assert (outcome.status, outcome.final_message) == ("ok", "Hello")
    assert "".join(event.text for event in conversation.seen(AssistantDelta)) == "Hello"
    message = conversation.seen(AssistantMessage)[0]
    assert message.text == "Hello"
    assert {event.message_id for event in conversation.seen(AssistantDelta)} == {message.message_id}
    assert conversation.seen(UserMessage)[0].text == "hi"
    assert outcome.usage.input_tokens == conversation.seen(UsageReported)[0].input_tokens > 0
    request = server.requests[0]
    assert request.system == "Be brief." and request.prompt == "hi"


async def test_a_tool_call_runs_and_its_result_reaches_the_model(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AG-29: every call has a result before the model is asked again."""
    server.script(calls(tool("bump", {"n": 1}, id="c1")), says("done"))
    conversation = new_conversation(server, tmp_path, counter.tool())

    outcome = await conversation.say("count")

    assert outcome.final_message == "done"
    assert counter.ran == [{"n": 1}]
    assert server.requests[1].tool_results == {"c1": "counted 1"}
    assert roles(conversation) == ["user_turn", "assistant_turn", "tool_exchange", "assistant_turn"]
    assert conversation.seen(ToolQueued)[0].mutability == "mutating"
    assert conversation.seen(ToolCompleted)[0].summary == "counted 1"


async def test_a_refused_call_has_no_effect_and_the_model_reads_why(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AP-5: the effect is checked, not the message."""
    server.script(calls(tool("bump", {"n": 1}, id="c1")), says("ok"))
    conversation = new_conversation(server, tmp_path, counter.tool())

    await conversation.say("count", approver=Allow(ApprovalAnswer(reason="not today")))

    assert counter.ran == []
    assert server.requests[1].tool_results["c1"].endswith("Tool execution denied: not today")


@pytest.mark.parametrize(
    ("call", "fragment"),
    [
        (tool("nothing", {}), "no tool"),
        (tool("bump", {}), "required"),
        (tool("bump", {"n": "x"}), "integer"),
        (tool("broken", {}), "does not work"),
        (tool("raises", {}), "boom"),
    ],
)
async def test_a_call_that_cannot_be_carried_out_is_a_result_not_a_failure(
    server: ModelServer, tmp_path: Path, counter: Counter, call: Any, fragment: str
) -> None:
    """TL-2, TL-11, TL-15."""

    async def broken(context: ToolContext, input: dict[str, Any]) -> str:
        raise ToolError("it does not work")

    async def raises(context: ToolContext, input: dict[str, Any]) -> str:
        raise ValueError("boom")

    server.script(calls(call), says("ok"))
    extra = [FunctionTool(ToolSpec("broken", "x"), broken), FunctionTool(ToolSpec("raises", "x"), raises)]
    conversation = new_conversation(server, tmp_path, counter.tool(), *extra)

    outcome = await conversation.say("go")

    assert outcome.status == "ok" and counter.ran == []
    (result,) = server.requests[1].tool_results.values()
    assert fragment in result
    assert conversation.seen(ToolCompleted)[0].is_error


async def test_a_tool_outside_the_roster_is_neither_offered_nor_callable_by_a_guessed_name(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """TR-4."""
    server.script(calls(tool("bump", {"n": 1})), says("ok"))
    conversation = new_conversation(server, tmp_path, counter.tool(), roster=lambda name: name != "bump")

    await conversation.say("go")

    assert counter.ran == [] and server.requests[0].tool_names == []


async def test_malformed_input_runs_nothing_of_its_round_and_is_fed_back(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AG-20."""
    server.script(calls(tool("bump", {"n": 1}, id="good"), tool("bump", '{"n": ', id="bad")), says("sorry"))
    conversation = new_conversation(server, tmp_path, counter.tool())

    outcome = await conversation.say("go")

    assert outcome.status == "ok" and counter.ran == []
    results = server.requests[1].tool_results
    assert "not a JSON object" in results["bad"] and "Not run" in results["good"]


async def test_input_that_breaks_the_schema_fails_its_own_call_alone(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AG-21: it is valid JSON, so the others of its round run."""
    server.script(calls(tool("bump", {"n": "one"}, id="bad"), tool("bump", {"n": 2}, id="good")), says("ok"))
    conversation = new_conversation(server, tmp_path, counter.tool())
    await conversation.say("go")
    assert counter.ran == [{"n": 2}]
    assert "expected integer" in server.requests[1].tool_results["bad"]


async def test_the_third_malformed_round_in_a_row_fails_the_turn(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AG-22, D-45."""
    server.script(*[calls(tool("bump", "{", id=f"c{n}")) for n in range(3)])
    conversation = new_conversation(server, tmp_path, counter.tool())
    outcome = await conversation.say("go")
    assert outcome.status == "error" and "3 rounds in a row" in (outcome.error or "")
    server.assert_exhausted()


async def test_read_only_calls_run_side_by_side_and_answer_in_call_order(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """TL-30: both are inside at once, so neither waits for the other."""
    inside = 0
    both = asyncio.Event()

    async def meet(context: ToolContext, input: dict[str, Any]) -> str:
        nonlocal inside
        inside += 1
        if inside == 2:
            both.set()
        await both.wait()
        return str(input["n"])

    server.script(calls(tool("meet", {"n": 1}, id="a"), tool("meet", {"n": 2}, id="b")), says("ok"))
    conversation = new_conversation(
        server, tmp_path, FunctionTool(ToolSpec("meet", "x", execution="read_only_parallel"), meet)
    )
    with anyio.fail_after(5):
        await conversation.say("go")
    blocks = conversation.session.agent.transcript[2].message.content
    assert [block.content for block in blocks if isinstance(block, ToolResult)] == ["1", "2"]


async def test_a_call_id_the_model_used_before_does_not_reuse_its_result(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """An answer given for one call must never stand for another."""
    server.script(
        calls(tool("bump", {"n": 1}, id="same"), tool("bump", {"n": 2}, id="same")),
        calls(tool("bump", {"n": 3}, id="same")),
        says("ok"),
    )
    conversation = new_conversation(server, tmp_path, counter.tool())
    person = Allow()

    await conversation.say("go", approver=person)

    assert [ran["n"] for ran in counter.ran] == [1, 2, 3]
    assert len({asked.tool_call_id for asked in person.asked}) == 3


async def test_progress_of_a_call_is_on_the_stream_before_its_end(server: ModelServer, tmp_path: Path) -> None:
    """SP-15, KD-17: also when it comes from a thread."""

    async def work(context: ToolContext, input: dict[str, Any]) -> ToolOutput:
        context.progress("one")
        await asyncio.to_thread(context.progress, "two")
        return ToolOutput("done", summary="worked")

    server.script(calls(tool("work", {})), says("ok"))
    conversation = new_conversation(server, tmp_path, FunctionTool(ToolSpec("work", "x"), work))

    await conversation.say("go")

    kinds = [type(event) for event in conversation.events]
    assert [event.progress for event in conversation.seen(ToolProgress)] == ["one", "two"]
    assert kinds.index(ToolProgress) < kinds.index(ToolCompleted)
    assert conversation.seen(ToolCompleted)[0].summary == "worked"


@pytest.mark.parametrize("levels", [90, 150, 965, 100_000])
async def test_input_nested_without_end_is_fed_back_and_the_conversation_stays_readable(
    server: ModelServer, tmp_path: Path, counter: Counter, store: FileStore, levels: int
) -> None:
    """AG-20: whatever depth is let through can also be written, read back and shown."""
    nested = '{"n":1,"x":' + "[" * levels + "]" * levels + "}"
    server.script(calls(tool("bump", nested, id="c1", chunks=1)), says("ok"))
    conversation = new_conversation(server, tmp_path, counter.tool(), store=store)

    outcome = await conversation.say("go")

    assert outcome.final_message == "ok"
    assert bool(counter.ran) == (levels == 90)
    loaded = await asyncio.to_thread(store.peek, conversation.session.agent.id)
    assert len(loaded.transcript) == 4
