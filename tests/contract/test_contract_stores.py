"""What every store does, on disk or in memory (runtime.md 7, workspace.md 8)."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from basis_daemon.errors import LeaseUnavailable, NoSuchSession, StoreError
from basis_daemon.runtime.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.store.base import (
    AgentRecord,
    CallFinished,
    CallStarted,
    EntryAdded,
    LeafMoved,
    PromptAccepted,
    PromptWithdrawn,
    Store,
    TurnEnded,
    TurnStarted,
)
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.store.volatile import VolatileStore
from basis_daemon.runtime.transcript import Entry
from basis_protocol.events import Usage


@pytest.fixture(params=["files", "volatile"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = FileStore(tmp_path / "store") if request.param == "files" else VolatileStore()
    store.prepare()
    yield store
    store.close()


def record(agent_id: str = "agent-1", **fields: Any) -> AgentRecord:
    plain = {
        "runtime_identifier": "basis:/repo",
        "name": "n",
        "base_dir": "/repo",
        "provider": "p",
        "model": "m",
        "created_at": 1,
    }
    return AgentRecord(id=agent_id, **{**plain, **fields})


def entry(entry_id: str, parent: str | None, message: Message | None = None, **fields: Any) -> Entry:
    return Entry(id=entry_id, parent_id=parent, message=message or user(entry_id), **{"kind": "user_turn", **fields})


def prompt(turn_id: str) -> PromptAccepted:
    return PromptAccepted(turn_id=turn_id, message=user(f"do {turn_id}"), by={"client": "test"}, at_ms=7)


def written(store: Store, *appends: Any, agent_id: str = "agent-1") -> None:
    """Make a conversation of these appends and close it. A tuple is appended as one."""
    log = store.create(record(agent_id))
    for item in appends:
        log.append(*item) if isinstance(item, tuple) else log.append(item)
    log.close()


# --- reading back ----------------------------------------------------------------------------------------------------


def test_everything_said_reads_back_as_it_was_said(store: Store) -> None:
    """All blocks of a message, the details and the ids survive (AG-37, PV-41)."""
    said = [
        entry("e1", None, user("hello \N{WAVING HAND SIGN}", "\x00 and \u2028")),
        entry(
            "e2",
            "e1",
            Message("assistant", [Thinking("hm", signature="s"), Text("ok"), ToolUse("c", "ls", {"path": "."})]),
            kind="assistant_turn",
            turn_id="t",
            at_ms=5,
            message_id="m",
        ),
        entry(
            "e3",
            "e2",
            Message("user", [ToolResult("c", {"files": [1, None, 2.5]}, is_error=True)]),
            kind="tool_exchange",
            details={"c": {"kept": [True]}},
        ),
    ]
    written(store, *(EntryAdded(one) for one in said))

    found = store.peek("agent-1")

    assert list(found.transcript) == said
    assert found.record == record()


def test_a_conversation_with_nothing_in_it_reads_back_empty(store: Store) -> None:
    """The record alone makes a conversation (ST-7)."""
    written(store)

    found = store.peek("agent-1")

    assert (len(found.transcript), found.queued, found.interrupted, found.outcomes) == (0, [], None, {})


def test_what_is_read_back_shares_nothing_with_what_was_written(store: Store) -> None:
    """Changing a value after it was appended changes nothing in the store."""
    details = {"c": [1]}
    log = store.create(record())
    log.append(EntryAdded(entry("e1", None, details=details)))
    details["c"].append(2)
    log.close()

    assert store.peek("agent-1").transcript[0].details == {"c": [1]}


def test_names_that_are_not_utf_8_come_back_unchanged(store: Store) -> None:
    """Odd bytes of a path round-trip as surrogate escapes (workspace.md ST-10)."""
    odd = record(base_dir="/caf\udce9", runtime_identifier="basis:/caf\udce9", extra={"ratio": 0.5})
    log = store.create(odd)
    log.append(EntryAdded(entry("e1", None, user("a file named \udcff"))), prompt("t"))
    log.append(EntryAdded(entry("e2", "e1")))
    log.close()

    found = store.peek("agent-1")

    assert found.record == odd
    assert found.transcript[0].message.text() == "a file named \udcff"
    assert [one.turn_id for one in found.queued] == ["t"]
    assert [one.id for one in store.list("basis:/caf\udce9")] == ["agent-1"]


@pytest.mark.parametrize(
    "agent_id", ["../../escape", "/etc/passwd", "", ".hidden", "x-00", "a/b", "CON", "ümläut", "\udc80", "l" * 999]
)
def test_any_id_names_a_conversation_of_its_own(store: Store, agent_id: str) -> None:
    """Ids are opaque: none reaches out of the store or meets another (ST-11, ST-30)."""
    written(store, EntryAdded(entry("e1", None)), agent_id=agent_id)
    written(store)

    assert store.peek(agent_id).record.id == agent_id
    assert {one.id for one in store.list()} == {agent_id, "agent-1"}
    store.forget(agent_id)
    assert [one.id for one in store.list()] == ["agent-1"]


def test_something_that_cannot_be_stored_changes_nothing(store: Store) -> None:
    """An append is all or nothing, also when the fault is in a later record."""
    log = store.create(record())
    log.append(EntryAdded(entry("e1", None)))

    with pytest.raises(TypeError):
        log.append(prompt("t"), EntryAdded(entry("e2", "e1", details={"c": object()})))

    log.append(EntryAdded(entry("e3", "e1")))
    found = store.peek("agent-1")
    assert ([one.id for one in found.transcript], found.queued) == (["e1", "e3"], [])


# --- branches --------------------------------------------------------------------------------------------------------


def test_a_rollback_keeps_what_was_left_in_the_tree(store: Store) -> None:
    """The leaf moves back, a new branch grows, and the abandoned one can be returned to (AG-39)."""
    written(
        store,
        EntryAdded(entry("e1", None)),
        EntryAdded(entry("e2", "e1")),
        LeafMoved("e1"),
        EntryAdded(entry("e3", "e1")),
    )

    transcript = store.peek("agent-1").transcript

    assert [one.id for one in transcript] == ["e1", "e3"]
    assert transcript.move_to("e2") == 1
    assert [one.id for one in transcript] == ["e1", "e2"]


def test_a_conversation_can_be_emptied_without_losing_it(store: Store) -> None:
    """A leaf of `None` is an empty conversation; its entries stay reachable (AG-25)."""
    written(store, EntryAdded(entry("e1", None)), LeafMoved(None))

    transcript = store.peek("agent-1").transcript

    assert (len(transcript), transcript.leaf_id) == (0, None)
    assert transcript.get("e1") is not None


# --- prompts and turns -----------------------------------------------------------------------------------------------


def test_accepted_prompts_wait_in_the_order_they_came(store: Store) -> None:
    """What somebody was told is accepted is still there, but for what was withdrawn or has begun."""
    written(store, prompt("t1"), prompt("t2"), prompt("t3"), PromptWithdrawn(turn_id="t2"), TurnStarted(turn_id="t1"))

    found = store.peek("agent-1")

    assert found.queued == [prompt("t3")]
    assert found.interrupted == prompt("t1")


def test_a_turn_without_an_end_is_interrupted(store: Store) -> None:
    """The prompt of a turn cut short is offered to be carried on (AG-6, ST-21)."""
    begun = (TurnStarted(turn_id="t1"), EntryAdded(entry("e1", None)))
    written(store, prompt("t1"), begun)

    found = store.peek("agent-1")

    assert found.interrupted == prompt("t1")
    assert [one.id for one in found.transcript] == ["e1"]


def test_an_ended_turn_is_not_interrupted_and_its_outcome_is_known(store: Store) -> None:
    """`turn/wait` can be answered after a restart."""
    end = TurnEnded(turn_id="t1", status="ok", final_message="done", usage=Usage(input_tokens=3), at_ms=9)
    written(store, prompt("t1"), TurnStarted(turn_id="t1"), end)

    found = store.peek("agent-1")

    assert (found.interrupted, found.outcomes) == (None, {"t1": end})


def test_a_failed_turn_that_is_carried_on_is_interrupted_again_when_cut_short(store: Store) -> None:
    """The prompt is found again although its turn had ended once (AG-6)."""
    failed = TurnEnded(turn_id="t1", status="error", error="no network")
    again = TurnStarted(turn_id="t1", resumed=True)
    written(store, prompt("t1"), TurnStarted(turn_id="t1"), failed, again)

    found = store.peek("agent-1")

    assert (found.interrupted, found.outcomes) == (prompt("t1"), {})


def test_at_least_the_newest_64_outcomes_are_kept_in_order(store: Store) -> None:
    """Older ones are dropped, so that loading costs no memory for them."""
    log = store.create(record())
    for number in range(100):
        log.append(TurnEnded(turn_id=f"t{number}", status="ok"))
    log.close()

    assert list(store.peek("agent-1").outcomes) == [f"t{number}" for number in range(36, 100)]


# --- the round in flight ---------------------------------------------------------------------------------------------

CALLS = entry("e2", "e1", assistant(ToolUse("a", "ls", {}), ToolUse("b", "ls", {})), kind="assistant_turn")
IN_FLIGHT = (
    prompt("t1"),
    (TurnStarted(turn_id="t1"), EntryAdded(entry("e1", None))),
    EntryAdded(CALLS),
    CallStarted(turn_id="t1", tool_use_id="a"),
    CallFinished(turn_id="t1", tool_use_id="a", content="done", details={"n": 1}),
    CallStarted(turn_id="t1", tool_use_id="b"),
)


def test_calls_of_the_round_in_flight_are_told_apart(store: Store) -> None:
    """One call is done and keeps its result; of the other nobody knows how far it got."""
    written(store, *IN_FLIGHT)

    found = store.peek("agent-1")

    assert found.started_calls == {"a", "b"}
    assert found.finished_calls == {"a": IN_FLIGHT[4]}
    assert [call.id for call in found.transcript.pending_calls()] == ["a", "b"]


def test_a_resumed_turn_still_knows_its_finished_calls(store: Store) -> None:
    """A second kill, right after the turn was carried on, runs nothing twice."""
    written(store, *IN_FLIGHT, TurnStarted(turn_id="t1", resumed=True))

    assert set(store.peek("agent-1").finished_calls) == {"a"}


@pytest.mark.parametrize(
    "after",
    [
        EntryAdded(entry("e3", "e2", Message("user", [ToolResult("a", 1), ToolResult("b", 2)]), kind="tool_exchange")),
        LeafMoved("e1"),
        TurnEnded(turn_id="t1", status="cancelled"),
        (prompt("t2"), TurnStarted(turn_id="t2")),
    ],
    ids=["results committed", "rolled back", "turn ended", "another turn"],
)
def test_calls_are_forgotten_once_their_round_is_over(store: Store, after: Any) -> None:
    """Providers reuse call ids: an old outcome must not stand in for a new call."""
    written(store, *IN_FLIGHT, after)

    found = store.peek("agent-1")

    assert (found.started_calls, found.finished_calls) == (frozenset(), {})


# --- one writer ------------------------------------------------------------------------------------------------------


def test_a_conversation_is_open_once(store: Store) -> None:
    """The loser is told that it is open elsewhere, and may open it after `close` (ST-19, ST-30)."""
    log = store.create(record())

    with pytest.raises(LeaseUnavailable) as refused:
        store.open("agent-1")
    assert refused.value.is_open_elsewhere
    assert "agent-1" in str(refused.value)

    log.close()
    store.open("agent-1")[1].close()


def test_a_forgotten_log_lets_go_of_the_conversation(store: Store) -> None:
    """Garbage-collecting an agent releases its lease (AG-7)."""
    log = store.create(record())
    log.append(prompt("t"))
    store.close()  # what is on its way to the disk keeps the log alive until it is there

    del log
    gc.collect()

    conversation, log = store.open("agent-1")
    assert len(conversation.queued) == 1
    log.close()


def test_a_closed_log_takes_nothing_more(store: Store) -> None:
    """`close` is idempotent and final."""
    log = store.create(record())
    log.close()
    log.close()

    with pytest.raises(StoreError):
        log.append(prompt("t"))
    with pytest.raises(StoreError):
        log.save(record(name="late"))
    assert store.peek("agent-1").queued == []
    assert store.peek("agent-1").record.name == "n"


def test_an_opened_conversation_goes_on_where_it_stood(store: Store) -> None:
    """Appends of several openings form one conversation."""
    written(store, EntryAdded(entry("e1", None)))
    for number in (2, 3):
        conversation, log = store.open("agent-1")
        log.append(EntryAdded(entry(f"e{number}", conversation.transcript.leaf_id)))
        log.close()

    assert [one.id for one in store.peek("agent-1").transcript] == ["e1", "e2", "e3"]


def test_peeking_disturbs_nobody(store: Store) -> None:
    """A reader sees what was appended while the writer goes on."""
    log = store.create(record())
    log.append(EntryAdded(entry("e1", None)))

    assert len(store.peek("agent-1").transcript) == 1

    log.append(EntryAdded(entry("e2", "e1")))
    log.append()
    assert len(store.peek("agent-1").transcript) == 2
    log.close()


@pytest.mark.anyio
async def test_syncing_leaves_everything_in_place(store: Store) -> None:
    """`sync` may be called at any time, by many, and after `close`."""
    log = store.create(record())
    await log.sync()
    log.append(EntryAdded(entry("e1", None)))
    log.save(record(name="kept"))
    await log.sync()
    await log.sync()
    log.close()
    await log.sync()

    found = await asyncio.to_thread(store.peek, "agent-1")
    assert (found.record.name, len(found.transcript)) == ("kept", 1)


# --- the record and the list -----------------------------------------------------------------------------------------


def test_a_saved_record_replaces_the_one_before(store: Store) -> None:
    """Readers in any place see the newest, whole (ST-8)."""
    log = store.create(record())
    changed = record(name="renamed", turns=2, usage=Usage(output_tokens=5), config={"system": "s"}, effort="high")
    log.save(changed)

    assert store.record("agent-1") == changed
    assert store.list() == [changed]
    log.close()
    assert store.open("agent-1")[0].record == changed


def test_an_unknown_conversation_is_named_as_such(store: Store) -> None:
    """Reading, opening and asking for what isn't there creates nothing."""
    for read in (store.open, store.peek):
        with pytest.raises(NoSuchSession):
            read("agent-9")
    assert store.record("agent-9") is None
    assert list(store.list()) == []


def test_creating_what_exists_is_refused_and_changes_nothing(store: Store) -> None:
    """Open or closed, a conversation is never begun anew."""
    written(store, prompt("t"))

    with pytest.raises(StoreError, match="exists"):
        store.create(record(name="other"))

    found, log = store.open("agent-1")
    assert (found.record.name, len(found.queued)) == ("n", 1)
    with pytest.raises(StoreError):
        store.create(record())
    log.close()


def test_the_list_shows_the_most_recently_used_first(store: Store) -> None:
    """Unknown times come last, and within one second the later save comes first (ST-25)."""
    for agent_id, updated_at in (("old", 10), ("unknown", 0), ("new", 30), ("tie-1", 20), ("tie-2", 20)):
        store.create(record(agent_id, updated_at=updated_at)).close()

    assert [one.id for one in store.list()] == ["new", "tie-2", "tie-1", "old", "unknown"]


def test_the_list_holds_conversations_of_one_identifier(store: Store) -> None:
    """Identifiers are compared verbatim; subagents and teammates stay out (ST-6, ST-26)."""
    for agent_id, fields in {
        "mine": {},
        "other": {"runtime_identifier": "basis:/repo/"},
        "sub": {"kind": "subagent", "parent": "mine"},
        "mate": {"kind": "teammate"},
    }.items():
        store.create(record(agent_id, **fields)).close()

    assert [one.id for one in store.list("basis:/repo")] == ["mine"]
    assert {one.id for one in store.list()} == {"mine", "other"}
    assert list(store.list("basis:/nowhere")) == []
    assert store.record("sub") is not None


# --- forgetting ------------------------------------------------------------------------------------------------------


def test_a_forgotten_conversation_is_gone_and_its_id_begins_anew(store: Store) -> None:
    """Nothing of the old one shows up in a new one of the same id (ST-27)."""
    written(store, prompt("t"), EntryAdded(entry("e1", None)))

    store.forget("agent-1")
    store.forget("agent-1")

    assert store.record("agent-1") is None
    assert list(store.list()) == []
    written(store)
    found = store.peek("agent-1")
    assert (found.queued, len(found.transcript)) == ([], 0)


def test_an_open_conversation_is_not_forgotten(store: Store) -> None:
    """It would write itself back: whoever holds it has to close it first (ST-27)."""
    log = store.create(record())

    with pytest.raises(LeaseUnavailable):
        store.forget("agent-1")

    log.append(prompt("t"))
    log.close()
    assert len(store.peek("agent-1").queued) == 1


def test_stores_agree_on_what_a_log_means(tmp_path: Path) -> None:
    """One list of appends gives the same conversation in memory and on disk."""
    appends: list[Callable[[Any], None]] = [
        lambda log: log.append(*(one for part in IN_FLIGHT for one in (part if isinstance(part, tuple) else (part,)))),
        lambda log: log.append(prompt("t2"), prompt("t3")),
        lambda log: log.append(PromptWithdrawn(turn_id="t3")),
        lambda log: log.save(record(name="later")),
    ]
    found: list[Any] = []
    for store in (FileStore(tmp_path / "store"), VolatileStore()):
        log = store.create(record())
        for append in appends:
            append(log)
        log.close()
        loaded = msgspec.structs.asdict(store.peek("agent-1"))
        found.append({**loaded, "transcript": list(loaded["transcript"])})
        store.close()

    assert found[0] == found[1]
