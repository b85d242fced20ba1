"""A turn whose provider fails (runtime.md 2.11, 3.8): retried, discarded, or taken back."""

import asyncio
from pathlib import Path

import pytest

from basis_daemon.runtime.store.files import FileStore
from basis_protocol.events import (
    AssistantDelta,
    AssistantMessage,
    ErrorEvent,
    Notice,
    Retry,
)
from support.conversations import Counter, new_conversation, roles
from support.model_server import ModelServer, calls, cuts, fails, rate_limits, says, tool

pytestmark = pytest.mark.anyio


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


async def test_a_failed_turn_can_still_be_carried_on_after_a_restart(
    server: ModelServer, tmp_path: Path, store: FileStore
) -> None:
    """AG-6: the prompt is kept in the log, not only in memory; a turn that went well afterwards clears it."""
    server.script(fails(400), says("now"))
    conversation = new_conversation(server, tmp_path, store=store)
    await conversation.say("hi")
    agent_id = conversation.session.agent.id
    await asyncio.to_thread(conversation.session.close)

    again = await asyncio.to_thread(new_conversation, server, tmp_path, store=store, resume=agent_id)
    prompt = again.session.agent.resumable
    assert prompt is not None and prompt.message.text() == "hi" and again.session.agent.interrupted is None
    outcome = await again.run(prompt, resumed=True)
    await asyncio.to_thread(again.session.close)

    assert outcome.final_message == "now" and roles(again) == ["user_turn", "assistant_turn"]
    last = await asyncio.to_thread(new_conversation, server, tmp_path, store=store, resume=agent_id)
    assert last.session.agent.resumable is None
