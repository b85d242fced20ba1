"""2.10: the Messages wire, as the vendor and as compatible servers speak it."""

from dataclasses import replace
from typing import Any

import pytest

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import (
    HostedToolSearch,
    HostedWebSearch,
    Image,
    Message,
    Provenance,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from basis_daemon.runtime.providers.anthropic import MESSAGES, build_body, read_models
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    Effort,
    OutputFormat,
    Request,
    RequestOptions,
    TokenUsage,
    ToolChoice,
    ToolDefinition,
)
from basis_daemon.runtime.providers.efforts import EffortRule
from basis_daemon.runtime.providers.encoded import EncodedMessages
from basis_daemon.runtime.providers.errors import (
    AnswerBlocked,
    AuthenticationError,
    HttpError,
    InvalidRequest,
    MalformedStream,
    ProviderError,
    RetryableError,
    StreamCut,
    UnsupportedCapability,
)
from basis_daemon.runtime.providers.registry import (
    ProviderChoice,
    ProviderRegistry,
    anthropic_definition,
    definition_of,
)
from basis_daemon.runtime.providers.streamed import StreamedMessage
from support.model_server import ModelServer, fails, says
from support.wire_streams import body, collected, stream

ANTHROPIC = anthropic_definition()
HERE = Provenance("anthropic", "claude-opus-4-6", "anthropic_signed")
SIGNED = Thinking("hm", signature="EqQB", provenance=HERE)
REDACTED = Thinking(encrypted_content="EmwK", provenance=HERE, redacted=True)
MARK = {"type": "ephemeral"}
ADAPTIVE = {"type": "adaptive"}
SHOWN = {"type": "adaptive", "display": "summarized"}
READ = ToolDefinition("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def sent(*messages: Message, model: str = "claude-opus-4-6", **fields: Any) -> dict[str, Any]:
    return body(MESSAGES, ANTHROPIC, Request(model, list(messages), **fields))


def event(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": type, **fields}


def start(**usage: Any) -> dict[str, Any]:
    return event("message_start", message={"id": "msg_1", "model": "claude", "usage": usage or None})


def begins(index: int, type: str, **fields: Any) -> dict[str, Any]:
    return event("content_block_start", index=index, content_block={"type": type, **fields})


def piece(index: int, type: str, **fields: Any) -> dict[str, Any]:
    return event("content_block_delta", index=index, delta={"type": f"{type}_delta", **fields})


def ends(index: int) -> dict[str, Any]:
    return event("content_block_stop", index=index)


def stops(reason: str | None = "end_turn", **fields: Any) -> list[dict[str, Any]]:
    return [event("message_delta", delta={"stop_reason": reason}, **fields), event("message_stop")]


def text(index: int, words: str) -> list[dict[str, Any]]:
    return [begins(index, "text", text=""), piece(index, "text", text=words), ends(index)]


def answer(*events: Any) -> StreamedMessage:
    return collected(stream(MESSAGES, ANTHROPIC, start(), *events))


# --- the request -----------------------------------------------------------------------------------------------------


def test_conversation_goes_out_with_a_bound_and_marks_for_the_cache() -> None:
    """PV-46, D-9: the system prompt, and the ends of the last two user messages."""
    asked = sent(user("one"), assistant("yes"), user("two"), assistant("yes"), user("three"), system="Be brief.")
    assert asked == {
        "model": "claude-opus-4-6",
        "max_tokens": 32_000,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "one"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "yes"}]},
            {"role": "user", "content": [{"type": "text", "text": "two", "cache_control": MARK}]},
            {"role": "assistant", "content": [{"type": "text", "text": "yes"}]},
            {"role": "user", "content": [{"type": "text", "text": "three", "cache_control": MARK}]},
        ],
    }
    assert sent(user("x"), max_output_tokens=7)["max_tokens"] == 7


@pytest.mark.parametrize(
    ("model", "most"),
    [
        ("claude-opus-4-6", 32_000),
        ("claude-sonnet-4-20250514", 8192),
        ("claude-3-haiku-20240307", 4096),
        ("other", 8192),
    ],
)
def test_bound_nobody_set_is_one_the_model_can_give(model: str, most: int) -> None:
    """PV-46: the wire wants one; a small one would cut off an answer in the middle of a file."""
    assert sent(user("x"), model=model)["max_tokens"] == most


def test_marks_never_exceed_what_the_vendor_takes_and_end_messages_of_results_too() -> None:
    """PV-46: four at most, the last of them behind the newest result."""
    conversation = [user("look"), assistant(ToolUse("c1", "read", {})), Message("user", [ToolResult("c1", "text")])]
    asked = sent(*conversation * 3, system="s", tools=[READ])
    assert str(asked).count("cache_control") == 4
    assert asked["messages"][-1]["content"][-1]["cache_control"] == MARK
    assert asked["tools"][-1]["cache_control"] == MARK


def test_a_growing_conversation_is_encoded_once_and_marked_anew() -> None:
    """PV-46, D-9: what earlier requests had marked is sent without its mark."""
    history = EncodedMessages()
    messages = [user("one"), assistant("yes"), user("two"), assistant("yes"), user("three")]
    for length in (1, 3, 5):
        request = Request("claude-opus-4-6", messages[:length])
        assert build_body(request, ANTHROPIC, history) == build_body(request, ANTHROPIC, EncodedMessages())


def test_results_come_ahead_of_what_was_said_with_them() -> None:
    """PV-7, PV-22: and a failed one says so in its own field."""
    message = Message("user", [Text("go on"), ToolResult("c1", {"n": 1}), ToolResult("c2", "no", is_error=True)])
    (content,) = [row["content"] for row in sent(message)["messages"]]
    assert content == [
        {"type": "tool_result", "tool_use_id": "c1", "content": '{"n":1}'},
        {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
        {"type": "text", "text": "go on", "cache_control": MARK},
    ]


def test_calls_of_other_vendors_keep_apart_under_ids_this_one_takes() -> None:
    """PV-4: a conversation can be carried over from any wire."""
    ids = ["functions.read:0", "functions:read.0", "", "call_1"]
    message = assistant(*(ToolUse(id, "read", {}) for id in ids))
    results = Message("user", [ToolResult(id, "x") for id in ids])
    calls, answers = (row["content"] for row in sent(message, results)["messages"])
    assert [call["id"] for call in calls] == [row["tool_use_id"] for row in answers]
    assert len({call["id"] for call in calls}) == 4 and calls[3]["id"] == "call_1"
    assert all(call["id"].replace("_", "").isalnum() for call in calls)


def test_blank_text_and_empty_messages_are_left_out() -> None:
    asked = sent(user("x"), assistant("", " \n"), user("y"), assistant(HostedWebSearch("ws_1")), user("z"))
    assert [row["content"][0]["text"] for row in asked["messages"]] == ["x", "y", "z"]


def test_images_go_out_by_bytes_or_by_address() -> None:
    """PV-27"""
    picture = user(Image(media_type="image/jpeg", data="AAAA"), Image(url="https://h.example/p.png"))
    (content,) = [row["content"] for row in sent(picture)["messages"]]
    assert [block["source"] for block in content] == [
        {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"},
        {"type": "url", "url": "https://h.example/p.png"},
    ]


# --- tools


@pytest.mark.parametrize(("is_disabled", "extra"), [(None, {}), (True, {"disable_parallel_tool_use": True})])
def test_switch_for_parallel_calls_stands_in_the_choice(is_disabled: bool | None, extra: dict[str, bool]) -> None:
    """PV-46, D-7"""
    options = RequestOptions(disable_parallel_tool_use=is_disabled)
    for choice, expected in (
        (ToolChoice(), {"type": "auto"}),
        (ToolChoice("any"), {"type": "any"}),
        (ToolChoice("tool", "read"), {"type": "tool", "name": "read"}),
    ):
        asked = sent(user("x"), tools=[READ], tool_choice=choice, options=options)
        assert asked["tool_choice"] == {**expected, **extra}
        assert "disable_parallel_tool_use" not in asked
    assert "tool_choice" not in sent(user("x"), options=options)


def test_deferred_tools_are_searched_for_and_the_mark_is_on_the_last_that_is_shown() -> None:
    """PV-46, PV-24, CV-8, D-21: in the order they were given, which is by name."""
    tools = [ToolDefinition("a", "A.", {}), ToolDefinition("b", "B.", {}, deferred=True)]
    hosted = RequestOptions(tool_search="hosted")
    search, a, b = sent(user("x"), tools=tools, options=hosted)["tools"]
    assert search == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert a["cache_control"] == MARK and b["defer_loading"] is True and "cache_control" not in b
    only = sent(user("x"), tools=[tools[1]], options=hosted)["tools"]
    assert only[0]["cache_control"] == MARK and "cache_control" not in only[1]


def test_deferred_tools_without_a_search_are_refused_and_a_forced_one_is_there_at_once() -> None:
    """PV-23, PV-24"""
    tools = [replace(READ, deferred=True)]
    with pytest.raises(InvalidRequest, match="searches"):
        sent(user("x"), tools=tools)
    (tool,) = sent(user("x"), tools=tools, tool_choice=ToolChoice("tool", "read"))["tools"]
    assert "defer_loading" not in tool


def test_strict_tools_are_held_to_what_the_vendor_can_hold_them_to() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    loose, strict = sent(
        user("x"), tools=[ToolDefinition("a", "A.", schema), ToolDefinition("b", "B.", schema, strict=True)]
    )["tools"]
    assert loose["input_schema"] == schema and "strict" not in loose
    assert strict["strict"] is True
    assert strict["input_schema"] == {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "additionalProperties": False,
    }


def test_what_a_search_found_is_told_again_while_the_tools_are_still_there() -> None:
    """PV-46: else the model would have to search for a tool again after each of its calls."""
    search = HostedToolSearch("srvtoolu_1", "completed", "files", ("read",))
    conversation = [user("x"), assistant(search, ToolUse("c1", "read", {})), Message("user", [ToolResult("c1", "y")])]
    hosted = RequestOptions(tool_search="hosted")
    deferred = [replace(READ, deferred=True)]
    content = sent(*conversation, tools=deferred, options=hosted)["messages"][1]["content"]
    assert content[:2] == [
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "tool_search_tool_bm25",
            "input": {"query": "files"},
        },
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "read"}],
            },
        },
    ]
    for tools in ([READ], [replace(READ, name="other", deferred=True)]):
        kinds = [row["type"] for row in sent(*conversation, tools=tools, options=hosted)["messages"][1]["content"]]
        assert kinds == ["tool_use"]
    foreign = replace_id(search, "ts_1")
    kinds = sent(assistant(foreign, "a"), tools=deferred, options=hosted)["messages"][0]["content"]
    assert [row["type"] for row in kinds] == ["text"]


def replace_id(search: HostedToolSearch, id: str) -> HostedToolSearch:
    return HostedToolSearch(id, search.status, search.query, search.found)


# --- effort, reasoning, schemas


@pytest.mark.parametrize(
    ("model", "levels", "thinking"),
    [
        ("claude-opus-4-5", "low medium high", None),
        ("claude-opus-4-5-20251101", "low medium high", None),
        ("claude-mythos-preview", "low medium high max", ADAPTIVE),
        ("claude-opus-4-6", "low medium high max", ADAPTIVE),
        ("claude-sonnet-4-6-20260301", "low medium high max", ADAPTIVE),
        *[(f"claude-{name}", "low medium high xhigh max", SHOWN) for name in ("opus-4-7", "opus-4-8", "opus-5")],
        *[(f"claude-{name}", "low medium high xhigh max", SHOWN) for name in ("sonnet-5", "fable-5", "mythos-5")],
        ("claude-sonnet-4-5", "", None),
        ("claude-opus-4-60", "", None),
        ("claude-opus-4-6-fast", "", None),
    ],
)
def test_effort_goes_out_as_the_model_takes_it_and_is_refused_otherwise(model: str, levels: str, thinking: Any) -> None:
    """PV-44, PV-45, D-33, PR-9: forwarded or refused, never rounded. Models that would hide their reasoning are asked
    for its words."""
    every: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
    for effort in every:
        if effort not in levels.split():
            with pytest.raises(InvalidRequest, match=effort):
                sent(user("x"), model=model, effort=effort)
            continue
        asked = sent(user("x"), model=model, effort=effort)
        assert asked["output_config"] == {"effort": effort}
        assert asked.get("thinking") == thinking
    assert not {"output_config", "thinking"} & set(sent(user("x"), model=model))


def test_table_of_efforts_can_be_another() -> None:
    """PV-44: by definition, for models that are newer than this version."""
    rules = (EffortRule(models=("house-*",), levels=("low",), is_adaptive=True),)
    definition = replace(ANTHROPIC, efforts=rules)
    asked = body(MESSAGES, definition, Request("house-7", [user("x")], effort="low"))
    assert asked["output_config"] == {"effort": "low"}
    with pytest.raises(InvalidRequest):
        body(MESSAGES, definition, Request("claude-opus-5", [user("x")], effort="low"))


def test_forced_call_leaves_thinking_out_and_a_summary_is_asked_for_by_name() -> None:
    """2.9: the vendor refuses a forced call of a model that is told to think."""
    forced = sent(user("x"), effort="low", tools=[READ], tool_choice=ToolChoice("any"))
    assert "thinking" not in forced and forced["output_config"] == {"effort": "low"}
    options = RequestOptions(reasoning_summary="auto")
    asked = sent(user("x"), effort="low", options=options)
    assert asked["thinking"] == {"type": "adaptive", "display": "summarized"}


def test_models_that_bind_reasoning_to_its_conversation_drop_it_where_that_was_changed() -> None:
    """PV-41: compaction and another system prompt would else end such a conversation; asked of the vendor only."""
    asked = sent(user("x"), model="claude-opus-5-5")
    assert asked["thinking"] == {**SHOWN, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    endpoint = ProviderChoice("anthropic", None, "https://gw.example/", "anthropic_messages", None)
    elsewhere = body(MESSAGES, definition_of(endpoint), Request("claude-opus-5-5", [user("x")]))
    assert "thinking" not in elsewhere


def test_signed_and_redacted_reasoning_goes_back_in_its_place() -> None:
    """PV-41, PV-46"""
    said = assistant(SIGNED, REDACTED, ToolUse("c1", "read", {}))
    assert sent(said)["messages"][0]["content"][:2] == [
        {"type": "thinking", "thinking": "hm", "signature": "EqQB"},
        {"type": "redacted_thinking", "data": "EmwK"},
    ]


@pytest.mark.parametrize(
    "provenance",
    [
        None,
        Provenance("anthropic", "claude-opus-5", "anthropic_signed"),
        Provenance("anthropic@https://gw.example:443", "claude-opus-4-6", "anthropic_signed"),
        Provenance("anthropic", "claude-opus-4-6", "gemini_thought"),
    ],
)
def test_reasoning_sealed_elsewhere_is_plain_text(provenance: Provenance | None) -> None:
    """PV-41: with a short placeholder for what has no words."""
    said = assistant(
        Thinking("hm", signature="EqQB", provenance=provenance),
        Thinking(encrypted_content="EmwK", provenance=provenance, redacted=True),
    )
    first, second = sent(said)["messages"][0]["content"]
    assert first == {"type": "text", "text": "hm"}
    assert second["type"] == "text" and "can't be shown" in second["text"]
    assert "EqQB" not in str(sent(said)) and "EmwK" not in str(sent(said))


def test_unsigned_reasoning_and_that_of_a_user_message_is_never_sealed() -> None:
    """PV-41"""
    asked = sent(assistant(Thinking("hm", provenance=HERE)), Message("user", [SIGNED, Text("x")]))
    assert [row["content"][0]["type"] for row in asked["messages"]] == ["text", "text"]


def test_schema_of_the_answer_is_said_as_the_vendor_takes_it() -> None:
    """2.4"""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    config = sent(user("x"), output=OutputFormat("count", schema), effort="low")["output_config"]
    assert config == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
                "additionalProperties": False,
            },
        },
    }


def test_of_metadata_only_the_user_is_told() -> None:
    assert sent(user("x"), metadata={"user_id": "u1", "other": "y"})["metadata"] == {"user_id": "u1"}
    assert "metadata" not in sent(user("x"), metadata={"other": "y"})


# --- the stream ------------------------------------------------------------------------------------------------------


def test_usage_is_read_beside_the_delta_and_cached_input_is_input() -> None:
    """2.6, D-6, D-28, PV-19: later counts win field by field; ours count the cache as part of the input."""
    first = start(input_tokens=10, cache_read_input_tokens=64, cache_creation_input_tokens=26, output_tokens=1)
    last = stops(usage={"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}})
    streamed = collected(stream(MESSAGES, ANTHROPIC, first, *text(0, "a"), *last))
    assert streamed.usage == TokenUsage(100, 20, cache_read_tokens=64, cache_creation_tokens=26, reasoning_tokens=5)
    inside = event("message_delta", delta={"stop_reason": "end_turn", "usage": {"output_tokens": 9}})
    assert answer(*text(0, "a"), inside, event("message_stop")).usage == TokenUsage()


def test_reasoning_is_kept_with_its_seal() -> None:
    """PV-41, PV-46"""
    streamed = collected(
        stream(
            MESSAGES,
            ANTHROPIC,
            start(),
            begins(0, "thinking", thinking="", signature=""),
            piece(0, "thinking", thinking="h"),
            piece(0, "thinking", thinking="m"),
            piece(0, "signature", signature="EqQB"),
            ends(0),
            begins(1, "redacted_thinking", data="EmwK"),
            ends(1),
            begins(2, "thinking", thinking="", signature="EqQC"),
            ends(2),
            *text(3, "yes"),
            *stops(),
        )
    )
    origin = Provenance("anthropic", "m", "anthropic_signed")
    assert streamed.message().content == [
        Thinking("hm", signature="EqQB", provenance=origin),
        Thinking(encrypted_content="EmwK", provenance=origin, redacted=True),
        Thinking(signature="EqQC", provenance=origin),
        Text("yes"),
    ]


def test_blocks_are_numbered_by_us_in_the_order_they_began() -> None:
    """PV-13: also where the server counts as it likes, and those that hold nothing are not told of."""
    events = stream(MESSAGES, ANTHROPIC, start(), *text(7, "a"), begins(2, "text"), ends(2), *text(7, "b"), *stops())
    assert [e.index for e in events if isinstance(e, BlockStarted)] == [0, 2]
    assert collected(events).message() == assistant("a", "b")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], {}),
        ([piece(0, "input_json", partial_json="")], {}),
        ([piece(0, "input_json", partial_json='{"a"'), piece(0, "input_json", partial_json=":1}")], {"a": 1}),
    ],
)
def test_input_of_a_call_is_put_together(events: list[Any], expected: Any) -> None:
    """PV-15, D-14"""
    block = begins(0, "tool_use", id="toolu_1", name="ls", input={})
    streamed = answer(block, *events, ends(0), *stops("tool_use"))
    assert streamed.message().content == [ToolUse("toolu_1", "ls", expected)]
    assert streamed.stop_reason == "tool_use"


def test_input_that_came_with_the_beginning_fills_the_call() -> None:
    """PV-28"""
    streamed = answer(begins(0, "tool_use", id="t", name="ls", input={"a": 1}), ends(0), *stops(None))
    assert streamed.message().content == [ToolUse("t", "ls", {"a": 1})] and streamed.stop_reason == "tool_use"


def test_search_for_tools_is_told_from_its_beginning_to_what_it_found() -> None:
    """PV-14, PV-46, D-8, D-20: every update is the whole block."""
    found = {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "read"}],
    }
    streamed = answer(
        begins(0, "server_tool_use", id="srvtoolu_1", name="tool_search_tool_bm25", input={}),
        piece(0, "input_json", partial_json='{"query": "fi'),
        piece(0, "input_json", partial_json='les"}'),
        ends(0),
        begins(1, "tool_search_tool_result", tool_use_id="srvtoolu_1", content=found),
        ends(1),
        begins(2, "tool_use", id="t", name="read", input={}),
        ends(2),
        *stops("tool_use"),
    )
    assert streamed.message().content == [
        HostedToolSearch("srvtoolu_1", "completed", "files", ("read",)),
        ToolUse("t", "read", {}),
    ]


@pytest.mark.parametrize(
    ("name", "asked", "content", "expected"),
    [
        (
            "web_search",
            {"query": "x"},
            [{"type": "web_search_result", "url": "https://a.example"}],
            HostedWebSearch("s1", "completed", {"type": "search", "query": "x"}),
        ),
        (
            "web_fetch",
            {"url": "https://a.example"},
            {"type": "web_fetch_tool_result_error"},
            HostedWebSearch("s1", "failed", {"type": "open_page", "url": "https://a.example"}),
        ),
    ],
)
def test_what_the_vendor_looks_up_on_the_web_is_told(
    name: str, asked: Any, content: Any, expected: HostedWebSearch
) -> None:
    """PV-46, D-8"""
    streamed = answer(
        begins(0, "server_tool_use", id="s1", name=name, input=asked),
        ends(0),
        begins(1, f"{name}_tool_result", tool_use_id="s1", content=content),
        ends(1),
        *text(2, "yes"),
        *stops(),
    )
    assert streamed.message().content == [expected, Text("yes")]


def test_work_of_the_vendor_that_no_result_came_of_ends_with_the_answer() -> None:
    block = begins(0, "server_tool_use", id="s1", name="web_search", input={})
    streamed = answer(block, ends(0), *stops("pause_turn"))
    assert isinstance(streamed.message().content[0], HostedWebSearch) and streamed.stop_reason == "pause_turn"


def test_unknown_events_blocks_and_pieces_are_passed_over() -> None:
    """PV-16, PV-46, D-8"""
    streamed = answer(
        event("ping"),
        event("content_block_pulse", index={"odd": True}),
        begins(0, "container_upload", file_id="f"),
        piece(0, "text", text="not shown"),
        ends(0),
        begins(1, "server_tool_use", id="s", name="code_execution", input={}),
        piece(1, "input_json", partial_json="{}"),
        ends(1),
        begins(2, "code_execution_tool_result", tool_use_id="s", content={"type": "code_execution_result"}),
        ends(2),
        begins(3, "text", text="Hel"),
        piece(3, "citations", citation={"type": "page_location"}),
        piece(3, "text", text="lo"),
        ends(3),
        *stops(),
    )
    assert streamed.message() == assistant("Hello")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "end_turn"),
        ("stop_sequence", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("refusal", "refusal"),
        (None, "end_turn"),
        ("something_new", "something_new"),
    ],
)
def test_reasons_to_stop_are_told_in_our_words(reason: str | None, expected: str) -> None:
    assert answer(*text(0, "a"), *stops(reason)).stop_reason == expected


def test_refusal_of_which_nothing_was_said_is_an_error_with_the_reason() -> None:
    """PV-16: never an empty answer."""
    details = {"type": "refusal", "category": "cyber", "explanation": "This may help an attack."}
    last = event("message_delta", delta={"stop_reason": "refusal", "stop_details": details})
    with pytest.raises(AnswerBlocked, match="may help an attack") as caught:
        answer(begins(0, "text", text=""), ends(0), last, event("message_stop"))
    assert not caught.value.is_transient


@pytest.mark.parametrize(
    ("kind", "is_transient", "asks_for_pause"),
    [
        ("overloaded_error", True, True),
        ("rate_limit_error", True, True),
        ("api_error", True, False),
        ("timeout_error", True, False),
        ("invalid_request_error", False, False),
    ],
)
def test_error_event_ends_the_stream(kind: str, is_transient: bool, asks_for_pause: bool) -> None:
    """PV-16, D-5, PV-49"""
    with pytest.raises(ProviderError, match="Overloaded") as caught:
        answer(*text(0, "a"), event("error", error={"type": kind, "message": "Overloaded"}))
    assert (caught.value.is_transient, caught.value.asks_for_pause) == (is_transient, asks_for_pause)


def test_error_event_is_known_by_its_name_too() -> None:
    """D-5"""
    with pytest.raises(RetryableError, match="busy"):
        answer(b'event: error\ndata: {"error": {"type": "overloaded_error", "message": "busy"}}\n\n')
    with pytest.raises(ProviderError, match="odd"):
        answer(b'data: {"error": "odd"}\n\n')


@pytest.mark.parametrize(
    "events",
    [
        [piece(0, "text", text="a")],
        [begins(0, "text"), piece(0, "input_json", partial_json="{}")],
        [begins(0, "text"), begins(0, "text")],
        [*text(0, "a"), piece(0, "text", text="b")],
        [{"type": "content_block_delta", "index": "x"}],
    ],
)
def test_stream_that_contradicts_itself_is_malformed(events: list[Any]) -> None:
    """PV-11"""
    with pytest.raises(MalformedStream):
        answer(*events, *stops())


def test_tools_that_only_the_vendor_could_run_are_refused_and_a_temperature_is_sent() -> None:
    """PV-3: also where a definition claims that it could."""
    with pytest.raises(InvalidRequest, match="hosted_web_search"):
        sent(user("x"), tools=[replace(READ, kind="hosted_web_search")])
    assert sent(user("x"), temperature=0.5)["temperature"] == 0.5


def test_stream_without_its_end_was_cut() -> None:
    """PV-11, PV-55"""
    for reason in ("end_turn", None):
        with pytest.raises(StreamCut):
            stream(MESSAGES, ANTHROPIC, start(), *text(0, "a"), *stops(reason)[:1])


def test_missing_beginning_and_missing_ends_of_blocks_are_forgiven() -> None:
    """PV-28, D-30"""
    streamed = collected(stream(MESSAGES, ANTHROPIC, begins(0, "text", text="a"), event("message_stop")))
    assert streamed.message() == assistant("a") and streamed.response_id is None


# --- over the network ------------------------------------------------------------------------------------------------


def test_preset_is_the_vendor_and_an_endpoint_of_its_wire_is_not() -> None:
    """RT-33, 2.1, 2.2, PV-3"""
    assert (ANTHROPIC.base_url, ANTHROPIC.wire) == ("https://api.anthropic.com/", "anthropic_messages")
    assert (ANTHROPIC.auth.kind, ANTHROPIC.auth.name) == ("header", "x-api-key")
    assert ANTHROPIC.headers["anthropic-version"] == "2023-06-01"
    endpoint = definition_of(ProviderChoice("house", None, "https://gw.example/v1", "anthropic_messages", None))
    assert endpoint.wire == "anthropic_messages" and endpoint.headers == {"anthropic-version": "2023-06-01"}
    assert not endpoint.is_vendor and endpoint.identity == "house@https://gw.example:443"


def test_list_of_models_that_can_not_be_read_is_malformed() -> None:
    """PV-11: dates that can't be are unknown ones."""
    with pytest.raises(MalformedStream, match="list of models"):
        read_models(b'{"data": 7}', ANTHROPIC)
    odd = b'{"data": [{"id": "m", "created_at": "soon"}, {"id": ""}], "has_more": true}'
    page = read_models(odd, ANTHROPIC)
    assert [(model.id, model.created_at) for model in page.models] == [("m", None)] and page.next_query is None


@pytest.mark.anyio
async def test_what_the_vendor_can_not_do_is_refused_before_anything_is_sent() -> None:
    """PV-3"""
    async with ModelServer() as server:
        provider, close = provider_at(server)
        for tool in (replace(READ, kind="hosted_web_search"), replace(READ, kind="image_generation")):
            with pytest.raises(UnsupportedCapability):
                await take(provider.stream(Request("m", [user("x")], tools=[tool])))
        assert server.requests == []
        await close()


@pytest.mark.anyio
async def test_request_carries_key_and_version_and_is_asked_for_below_any_path() -> None:
    """2.1, RT-34, RT-36"""
    async with ModelServer(says("a")) as server:
        provider, close = provider_at(server, path="house/v1")
        await take(provider.stream(Request("m", [user("x")])))
        (request,) = server.requests
        assert request.path == "/house/v1/messages"
        assert request.headers["x-api-key"] == "sk-ant" and request.headers["anthropic-version"] == "2023-06-01"
        assert request.headers["accept"] == "text/event-stream"
        await close()


@pytest.mark.anyio
async def test_all_pages_of_models_are_read_newest_first_without_the_retired() -> None:
    """PV-1, RT-30, RT-32, D-27"""
    rows: list[dict[str, Any]] = [{"id": f"m{at}", "created": 1_700_000_000 + at} for at in range(1500)]
    rows += [
        {"id": "undated", "created": 0, "context_length": 200_000, "name": "Undated"},
        {"id": "gone", "lifecycle": "retired"},
    ]
    async with ModelServer(models=rows, api_key="sk-ant") as server:
        provider, close = provider_at(server)
        models = await provider.list_models()
        assert len(models) == 1501 and models[0].id == "m1499" and models[0].created_at == 1_700_001_499
        last = models[-1]
        assert (last.id, last.display_name, last.context_window, last.created_at) == (
            "undated",
            "Undated",
            200_000,
            None,
        )
        assert [request.query for request in server.listings] == [
            {"limit": "1000"},
            {"limit": "1000", "after_id": "m999"},
        ]
        await close()


@pytest.mark.anyio
async def test_statuses_and_bodies_of_the_vendor_are_understood() -> None:
    """PV-2, PV-49, PV-50, D-25"""
    too_long = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}
    async with ModelServer(fails(529), fails(401), fails(404), fails(400, too_long)) as server:
        provider, close = provider_at(server)
        for kind, is_transient, words in (
            (HttpError, True, "529"),
            (AuthenticationError, False, "invalid x-api-key"),
            (HttpError, False, "model: m"),
            (ProviderError, False, "too long"),
        ):
            with pytest.raises(kind, match=words) as caught:
                await take(provider.stream(Request("m", [user("x")])))
            assert caught.value.is_transient is is_transient
        assert caught.value.kind == "context_length_exceeded"
        await close()


@pytest.mark.anyio
async def test_a_list_without_end_is_read_to_its_hundredth_page() -> None:
    """PV-1"""
    async with ModelServer(models=[f"m{at:03}" for at in range(150)], page_size=1) as server:
        provider, close = provider_at(server)
        assert len(await provider.list_models()) == len(server.listings) == 100
        await close()


@pytest.mark.anyio
async def test_long_bodies_are_cut_where_they_are_shown_and_kept_where_they_are_not() -> None:
    """RT-38, D-19"""
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": "no " * 5000}}
    async with ModelServer(fails(400, body)) as server:
        provider, close = provider_at(server)
        with pytest.raises(HttpError) as caught:
            await take(provider.stream(Request("m", [user("x")])))
        assert len(str(caught.value)) < 2300 and caught.value.body is not None and len(caught.value.body) > 15_000
        await close()


def provider_at(server: ModelServer, path: str = "") -> Any:
    registry = ProviderRegistry()
    choice = ProviderChoice("anthropic", Secret("sk-ant"), server.base_url + path, "anthropic_messages", "test")
    return registry.get(choice), registry.aclose


async def take(events: Any) -> None:
    async for _ in events:
        pass
