"""PV-48 and what compatible servers make of the chat/completions wire."""

from typing import Any

import pytest

from basis_daemon.runtime.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.providers.base import Effort, Request, TokenUsage, ToolDefinition
from basis_daemon.runtime.providers.errors import HttpError, MalformedStream, ProviderError, StreamCut
from basis_daemon.runtime.providers.openai_chat import CHAT
from basis_daemon.runtime.providers.registry import chat_completions_definition, openai_definition
from basis_daemon.runtime.providers.streamed import StreamedMessage
from support.wire_streams import body, collected, stream

GATEWAY = chat_completions_definition("gateway", "https://gateway.example")


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(index: int | None, id: str | None = None, name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    entry = {key: value for key, value in (("index", index), ("id", id)) if value is not None}
    return chunk(tool_calls=[{**entry, "function": function}])


def answer(*events: Any, done: bool = True) -> StreamedMessage:
    return collected(stream(CHAT, GATEWAY, *events, done=done))


def sent(*messages: Message, **fields: Any) -> dict[str, Any]:
    return body(CHAT, GATEWAY, Request("m", list(messages), **fields))


# --- the request -----------------------------------------------------------------------------------------------------


def test_system_is_the_first_message_and_usage_is_asked_for() -> None:
    assert sent(user("hi"), system="Be brief.") == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_results_go_ahead_of_what_was_said_with_them() -> None:
    message = Message("user", [Text("and now?"), ToolResult("c1", "a"), ToolResult("c2", "b", is_error=True)])
    assert sent(message)["messages"] == [
        {"role": "tool", "tool_call_id": "c1", "content": "a"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: b"},
        {"role": "user", "content": "and now?"},
    ]


def test_reasoning_is_never_sent_back_and_empty_messages_are_left_out() -> None:
    """PV-42"""
    thought = Thinking("secret thoughts", signature="s", encrypted_content="e", id="rs_1")
    rows = sent(user("x"), Message("assistant", [thought]), Message("assistant", [thought, Text("yes")]))["messages"]
    assert rows == [{"role": "user", "content": "x"}, {"role": "assistant", "content": "yes"}]


def test_calls_without_text_have_null_content() -> None:
    (row,) = sent(assistant(ToolUse("c1", "read", {"path": "ä"})))["messages"]
    assert row["content"] is None
    assert row["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path":"ä"}'}}
    ]


def test_role_of_any_name_is_kept() -> None:
    """PV-4"""
    assert sent(Message("developer", [Text("x")]))["messages"] == [{"role": "developer", "content": "x"}]


def test_tools_have_their_schema_and_strictness_only_when_set() -> None:
    tools = [ToolDefinition("a", "A.", {"type": "object"}), ToolDefinition("b", "B.", {"type": "object"}, strict=True)]
    first, second = sent(user("x"), tools=tools)["tools"]
    assert first == {
        "type": "function",
        "function": {"name": "a", "description": "A.", "parameters": {"type": "object"}},
    }
    assert second["function"]["strict"] is True
    assert "tool_choice" not in sent(user("x"))


@pytest.mark.parametrize(
    ("effort", "on_wire"), [("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "high"), ("max", "high")]
)
def test_effort_beyond_high_is_clamped(effort: Effort, on_wire: str) -> None:
    """2.9"""
    assert sent(user("x"), effort=effort)["reasoning_effort"] == on_wire


def test_output_limit_has_the_name_the_server_knows() -> None:
    request = Request("m", [user("x")], max_output_tokens=5)
    assert body(CHAT, GATEWAY, request)["max_tokens"] == 5
    assert body(CHAT, openai_definition(), request)["max_completion_tokens"] == 5


# --- the stream ------------------------------------------------------------------------------------------------------


def test_stream_without_done_is_complete_once_it_gave_a_reason() -> None:
    """PV-48"""
    events = (chunk(content="a"), call(0, "c1", "ls", ""), chunk("tool_calls"))
    streamed = answer(*events, done=False)
    assert streamed.message().content == [Text("a"), ToolUse("c1", "ls", {})]


def test_stream_with_done_and_no_reason_is_complete() -> None:
    assert answer(chunk(content="a")).stop_reason == "end_turn"


def test_stream_with_neither_is_cut() -> None:
    with pytest.raises(StreamCut):
        answer(chunk(content="a"), done=False)
    with pytest.raises(StreamCut):
        answer(done=False)


def test_deltas_of_parallel_calls_may_alternate() -> None:
    streamed = answer(
        call(0, "c1", "read", '{"p":'), call(1, "c2", "ls", '{"q":'), call(0, None, None, "1}"), call(1, arguments="2}")
    )
    assert streamed.message().tool_uses() == [ToolUse("c1", "read", {"p": 1}), ToolUse("c2", "ls", {"q": 2})]


def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    """Some servers give every call the index 0, or none."""
    for index in (0, None):
        streamed = answer(call(index, "c1", "read", '{"p":1}'), call(index, "c2", "ls", '{"q":2}'))
        assert streamed.message().tool_uses() == [ToolUse("c1", "read", {"p": 1}), ToolUse("c2", "ls", {"q": 2})]


def test_id_repeated_in_every_delta_is_still_one_call() -> None:
    streamed = answer(call(0, "c1", "read", '{"p":'), call(0, "c1", None, "1}"))
    assert streamed.message().tool_uses() == [ToolUse("c1", "read", {"p": 1})]


def test_arguments_ahead_of_the_name_are_kept_for_it() -> None:
    streamed = answer(call(0, "c1", None, '{"p":'), call(0, None, "read", "1}"))
    assert streamed.message().tool_uses() == [ToolUse("c1", "read", {"p": 1})]


def test_call_without_an_id_is_given_one() -> None:
    first, second = answer(call(0, None, "read", "{}"), call(1, None, "ls", "{}")).message().tool_uses()
    assert first.id and second.id and first.id != second.id


def test_arguments_given_as_an_object_are_taken() -> None:
    assert answer(call(0, "c1", "read", {"p": 1})).message().tool_uses() == [ToolUse("c1", "read", {"p": 1})]


def test_calls_that_end_like_prose_are_still_calls() -> None:
    assert answer(call(0, "c1", "ls", "{}"), chunk("stop")).stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), ("eos", "eos")],
)
def test_reasons_have_one_vocabulary(reason: str, expected: str) -> None:
    assert answer(chunk(reason, content="a")).stop_reason == expected


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_in_either_field_is_a_thinking_block(field: str) -> None:
    """PV-42"""
    streamed = answer(chunk(**{field: "h"}), chunk(**{field: "m", "content": None}), chunk(content="yes"))
    assert streamed.message().content == [Thinking("hm"), Text("yes")]


def test_prose_after_a_call_is_a_block_of_its_own() -> None:
    streamed = answer(chunk(content="a"), call(0, "c1", "ls", "{}"), chunk(content="b"))
    assert streamed.message().content == [Text("a"), ToolUse("c1", "ls", {}), Text("b")]


def test_refusal_is_shown_as_text_and_named() -> None:
    streamed = answer(chunk(refusal="I won't."), chunk("stop"))
    assert streamed.message().text() == "I won't." and streamed.stop_reason == "refusal"


def test_usage_with_every_chunk_counts_once() -> None:
    """PV-19"""
    events = [{**chunk(content="a"), "usage": {"prompt_tokens": 5, "completion_tokens": n}} for n in (1, 2)]
    assert answer(*events).usage == TokenUsage(5, 2)


def test_missing_and_null_fields_are_tolerated() -> None:
    """PV-28"""
    events = ({"choices": None}, {"choices": []}, {"choices": [{"delta": None}]}, {"choices": [{}]}, {}, chunk("stop"))
    assert answer(*events).message().content == []


def test_unknown_fields_and_comments_are_ignored() -> None:
    """PV-16"""
    event = {**chunk(content="a", audio={"x": 1}), "obfuscation": "xyz", "x_groq": {"id": 1}}
    assert answer(b": OPENROUTER PROCESSING\n\n", event).message() == assistant("a")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "Upstream is down", "code": 502}, HttpError),
        ({"message": "Upstream is down", "type": "invalid_request_error"}, ProviderError),
        ("Upstream is down", ProviderError),
    ],
)
def test_error_object_ends_the_stream(error: Any, kind: type) -> None:
    """PV-16"""
    with pytest.raises(kind, match="Upstream is down"):
        answer(chunk(content="a"), {"error": error})


@pytest.mark.parametrize(
    "junk",
    [
        b"data: {oops\n\n",
        b"data: [1]\n\n",
        b'data: {"choices": "x"}\n\n',
        b"data:\n\n",
        b'data: {"a":' + b"[" * 100_000 + b"\n\n",
    ],
)
def test_event_that_does_not_fit_is_a_malformed_stream(junk: bytes) -> None:
    with pytest.raises(MalformedStream):
        answer(junk)
