"""A turn, round by round (runtime.md 3.4-3.8), against a scripted model over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.runtime.cancel import CancelSignal, StopSignal
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import ToolResult, user
from basis_daemon.runtime.permissions import ApprovalAnswer
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolError, ToolOutput, ToolSpec
from basis_protocol.events import (
    AssistantDelta,
    AssistantMessage,
    Branched,
    ErrorEvent,
    Notice,
    Retry,
    ToolCompleted,
    ToolProgress,
    ToolQueued,
    UsageReported,
    UserMessage,
)
from support.conversations import Allow, Conversation, close_conversations, new_conversation
from support.model_server import Gate, ModelServer, calls, cuts, fails, hangs, rate_limits, says, slow, tool

pytestmark = pytest.mark.anyio


class Counter:
    """A consequential tool that counts its calls, and one without side effects."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()
        self.leave.set()

    def tool(self, name: str = "bump") -> FunctionTool:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        spec = ToolSpec(name, "Count.", schema, side_effect="local_state")
        return FunctionTool(spec, self._run)

    def reader(self, name: str = "peek") -> FunctionTool:
        return FunctionTool(ToolSpec(name, "Look.", execution="read_only_parallel"), self._run)

    async def _run(self, context: ToolContext, input: dict[str, Any]) -> Any:
        self.ran.append(input)
        self.entered.set()
        await self.leave.wait()
        return f"counted {input.get('n')}"


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


@pytest.fixture(autouse=True)
async def closing() -> AsyncIterator[None]:
    yield
    await close_conversations()


@pytest.fixture
async def counter() -> Counter:
    return Counter()


def roles(conversation: Conversation) -> list[str]:
    return [entry.kind for entry in conversation.session.agent.transcript]


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


async def test_the_third_malformed_round_in_a_row_fails_the_turn(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AG-22."""
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


# --- providers that fail ---------------------------------------------------------------------------------------------


async def test_a_transient_failure_is_retried_and_told(server: ModelServer, tmp_path: Path) -> None:
    """PV-52."""
    server.script(fails(503), rate_limits(), says("yes"))
    conversation = new_conversation(server, tmp_path)

    outcome = await conversation.say("hi")

    assert outcome.final_message == "yes"
    assert [event.attempt for event in conversation.seen(Retry)] == [1, 2]


async def test_a_stream_cut_in_the_middle_is_discarded_and_sent_again(server: ModelServer, tmp_path: Path) -> None:
    """PV-55: the client learns which painted text is void."""
    server.script(cuts(says("half", " an", " answer"), after_deltas=2), says("whole"))
    conversation = new_conversation(server, tmp_path)

    outcome = await conversation.say("hi")

    assert outcome.final_message == "whole"
    retry = conversation.seen(Retry)[0]
    assert retry.discarded_message_id == conversation.seen(AssistantDelta)[0].message_id
    assert [event.text for event in conversation.seen(AssistantMessage)] == ["whole"]
    assert roles(conversation) == ["user_turn", "assistant_turn"]


async def test_a_refusal_by_the_provider_ends_the_turn_and_takes_the_prompt_off_the_conversation(
    server: ModelServer, tmp_path: Path
) -> None:
    """AG-25: nothing was committed, so the prompt is kept as resumable and not as something said."""
    server.script(fails(400, {"error": {"message": "no such model"}}), says("now"))
    conversation = new_conversation(server, tmp_path)

    outcome = await conversation.say("hi")

    assert outcome.status == "error" and "no such model" in (outcome.error or "")
    assert len(conversation.seen(ErrorEvent)) == 1 and not conversation.seen(ErrorEvent)[0].recoverable
    assert roles(conversation) == []
    prompt = conversation.session.agent.resumable
    assert prompt is not None and conversation.session.agent.interrupted is None
    again = await conversation.run(prompt, resumed=True)
    assert again.final_message == "now" and roles(conversation) == ["user_turn", "assistant_turn"]


async def test_a_failure_after_a_finished_round_keeps_that_round(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AG-25: back to the last committed round, not to the start."""
    server.script(calls(tool("bump", {"n": 1})), fails(400), says("finished"))
    conversation = new_conversation(server, tmp_path, counter.tool())

    outcome = await conversation.say("go")

    assert outcome.status == "error"
    assert roles(conversation) == ["user_turn", "assistant_turn", "tool_exchange"]
    prompt = conversation.session.agent.resumable
    assert prompt is not None
    assert (await conversation.run(prompt, resumed=True)).final_message == "finished"
    assert counter.ran == [{"n": 1}]


async def test_an_empty_answer_fails_the_turn(server: ModelServer, tmp_path: Path) -> None:
    """AG-14."""
    server.script(says(""))
    outcome = await new_conversation(server, tmp_path).say("hi")
    assert outcome.status == "error" and "empty" in (outcome.error or "")


async def test_an_answer_cut_at_the_output_limit_is_kept_with_a_warning(server: ModelServer, tmp_path: Path) -> None:
    server.script(says("so far", stop="max_tokens"))
    conversation = new_conversation(server, tmp_path)
    assert (await conversation.say("hi")).final_message == "so far"
    assert conversation.seen(Notice)[0].severity == "warning"


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_cancelling_leaves_the_conversation_as_it_was_before_the_prompt(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """TO-2: rounds of the cancelled turn are off the path, and watchers are told."""
    counter.leave.clear()
    server.script(says("hello"), calls(tool("bump", {"n": 1})))
    conversation = new_conversation(server, tmp_path, counter.tool())
    await conversation.say("first")
    cancel = CancelSignal()

    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            await counter.entered.wait()
            cancel.set("asked to")

        tasks.start_soon(stop)
        with anyio.fail_after(5):
            outcome = await conversation.say("second", options=TurnOptions(cancel=cancel))

    assert outcome.status == "cancelled"
    assert roles(conversation) == ["user_turn", "assistant_turn"]
    assert conversation.seen(Branched)[0].abandoned_entries == 2


@pytest.mark.parametrize("where", ["opening", "streaming", "waiting to retry"])
async def test_cancelling_interrupts_the_provider_wherever_it_is(
    server: ModelServer, tmp_path: Path, where: str
) -> None:
    """AG-27, PV-54."""
    server.script({"opening": hangs(), "streaming": hangs(says("a", "b"), after_deltas=1)}.get(where, rate_limits(50)))
    conversation = new_conversation(server, tmp_path)
    cancel = CancelSignal()

    async def stop() -> None:
        await server.request(0)
        if where != "opening":
            await server.ending(0) if where == "waiting to retry" else await wait_for(conversation, AssistantDelta)
        cancel.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        with anyio.fail_after(5):
            prompt = conversation.accept("hi")
            outcome = await conversation.session.run(
                prompt,
                emit=conversation.events.append,
                approver=Allow(),
                options=TurnOptions(cancel=cancel),
            )
    assert outcome.status == "cancelled"
    if where != "waiting to retry":
        assert (await server.ending(0)).how == "client_left"


async def wait_for(conversation: Conversation, kind: type) -> None:
    while not conversation.seen(kind):
        await anyio.lowlevel.checkpoint()


async def test_a_deadline_ends_the_turn_and_is_named(server: ModelServer, tmp_path: Path) -> None:
    """BD-2."""
    server.script(hangs())
    conversation = new_conversation(server, tmp_path)
    with anyio.fail_after(5):
        outcome = await conversation.say("hi", options=TurnOptions(deadline_s=0.05))
    assert (outcome.status, outcome.stopped_by) == ("error", "deadline")


async def test_a_tool_budget_admits_a_batch_as_a_unit(server: ModelServer, tmp_path: Path, counter: Counter) -> None:
    """TL-31."""
    server.script(calls(tool("bump", {"n": 1}), tool("bump", {"n": 2})))
    conversation = new_conversation(server, tmp_path, counter.tool())
    outcome = await conversation.say("go", options=TurnOptions(tool_budget=1))
    assert (outcome.status, outcome.stopped_by) == ("error", "tool_budget")
    assert counter.ran == []


async def test_a_token_budget_lets_the_crossing_round_finish(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """BD-3, TO-3: graceful, everything kept, no final message."""
    server.script(calls(tool("bump", {"n": 1})))
    conversation = new_conversation(server, tmp_path, counter.tool())
    outcome = await conversation.say("go", options=TurnOptions(token_budget=1))
    assert (outcome.status, outcome.stopped_by, outcome.final_message) == ("ok", "token_budget", None)
    assert counter.ran == [{"n": 1}] and roles(conversation)[-1] == "tool_exchange"


async def test_a_stop_ends_the_turn_at_the_round_boundary(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AG-10, TO-2."""
    stop = StopSignal()
    counter.leave.clear()
    server.script(calls(tool("bump", {"n": 1})))
    conversation = new_conversation(server, tmp_path, counter.tool())

    async def later() -> None:
        await counter.entered.wait()
        stop.set()
        counter.leave.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(later)
        outcome = await conversation.say("go", options=TurnOptions(stop=stop))

    assert (outcome.status, outcome.stopped_by) == ("ok", "stop_requested")
    assert counter.ran == [{"n": 1}] and roles(conversation)[-1] == "tool_exchange"


async def test_steering_is_said_after_the_round_in_which_it_came(
    server: ModelServer, tmp_path: Path, counter: Counter
) -> None:
    """AG-23, AG-24."""
    counter.leave.clear()
    server.script(calls(tool("bump", {"n": 1})), says("as you wish"))
    conversation = new_conversation(server, tmp_path, counter.tool())

    async def steer() -> None:
        await counter.entered.wait()
        conversation.session.steer(conversation.accept("rather not"))
        counter.leave.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(steer)
        outcome = await conversation.say("go")

    assert outcome.final_message == "as you wish"
    assert server.requests[1].prompt == "rather not"
    assert conversation.session.agent.queued == []
    assert [event.text for event in conversation.seen(UserMessage)] == ["go", "rather not"]


async def test_steering_that_comes_with_the_last_answer_is_answered_too(server: ModelServer, tmp_path: Path) -> None:
    """AG-13."""
    gate = Gate()
    server.script(slow(says("one", " two"), gate=gate, before=1), says("three"))
    conversation = new_conversation(server, tmp_path)

    async def steer() -> None:
        await gate.arrival()
        conversation.session.steer(conversation.accept("and then?"))
        gate.open()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(steer)
        outcome = await conversation.say("go")

    assert outcome.final_message == "three"
    assert roles(conversation) == ["user_turn", "assistant_turn", "user_turn", "assistant_turn"]


# --- interruption ----------------------------------------------------------------------------------------------------


async def interrupted_in_call(
    server: ModelServer, tmp_path: Path, counter: Counter, store: FileStore, n_calls: int = 1
) -> tuple[str, PromptAccepted]:
    """Run until a call is inside its tool, then cancel the task as a dying daemon would; the conversation is closed."""
    counter.leave.clear()
    conversation = new_conversation(server, tmp_path, counter.tool(), store=store)
    prompt = conversation.accept("go")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def pull_the_plug() -> None:
                for _ in range(n_calls):
                    await counter.entered.wait()
                    if len(counter.ran) < n_calls:
                        counter.entered.clear()
                        counter.leave.set()
                        counter.leave.clear()
                scope.cancel()

            tasks.start_soon(pull_the_plug)
            await conversation.run(prompt)
    await asyncio.to_thread(conversation.session.close)
    return conversation.session.agent.id, prompt


async def test_a_call_cut_short_is_not_repeated_when_the_turn_is_carried_on(
    server: ModelServer, tmp_path: Path, counter: Counter, store: FileStore
) -> None:
    """What was allowed once runs once: the model is told that nobody knows how far it got."""
    server.script(calls(tool("bump", {"n": 1}, id="c1")), says("I see"))
    agent_id, prompt = await interrupted_in_call(server, tmp_path, counter, store)

    again = await asyncio.to_thread(new_conversation, server, tmp_path, counter.tool(), store=store, resume=agent_id)
    assert again.session.agent.interrupted is not None
    assert again.session.agent.interrupted.turn_id == prompt.turn_id
    outcome = await again.run(again.session.agent.interrupted, resumed=True)

    assert outcome.final_message == "I see" and counter.ran == [{"n": 1}]
    assert "cut short" in server.requests[1].tool_results["c1"]


async def test_an_unanswered_question_is_asked_again_when_the_turn_is_carried_on(
    server: ModelServer, tmp_path: Path, counter: Counter, store: FileStore
) -> None:
    """architecture.md 5: the pending ask still stands, and answering it carries on."""
    server.script(calls(tool("bump", {"n": 1}, id="c1")), says("done"))
    asked = asyncio.Event()

    class Never:
        async def approve(self, request: object) -> ApprovalAnswer:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    conversation = new_conversation(server, tmp_path, counter.tool(), store=store)
    prompt = conversation.accept("go")
    async with anyio.create_task_group() as tasks:

        async def pull_the_plug() -> None:
            await asked.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(pull_the_plug)
        await conversation.run(prompt, approver=Never())
    await asyncio.to_thread(conversation.session.close)

    again = await asyncio.to_thread(
        new_conversation, server, tmp_path, counter.tool(), store=store, resume=conversation.session.agent.id
    )
    person = Allow()
    assert again.session.agent.interrupted is not None
    outcome = await again.run(again.session.agent.interrupted, approver=person, resumed=True)

    assert [request.tool_call_id for request in person.asked] == ["c1"]
    assert outcome.final_message == "done" and counter.ran == [{"n": 1}]
    assert len(server.requests) == 2


async def test_a_new_prompt_after_an_interruption_leaves_no_call_without_a_result(
    server: ModelServer, tmp_path: Path, counter: Counter, store: FileStore
) -> None:
    """AG-29, AG-49."""
    server.script(calls(tool("bump", {"n": 1}, id="c1"), tool("bump", {"n": 2}, id="c2")), says("fine"))
    agent_id, prompt = await interrupted_in_call(server, tmp_path, counter, store)

    again = await asyncio.to_thread(new_conversation, server, tmp_path, counter.tool(), store=store, resume=agent_id)
    outcome = await again.say("forget it")

    assert outcome.final_message == "fine"
    results = server.requests[1].tool_results
    assert "cut short" in results["c1"] and "not run" in results["c2"]
    ended = again.session.agent.outcomes[prompt.turn_id]
    assert ended.status == "interrupted"


async def test_a_turn_cut_off_right_behind_its_answer_is_complete_when_carried_on(
    server: ModelServer, tmp_path: Path, store: FileStore
) -> None:
    """The answer is in the log; the model is not asked for it twice."""
    server.script(says("the answer"))
    conversation = new_conversation(server, tmp_path, store=store)
    prompt = conversation.accept("go")
    agent = conversation.session.agent
    await conversation.run(prompt)
    log = tmp_path / "store" / "agents" / agent.id / "transcript.jsonl"
    await asyncio.to_thread(conversation.session.close)
    lines = await asyncio.to_thread(log.read_bytes)
    kept = lines.splitlines(keepends=True)[:-1]
    await asyncio.to_thread(log.write_bytes, b"".join(kept))

    again = await asyncio.to_thread(new_conversation, server, tmp_path, store=store, resume=agent.id)
    assert again.session.agent.interrupted is not None
    outcome = await again.run(again.session.agent.interrupted, resumed=True)

    assert outcome.final_message == "the answer" and len(server.requests) == 1


async def test_a_prompt_that_was_accepted_and_never_started_is_still_queued_after_a_restart(
    server: ModelServer, tmp_path: Path, store: FileStore
) -> None:
    conversation = new_conversation(server, tmp_path, store=store)
    conversation.accept(user("later"))
    await asyncio.to_thread(conversation.session.close)

    again = await asyncio.to_thread(
        new_conversation, server, tmp_path, store=store, resume=conversation.session.agent.id
    )

    assert [prompt.message.text() for prompt in again.session.agent.queued] == ["later"]
    assert again.session.agent.interrupted is None
