"""Agents of a program without a workspace: turns, events, resuming, listing (runtime.md 1.3, 3.2, 3.9, 6)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from basis_daemon.errors import (
    Busy,
    EmptyPrompt,
    LeaseUnavailable,
    NoSuchSession,
    NothingToResume,
    ProviderNotFound,
    UsageError,
)
from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.agent_handle import AgentHandle
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.feed import Snapshot
from basis_daemon.runtime.hooks.contract import HookOutcome, HookRequest, Replace
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.base import ModelInfo, TokenUsage
from basis_daemon.runtime.providers.errors import InvalidRequest, RetryableError
from basis_daemon.runtime.providers.scripted import ScriptedCall, ScriptedProvider, text
from basis_daemon.runtime.reports import OutputFailure
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.tools.profile import ToolProfile
from basis_daemon.runtime.typed_output import Accept, OutputSpec, Reject
from basis_daemon.testing import MockRuntime
from basis_protocol.events import (
    AnyEvent,
    AssistantDelta,
    AssistantMessage,
    Branched,
    ErrorEvent,
    RunFinished,
    RunStarted,
    TaskUpdated,
    ToolCompleted,
    ToolQueued,
    UsageReported,
    UserMessage,
)
from support.conversations import Counter

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def in_bounded_time() -> AsyncIterator[None]:
    with anyio.fail_after(20):
        yield


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Runtime]:
    """A runtime that keeps conversations on disk, with a model that says `one`, `two`, …"""
    model = ScriptedProvider([text(word) for word in ("one", "two", "three", "four")], id="scripted")
    store = await asyncio.to_thread(FileStore, tmp_path / "store")
    builder = Runtime.empty_builder().with_provider_instance(model).with_store(store).with_model("mock-model")
    async with await builder.build_async() as runtime:
        yield runtime


def kinds(events: list[AnyEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


# --- turns and events ------------------------------------------------------------------------------------------------


async def test_a_turn_is_told_from_its_first_to_its_last_event() -> None:
    """SE-3, SE-4: the message once, the final text once, the count by one."""
    async with MockRuntime.builder().stream_text(["Hel", "lo"]).build() as mock:
        agent, seen = mock.spawn("greeter"), list[AnyEvent]()
        with agent.events.tap(seen.append):
            report = await agent.send("hi")

    assert report.succeeded and report.final_message == "Hello"
    assert kinds(seen) == [
        "RunStarted",
        "UserMessage",
        "AssistantDelta",
        "AssistantDelta",
        "AssistantMessage",
        "RunFinished",
    ]
    assert agent.record.turns == 1 and agent.record.name == "greeter"
    assert [message.text() for message in agent.history] == ["hi", "Hello"]
    assert agent.last_message is not None and agent.last_message.text() == "Hello"


async def test_a_turn_that_fails_is_told_and_not_counted() -> None:
    """SE-4, TN-3: `recoverable` says whether trying again may help."""
    script = MockRuntime.builder().failure(InvalidRequest("no"))
    async with script.build() as mock:
        agent, seen = mock.spawn(), list[AnyEvent]()
        agent.events.tap(seen.append)
        report = await agent.send("hi")

        assert (report.status, agent.record.turns) == ("error", 0)
        (error,) = [event for event in seen if isinstance(event, ErrorEvent)]
        assert not error.recoverable and agent.events.snapshot.status == "failed"
        assert agent.resumable is not None


async def test_a_failed_turn_is_carried_on_and_there_is_nothing_else_to_carry_on() -> None:
    """AG-6, SE-3: `resume_turn` reports as a prompt's turn does."""
    script = MockRuntime.builder().failure(InvalidRequest("no")).text("at last")
    async with script.build() as mock:
        agent, seen = mock.spawn(), list[AnyEvent]()
        with pytest.raises(NothingToResume):
            await agent.resume_turn()
        await agent.send("hi")
        agent.events.tap(seen.append)
        report = await agent.resume_turn()

        assert report.final_message == "at last" and agent.record.turns == 1
        assert isinstance(seen[0], RunStarted) and seen[0].resumed
        with pytest.raises(NothingToResume):
            await agent.resume_turn()


async def test_a_second_turn_is_refused_at_once_and_leaves_nothing() -> None:
    """AG-4, D-48, RT-40: it does not queue, and its prompt is nowhere."""
    async with MockRuntime.builder().pending().build() as mock:
        agent, cancel = mock.spawn(), CancelSignal()
        async with asyncio.TaskGroup() as tasks:
            turn = tasks.create_task(agent.send("first", options=TurnOptions(cancel=cancel)))
            await agent.events.wait_for(lambda now: now.is_running)
            for again in (agent.send("second"), agent.resume_turn(), agent.run_queued()):
                with pytest.raises((Busy, NothingToResume)):
                    await again
            assert agent.queued == ()
            cancel.set("enough")
        assert turn.result().status == "cancelled"
        with pytest.raises(EmptyPrompt):
            await agent.send("  ")
        assert agent.history == []


async def test_a_turn_takes_the_same_bounds_everywhere() -> None:
    """SE-12, D-41."""
    script = MockRuntime.builder().tool_calls(ScriptedCall("ls"), ScriptedCall("ls")).text("never")
    async with script.build() as mock:
        report = await mock.spawn().send("look", options=TurnOptions(tool_budget=1))

    assert (report.status, report.stopped_by) == ("error", "tool_budget")


async def test_what_was_said_meanwhile_can_be_run_later() -> None:
    """AG-24: by a turn of its own; `None` when nothing waits."""
    async with MockRuntime.builder().text("answered").build() as mock:
        agent = mock.spawn()
        assert await agent.run_queued() is None
        agent.steering.follow_up("and this")
        report = await agent.run_queued()

    assert report is not None and report.final_message == "answered"
    assert mock.recorded_requests()[0].messages[-1].text() == "and this"


@dataclass
class Verdict:
    """What the reviewer thinks."""

    good: bool


async def test_a_turn_may_end_with_a_value() -> None:
    """SE-3, SE-4: typed turns report as others do, and a validator has the model try again in the same one."""
    wanted = OutputSpec.of(Verdict).reserve()
    script = MockRuntime.builder()
    for value in ({"good": False}, {"good": True}):
        script = script.tool_calls(ScriptedCall(wanted.tool_name, value))
    async with script.build() as mock:
        agent, seen = mock.spawn(), list[AnyEvent]()
        agent.events.tap(seen.append)
        answer = await agent.output(
            "judge it", wanted, validator=lambda value: Accept(value) if value == {"good": True} else Reject("again")
        )

    assert answer.value == {"good": True} and answer.report.succeeded and agent.record.turns == 1
    assert not [event for event in seen if isinstance(event, AssistantMessage)]


async def test_a_turn_without_its_value_fails() -> None:
    """SE-3, AG-47."""
    async with MockRuntime.builder().text("I would rather not.").build() as mock:
        with pytest.raises(OutputFailure) as failed:
            await mock.spawn().output("judge it", Verdict, keeps_tools=True)
    assert failed.value.report.status == "error"


# --- watching --------------------------------------------------------------------------------------------------------


async def test_subscriptions_end_with_the_agent_and_waiting_needs_no_turn_of_its_own() -> None:
    """AG-31, AG-34, AG-36, SE-11."""
    async with MockRuntime.builder().text("one").build() as mock, mock.spawn() as agent:
        subscription, snapshots = agent.events.subscribe(), list[Snapshot]()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(agent.events.wait_until_idle())
            await agent.send("go")
            snapshots.append(await waiting)
        agent.close()
        read = [event async for event in subscription]

    assert [snapshot.status for snapshot in snapshots] == ["finished"]
    assert isinstance(read[0], RunStarted) and isinstance(read[-1], RunFinished)


async def test_a_tap_that_fails_harms_neither_the_turn_nor_other_taps(caplog: pytest.LogCaptureFixture) -> None:
    """AG-32, D-42: taps lose nothing and their failures are their own."""
    async with MockRuntime.builder().stream_text([str(number) for number in range(600)]).build() as mock:
        agent, seen = mock.spawn(), list[AnyEvent]()
        agent.events.tap(lambda event: 1 / 0)
        agent.events.tap(seen.append)
        report = await agent.send("count")

    assert report.succeeded and report.sink_error is None
    assert len([event for event in seen if isinstance(event, AssistantDelta)]) == 600
    assert "a tap failed" in caplog.text


async def test_events_of_calls_say_what_the_tool_itself_gave_and_whose_they_are(counter: Counter) -> None:
    """AG-33, SE-7: what hooks made of a result is the model's to read; usage names its agent."""

    async def hide(request: HookRequest) -> HookOutcome:
        return Replace("hidden")

    script = MockRuntime.builder().with_tool(counter.tool()).with_post_hook(hide)
    script = script.tool_calls(ScriptedCall("bump", {"n": 1}), ScriptedCall("ls")).usage(TokenUsage(input_tokens=3))
    async with script.text("done").build() as mock:
        agent, seen = mock.spawn(), list[AnyEvent]()
        agent.events.tap(seen.append)
        await agent.send("count")

    queued = {event.tool_name: event.mutability for event in seen if isinstance(event, ToolQueued)}
    assert queued == {"bump": "mutating", "ls": "read_only"}
    assert "counted 1" in [event.summary for event in seen if isinstance(event, ToolCompleted)]
    assert "hidden" in str(mock.recorded_requests()[1].messages[-1])
    assert {event.agent_id for event in seen if isinstance(event, UsageReported)} == {agent.id}


@pytest.mark.parametrize(
    ("input", "expected"),
    [
        ({"path": "a.py"}, "ls: a.py"),
        ({"path": "ä" * 80}, f"ls: {'ä' * 48}..."),
        ({"x": "y" * 90}, None),
    ],
)
async def test_calls_are_told_in_a_line(input: dict[str, Json], expected: str | None) -> None:
    """SE-8: cut between characters."""
    async with MockRuntime.builder().tool_calls(ScriptedCall("ls", input)).text("done").build() as mock:
        agent, seen = mock.spawn(), list[AnyEvent]()
        agent.events.tap(seen.append)
        await agent.send("look")

    (queued,) = [event for event in seen if isinstance(event, ToolQueued)]
    if expected is not None:
        assert queued.summary == expected
    else:
        assert queued.summary.startswith('ls({"x":"yyy') and len(queued.summary.encode()) <= 70


# --- changes ---------------------------------------------------------------------------------------------------------


async def test_model_effort_and_name_change_for_the_next_turn_and_are_written(kept: Runtime) -> None:
    """AG-5, SE-3: an unknown provider changes nothing."""
    async with kept.spawn("a") as agent:
        await agent.send("go")
        agent.set_name("b")
        agent.set_effort("high")
        agent.set_model(ModelInfo("other", "scripted", context_window=9))
        with pytest.raises(ProviderNotFound):
            agent.set_model(ModelInfo("x", "nobody"))
        (record,) = await kept.list_agents()

    assert (record.name, record.model, record.provider, record.effort) == ("b", "other", "scripted", "high")
    assert agent.context_window == 9 and "'other'" in repr(agent)


async def test_a_conversation_branches_and_its_watchers_are_told() -> None:
    """AG-39, SE-3."""
    async with MockRuntime.builder().text("one").text("two").build() as mock:
        agent, seen = mock.spawn(), list[AnyEvent]()
        await agent.send("a")
        entry = agent.transcript.leaf_id
        await agent.send("b")
        agent.events.tap(seen.append)

        assert agent.branch_from(entry) == 2
        assert kinds(seen) == ["Branched"] and isinstance(seen[0], Branched)
        assert len(agent.history) == 2 and len(agent.transcript.archived()) == 2


async def test_a_subagent_works_beside_its_parent_and_is_seen_to_end() -> None:
    """SE-28, SE-10: told of on the parent's stream; a template is the parent's own."""
    async with MockRuntime.builder().text("found it").build() as mock:
        agent, seen = mock.spawn("boss"), list[AnyEvent]()
        agent.events.tap(seen.append)
        async with asyncio.TaskGroup() as tasks:
            template = agent.subagent_template().with_system("Look.")
            handle = agent.spawn_subagent("scout", "look around", tasks=tasks, template=template)
            assert agent.active_subagents() == [handle]
            outcome = await handle.wait()

        assert outcome.text == "found it" and outcome.name == "boss::scout"
        statuses = [event.status for event in seen if isinstance(event, TaskUpdated)]
        assert statuses[0] == "spawned" and statuses[-1] == "finished"
        assert agent.active_subagents() == [] and agent.events.snapshot.tasks[0].status == "finished"
        assert (mock.recorded_requests()[0].system or "").startswith("Look.")


# --- spawning, resuming, listing -------------------------------------------------------------------------------------


async def test_spawning_writes_nothing_and_an_unknown_provider_is_refused(kept: Runtime, tmp_path: Path) -> None:
    """RT-19, RT-20, RT-21: a conversation exists on disk from its first prompt on, and is leased from then on."""
    with pytest.raises(ProviderNotFound, match="nobody"):
        kept.spawn("a", ModelInfo("m", "nobody"))
    one, two = kept.spawn("a"), kept.spawn("a")
    assert one.id != two.id and one.id.startswith("agent-")
    assert await kept.list_agents() == []

    await one.send("go")
    assert [record.id for record in await kept.list_agents()] == [one.id]
    with pytest.raises(LeaseUnavailable):
        await kept.resume_agent(one.id)
    await asyncio.to_thread(one.close)
    async with await kept.resume_agent(one.id) as again:
        assert [message.text() for message in again.history] == ["go", "one"]
        assert again.context_window is None and again.record.model == "mock-model"


async def test_a_model_has_to_be_named() -> None:
    """RT-19."""
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        with pytest.raises(UsageError, match="no model"):
            runtime.spawn("a")


async def test_what_is_stored_is_carried_on_and_what_is_not_is_said_again(kept: Runtime, tmp_path: Path) -> None:
    """RT-22, RT-26, RT-28, SE-2: policy and audience live as long as the handle; the tag can be stated anew."""
    first = AgentConfig(base_dir=tmp_path, audience="mine", policy=RuntimePolicy.read_only(tmp_path), effort="low")
    async with kept.spawn("a", config=first) as agent:
        await agent.send("go")
    async with await kept.resume_agent(agent.id, AgentConfig(runtime_identifier="other", effort="high")) as again:
        report = await again.send("more")
        assert report.final_message == "two" and again.record.base_dir == str(tmp_path)
        assert again.record.effort == "high"
    assert [record.id for record in await kept.list_agents("other")] == [agent.id]
    with pytest.raises(NoSuchSession, match="agent-nobody"):
        await kept.resume_agent("agent-nobody")


async def test_one_that_is_corrupt_keeps_nobody_from_the_others(kept: Runtime, tmp_path: Path) -> None:
    """RT-23, RT-41: only those of the tag asked for; a broken one, and one whose provider is gone, are reported."""
    made: list[AgentHandle] = []
    for name, tag in (("good", None), ("broken", None), ("foreign", "elsewhere")):
        async with kept.spawn(name, config=AgentConfig(runtime_identifier=tag)) as agent:
            await agent.send("go")
            made.append(agent)
    good, broken, foreign = made
    directory = kept.store.directory(broken.id)
    assert directory is not None
    await asyncio.to_thread((directory / "transcript.jsonl").write_bytes, b"\x00 no json\n{}\n")

    own = await kept.resume()
    assert [agent.id for agent in own.agents] == [good.id]
    assert list(own.failures) == [broken.id]
    for agent in own.agents:
        await asyncio.to_thread(agent.close)
    every = await kept.resume_all()
    assert {agent.id for agent in every.agents} == {good.id, foreign.id}
    for agent in every.agents:
        await asyncio.to_thread(agent.close)


async def test_lists_tell_what_there_is_without_opening_it(kept: Runtime) -> None:
    """RT-24."""
    async with kept.spawn("named") as agent:
        await agent.send("go")
        (record,) = await kept.list_agents()
        assert (record.id, record.name, record.kind, record.messages) == (agent.id, "named", "conversation", 2)
        assert record.created_at > 0 and record.updated_at >= record.created_at
        assert await kept.list_agents("other") == []


async def test_deleting_is_for_good_and_repeatable(kept: Runtime) -> None:
    """RT-25: an open one is refused instead of coming back with its next write."""
    async with kept.spawn("a") as agent:
        await agent.send("go")
        with pytest.raises(LeaseUnavailable):
            await kept.delete_agent(agent.id)
    await kept.delete_agent(agent.id)
    await kept.delete_agent(agent.id)
    assert await kept.list_agents() == []


async def test_a_policy_of_its_own_replaces_the_runtimes_wholesale(tmp_path: Path) -> None:
    """RT-27, D-99: nothing is merged; another agent of the runtime keeps the runtime's."""
    write = ScriptedCall("write", {"path": "note.txt", "content": "x"})
    script = MockRuntime.builder().tool_calls(write).text("no").tool_calls(write).text("yes")
    async with script.build() as mock:
        locked = AgentConfig(base_dir=tmp_path, policy=RuntimePolicy.read_only(tmp_path))
        await mock.spawn("locked", locked).send("write")
        assert not await anyio.Path(tmp_path / "note.txt").exists()
        await mock.spawn("free", AgentConfig(base_dir=tmp_path)).send("write")
        assert await anyio.Path(tmp_path / "note.txt").read_text() == "x"


async def test_an_agent_is_offered_what_its_profile_says() -> None:
    """RT-26, TL-12."""
    async with MockRuntime.builder().text("a").build() as mock:
        await mock.spawn(config=AgentConfig(tools=ToolProfile.only(["read"]), system="Be brief.")).send("go")

    (request,) = mock.recorded_requests()
    assert [tool.name for tool in request.tools] == ["read"]
    assert (request.system or "").startswith("Be brief.")


async def test_agents_of_one_runtime_work_side_by_side() -> None:
    """RT-5, RT-40."""
    script = MockRuntime.builder()
    for number in range(20):
        script = script.text(str(number))
    async with script.build() as mock:
        async with asyncio.TaskGroup() as tasks:
            turns = [tasks.create_task(mock.spawn(str(number)).send("go")) for number in range(20)]
        assert {turn.result().final_message for turn in turns} == {str(number) for number in range(20)}


async def test_what_fails_in_passing_is_asked_again_without_waiting() -> None:
    """TE-5: a test needs no clock; an agent says its own retries for turns without options."""
    async with MockRuntime.builder().failure(RetryableError("busy")).text("well").build() as mock:
        agent, seen = mock.spawn(), list[AnyEvent]()
        agent.events.tap(seen.append)
        report = await agent.send("go")

    assert report.final_message == "well" and "Retry" in kinds(seen)
    assert not [event for event in seen if isinstance(event, UserMessage) and event.image_count]
