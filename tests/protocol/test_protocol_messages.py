"""What every message type keeps to: camelCase names, leniency towards newer peers, strictness about known fields."""

import json
import re

import msgspec
import pytest

from basis_protocol import asks, content, events, lifecycle, sessions
from codegen.reading import protocol

STRUCTS = {struct.name: struct for struct in protocol().structs}


def test_field_names_on_the_wire_are_camel_case() -> None:
    names = {field.name for struct in STRUCTS.values() for field in struct.fields}

    assert {name for name in names if not re.fullmatch(r"[a-z][a-zA-Z0-9]*", name)} == set()


def test_event_types_are_snake_case_and_unique() -> None:
    tags = [STRUCTS[name].tag for name in protocol().events]

    assert all(tag is not None and re.fullmatch(r"[a-z]+(_[a-z]+)*", tag) for tag in tags)
    assert len(set(tags)) == len(tags)


def test_unknown_fields_are_ignored() -> None:
    """Both sides ignore what they don't know, always, at every depth."""
    text = b'{"sessionId":"s","input":[{"type":"text","text":"hi","mood":"good"}],"futureField":{"a":[1]}}'

    params = msgspec.json.decode(text, type=sessions.SessionPromptParams)

    assert params == sessions.SessionPromptParams(session_id="s", input=[content.TextBlock(text="hi")])


def test_unknown_words_of_an_open_list_are_accepted() -> None:
    text = b'{"kind":"daydreaming","since":"2026-01-31T12:00:00.000Z","detail":"?"}'

    assert msgspec.json.decode(text, type=events.SessionState).kind == "daydreaming"


def test_a_closed_word_must_be_one_of_its_list() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.decision"):
        msgspec.json.decode(b'{"askId":"a","decision":"maybe"}', type=asks.AskAnswerParams)


def test_an_event_of_a_type_nobody_knows_is_none() -> None:
    assert events.decode_event(b'{"type":"dreamt","text":"x"}') is None


def test_an_event_that_does_not_validate_is_none() -> None:
    assert events.decode_event(b'{"type":"assistant_delta","text":7}') is None


def test_a_known_event_with_fields_from_the_future_is_read() -> None:
    event = events.decode_event(b'{"type":"assistant_delta","text":"x","colour":"red"}')

    assert event == events.AssistantDelta(text="x")


def test_fields_that_hold_their_default_are_left_out() -> None:
    encoded = json.loads(msgspec.json.encode(sessions.SessionPromptParams(session_id="s", input=[])))

    assert encoded == {"sessionId": "s", "input": []}


def test_counts_are_written_even_when_they_are_zero() -> None:
    """Usage and what a client can do are read by field: a missing zero would be a guess."""
    assert json.loads(msgspec.json.encode(events.Usage()))["inputTokens"] == 0
    assert json.loads(msgspec.json.encode(lifecycle.ClientCan()))["approve"] is False


def test_a_missing_field_is_named_by_its_wire_name() -> None:
    with pytest.raises(msgspec.ValidationError, match="sessionId"):
        msgspec.json.decode(b'{"title":"x"}', type=sessions.SessionRenameParams)


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (sessions.SessionPromptParams, b'{"sessionId":"s","input":[]}'),
        (sessions.SessionListParams, b'{"limit":0}'),
        (sessions.SessionHistoryParams, b'{"sessionId":"s","limit":1001}'),
        (sessions.TurnWaitParams, b'{"sessionId":"s","turnId":"t","timeoutMs":-1}'),
        (sessions.Bounds, b'{"deadlineMs":0}'),
        (sessions.SessionRenameParams, b'{"sessionId":"s","title":""}'),
        (sessions.SessionAttachParams, b'{"sessionId":"s","afterSeq":-1}'),
        (content.Position, b'{"line":-1}'),
    ],
)
def test_a_value_out_of_its_bounds_is_refused(cls: type, text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=cls)


def test_messages_are_values() -> None:
    """Frozen and compared by content: one event can be given to twenty watchers."""
    event = events.AssistantDelta(text="x")

    with pytest.raises(AttributeError):
        event.text = "y"  # type: ignore[misc]
    assert event == events.AssistantDelta(text="x")


def test_usage_adds_up_field_by_field() -> None:
    """(EV-4) The sum of the parts; the total is input and output, cache counts are inside input."""
    one = events.Usage(input_tokens=10, output_tokens=2, cache_read_tokens=8, reasoning_tokens=1, thoughts_tokens=4)
    both = one + events.Usage(input_tokens=1, output_tokens=1, cache_creation_tokens=3)

    assert both == events.Usage(
        input_tokens=11,
        output_tokens=3,
        cache_read_tokens=8,
        cache_creation_tokens=3,
        reasoning_tokens=1,
        thoughts_tokens=4,
    )
    assert both.total_tokens == 14
