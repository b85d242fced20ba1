"""2.10: the generateContent wire, as the vendor and as compatible servers speak it."""

from dataclasses import replace
from typing import Any

import pytest

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import (
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
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    OutputFormat,
    Request,
    RequestOptions,
    TextDelta,
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
from basis_daemon.runtime.providers.gemini import GENERATE_CONTENT, NO_SIGNATURE, build_body, path, read_models
from basis_daemon.runtime.providers.registry import ProviderChoice, ProviderRegistry, definition_of, gemini_definition
from basis_daemon.runtime.providers.streamed import StreamedMessage
from support.model_server import ModelServer, calls, fails, says, tool
from support.wire_streams import body, collected, stream

GEMINI = gemini_definition()
MODEL = "gemini-3-pro-preview"
HERE = Provenance("gemini", MODEL, "gemini_thought")
READ = ToolDefinition("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def sent(*messages: Message, model: str = MODEL, **fields: Any) -> dict[str, Any]:
    return body(GENERATE_CONTENT, GEMINI, Request(model, list(messages), **fields))


def chunk(*parts: Any, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": MODEL, "responseId": "r1", **fields}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"text": text, **fields}


def called(name: str = "ls", signature: str | None = None, **fields: Any) -> dict[str, Any]:
    sealed = {"thoughtSignature": signature} if signature else {}
    return {"functionCall": {"name": name, **fields}, **sealed}


def answer(*chunks: Any) -> StreamedMessage:
    return collected(stream(GENERATE_CONTENT, GEMINI, *chunks, done=False))


# --- the request -----------------------------------------------------------------------------------------------------


def test_conversation_goes_out_in_the_vendors_roles() -> None:
    """PV-47, D-10"""
    assert sent(user("hi"), assistant("yes"), Message("other", [Text("x")]), system="Be brief.") == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"text": "yes"}]},
            {"role": "user", "parts": [{"text": "x"}]},
        ],
    }


def test_bare_request_holds_nothing_but_its_contents() -> None:
    """PV-45"""
    assert sent(user("hi")) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gemini-3-pro", "v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"),
        ("models/gemini-3-pro", "v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"),
        ("tunedModels/mine", "v1beta/tunedModels/mine:streamGenerateContent?alt=sse"),
        ("odd?key=1#x", "v1beta/models/odd%3Fkey%3D1%23x:streamGenerateContent?alt=sse"),
    ],
)
def test_model_is_part_of_the_path(model: str, expected: str) -> None:
    """2.1"""
    assert path(Request(model, [])) == expected


@pytest.mark.parametrize("model", ["../files", "models/../../v1/files", "a/./b", ".."])
def test_model_that_leads_to_another_path_is_refused(model: str) -> None:
    """CF-3: a repository's config.json may name a model."""
    with pytest.raises(InvalidRequest, match="no name of a model"):
        path(Request(model, []))


def test_results_carry_the_name_of_what_was_called_ahead_of_all_else() -> None:
    """PV-47, PV-7"""
    conversation = [
        assistant(ToolUse("c1", "read", {"path": "a"}), ToolUse("c2", "ls", {})),
        Message("user", [Text("go on"), ToolResult("c1", {"n": 1}), ToolResult("c2", "no", is_error=True)]),
    ]
    first, second = sent(*conversation, model="gemini-2.5-pro")["contents"]
    assert first["parts"] == [
        {"functionCall": {"name": "read", "args": {"path": "a"}}},
        {"functionCall": {"name": "ls", "args": {}}},
    ]
    assert second["parts"] == [
        {"functionResponse": {"name": "read", "response": {"output": {"n": 1}}}},
        {"functionResponse": {"name": "ls", "response": {"error": "no"}}},
        {"text": "go on"},
    ]


def test_result_of_no_call_is_refused() -> None:
    """PV-47"""
    with pytest.raises(InvalidRequest, match="c9"):
        sent(assistant(ToolUse("c1", "ls", {})), Message("user", [ToolResult("c9", "x")]))


def test_a_growing_conversation_is_encoded_once() -> None:
    """PV-47: results find their calls in what was encoded for an earlier request."""
    history = EncodedMessages()
    messages = [
        user("look"),
        assistant(ToolUse("c1", "ls", {})),
        Message("user", [ToolResult("c1", "a")]),
        assistant(ToolUse("c2", "read", {})),
        Message("user", [ToolResult("c2", "b")]),
    ]
    for length in (1, 3, 5):
        request = Request(MODEL, messages[:length])
        assert build_body(request, GEMINI, history) == build_body(request, GEMINI, EncodedMessages())


def test_images_go_out_as_bytes_and_addresses_are_refused() -> None:
    """PV-27, PV-47"""
    picture = user("x", Image(media_type="image/jpeg", data="AAAA"))
    assert sent(picture)["contents"][0]["parts"][1] == {"inlineData": {"mimeType": "image/jpeg", "data": "AAAA"}}
    with pytest.raises(InvalidRequest, match="bytes"):
        sent(user(Image(url="https://h.example/p.png")))


def test_messages_that_hold_nothing_for_this_vendor_are_left_out() -> None:
    asked = sent(user("x"), assistant(HostedWebSearch("ws_1"), ""), Message("user", [Thinking("hm")]), user("y"))
    assert [content["parts"][0]["text"] for content in asked["contents"]] == ["x", "y"]


# --- tools


def test_tools_are_declared_with_what_the_vendor_takes_of_their_schemas() -> None:
    """PV-47, CV-8, D-21: in the order they were given, which is by name."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"pattern": {"type": "string", "pattern": "^a", "minLength": 1, "format": "regex"}},
        "required": ["pattern"],
        "additionalProperties": False,
    }
    asked = sent(user("x"), tools=[ToolDefinition("grep", "Finds.", schema), ToolDefinition("ls", "Lists.", {})])
    assert asked["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "grep",
                    "description": "Finds.",
                    "parametersJsonSchema": {
                        "type": "object",
                        "properties": {"pattern": {"type": "string"}},
                        "required": ["pattern"],
                        "additionalProperties": False,
                    },
                },
                {"name": "ls", "description": "Lists."},
            ]
        }
    ]


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (ToolChoice(), {"mode": "AUTO"}),
        (ToolChoice("any"), {"mode": "ANY"}),
        (ToolChoice("tool", "read"), {"mode": "ANY", "allowedFunctionNames": ["read"]}),
    ],
)
def test_choice_of_tools_is_a_mode(choice: ToolChoice, config: dict[str, Any]) -> None:
    """PV-47"""
    asked = sent(user("x"), tools=[READ], tool_choice=choice)
    assert asked["toolConfig"] == {"functionCallingConfig": config}


def test_deferred_and_hosted_tools_are_refused() -> None:
    """PV-47: also where a definition claims to have them."""
    for odd in (replace(READ, deferred=True), replace(READ, kind="hosted_web_search")):
        with pytest.raises(InvalidRequest, match="read"):
            sent(user("x"), tools=[odd])


# --- effort, reasoning, schemas


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_effort_is_a_level_and_leaves_all_other_settings_as_they_are(effort: Any) -> None:
    """2.9, PV-45, D-12, D-33"""
    config = sent(user("x"), effort=effort, temperature=0.5, max_output_tokens=9)["generationConfig"]
    assert config == {
        "temperature": 0.5,
        "maxOutputTokens": 9,
        "thinkingConfig": {"thinkingLevel": effort, "includeThoughts": True},
    }
    assert sent(user("x"), temperature=0.5)["generationConfig"] == {"temperature": 0.5}


@pytest.mark.parametrize(
    ("model", "effort"), [(MODEL, "xhigh"), (MODEL, "max"), ("gemini-2.5-pro", "low"), ("gemini-2.0-flash", "high")]
)
def test_effort_that_the_model_does_not_take_is_refused(model: str, effort: Any) -> None:
    """2.9, PV-44, PR-9"""
    with pytest.raises(InvalidRequest, match=effort):
        sent(user("x"), model=model, effort=effort)
    own = replace(GEMINI, efforts=(EffortRule(models=("gemini-*",), levels=(effort,)),))
    assert body(GENERATE_CONTENT, own, Request(model, [user("x")], effort=effort))


@pytest.mark.parametrize(
    ("thoughts", "effort", "expected"), [(True, None, True), (False, None, False), (False, "low", False)]
)
def test_thoughts_are_asked_for_or_not_as_the_host_says(thoughts: bool, effort: Any, expected: bool) -> None:
    """2.4, PV-45"""
    config = sent(user("x"), effort=effort, temperature=0.1, options=RequestOptions(gemini_thoughts=thoughts))
    assert config["generationConfig"]["thinkingConfig"]["includeThoughts"] is expected
    assert config["generationConfig"]["temperature"] == 0.1


def test_schema_of_the_answer_is_said_as_the_vendor_takes_it() -> None:
    """2.4"""
    schema = {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}
    config = sent(user("x"), output=OutputFormat("kind", schema))["generationConfig"]
    assert config == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {
            "type": "object",
            "properties": {"kind": {"enum": ["a"]}},
            "required": ["kind"],
        },
    }


def test_sealed_thoughts_and_calls_go_back_to_where_they_are_from() -> None:
    """PV-41, PV-47: with the vendor's own ids of calls."""
    message = assistant(
        Thinking("hm", signature="dGhpbms=", provenance=HERE),
        ToolUse("c1", "ls", {}, item_id="fc_1", signature="Y2FsbA==", provenance=HERE),
        ToolUse("c2", "ls", {}, item_id="fc_2", provenance=HERE),
    )
    results = Message("user", [ToolResult("c1", "a"), ToolResult("c2", "b")])
    model, answers = sent(message, results)["contents"]
    assert model["parts"] == [
        {"text": "hm", "thought": True, "thoughtSignature": "dGhpbms="},
        {"functionCall": {"id": "fc_1", "name": "ls", "args": {}}, "thoughtSignature": "Y2FsbA=="},
        {"functionCall": {"id": "fc_2", "name": "ls", "args": {}}},
    ]
    assert [part["functionResponse"]["id"] for part in answers["parts"]] == ["fc_1", "fc_2"]


@pytest.mark.parametrize(
    "provenance",
    [
        None,
        Provenance("gemini", "gemini-2.5-pro", "gemini_thought"),
        Provenance("gemini@https://gw.example:443", MODEL, "gemini_thought"),
        Provenance("gemini", MODEL, "anthropic_signed"),
    ],
)
def test_what_was_sealed_elsewhere_is_plain_and_its_first_call_says_so(provenance: Provenance | None) -> None:
    """PV-41: the third generation refuses a step whose first call has no signature at all."""
    message = assistant(
        Thinking("hm", signature="dGhpbms=", provenance=provenance),
        ToolUse("c1", "ls", {}, item_id="fc_1", signature="Y2FsbA==", provenance=provenance),
        ToolUse("c2", "ls", {}),
    )
    thought, first, second = sent(message)["contents"][0]["parts"]
    assert thought == {"text": "hm"}
    assert first == {"functionCall": {"name": "ls", "args": {}}, "thoughtSignature": NO_SIGNATURE}
    assert second == {"functionCall": {"name": "ls", "args": {}}}


@pytest.mark.parametrize("model", ["gemini-1.5-pro", "gemini-2.0-flash", "gemini-2.5-pro", "gemma-3-27b-it"])
def test_earlier_generations_are_sent_no_made_up_signature(model: str) -> None:
    assert NO_SIGNATURE not in str(sent(assistant(ToolUse("c1", "ls", {})), model=model))


# --- the stream ------------------------------------------------------------------------------------------------------


def test_parts_that_add_are_joined_and_chunks_are_one_block() -> None:
    """PV-13, PV-47"""
    streamed = answer(chunk(said("Hel")), chunk(said("lo"), said(" ")), chunk(said("you")), chunk(finish="STOP"))
    assert streamed.message() == assistant("Hello you")
    assert (streamed.response_id, streamed.model, streamed.stop_reason) == ("r1", MODEL, "end_turn")


@pytest.mark.parametrize(
    "texts",
    [
        ["#", "# Title"],
        ["1", "1", "1"],
        ["ha", "ha ha"],
        ["100", "1000"],
        ["    ", "    indented"],
        ["No.", "No.", "No."],
        ["The", " Th", "The The The"],
    ],
)
def test_text_that_says_the_same_again_is_kept_whole(texts: list[str]) -> None:
    """PV-47: what looks like a repetition in what adds is none."""
    assert answer(*(chunk(said(text)) for text in texts), chunk(finish="STOP")).message().text() == "".join(texts)


@pytest.mark.parametrize(
    "texts",
    [
        ["Hello", "Hello you", "Hello you two", "Hello you two"],
        ["A whole sentence.", "A whole sentence."],
        ["Hel", "Hello"],
    ],
)
def test_parts_that_repeat_what_was_said_add_only_what_is_new(texts: list[str]) -> None:
    """PV-47"""
    streamed = answer(*(chunk(said(text)) for text in texts), chunk(finish="STOP"))
    assert streamed.message() == assistant(texts[-1])


def test_chunks_that_repeat_the_whole_answer_add_only_what_is_new() -> None:
    """PV-47: thoughts, text and calls."""
    thought = said("I had better look first.", thought=True)
    one, two = called("ls", args={"path": "a"}), called("ls", args={"path": "b"})
    streamed = answer(
        chunk(thought),
        chunk(thought, said("Let me ")),
        chunk(thought, said("Let me look."), one),
        chunk(thought, said("Let me look."), one, two, finish="STOP"),
    )
    thinking, text, *uses = streamed.message().content
    assert isinstance(thinking, Thinking) and thinking.thinking == "I had better look first."
    assert text == Text("Let me look.")
    assert [use.input for use in uses if isinstance(use, ToolUse)] == [{"path": "a"}, {"path": "b"}]


def test_the_same_call_made_twice_is_two_calls() -> None:
    first, second = answer(chunk(called()), chunk(called(), finish="STOP")).message().tool_uses()
    assert first.id != second.id
    (only,) = answer(chunk(called(id="fc_1")), chunk(called(id="fc_1"), finish="STOP")).message().tool_uses()
    assert (only.id, only.item_id) == ("fc_1", "fc_1")


def test_blocks_are_numbered_by_us_wherever_parts_stand() -> None:
    """PV-13, D-11"""
    events = stream(
        GENERATE_CONTENT,
        GEMINI,
        chunk(said("a"), called(), said("b")),
        chunk(said("c"), called()),
        chunk(finish="STOP"),
        done=False,
    )
    starts = [(event.index, event.kind) for event in events if isinstance(event, BlockStarted)]
    assert starts == [(0, "text"), (1, "tool_use"), (2, "text"), (3, "tool_use")]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "b", "c"]
    assert collected(events).stop_reason == "tool_use"


def test_thoughts_are_reasoning_sealed_by_what_comes_with_them_or_behind() -> None:
    """PV-47, PV-41, D-13"""
    origin = Provenance("gemini", "m", "gemini_thought")
    for chunks in (
        [chunk(said("h", thought=True)), chunk(said("m", thought=True, thoughtSignature="c2VhbA=="), said("yes"))],
        [chunk(said("hm", thought=True)), chunk(said("yes")), chunk(said("", thoughtSignature="c2VhbA=="))],
    ):
        content = answer(*chunks, chunk(finish="STOP")).message().content
        assert content == [Thinking("hm", signature="c2VhbA==", provenance=origin), Text("yes")]
    unsealed = answer(chunk(said("hm", thought=True)), chunk(said("yes"), finish="STOP")).message().content
    assert unsealed == [Thinking("hm"), Text("yes")]


def test_call_carries_its_signature_and_where_it_is_from() -> None:
    """PV-41, PV-47"""
    origin = Provenance("gemini", "m", "gemini_thought")
    (use,) = answer(chunk(called(signature="Y2FsbA==", args={"a": 1})), chunk(finish="STOP")).message().tool_uses()
    assert (use.input, use.signature, use.provenance, use.item_id) == ({"a": 1}, "Y2FsbA==", origin, None)
    assert use.id.startswith("call_")


@pytest.mark.parametrize(
    ("fields", "input", "malformed"),
    [({}, {}, None), ({"args": None}, {}, None), ({"args": {}}, {}, None), ({"args": [1]}, {}, "[1]")],
)
def test_input_of_a_call_is_an_object_or_told_as_it_came(fields: Any, input: Any, malformed: Any) -> None:
    """PV-15, D-14"""
    (use,) = answer(chunk(called(**fields), finish="STOP")).message().tool_uses()
    assert (use.input, use.malformed) == (input, malformed)


def test_usage_keeps_thoughts_and_tool_input_apart() -> None:
    """2.6, PV-19, D-28"""
    counts = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 137}
    more = {"cachedContentTokenCount": 64, "thoughtsTokenCount": 5, "toolUsePromptTokenCount": 12}
    streamed = answer(
        chunk(said("a"), usageMetadata={"promptTokenCount": 100, **more}),
        chunk(finish="STOP", usageMetadata=counts),
    )
    assert streamed.usage == TokenUsage(
        100, 20, cache_read_tokens=64, thoughts_tokens=5, tool_input_tokens=12, total_tokens=137
    )


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("STOP", "end_turn"),
        ("MAX_TOKENS", "max_tokens"),
        ("CONTINUATION", "max_tokens"),
        ("SAFETY", "refusal"),
        ("RECITATION", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("OTHER", "other"),
        ("SOMETHING_NEW", "something_new"),
    ],
)
def test_reasons_to_finish_are_told_in_our_words(reason: str, expected: str) -> None:
    assert answer(chunk(said("a"), finish=reason)).stop_reason == expected


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "BLOCKLIST", "SPII", "LANGUAGE", "IMAGE_SAFETY"])
def test_filtered_answer_of_which_nothing_was_said_is_an_error_with_the_reason(reason: str) -> None:
    """PV-16: never an empty answer."""
    candidate = {"finishReason": reason, "finishMessage": "Filtered.", "index": 0}
    with pytest.raises(AnswerBlocked, match=rf"\({reason}\): Filtered") as caught:
        answer({"candidates": [candidate], "responseId": "r1"})
    assert not caught.value.is_transient


def test_blocked_prompt_is_an_error_with_the_reason() -> None:
    """PV-16"""
    with pytest.raises(AnswerBlocked, match=r"does not take this prompt \(PROHIBITED_CONTENT\)"):
        answer({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 3}})


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"])
def test_slip_of_the_model_may_be_tried_again(reason: str) -> None:
    """PV-49, PV-55"""
    with pytest.raises(RetryableError, match=reason) as caught:
        answer(chunk(said("a")), chunk(finish=reason))
    assert not caught.value.asks_for_pause


def test_other_reasons_to_say_nothing_are_errors_too() -> None:
    for reason, kind in (("OTHER", ProviderError), ("MISSING_THOUGHT_SIGNATURE", InvalidRequest)):
        with pytest.raises(kind, match=reason):
            answer(chunk(finish=reason))
    assert answer(chunk(finish="STOP")).message().content == []  # nothing to say is no error of the wire


@pytest.mark.parametrize(
    ("code", "status", "is_transient"),
    [(503, "UNAVAILABLE", True), (429, "RESOURCE_EXHAUSTED", True), (500, "INTERNAL", True), (400, "X", False)],
)
def test_error_object_ends_the_stream(code: int, status: str, is_transient: bool) -> None:
    """PV-16, D-5, PV-49"""
    with pytest.raises(ProviderError, match="busy") as caught:
        answer(chunk(said("a")), {"error": {"code": code, "status": status, "message": "busy"}})
    assert caught.value.is_transient is is_transient and caught.value.status == code


def test_unknown_parts_and_fields_are_passed_over() -> None:
    """PV-16"""
    streamed = answer(
        {"type": "ping"},
        chunk({"executableCode": {"code": "1"}}, said("a"), {"inlineData": {"data": "AAAA"}}, groundingMetadata={}),
        {"candidates": []},
        {"candidates": [{"index": 0, "content": {"role": "model"}}]},
        chunk(finish="STOP", citationMetadata={}),
    )
    assert streamed.message() == assistant("a")


def test_stream_without_a_reason_to_finish_was_cut() -> None:
    """PV-11, PV-55"""
    with pytest.raises(StreamCut):
        answer(chunk(said("a")))


def test_chunk_that_can_not_be_read_is_malformed() -> None:
    """PV-11"""
    with pytest.raises(MalformedStream):
        answer(b"data: {oops\n\n")


# --- over the network ------------------------------------------------------------------------------------------------


def test_preset_is_the_vendor_and_an_endpoint_of_its_wire_is_not() -> None:
    """RT-33, 2.1, 2.2"""
    assert GEMINI.base_url == "https://generativelanguage.googleapis.com/"
    assert (GEMINI.auth.kind, GEMINI.auth.name) == ("header", "x-goog-api-key")
    assert not GEMINI.capabilities.deferred_tools and GEMINI.capabilities.reports_thoughts_tokens
    endpoint = definition_of(ProviderChoice("house", None, "https://gw.example/", "gemini_generate_content", None))
    assert not endpoint.is_vendor and endpoint.identity == "house@https://gw.example:443"


def test_models_that_hold_no_conversation_are_not_offered_by_the_vendor() -> None:
    """RT-30: the first of the list may be taken, so it must be one that answers."""
    names = ("gemini-3-pro", "gemini-3-pro-image", "gemini-2.5-flash-preview-tts", "gemini-embedding-001", "aqa")
    names += ("deep-research-pro-preview", "nano-banana-pro-preview")
    rows = b"".join((b'{"models": [', b",".join(b'{"name": "models/%b"}' % name.encode() for name in names), b"]}"))
    endpoint = definition_of(ProviderChoice("house", None, "https://gw.example/", "gemini_generate_content", None))
    assert [model.id for model in read_models(rows, GEMINI).models] == ["gemini-3-pro"]
    assert len(read_models(rows, endpoint).models) == len(names)


def test_list_of_models_that_can_not_be_read_is_malformed() -> None:
    """PV-11"""
    with pytest.raises(MalformedStream, match="list of models"):
        read_models(b'{"models": 7}', GEMINI)


def provider_at(server: ModelServer, path: str = "") -> Any:
    registry = ProviderRegistry()
    choice = ProviderChoice("gemini", Secret("g-key"), server.base_url + path, "gemini_generate_content", "test")
    return registry.get(choice), registry.aclose


async def collect(events: Any) -> StreamedMessage:
    streamed = StreamedMessage()
    async for event in events:
        streamed.apply(event)
    return streamed


@pytest.mark.anyio
async def test_request_carries_the_key_and_asks_for_events() -> None:
    """2.1, RT-34"""
    async with ModelServer(says("a"), says("b")) as server:
        for prefix, expected in (("", "/v1beta/models/m"), ("house/v1beta", "/house/v1beta/models/m")):
            provider, close = provider_at(server, prefix)
            await collect(provider.stream(Request("m", [user("x")])))
            request = server.requests[-1]
            assert request.path == f"{expected}:streamGenerateContent" and request.query == {"alt": "sse"}
            assert request.headers["x-goog-api-key"] == "g-key" and "key" not in request.target
            await close()


@pytest.mark.anyio
async def test_steps_of_a_turn_are_taken_by_a_vendor_that_checks_signatures() -> None:
    """PV-41, PV-47: its own calls with their signatures, and a call from elsewhere ahead of them."""
    script = [calls(tool("ls", id="fc_1", signature="c2lnMQ=="), tool("ls", id="fc_2")), says("done")]
    async with ModelServer(*script) as server:
        provider, close = provider_at(server)
        conversation = [
            user("look"),
            assistant(ToolUse("toolu_1", "ls", {})),
            Message("user", [ToolResult("toolu_1", "a"), Text("and there?")]),
        ]
        first = await collect(provider.stream(Request(MODEL, conversation)))
        uses = first.message().tool_uses()
        conversation += [first.message(), Message("user", [ToolResult(use.id, "b") for use in uses])]
        assert (await collect(provider.stream(Request(MODEL, conversation)))).message() == assistant("done")
        assert list(server.requests[1].tool_results) == ["0", "fc_1", "fc_2"]
        await close()


@pytest.mark.anyio
async def test_what_the_vendor_can_not_do_is_refused_before_anything_is_sent() -> None:
    """PV-3, PV-47"""
    async with ModelServer() as server:
        provider, close = provider_at(server)
        for odd in (replace(READ, deferred=True), replace(READ, kind="image_generation")):
            with pytest.raises((UnsupportedCapability, InvalidRequest)):
                await collect(provider.stream(Request(MODEL, [user("x")], tools=[odd])))
        assert server.requests == []
        await close()


@pytest.mark.anyio
async def test_all_pages_of_models_are_read_with_their_windows() -> None:
    """PV-1, RT-32, D-27"""
    rows: list[dict[str, Any]] = [{"id": f"gemini-{at:04}"} for at in range(1200)]
    rows += [
        {"id": "gemini-3-pro", "name": "Gemini 3 Pro", "context_length": 1_048_576, "description": "The best."},
        {"id": "text-embedding", "methods": ["embedContent"]},
    ]
    async with ModelServer(models=rows, api_key="g-key") as server:
        provider, close = provider_at(server)
        models = await provider.list_models()
        assert len(models) == 1201
        model = next(model for model in models if model.id == "gemini-3-pro")
        assert (model.display_name, model.context_window, model.description) == ("Gemini 3 Pro", 1_048_576, "The best.")
        assert [request.query for request in server.listings] == [
            {"pageSize": "1000"},
            {"pageSize": "1000", "pageToken": "1000"},
        ]
        await close()


@pytest.mark.anyio
async def test_wrong_key_and_long_prompts_are_told_as_what_they_are() -> None:
    """PV-2, PV-49, PV-50, PV-51, D-25: this vendor answers 400 to both, and says in words when to come again."""
    too_long = {
        "error": {
            "code": 400,
            "message": "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            "status": "INVALID_ARGUMENT",
        }
    }
    busy = {"error": {"code": 429, "message": "Quota exceeded. Please retry in 7.5s.", "status": "RESOURCE_EXHAUSTED"}}
    async with ModelServer(fails(400, too_long), fails(404), fails(429, busy), api_key="g-key") as server:
        provider, close = provider_at(server)
        for kind, code in (
            (ProviderError, "context_length_exceeded"),
            (HttpError, "provider_http"),
            (HttpError, "provider_http"),
        ):
            with pytest.raises(kind) as caught:
                await collect(provider.stream(Request(MODEL, [user("x")])))
            assert caught.value.kind == code
            if caught.value.status == 429:
                assert caught.value.retry_after_s == 7.5 and caught.value.is_transient
        await close()
    async with ModelServer(api_key="another") as server:
        provider, close = provider_at(server)
        with pytest.raises(AuthenticationError, match="API key not valid"):
            await collect(provider.stream(Request(MODEL, [user("x")])))
        with pytest.raises(AuthenticationError):
            await provider.list_models()
        await close()
