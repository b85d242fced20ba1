"""A message is encoded once, whatever becomes of the conversation; and what is kept is bounded."""

import gc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.messages import Message, Text, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.providers.base import Request
from basis_daemon.runtime.providers.encoded import EncodedMessages, Shelf, array_body, joined
from basis_daemon.runtime.providers.openai_chat import CHAT
from basis_daemon.runtime.providers.openai_responses import RESPONSES
from basis_daemon.runtime.providers.registry import openai_definition


class Counting:
    """Encodes, and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, message: Message) -> bytes:
        self.count += 1
        return message.text().encode()


def test_only_what_is_new_is_encoded() -> None:
    history, encode, messages = EncodedMessages(), Counting(), [user(str(n)) for n in range(100)]
    assert joined(history.of(messages, encode, 1)) == b",".join(b"%d" % n for n in range(100))
    for n in range(100, 110):
        messages.append(user(str(n)))
        assert history.of(messages, encode, 1)[-1] == b"%d" % n
    assert encode.count == 110


def test_another_setting_encodes_everything_anew() -> None:
    history, encode, messages = EncodedMessages(), Counting(), [user("a"), user("b")]
    for setting in ("m", "m", "another", "m"):
        history.of(messages, encode, setting)
    assert encode.count == 6


def test_branch_keeps_what_it_has_in_common() -> None:
    history, encode, messages = EncodedMessages(), Counting(), [user(str(n)) for n in range(10)]
    history.of(messages, encode, None)
    assert list(history.of([*messages[:6], user("x")], encode, None)) == [b"0", b"1", b"2", b"3", b"4", b"5", b"x"]
    assert encode.count == 11
    assert list(history.of(messages[:2], encode, None)) == [b"0", b"1"] and encode.count == 11


def test_equal_message_that_is_another_object_is_not_taken_for_the_same() -> None:
    """`1`, `1.0` and `True` are equal, and written differently."""
    history, encode = EncodedMessages(), Counting()
    history.of([user("a")], encode, None)
    history.of([user("a")], encode, None)
    assert encode.count == 2


@given(st.data())
def test_body_is_the_same_with_and_without_what_was_kept(data: st.DataObject) -> None:
    """Through any turns, rollbacks, branches and changes of model, on both wires."""
    kept = [(RESPONSES, EncodedMessages()), (CHAT, EncodedMessages())]
    messages: list[Message] = []
    for number in range(data.draw(st.integers(1, 6))):
        messages = messages[: data.draw(st.integers(0, len(messages)))]
        for _ in range(data.draw(st.integers(1, 3))):
            messages.append(data.draw(st.sampled_from(WORDS))(number))
        request = Request(data.draw(st.sampled_from(["m", "n"])), messages, system="Be brief.")
        for wire, history in kept:
            expected = wire.build_body(request, openai_definition(), EncodedMessages())
            assert wire.build_body(request, openai_definition(), history) == expected
            assert msgspec.json.decode(expected)


WORDS: list[Any] = [
    lambda n: user(f"question {n}"),
    lambda n: assistant(f"answer {n}"),
    lambda n: assistant(ToolUse(f"c{n}", "read", {"path": "ä"})),
    lambda n: Message("user", [ToolResult(f"c{n}", {"n": n}), Text("and?")]),
    lambda n: Message("assistant", []),
]


def test_conversations_that_were_quiet_longest_are_dropped_first() -> None:
    shelf = Shelf(max_bytes=10)
    encode = Counting()
    one, two, three = (EncodedMessages(shelf) for _ in range(3))
    messages = [user("12345")]
    for history in (one, two, one, three):
        history.of(messages, encode, None)
    assert encode.count == 3
    one.of(messages, encode, None)
    assert encode.count == 3
    two.of(messages, encode, None)
    assert encode.count == 4


def test_conversation_larger_than_the_bound_is_kept_while_it_is_the_only_one() -> None:
    encode, history, messages = Counting(), EncodedMessages(Shelf(max_bytes=3)), [user("12345")]
    history.of(messages, encode, None)
    history.of([*messages, user("6")], encode, None)
    assert encode.count == 2


def test_conversation_that_ended_counts_no_more() -> None:
    shelf, encode, messages = Shelf(max_bytes=10), Counting(), [user("12345")]
    ended, kept = EncodedMessages(shelf), EncodedMessages(shelf)
    kept.of(messages, encode, None)
    ended.of(messages, encode, None)
    del ended
    gc.collect()
    EncodedMessages(shelf).of(messages, encode, None)
    kept.of(messages, encode, None)
    assert encode.count == 3


@pytest.mark.parametrize("items", [[], [b""], [b"", b"1", b"", b"2"]])
def test_items_are_joined_without_gaps(items: list[bytes]) -> None:
    assert msgspec.json.decode(b"[" + joined(items) + b"]") == [int(item) for item in items if item]


@pytest.mark.parametrize("items", [[], [b""], [b"1"], [b"", b"1", b"", b"2", b""]])
def test_body_around_items_is_whole_json(items: list[bytes]) -> None:
    assert msgspec.json.decode(array_body(b'{"a":[', items, b"]}")) == {"a": [int(item) for item in items if item]}
