"""2.7 and 2.8: the Responses wire, as the vendor and as compatible servers speak it."""

from typing import Any

import pytest

from basis_daemon.runtime.messages import Message, Provenance, Text, Thinking, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.providers.base import Effort, Request, TokenUsage, ToolDefinition
from basis_daemon.runtime.providers.errors import MalformedStream, ProviderError, RetryableError, StreamCut
from basis_daemon.runtime.providers.openai_responses import RESPONSES
from basis_daemon.runtime.providers.registry import openai_definition, openrouter_definition
from basis_daemon.runtime.providers.streamed import StreamedMessage
from support.wire_streams import body, collected, stream

OPENAI = openai_definition()
HERE = Provenance("openai", "m", "open_ai_encrypted")
SEALED = Thinking("hm", encrypted_content="gAAA", id="rs_1", provenance=HERE)


def sent(*messages: Message, **fields: Any) -> dict[str, Any]:
    return body(RESPONSES, OPENAI, Request("m", list(messages), **fields))


def event(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{type}", "output_index": 0, **fields}


def completed(*output: Any, **fields: Any) -> dict[str, Any]:
    return event("completed", response={"id": "resp_1", "model": "m", "output": list(output), **fields})


def answer(*events: Any) -> StreamedMessage:
    return collected(stream(RESPONSES, OPENAI, *events))


def message_item(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": text}], **fields}


def call_item(arguments: str = "{}", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": arguments, **fields}


def reasoning_item(text: str = "", **fields: Any) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "id": "rs_1", "summary": summary, **fields}


# --- the request -----------------------------------------------------------------------------------------------------


def test_conversation_is_replayed_and_nothing_stored() -> None:
    """PV-31"""
    assert sent(user("hi"), assistant("yes"), system="Be brief.") == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
        ],
        "store": False,
        "stream": True,
    }


def test_calls_and_results_are_items_in_their_order() -> None:
    """PV-20, PV-22"""
    items = sent(
        assistant("Look.", ToolUse("c1", "read", {"p": "ä"}, item_id="fc_1")),
        Message("user", [ToolResult("c1", {"n": 1}, is_error=True), Text("go on")]),
    )["input"]
    assert items[1:] == [
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"p":"ä"}'},
        {"type": "function_call_output", "call_id": "c1", "output": 'Error: {"n":1}'},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
    ]


def test_tools_are_not_strict_unless_they_say_so() -> None:
    """PV-25"""
    tools = [ToolDefinition("a", "A.", {"type": "object"}), ToolDefinition("b", "B.", {}, strict=True)]
    assert [tool["strict"] for tool in sent(user("x"), tools=tools)["tools"]] == [False, True]


@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max"])
def test_effort_goes_out_verbatim_and_asks_for_sealed_reasoning(effort: Effort) -> None:
    """2.9, PV-21, D-33"""
    asked = sent(user("x"), effort=effort)
    assert asked["reasoning"] == {"effort": effort, "summary": "auto"}
    assert asked["include"] == ["reasoning.encrypted_content"]
    assert not {"reasoning", "include"} & set(sent(user("x")))


def test_cache_key_is_sent_to_the_vendor_only() -> None:
    request = Request("m", [user("x")], session_id="agent-1")
    assert body(RESPONSES, OPENAI, request)["prompt_cache_key"] == "agent-1"
    assert "prompt_cache_key" not in body(RESPONSES, openrouter_definition(), request)


def test_sealed_reasoning_goes_back_to_its_origin_with_the_call_it_belongs_to() -> None:
    """PV-20, PV-41"""
    items = sent(Message("assistant", [SEALED, ToolUse("c1", "ls", {}, item_id="fc_1")]))["input"]
    assert items == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "gAAA",
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": "{}"},
    ]


@pytest.mark.parametrize(
    "provenance",
    [
        None,
        Provenance("openrouter", "m", "open_ai_encrypted"),
        Provenance("openai", "another", "open_ai_encrypted"),
        Provenance("openai", "m", "anthropic_signed"),
        Provenance("openai@https://proxy.example:443", "m", "open_ai_encrypted"),
    ],
)
def test_sealed_reasoning_goes_nowhere_else(provenance: Provenance | None) -> None:
    """PV-41, Appendix C 12: its words are kept as text, its seal and the item ids aren't sent."""
    foreign = Thinking("hm", encrypted_content="gAAA", id="rs_1", provenance=provenance)
    silent = Thinking("", encrypted_content="gAAA", id="rs_2", provenance=provenance)
    items = sent(Message("assistant", [foreign, silent, Text("yes"), ToolUse("c1", "ls", {}, item_id="fc_1")]))["input"]
    assert "gAAA" not in str(items) and "rs_" not in str(items) and "fc_1" not in str(items)
    assert [part["text"] for part in items[0]["content"]] == ["hm", "[reasoning that can't be shown here]", "yes"]


def test_reasoning_outside_an_assistant_message_is_dropped() -> None:
    """PV-41"""
    assert sent(Message("user", [Thinking("hm"), Text("x")]))["input"][0]["content"] == [
        {"type": "input_text", "text": "x"}
    ]


# --- the stream: reasoning -------------------------------------------------------------------------------------------


def test_sealed_reasoning_is_kept_with_its_origin_and_the_calls_item_id() -> None:
    """PV-20, PV-41"""
    streamed = answer(
        event("output_item.added", item=reasoning_item(encrypted_content="gA")),
        event("reasoning_summary_text.delta", delta="hm", summary_index=0),
        event("reasoning_summary_text.delta", delta="then", summary_index=1),
        event("output_item.done", item=reasoning_item("hm", encrypted_content="gAAA")),
        event("output_item.added", output_index=1, item=call_item("")),
        event("output_item.done", output_index=1, item=call_item()),
        completed(),
    )
    assert streamed.message().content == [
        Thinking("hm\n\nthen", encrypted_content="gAAA", id="rs_1", provenance=HERE),
        ToolUse("c1", "ls", {}, item_id="fc_1"),
    ]


def test_call_without_reasoning_keeps_no_item_id() -> None:
    """PV-20"""
    assert answer(event("output_item.done", item=call_item()), completed()).message().content == [
        ToolUse("c1", "ls", {})
    ]


def test_seal_that_comes_with_the_whole_response_is_filled_in() -> None:
    """PV-30"""
    for words in ("hm", ""):
        streamed = answer(
            event("output_item.done", item=reasoning_item(words)),
            event("output_text.delta", output_index=1, delta="yes"),
            event("output_item.done", output_index=1, item=message_item("yes")),
            completed(reasoning_item(words, encrypted_content="gAAA"), message_item("yes")),
        )
        sealed = Thinking(words, encrypted_content="gAAA", id="rs_1", provenance=HERE)
        assert streamed.message().content == [sealed, Text("yes")]


def test_reasoning_without_words_or_seal_is_no_block() -> None:
    item = reasoning_item()
    streamed = answer(event("output_item.added", item=item), event("output_item.done", item=item), completed(item))
    assert streamed.message().content == []


def test_raw_reasoning_of_open_models_is_kept() -> None:
    item = {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "hm"}]}
    streamed = answer(
        event("reasoning_text.delta", delta="h"), event("reasoning_text.delta", delta="m"),
        event("output_item.done", item=item), completed(item),
    )  # fmt: skip
    assert streamed.message().content == [Thinking("hm")]


# --- the stream: what servers leave out ------------------------------------------------------------------------------


def test_items_fill_in_for_deltas_that_never_came() -> None:
    """PV-28"""
    streamed = answer(
        event("output_item.done", item=message_item("all at once")),
        event("output_item.done", output_index=1, item=call_item('{"p":1}')),
        completed(message_item("all at once"), call_item('{"p":1}')),
    )
    assert streamed.message().content == [Text("all at once"), ToolUse("c1", "ls", {"p": 1})]


def test_the_final_response_alone_is_an_answer() -> None:
    """PV-28"""
    streamed = answer(completed(message_item("hello"), call_item('{"p":1}')))
    assert streamed.message().content == [Text("hello"), ToolUse("c1", "ls", {"p": 1})]
    assert streamed.stop_reason == "tool_use" and streamed.response_id == "resp_1"


def test_done_events_add_nothing_to_what_deltas_said() -> None:
    streamed = answer(
        event("output_text.delta", delta="a"), event("output_text.delta", delta="b"),
        event("output_text.done", text="ab"),
        event("content_part.done", part={"type": "output_text", "text": "ab"}),
        event("output_item.done", item=message_item("ab")),
        event("output_item.added", output_index=1, item=call_item("")),
        event("function_call_arguments.delta", output_index=1, delta='{"p":1}'),
        event("function_call_arguments.done", output_index=1, arguments='{"p":1}'),
        event("output_item.done", output_index=1, item=call_item('{"p":1}')),
        completed(message_item("ab"), call_item('{"p":1}')),
    )  # fmt: skip
    assert streamed.message().content == [Text("ab"), ToolUse("c1", "ls", {"p": 1})]


def test_parts_of_a_message_are_blocks_of_their_own() -> None:
    """PV-13"""
    streamed = answer(
        event("output_text.delta", content_index=0, delta="a"), event("output_text.delta", content_index=1, delta="b"),
        event("output_text.delta", content_index=0, delta="A"), completed(),
    )  # fmt: skip
    assert streamed.message().content == [Text("aA"), Text("b")]


def test_missing_id_and_model_are_tolerated() -> None:
    """PV-28, D-30"""
    streamed = answer({"type": "response.completed", "response": {}})
    assert streamed.complete and streamed.response_id is None and streamed.usage == TokenUsage()
    assert answer({"type": "response.completed"}).complete


def test_type_may_stand_in_the_event_line_alone() -> None:
    stream_bytes = b'event: response.output_text.delta\ndata: {"delta":"a"}\n\nevent: response.completed\ndata: {}\n\n'
    assert answer(stream_bytes).message() == assistant("a")


def test_unknown_events_and_items_are_ignored_even_if_shaped_otherwise() -> None:
    """PV-16"""
    streamed = answer(
        event("file_search_call.searching", item_id="fs_1"),
        event("audio.delta", delta={"not": "text"}),
        event("output_item.added", item={"type": "file_search_call", "id": "fs_1", "queries": [{"query": "x"}]}),
        event("output_item.done", item={"type": "file_search_call", "id": "fs_1"}),
        event("output_text.delta", output_index=1, delta="a"),
        completed({"type": "file_search_call", "id": "fs_1"}, message_item("a")),
    )
    assert streamed.message() == assistant("a")


# --- the stream: ends ------------------------------------------------------------------------------------------------


def test_incomplete_answers_have_a_reason_and_are_no_errors() -> None:
    """PV-29"""
    for reason, expected in (("max_output_tokens", "max_tokens"), ("content_filter", "refusal"), ("other", "other")):
        response = {"incomplete_details": {"reason": reason}, "output": [message_item("a")]}
        streamed = answer(event("incomplete", response=response))
        assert streamed.stop_reason == expected and streamed.message().text() == "a"


def test_refusal_is_shown_as_text_and_named() -> None:
    item = {"type": "message", "id": "msg_1", "content": [{"type": "refusal", "refusal": "I won't."}]}
    streamed = answer(event("refusal.delta", delta="I won't."), event("output_item.done", item=item), completed(item))
    assert streamed.message().text() == "I won't." and streamed.stop_reason == "refusal"


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (event("failed", response={"error": {"code": "server_error", "message": "boom"}}), RetryableError),
        (event("incomplete", response={"error": {"code": "invalid_prompt", "message": "boom"}}), ProviderError),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "boom", "param": None}, RetryableError),
        ({"type": "error", "error": {"type": "server_error", "message": "boom"}}, RetryableError),
        ({"type": "error", "error": "boom"}, ProviderError),
        ({"error": {"code": "server_error", "message": "boom"}}, RetryableError),
        (b'event: error\ndata: {"message":"boom","code":"server_error"}\n\n', RetryableError),
    ],
)
def test_error_ends_the_stream_with_the_vendors_words(last: Any, kind: type) -> None:
    """PV-16, PV-29, D-5"""
    with pytest.raises(kind, match="boom") as caught:
        answer(event("output_text.delta", delta="a"), last)
    assert type(caught.value) is kind


def test_failure_without_words_still_fails() -> None:
    with pytest.raises(ProviderError):
        answer({"type": "response.failed"})


def test_stream_without_its_last_event_is_cut() -> None:
    with pytest.raises(StreamCut):
        answer(event("output_text.delta", delta="a"), event("output_item.done", item=message_item("a")))


@pytest.mark.parametrize(
    "junk",
    [
        b"{oops",
        b"[]",
        b"",
        b'{"type":"response.completed","response":1}',
        b'{"type":"response.x","a":' + b"[" * 100_000,
    ],
)
def test_event_that_does_not_fit_is_a_malformed_stream(junk: bytes) -> None:
    with pytest.raises(MalformedStream):
        answer(b"data: %b\n\n" % junk)
