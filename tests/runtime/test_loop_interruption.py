"""A turn cut short by a dying process, carried on by the next (runtime.md 7.8, architecture.md 5)."""

import asyncio
from pathlib import Path

import anyio
import pytest

from basis_daemon.runtime.messages import user
from basis_daemon.runtime.permissions import ApprovalAnswer
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.runtime.store.files import FileStore
from support.conversations import Allow, Counter, new_conversation
from support.model_server import ModelServer, calls, says, tool

pytestmark = pytest.mark.anyio


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
