"""Going back in a conversation, and forward again (runtime.md 3.10)."""

import asyncio
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.errors import Busy, ProviderNotFound
from basis_daemon.runtime.artifacts import CompactionSummary, DelegationArtifact, DelegationEdge
from basis_daemon.runtime.messages import Message, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.providers.base import ModelInfo
from basis_daemon.runtime.providers.errors import InvalidRequest
from basis_daemon.runtime.providers.scripted import ScriptedCall, ScriptedProvider, failure, text, tool_calls
from basis_daemon.runtime.store.base import AgentRecord, EntryAdded
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.transcript import (
    BrokenChain,
    Entry,
    EntryKind,
    NotABranchPoint,
    Transcript,
    UnknownEntry,
    new_entry_id,
)
from basis_protocol.events import Branched
from support.conversations import Conversation, Counter, new_conversation, roles

pytestmark = pytest.mark.anyio


def texts(conversation: Conversation) -> list[str]:
    return [message.text() for message in conversation.session.agent.transcript.messages()]


async def test_a_conversation_branches_and_both_ways_can_be_gone_on(
    model: ScriptedProvider, tmp_path: Path, store: FileStore
) -> None:
    """AG-39, BR-1, BR-2, D-43: nothing is copied or lost, watchers are told, and it is so after a restart."""
    for word in ("A", "B", "C"):
        model.push(text(word))
    conversation = new_conversation(model, tmp_path, store=store)
    session, transcript = conversation.session, conversation.session.agent.transcript
    await conversation.say("a")
    fork = transcript.leaf_id
    await conversation.say("b")
    first_way = transcript.leaf_id

    assert session.branch_from(fork, emit=conversation.events.append) == 2
    await conversation.say("c")
    second_way = transcript.leaf_id

    assert texts(conversation) == ["a", "A", "c", "C"]
    assert [entry.message.text() for entry in transcript.archived()] == ["b", "B"]
    assert [entry.message.text() for entry in transcript.children(fork)] == ["b", "c"]
    assert conversation.seen(Branched)[0] == Branched(entry_id=fork, abandoned_entries=2)
    for _ in range(2):
        assert session.branch_from(first_way) == 2 and texts(conversation) == ["a", "A", "b", "B"]
        assert session.branch_from(second_way) == 2
    assert len(list(transcript.tree())) == 6
    assert session.agent.record.messages == 4

    await asyncio.to_thread(session.close)
    again = await asyncio.to_thread(new_conversation, model, tmp_path, store=store, resume=session.agent.id)
    assert texts(again) == ["a", "A", "c", "C"] and len(again.session.agent.transcript.archived()) == 2
    assert again.session.branch_from(None) == 4 and texts(again) == []


async def test_where_no_branch_can_begin_nothing_changes(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-40, D-44: an unknown entry, and the middle of an exchange, which would orphan a call."""
    model.push(tool_calls(ScriptedCall("bump", {"n": 1}), saying="counting"))
    model.push(text("done"))
    conversation = new_conversation(model, tmp_path, counter.tool())
    await conversation.say("go")
    _, call, exchange, leaf = conversation.session.agent.transcript

    with pytest.raises(UnknownEntry):
        conversation.session.branch_from("entry-0-0")
    with pytest.raises(NotABranchPoint, match="results"):
        conversation.session.branch_from(call.id)
    assert conversation.session.agent.transcript.leaf is leaf
    assert conversation.session.branch_from(exchange.id) == 1


async def test_a_running_turn_can_not_be_branched_under(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-40."""
    counter.leave.clear()
    model.push(tool_calls(ScriptedCall("bump", {"n": 1})))
    model.push(text("done"))
    conversation = new_conversation(model, tmp_path, counter.tool())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(conversation.say, "go")
        await counter.entered.wait()
        with pytest.raises(Busy):
            conversation.session.branch_from(None)
        counter.leave.set()
    assert len(conversation.session.agent.transcript) == 4


async def test_a_broken_chain_is_named(tmp_path: Path) -> None:
    """AG-40, D-43: not taken for a short conversation."""
    transcript = Transcript([Entry(id="b", parent_id="a", kind="user_turn", message=user("b"))])
    transcript.check_branch_point("b")
    with pytest.raises(BrokenChain):
        transcript.move_to("b")


def entry(kind: EntryKind, message: Message, **fields: object) -> Entry:
    return Entry(kind=kind, message=message, **fields)  # type: ignore[arg-type]


ARTIFACT = DelegationArtifact(kind="subagent", agent_id="agent-2", agent_name="x::task", status="requested")
EDGE = DelegationEdge(kind="subagent", local_agent_id="agent-1", remote_agent_id="agent-2")


@pytest.mark.parametrize("kind", ["delegation_request", "delegation_result"])
def test_an_edge_between_conversations_is_no_branch_point(kind: EntryKind) -> None:
    """BR-2."""
    transcript = Transcript()
    transcript.append(Entry(id="a", kind="user_turn", message=user("a")))
    transcript.append(Entry(id="b", parent_id="a", kind=kind, message=user("b"), delegation=ARTIFACT, edge=EDGE))
    with pytest.raises(NotABranchPoint, match="handed on"):
        transcript.check_branch_point("b")


def test_rare_entries_keep_all_they_carry() -> None:
    """AG-37, AG-38, AG-42: written and read back; a subagent's note is not sent to the model twice (AG-43)."""
    summary = CompactionSummary(goal="g", decisions=["d"], files_touched=["f"])
    for one in (
        entry("delegation_request", user("do it"), id="a", delegation=ARTIFACT, edge=EDGE),
        entry("compaction_summary", user("so far"), id="b", summary=summary),
        entry("canonical_context", user("ctx"), id="c", details={"x": {"y": [1]}}),
    ):
        assert msgspec.json.decode(msgspec.json.encode(one), type=Entry) == one
        assert one.is_sent == (one.edge is None)


async def test_a_log_without_ids_is_one_line_of_entries(store: FileStore) -> None:
    """AG-41: they get the same ids at every load, since what is said later refers to them."""
    record = AgentRecord(
        id="agent-old", runtime_identifier="basis:/x", name="n", base_dir="/x", provider="p", model="m"
    )
    log = await asyncio.to_thread(store.create, record)
    log.append(EntryAdded(entry("user_turn", user("a"))), EntryAdded(entry("assistant_turn", assistant("b"))))
    await asyncio.to_thread(log.close)

    loaded, log = await asyncio.to_thread(store.open, "agent-old")
    assert [message.text() for message in loaded.transcript.messages()] == ["a", "b"]
    said = Entry(id=new_entry_id(), parent_id=loaded.transcript.leaf_id, kind="user_turn", message=user("c"))
    log.append(EntryAdded(said))
    await asyncio.to_thread(log.close)

    again = (await asyncio.to_thread(store.peek, "agent-old")).transcript
    assert [message.text() for message in again.messages()] == ["a", "b", "c"]
    assert again[0].id == loaded.transcript[0].id and again[1].parent_id == again[0].id


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(0, 3)), max_size=25))
def test_what_a_provider_is_sent_is_always_valid(steps: list[tuple[bool, int, int]]) -> None:
    """AG-29: whatever is said and wherever one branches, every call is followed by its result."""
    transcript = Transcript()

    def add(kind: EntryKind, message: Message) -> None:
        transcript.append(Entry(id=new_entry_id(), parent_id=transcript.leaf_id, kind=kind, message=message))

    for goes_back, at, calls in steps:
        entries = list(transcript.tree())
        if goes_back and entries:
            target = entries[at % len(entries)].id
            try:
                transcript.check_branch_point(target)
            except NotABranchPoint:
                continue
            transcript.move_to(target)
        else:
            add("user_turn", user("go"))
            uses = [ToolUse(f"{len(entries)}-{number}", "t", {}) for number in range(calls)]
            add("assistant_turn", assistant("ok", *uses))
            if uses:
                add("tool_exchange", Message("user", [ToolResult(use.id, "r") for use in uses]))
        messages = transcript.messages()
        assert messages == [one.message for one in transcript]
        for number, message in enumerate(messages):
            if uses := message.tool_uses():
                results = [block for block in messages[number + 1].content if isinstance(block, ToolResult)]
                assert [block.tool_use_id for block in results] == [use.id for use in uses]


async def test_a_failed_turn_is_carried_on_or_left_for_another(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-6, AG-49: both ways are open; once carried on with success there is nothing left to resume."""
    for turn in (failure(InvalidRequest("no")), text("new"), failure(InvalidRequest("no")), text("resumed")):
        model.push(turn)
    conversation = new_conversation(model, tmp_path)
    agent = conversation.session.agent

    await conversation.say("one")
    assert (await conversation.say("two")).final_message == "new" and agent.resumable is None
    await conversation.say("three")
    prompt = agent.resumable
    assert prompt is not None
    assert (await conversation.run(prompt, resumed=True)).final_message == "resumed" and agent.resumable is None
    assert roles(conversation) == ["user_turn", "assistant_turn"] * 2


async def test_another_model_is_written_down_at_once(model: ScriptedProvider, tmp_path: Path, store: FileStore) -> None:
    """AG-5: also of another provider; one that is not there changes nothing."""
    model.push(text("a"))
    other = ScriptedProvider([text("b")], id="other")
    conversation = new_conversation(model, tmp_path, store=store)
    session = conversation.session
    await conversation.say("go")

    with pytest.raises(ProviderNotFound):
        session.set_model(ModelInfo("m", "nobody"))
    assert session.agent.record.model == "scripted"
    session.set_model(ModelInfo("m2", "other"), provider=other)
    record = await asyncio.to_thread(store.record, session.agent.id)
    assert record is not None and (record.provider, record.model) == ("other", "m2")
    assert (await conversation.say("again")).final_message == "b"
    assert other.recorded_requests()[0].model == "m2"
