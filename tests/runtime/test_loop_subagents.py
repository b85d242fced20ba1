"""Work handed on to a subagent (runtime.md 10.1, 6.6)."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.errors import ProviderNotFound
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.delegation import SubagentOutcome, SubagentTemplateMismatch
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.permissions import ApprovalAnswer
from basis_daemon.runtime.providers.base import TokenUsage
from basis_daemon.runtime.providers.errors import InvalidRequest
from basis_daemon.runtime.providers.scripted import (
    ScriptedCall,
    ScriptedProvider,
    ScriptedTurn,
    failure,
    text,
    tool_calls,
)
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.subagents import SUFFIX
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolError, ToolSpec
from basis_daemon.runtime.tools.task import TaskTool
from basis_protocol.events import (
    AnyEvent,
    AssistantDelta,
    PermissionRequested,
    TaskUpdated,
    ToolCompleted,
    ToolProgress,
    UsageReported,
    UserMessage,
)
from support.conversations import Allow, Conversation, Counter, new_conversation, roles

pytestmark = pytest.mark.anyio


def hand_on(prompt: str = "count the files", id: str = "t1") -> ScriptedTurn:
    return tool_calls(ScriptedCall("task", {"prompt": prompt}, id=id))


def result_of(model: ScriptedProvider, request: int) -> Any:
    """The tool result that ends a request."""
    return model.recorded_requests()[request].messages[-1].content[0]


def statuses(conversation: Conversation) -> list[str]:
    return [event.status for event in conversation.seen(TaskUpdated)]


async def test_a_subagent_does_the_work_and_its_answer_is_the_result(
    model: ScriptedProvider, tmp_path: Path, counter: Counter, store: FileStore
) -> None:
    """CO-1, CO-2, CO-3, CO-5, SP-22: named, told how to work, without `task`; noted in the transcript; told of on the
    parent's stream; gone from the store when it is done."""
    for turn in (hand_on(), tool_calls(ScriptedCall("bump", {"n": 3})), text("there are 3"), text("three it is")):
        model.push(turn)
    conversation = new_conversation(model, tmp_path, counter.tool(), TaskTool(), store=store)

    outcome = await conversation.say("how many?")

    assert outcome.final_message == "three it is" and counter.ran == [{"n": 3}]
    parent, child, _, last = model.recorded_requests()
    assert [tool.name for tool in parent.tools] == ["bump", "task"] and [tool.name for tool in child.tools] == ["bump"]
    assert child.system == f"Be brief.\n\n{SUFFIX}" and child.model == parent.model
    assert [message.text() for message in child.messages] == ["count the files"]
    assert result_of(model, 3).content == "there are 3" and last.session_id == parent.session_id
    assert roles(conversation) == [
        "user_turn",
        "assistant_turn",
        "tool_exchange",
        "delegation_request",
        "delegation_result",
        "assistant_turn",
    ]
    request, result = list(conversation.session.agent.transcript)[3:5]
    assert request.message.text().startswith('<delegation-request agent="basis run::task" model="scripted">')
    assert result.message.text().startswith('<delegation-result agent="basis run::task" status="finished">')
    assert request.delegation is not None and request.delegation.status == "requested"
    assert result.delegation is not None and result.delegation.result_summary == "there are 3"
    assert result.edge is not None and result.edge.local_agent_id == conversation.session.agent.id
    assert statuses(conversation) == ["spawned", "running", "running", "finished"]
    assert "basis run::task works with scripted" in conversation.seen(ToolProgress)[0].progress
    assert result.edge.remote_agent_id == conversation.seen(TaskUpdated)[0].task_id
    assert await asyncio.to_thread(store.record, result.edge.remote_agent_id) is None
    assert [event.text for event in conversation.seen(UserMessage)] == ["how many?"]
    assert "".join(event.text for event in conversation.seen(AssistantDelta)) == "three it is"


async def test_a_subagent_may_be_kept(model: ScriptedProvider, tmp_path: Path, store: FileStore) -> None:
    """CO-5: an ordinary conversation, which lists don't show."""
    for turn in (hand_on(), text("3"), text("ok")):
        model.push(turn)
    conversation = new_conversation(model, tmp_path, TaskTool(), store=store, keep_subagents=True)
    await conversation.say("go")
    kept = await asyncio.to_thread(store.record, conversation.seen(TaskUpdated)[0].task_id)
    assert kept is not None and (kept.kind, kept.parent) == ("subagent", conversation.session.agent.id)
    assert kept.name == "basis run::task"
    listed = await asyncio.to_thread(store.list)
    assert [record.id for record in listed] == [conversation.session.agent.id]


@pytest.mark.parametrize(
    ("turn", "content"),
    [
        (text(""), "Subagent failed: the model's answer was empty"),
        (failure(InvalidRequest("bad")), "Subagent failed: bad"),
    ],
    ids=["empty", "failed"],
)
async def test_a_subagents_failure_is_an_error_result(
    model: ScriptedProvider, tmp_path: Path, turn: ScriptedTurn, content: str
) -> None:
    """CO-3, SE-10: the parent reads why and goes on."""
    for each in (hand_on(), turn, text("never mind")):
        model.push(each)
    conversation = new_conversation(model, tmp_path, TaskTool())
    outcome = await conversation.say("go")
    assert outcome.final_message == "never mind"
    assert result_of(model, 2).is_error and result_of(model, 2).content.startswith(content)
    assert statuses(conversation)[-1] == "failed"
    result = conversation.session.agent.transcript[4]
    assert result.delegation is not None and result.delegation.status == "failed"


async def test_what_a_subagent_spends_is_its_parents(model: ScriptedProvider, tmp_path: Path, counter: Counter) -> None:
    """AG-11, CO-2, EV-5, BP-5, D-40: on the parent's stream with the subagent's id, in its sum, and in its bound."""
    usage = TokenUsage(input_tokens=10, output_tokens=5)
    for prompt in (hand_on(), text("3"), text("not reached")):
        model.push(ScriptedTurn(chunks=prompt.chunks, calls=prompt.calls, usage=usage))
    conversation = new_conversation(model, tmp_path, TaskTool())
    options = TurnOptions(token_budget=30)

    outcome = await conversation.say("go", options=options)

    assert (outcome.status, outcome.stopped_by) == ("ok", "token_budget")
    assert outcome.usage.total_tokens == 30 == options.reported_tokens
    reported = conversation.seen(UsageReported)
    assert [event.agent_id == conversation.session.agent.id for event in reported] == [True, False]
    assert reported[1].agent_id == conversation.seen(TaskUpdated)[0].task_id


async def test_bounds_that_are_used_up_are_a_failed_delegation(model: ScriptedProvider, tmp_path: Path) -> None:
    """CO-3: visibly, before the subagent has asked anything."""
    model.push(ScriptedTurn(calls=hand_on().calls, usage=TokenUsage(input_tokens=99)))
    conversation = new_conversation(model, tmp_path, TaskTool())
    outcome = await conversation.say("go", options=TurnOptions(token_budget=50))
    assert outcome.stopped_by == "token_budget" and len(model.recorded_requests()) == 1
    assert statuses(conversation)[-1] == "failed"
    assert "Subagent failed" in conversation.seen(ToolCompleted)[0].summary


async def test_what_a_subagent_asks_is_asked_of_the_parents_person(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """CO-6, SE-28, SP-21: and a refusal holds there, too; what was allowed for the session is not asked again."""
    for turn in (
        hand_on(),
        tool_calls(ScriptedCall("bump", {"n": 1})),
        text("was not allowed"),
        text("ok"),
    ):
        model.push(turn)
    person = Allow(ApprovalAnswer(allow=True, scope="session"))

    class Half(Allow):
        async def approve(self, request: Any) -> ApprovalAnswer:
            answer = await super().approve(request)
            return answer if request.tool_name == "task" else ApprovalAnswer(reason="not in there")

    half = Half(person.answer)
    conversation = new_conversation(model, tmp_path, counter.tool(), TaskTool())
    await conversation.say("go", approver=half)

    assert [asked.tool_name for asked in half.asked] == ["task", "bump"]
    assert [event.tool_name for event in conversation.seen(PermissionRequested)] == ["task", "bump"]
    assert counter.ran == [] and "not in there" in model.recorded_requests()[2].messages[-1].content[0].content  # type: ignore[union-attr]


async def test_what_was_allowed_for_the_session_holds_for_its_subagents(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """SE-28: one authorizer, one set of answers."""
    for turn in (
        tool_calls(ScriptedCall("bump", {"n": 1})),
        hand_on(),
        tool_calls(ScriptedCall("bump", {"n": 2})),
        text("counted"),
        text("ok"),
    ):
        model.push(turn)
    person = Allow(ApprovalAnswer(allow=True, scope="session"))
    conversation = new_conversation(model, tmp_path, counter.tool(), TaskTool())
    await conversation.say("go", approver=person)
    assert [asked.tool_name for asked in person.asked] == ["bump", "task"]
    assert [ran["n"] for ran in counter.ran] == [1, 2]


async def test_a_subagent_ends_with_its_turn(
    model: ScriptedProvider, tmp_path: Path, counter: Counter, store: FileStore
) -> None:
    """CO-6, SE-10, D-40: cancelled inside a tool of its own; watchers see it end, and nothing of it is left."""
    counter.leave.clear()
    model.push(hand_on())
    model.push(tool_calls(ScriptedCall("bump", {"n": 1})))
    conversation = new_conversation(model, tmp_path, counter.tool(), TaskTool(), store=store)
    cancel = CancelSignal()

    async with anyio.create_task_group() as tasks:

        async def cancels() -> None:
            await counter.entered.wait()
            cancel.set()

        tasks.start_soon(cancels)
        with anyio.fail_after(5):
            outcome = await conversation.say("go", options=TurnOptions(cancel=cancel))

    assert outcome.status == "cancelled" and roles(conversation) == []
    assert statuses(conversation)[-1] == "failed" and conversation.seen(TaskUpdated)[-1].detail == "cancelled"
    assert await asyncio.to_thread(store.record, conversation.seen(TaskUpdated)[0].task_id) is None


async def test_a_deadline_ends_subagents_too(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-9, D-40."""
    model.push(hand_on())
    model.push(ScriptedTurn(pending=True))
    conversation = new_conversation(model, tmp_path, TaskTool())
    with anyio.fail_after(5):
        outcome = await conversation.say("go", options=TurnOptions(deadline_s=0.2))
    assert outcome.stopped_by == "deadline" and statuses(conversation)[-1] == "failed"


async def test_a_subagent_has_rounds_enough_but_not_for_ever(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-10: thirty."""
    model.push(hand_on())
    for number in range(30):
        model.push(tool_calls(ScriptedCall("bump", {"n": number})))
    model.push(text("it did not end"))
    conversation = new_conversation(model, tmp_path, counter.tool(), TaskTool())
    await conversation.say("go")
    assert len(counter.ran) == 30 and "30 rounds" in result_of(model, 31).content


def digging(depth: list[int], outcomes: list[SubagentOutcome]) -> FunctionTool:
    """A tool that hands on whatever it is told to, from wherever it is called."""

    async def dig(context: ToolContext, input: dict[str, Any]) -> str:
        assert context.agent is not None
        depth.append(context.agent.depth)
        outcomes.append(await context.agent.spawn_subagent("dig on"))
        return outcomes[-1].text or "nothing"

    return FunctionTool(ToolSpec("dig", "Dig."), dig)


async def test_delegation_goes_only_so_deep(model: ScriptedProvider, tmp_path: Path) -> None:
    """CO-7, SP-19: the deepest one is told to do its work itself, and each level's answer reaches the one above."""
    depth: list[int] = []
    outcomes: list[SubagentOutcome] = []
    dig = tool_calls(ScriptedCall("dig", {}))
    for turn in (dig, dig, dig, text("too deep"), text("two"), text("one")):
        model.push(turn)
    conversation = new_conversation(model, tmp_path, digging(depth, outcomes), max_delegation_depth=2)
    outcome = await conversation.say("dig")
    assert depth == [0, 1, 2] and outcome.final_message == "one"
    assert [each.text for each in outcomes] == ["too deep", "two"]
    assert "do this work yourself" in result_of(model, 3).content
    kinds = {event.task_id for event in conversation.seen(TaskUpdated)}
    assert len(kinds) == 2 and statuses(conversation).count("finished") == 2


async def test_a_refused_delegation_asks_nobody(model: ScriptedProvider, tmp_path: Path) -> None:
    """SP-7: depth comes before the person."""
    model.push(hand_on())
    model.push(text("myself then"))
    person = Allow()
    conversation = new_conversation(model, tmp_path, TaskTool(), max_delegation_depth=0)
    await conversation.say("go", approver=person)
    assert person.asked == [] and conversation.seen(TaskUpdated) == []
    assert "do this work yourself" in result_of(model, 1).content


async def test_a_template_changes_what_it_names(model: ScriptedProvider, tmp_path: Path, counter: Counter) -> None:
    """CO-4, TR-5: model, provider, system and a narrower roster; what the parent is denied stays denied."""
    other = ScriptedProvider([text("from elsewhere")], id="other")

    async def spawn(context: ToolContext, input: dict[str, Any]) -> str:
        assert context.agent is not None
        template = context.agent.subagent_template().with_model("m2", provider="other").with_system("Be odd.")
        template = template.with_tool_profile(lambda name: name in ("peek", "hidden"))
        return (await context.agent.spawn_subagent("go", template=template)).text or ""

    async def nothing(context: ToolContext, input: dict[str, Any]) -> str:
        return ""

    tools = [FunctionTool(ToolSpec(name, name), nothing) for name in ("peek", "hidden", "other")]
    model.push(tool_calls(ScriptedCall("spawn_it", {})))
    model.push(text("ok"))
    conversation = new_conversation(
        model,
        tmp_path,
        FunctionTool(ToolSpec("spawn_it", "x"), spawn),
        *tools,
        roster=lambda name: name != "hidden",
    )
    conversation.runtime.providers.register(other)
    await conversation.say("go")

    (request,) = other.recorded_requests()
    assert request.model == "m2" and request.system == f"Be odd.\n\n{SUFFIX}"
    assert [tool.name for tool in request.tools] == ["peek"]


async def test_a_template_is_for_the_agent_that_made_it(model: ScriptedProvider, tmp_path: Path) -> None:
    """CO-4: an unknown provider fails when it is used, another agent's template always; nothing has been started."""
    conversation = new_conversation(model, tmp_path, TaskTool())
    session = conversation.session
    mine = session.subagent_template()
    told: list[AnyEvent] = []
    async with asyncio.TaskGroup() as tasks:
        for template, error in (
            (new_conversation(model, tmp_path).session.subagent_template(), SubagentTemplateMismatch),
            (mine.with_model("m", provider="nobody"), ProviderNotFound),
        ):
            with pytest.raises(error):
                session.spawn_subagent("x", "go", tasks=tasks, emit=told.append, approver=Allow(), template=template)
    assert told == []


async def test_a_subagent_may_work_beside_its_parent(model: ScriptedProvider, tmp_path: Path, counter: Counter) -> None:
    """SE-28, SE-10: started by the host, told of and asking where the host says, and seen to its end."""
    model.push(tool_calls(ScriptedCall("bump", {"n": 1})))
    model.push(text("done beside"))
    conversation = new_conversation(model, tmp_path, counter.tool())
    session, person = conversation.session, Allow()
    told: list[AnyEvent] = []

    async with asyncio.TaskGroup() as tasks:
        handle = session.spawn_subagent("helper", "go", tasks=tasks, emit=told.append, approver=person)
        assert session.active_subagents() == [handle]
        outcome = await handle.wait()

    assert outcome.succeeded and outcome.text == "done beside" and outcome.name == "basis run::helper"
    assert handle.task_id == handle.agent_id == outcome.agent_id and session.active_subagents() == []
    assert [asked.tool_name for asked in person.asked] == ["bump"]
    assert next(event.status for event in told if isinstance(event, TaskUpdated)) == "spawned"
    assert [event.status for event in told if isinstance(event, TaskUpdated)][-1] == "finished"


async def test_a_subagent_beside_its_parent_can_be_ended(
    model: ScriptedProvider, tmp_path: Path, counter: Counter, store: FileStore
) -> None:
    """SE-10."""
    counter.leave.clear()
    model.push(tool_calls(ScriptedCall("bump", {"n": 1})))
    conversation = new_conversation(model, tmp_path, counter.tool(), store=store)
    told: list[AnyEvent] = []
    async with asyncio.TaskGroup() as tasks:
        handle = conversation.session.spawn_subagent("helper", "go", tasks=tasks, emit=told.append, approver=Allow())
        await counter.entered.wait()
        handle.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handle.wait()
    assert [event.status for event in told if isinstance(event, TaskUpdated)][-1] == "failed"
    assert await asyncio.to_thread(store.record, handle.agent_id) is None


async def test_a_call_may_end_its_agents_turn(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-14: with what was said; with nothing said it is a failure that keeps the results."""

    async def rest(context: ToolContext, input: dict[str, Any]) -> str:
        assert context.agent is not None
        context.agent.request_idle()
        with pytest.raises(ToolError, match="compacted"):
            await context.agent.compact_history()
        return f"{context.agent.name} {context.agent.model} rests"

    model.push(tool_calls(ScriptedCall("rest", {}), saying="good night"))
    model.push(tool_calls(ScriptedCall("rest", {})))
    conversation = new_conversation(model, tmp_path, FunctionTool(ToolSpec("rest", "x"), rest))

    outcome = await conversation.say("go")
    assert (outcome.status, outcome.final_message) == ("ok", "good night")
    assert conversation.seen(ToolCompleted)[0].summary == "basis run scripted rests"
    outcome = await conversation.say("go")
    assert outcome.status == "error" and "before the model had said anything" in (outcome.error or "")
    assert roles(conversation)[-1] == "tool_exchange"
