"""The conversation as a tree with one active path (runtime.md 3.10)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.messages import Message, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.transcript import BrokenChain, Entry, Transcript, UnknownEntry, new_entry_id


def entry(entry_id: str, parent: str | None = None, message: Message | None = None, kind: str = "user_turn") -> Entry:
    return Entry(id=entry_id, parent_id=parent, kind=kind, message=message or user(entry_id))  # type: ignore[arg-type]


def ids(transcript: Transcript) -> list[str]:
    return [one.id for one in transcript]


@pytest.fixture
def branched() -> Transcript:
    """a – b – c, and d beside c; d is the leaf."""
    return Transcript([entry("a"), entry("b", "a"), entry("c", "b"), entry("d", "b")], leaf="d")


def test_an_empty_conversation_has_no_leaf() -> None:
    transcript = Transcript()
    assert (len(transcript), transcript.leaf, transcript.leaf_id, transcript.messages()) == (0, None, None, [])
    assert transcript.pending_calls() == []


def test_entries_follow_one_another() -> None:
    """What does not continue the leaf is refused and changes nothing."""
    transcript = Transcript()
    transcript.append(entry("a"))
    transcript.append(entry("b", "a"))

    for wrong in (entry("c"), entry("c", "a"), entry("c", "c"), entry("a", "b")):
        with pytest.raises(ValueError, match=f"entry {wrong.id}"):
            transcript.append(wrong)

    assert ids(transcript) == ["a", "b"]
    assert transcript[-1] is transcript.leaf
    assert transcript.get("c") is None


def test_branches_share_their_beginning_and_can_be_gone_to_and_fro(branched: Transcript) -> None:
    """The number of entries that left the path is told; the tree never grows by it (AG-39)."""
    assert ids(branched) == ["a", "b", "d"]
    for _ in range(3):
        assert branched.move_to("c") == 1
        assert ids(branched) == ["a", "b", "c"]
        assert branched.move_to("d") == 1
    assert branched.move_to("a") == 2
    assert branched.move_to("d") == 0
    assert branched.move_to(None) == 3
    assert ids(branched) == []
    assert sorted(one.id for one in branched.tree()) == ["a", "b", "c", "d"]


def test_going_to_an_unknown_entry_changes_nothing(branched: Transcript) -> None:
    """It is named (AG-40)."""
    with pytest.raises(UnknownEntry, match="no entry z"):
        branched.move_to("z")
    assert ids(branched) == ["a", "b", "d"]


@pytest.mark.parametrize(
    "entries", [[entry("b", "a")], [entry("b", "b")], [entry("a", "b"), entry("b", "a")]], ids=["gap", "self", "cycle"]
)
def test_a_broken_chain_is_refused(entries: list[Entry]) -> None:
    """Neither a hang nor a shorter conversation, and the path stays as it was (AG-40, D-43)."""
    with pytest.raises(BrokenChain, match="entry"):
        Transcript(entries, leaf="b")

    transcript = Transcript(entries)
    with pytest.raises(BrokenChain, match="entry"):
        transcript.move_to("b")
    assert ids(transcript) == []


def test_calls_wait_until_their_results_stand() -> None:
    """Pending calls come in call order (AG-29)."""
    transcript = Transcript()
    transcript.append(entry("a"))
    transcript.append(
        entry("b", "a", assistant("on it", ToolUse("1", "ls", {}), ToolUse("2", "ls", {})), "assistant_turn")
    )
    assert [call.id for call in transcript.pending_calls()] == ["1", "2"]

    done = Message("user", [ToolResult("1", "x"), ToolResult("2", "y", is_error=True)])
    transcript.append(entry("c", "b", done, "tool_exchange"))

    assert transcript.pending_calls() == []
    assert {id: result.content for id, result in transcript.results().items()} == {"1": "x", "2": "y"}
    assert transcript.messages()[-1] is done


def test_the_last_of_two_entries_of_one_id_counts() -> None:
    """As a log says it (ST-9)."""
    transcript = Transcript([entry("a"), entry("a", None, user("again"))], leaf="a")
    assert transcript[0].message.text() == "again"


def test_ids_have_their_form_and_are_unique() -> None:
    """`entry-<hex>-<hex>` (AG-37)."""
    made = {new_entry_id() for _ in range(2000)}
    assert len(made) == 2000
    assert all(re.fullmatch(r"entry-[0-9a-f]+-[0-9a-f]+", one) for one in made)


@given(st.lists(st.integers(-1, 30), max_size=30))
def test_any_walk_through_the_tree_gives_the_path_its_leaf_has(steps: list[int]) -> None:
    """Appending (-1) and moving in any order: the path is always the leaf's ancestors, root first."""
    transcript = Transcript()
    entries: list[Entry] = []
    for step in steps:
        if step < 0 or step >= len(entries):
            entries.append(entry(f"e{len(entries)}", transcript.leaf_id))
            transcript.append(entries[-1])
        else:
            before = set(ids(transcript))
            left = transcript.move_to(f"e{step}")
            assert left == len(before - set(ids(transcript)))
        assert ids(transcript) == ids(Transcript(entries, leaf=transcript.leaf_id))
