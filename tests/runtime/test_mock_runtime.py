"""The runtime for tests of programs that embed one (runtime.md 12).

Nothing here asks a vendor in earnest: the tests' network ends at this machine (TE-7). The wires' fixtures are in
`support/wire_streams.py`, the stores' contract in `tests/contract`, the faults of disks in `support/store_disks.py`
(TE-6).
"""

from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.errors import UsageError
from basis_daemon.processes import CommandOutput, CommandRequest
from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.limits import ProviderRetry, TurnOptions
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.base import TokenUsage
from basis_daemon.runtime.providers.errors import InvalidRequest, RetryableError
from basis_daemon.runtime.providers.scripted import ScriptedTurn
from basis_daemon.runtime.store.volatile import VolatileStore
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolSpec
from basis_daemon.testing import MockRuntime, ScriptedCall, ScriptExhausted
from support.sdk import files_below

pytestmark = pytest.mark.anyio


async def upper(context: ToolContext, input: dict[str, Json]) -> str:
    return str(input["text"]).upper()


UPPER = FunctionTool(ToolSpec("upper", "Shout."), upper)


async def test_a_real_runtime_does_what_the_script_says() -> None:
    """TE-1, TE-2, TE-3: loop, tools and messages are the real ones; every request is there to be looked at."""
    builder = (
        MockRuntime.builder()
        .model("tiny", "acme")
        .model_context_window(4096)
        .with_tool(UPPER)
        .tool_calls(ScriptedCall("upper", {"text": "hi"}), ScriptedCall("upper", {"text": "ho"}, id="mine"))
        .thinking("Both.")
        .usage(TokenUsage(input_tokens=7, output_tokens=2))
        .stream_text(["HI", " HO"])
    )
    async with builder.build() as mock:
        report = await mock.spawn("shouter", AgentConfig(system="Shout.")).send("hi ho")
        mock.assert_exhausted()

    assert report.final_message == "HI HO" and report.usage.input_tokens == 7
    assert (report.provider, report.model, mock.model.context_window) == ("acme", "tiny", 4096)
    first, second = mock.recorded_requests()
    assert first.model == "tiny" and "upper" in [tool.name for tool in first.tools]
    assert [call.id for call in second.messages[1].tool_uses()] == ["tool-1", "mine"]
    assert [getattr(block, "content", None) for block in second.messages[2].content] == ["HI", "HO"]


async def test_what_was_asked_stays_as_it_was() -> None:
    """TE-3: records are copies; changing them changes nothing."""
    async with MockRuntime.builder().text("a").build() as mock:
        await mock.spawn().send("hi")
        mock.recorded_requests()[0].messages.clear()
        assert mock.recorded_requests()[0].messages[0].text() == "hi"


async def test_two_of_them_share_nothing_and_write_nothing(clean_environment: Path) -> None:
    """TE-1: the home and the data directory stay as they were, and so does what the other one knows."""
    before = await anyio.to_thread.run_sync(files_below, clean_environment)
    builder = MockRuntime.builder().text("a")
    async with builder.build() as one, builder.build() as two:
        await one.spawn().send("hi")
        assert len(await one.runtime.list_agents()) == 1 and await two.runtime.list_agents() == []
        assert one.runtime.identifier != two.runtime.identifier
        assert one.runtime.identifier.startswith("mock-runtime-") and two.recorded_requests() == []
    assert await anyio.to_thread.run_sync(files_below, clean_environment) == before


async def test_a_script_that_is_too_short_fails_the_turn_by_its_number() -> None:
    """TE-4: not a hang; looked at afterwards it is raised."""
    async with MockRuntime.builder().text("only").build() as mock:
        agent = mock.spawn()
        mock_report = await agent.send("one")
        report = await agent.send("two")
        with pytest.raises(ScriptExhausted, match="request 2"):
            mock.assert_exhausted()

    assert mock_report.succeeded and isinstance(report.failure, ScriptExhausted) and report.failure.index == 1
    assert report.error == "request 2 came, but the script has only 1 turn(s)"


async def test_a_script_that_is_too_long_is_told() -> None:
    """TE-4."""
    async with MockRuntime.builder().text("a").text("b").build() as mock:
        await mock.spawn().send("one")
        with pytest.raises(AssertionError, match="1 of 2"):
            mock.assert_exhausted()


async def test_odd_answers_can_be_written_down() -> None:
    """TE-2: failures, input that is no JSON, answers that take their time or never come."""
    builder = (
        MockRuntime.builder()
        .failure(RetryableError("busy"))
        .malformed_tool_input("read", '{"path": ')
        .text("sorry")
        .delay(0.001)
        .failure(InvalidRequest("no"))
        .pending()
    )
    async with builder.build() as mock:
        agent = mock.spawn()
        first, second = await agent.send("one"), await agent.send("two")
        third = await agent.send("three", options=TurnOptions(deadline_s=0.05))

    assert [first.final_message, second.status, third.stopped_by] == ["sorry", "error", "deadline"]
    with pytest.raises(UsageError, match="no answer yet"):
        MockRuntime.builder().usage(TokenUsage())


async def test_a_test_may_wait_as_the_product_does() -> None:
    """TE-5: retries take no time unless a test says which."""
    async with MockRuntime.builder().failure(RetryableError("busy")).text("a").build() as mock:
        slow = ProviderRetry(base_delay_s=0.001, max_delay_s=0.002)
        assert (await mock.spawn(config=AgentConfig(retry=slow)).send("go")).succeeded


class Elsewhere:
    """An executor that runs nothing."""

    def __init__(self) -> None:
        self.asked: list[CommandRequest] = []

    async def run(self, request: CommandRequest) -> CommandOutput:
        self.asked.append(request)
        return CommandOutput("from elsewhere", "", 0)


async def run_it(context: ToolContext, input: dict[str, Any]) -> str:
    return (await context.run_command("whoami")).stdout


async def test_everything_of_a_runtime_may_be_said_of_it() -> None:
    """TE-2: store, policy, executor, identifier; commands are permitted unless the test's own policy forbids them."""
    elsewhere, run = Elsewhere(), FunctionTool(ToolSpec("run", "Run."), run_it)
    store = VolatileStore()
    builder = (
        MockRuntime.builder()
        .with_store(store)
        .with_executor(elsewhere)
        .with_runtime_identifier("mine")
        .with_tool(run)
        .tool_calls(ScriptedCall("run"))
        .text("ok")
    )
    async with builder.build() as mock:
        agent = mock.spawn()
        await agent.send("go")
        agent.close()
        assert mock.runtime.store is store
        assert [record.id for record in await mock.runtime.list_agents("mine")] == [agent.id]
    assert [request.command for request in elsewhere.asked] == ["whoami"]

    async with builder.with_ephemeral_history().with_policy(RuntimePolicy()).build() as mock:
        await mock.spawn().send("go")
        assert len(elsewhere.asked) == 1


async def test_answers_may_be_added_while_it_runs() -> None:
    """TE-2."""
    async with MockRuntime.builder().build() as mock:
        mock.push_turn(ScriptedTurn(chunks=("late",)))
        assert (await mock.spawn().send("go")).final_message == "late"
