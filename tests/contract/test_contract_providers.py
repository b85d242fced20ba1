"""One suite of conversations that every wire of a remote provider has to hold, through a real server.

A wire added later joins `WIRES` and must pass unchanged.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import Image, Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    MessageStopped,
    OutputFormat,
    Provider,
    ProviderEvent,
    Request,
    ResponseStarted,
    TextDelta,
    TokenUsage,
    ToolChoice,
    ToolDefinition,
)
from basis_daemon.runtime.providers.errors import (
    AuthenticationError,
    ContextLengthExceeded,
    HttpError,
    InvalidRequest,
    MalformedStream,
    ProviderError,
    ServerNotRunning,
    StreamCut,
)
from basis_daemon.runtime.providers.registry import ProviderChoice, ProviderRegistry
from basis_daemon.runtime.providers.streamed import StreamedMessage
from support.model_server import (
    Called,
    Gate,
    ModelServer,
    Scripted,
    Turn,
    Usage,
    breaks,
    burst,
    calls,
    cuts,
    fails,
    hangs,
    malformed,
    rate_limits,
    raw,
    says,
    slow,
    thinks,
    tool,
)

pytestmark = pytest.mark.anyio

WIRES = ("responses", "chat_completions", "anthropic_messages", "gemini_generate_content")
READ = ToolDefinition("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LS = ToolDefinition("ls", "Lists a directory.", {"type": "object", "properties": {}})
HELLO = Request("m", [user("hello")])


OPENAI_USAGE = TokenUsage(100, 20, cache_read_tokens=64, reasoning_tokens=5, total_tokens=120)


@dataclass(frozen=True)
class Spelling:
    """What is spelt in another way on each wire, and means the same."""

    key: tuple[str, str] = ("authorization", "Bearer sk-contract")
    thinker: str = "m"
    """A model that takes an effort."""
    choices: tuple[str, str, str] = ("'auto'", "'required'", "'function'")
    """No choice, any call, a call of the one tool that is named."""
    image: str = "data:image/png;base64,AAAA"
    usage: TokenUsage = OPENAI_USAGE
    bounds: frozenset[str] = frozenset({"temperature", "max_tokens", "max_output_tokens", "reasoning"})
    """What is not in a request that sets no bounds."""


SPELLINGS: dict[str, Spelling] = {
    "anthropic_messages": Spelling(
        key=("x-api-key", "sk-contract"),
        thinker="claude-opus-4-6",
        choices=("{'type': 'auto'}", "{'type': 'any'}", "{'type': 'tool', 'name': 'read'}"),
        image="'type': 'base64', 'media_type': 'image/png', 'data': 'AAAA'",
        usage=TokenUsage(100, 20, cache_read_tokens=64, cache_creation_tokens=0, reasoning_tokens=5),
        bounds=frozenset({"temperature", "thinking", "output_config"}),
    ),
    "gemini_generate_content": Spelling(
        key=("x-goog-api-key", "sk-contract"),
        thinker="gemini-3-pro",
        choices=("'mode': 'AUTO'", "'mode': 'ANY'", "'allowedFunctionNames': ['read']"),
        image="{'inlineData': {'mimeType': 'image/png', 'data': 'AAAA'}}",
        usage=TokenUsage(100, 20, cache_read_tokens=64, thoughts_tokens=5, total_tokens=125),
        bounds=frozenset({"generationConfig"}),
    ),
}


class Talk:
    """A provider on one wire and the scripted server behind it."""

    def __init__(self, provider: Provider, server: ModelServer, spelling: Spelling) -> None:
        self.provider = provider
        self.server = server
        self.spelling = spelling

    async def events(self, request: Request = HELLO, *, seen: list[ProviderEvent] | None = None) -> list[ProviderEvent]:
        """All events of an answer; `seen` has them also when it fails."""
        seen = [] if seen is None else seen
        with anyio.fail_after(5):
            async for event in self.provider.stream(request):
                seen.append(event)
        return seen

    async def answer(self, request: Request = HELLO) -> StreamedMessage:
        """The collected answer; a stream that contradicts itself fails here (PV-11)."""
        streamed = StreamedMessage()
        for event in await self.events(request):
            streamed.apply(event)
        assert streamed.complete
        return streamed


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def talk(wire: Any):
    @asynccontextmanager
    async def start(*script: Scripted, key: str | None = "sk-contract", **options: Any) -> AsyncGenerator[Talk]:
        registry = ProviderRegistry()
        async with ModelServer(*script, **options) as server:
            choice = ProviderChoice("gateway", Secret(key) if key else None, server.base_url, wire, "test")
            try:
                yield Talk(registry.get(choice), server, SPELLINGS.get(wire, Spelling()))
            finally:
                await registry.aclose()

    return start


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_text_streams_in_the_pieces_it_was_said_in(talk) -> None:
    gate = Gate()
    async with talk(slow(says("Hel", "lo", " ✓"), gate=gate)) as t:
        with anyio.fail_after(5):
            seen: list[str] = []
            asked = t.provider.stream(HELLO)
            async for event in asked:
                if isinstance(event, ResponseStarted):
                    gate.step()
                if isinstance(event, TextDelta):
                    seen.append(event.text)
                    gate.step()
        assert seen == ["Hel", "lo", " ✓"]


async def test_answer_is_collected_with_its_ids_and_stop_reason(talk) -> None:
    async with talk(says("a", "b")) as t:
        answer = await t.answer()
        assert answer.message() == assistant("ab")
        assert answer.stop_reason == "end_turn" and answer.model == "m" and answer.response_id


async def test_deltas_that_arrive_together_are_one_delta(talk) -> None:
    async with talk(burst(says(*"0123456789"))) as t:
        events = await t.events()
        assert [e.text for e in events if isinstance(e, TextDelta)] == ["0123456789"]


async def test_multibyte_text_survives_any_cut_of_the_network(talk) -> None:
    async with talk(burst(says("ä€😀" * 20), chunk_bytes=1)) as t:
        assert (await t.answer()).message().text() == "ä€😀" * 20


async def test_answer_of_nothing_is_complete_and_empty(talk) -> None:
    async with talk(says()) as t:
        assert (await t.answer()).message().content == []


async def test_usage_is_reported_in_all_its_fields(talk) -> None:
    """2.6"""
    usage = Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=5)
    async with talk(says("a", usage=usage), says("a", usage=None)) as t:
        assert (await t.answer()).usage == t.spelling.usage
        assert (await t.answer()).usage == TokenUsage()


async def test_answer_cut_at_the_output_limit_says_so(talk) -> None:
    """PV-29: a stop reason, no error."""
    async with talk(says("a", stop="max_tokens"), says("a", stop="content_filter")) as t:
        assert (await t.answer()).stop_reason == "max_tokens"
        assert (await t.answer()).stop_reason == "refusal"


async def test_reasoning_is_a_block_of_its_own_and_no_text(talk) -> None:
    """PV-42, PV-43"""
    async with talk(thinks("hm", "m") + says("yes")) as t:
        message = (await t.answer()).message()
        thinking, text = message.content
        assert isinstance(thinking, Thinking) and thinking.thinking == "hmm"
        assert text == Text("yes") and message.text() == "yes"


# --- tools -----------------------------------------------------------------------------------------------------------


async def test_tool_call_carries_id_name_and_input(talk) -> None:
    call = tool("read", {"path": "ä.txt", "n": [1, {"x": None}]}, chunks=7)
    async with talk(says("Let me look.") + calls(call)) as t:
        answer = await t.answer(Request("m", [user("look")], tools=[READ]))
        text, call = answer.message().content
        assert text == Text("Let me look.") and answer.stop_reason == "tool_use"
        assert isinstance(call, ToolUse)
        assert (call.id, call.name, call.input) == ("call_1", "read", {"path": "ä.txt", "n": [1, {"x": None}]})


async def test_parallel_calls_are_blocks_of_their_own(talk) -> None:
    """PV-13"""
    async with talk(calls(tool("read", {"path": "a"}), tool("ls"), tool("read", {"path": "b"}))) as t:
        events = await t.events()
        starts = [event for event in events if isinstance(event, BlockStarted)]
        assert [(e.index, e.id, e.name) for e in starts] == [
            (0, "call_1", "read"),
            (1, "call_2", "ls"),
            (2, "call_3", "read"),
        ]
        streamed = StreamedMessage()
        for event in events:
            streamed.apply(event)
        assert [call.input for call in streamed.message().tool_uses()] == [{"path": "a"}, {}, {"path": "b"}]


@pytest.mark.parametrize("arguments", ["", "{}", "  "])
async def test_empty_arguments_are_an_empty_object(talk, arguments: str) -> None:
    """PV-15, D-14"""
    async with talk(calls(Called("ls", (arguments,)))) as t:
        (call,) = (await t.answer()).message().tool_uses()
        assert call.input == {} and call.malformed is None


async def test_arguments_that_are_no_object_are_kept_as_they_came(talk) -> None:
    async with talk(calls(tool("read", '{"path": "a')), calls(tool("read", "[1]"))) as t:
        for expected in ('{"path": "a', "[1]"):
            (call,) = (await t.answer()).message().tool_uses()
            assert (call.input, call.malformed) == ({}, expected)


async def test_tools_and_choice_reach_the_server(talk) -> None:
    """PV-23, CV-8"""
    async with talk(says("a"), says("a"), says("a")) as t:
        for choice in (ToolChoice(), ToolChoice("any"), ToolChoice("tool", "read")):
            await t.answer(Request("m", [user("x")], tools=[LS, READ], tool_choice=choice))
        assert [r.tool_names for r in t.server.requests] == [["ls", "read"]] * 3
        for asked, choice in zip(t.server.requests, t.spelling.choices, strict=True):
            assert choice in str(asked.body) and "read" in str(asked.body)


async def test_conversation_with_calls_and_results_is_replayed_whole(talk, wire: str) -> None:
    """PV-20, PV-22, PV-31, PV-48"""
    conversation = [
        user("look"),
        assistant("Looking.", ToolUse("c1", "read", {"path": "a"}), ToolUse("c2", "ls", {})),
        Message("user", [ToolResult("c1", "text of a"), ToolResult("c2", {"n": 1}), Text("go on")]),
        assistant(ToolUse("c3", "read", {}, malformed="{oops")),
        Message("user", [ToolResult("c3", "no JSON", is_error=True)]),
    ]
    async with talk(says("done")) as t:
        await t.answer(Request("m", conversation, system="Be brief.", tools=[LS, READ]))
        (asked,) = t.server.requests
        assert asked.system == "Be brief."
        assert asked.conversation == [("user", "look"), ("assistant", "Looking."), ("user", "go on")]
        assert [call[1:] for call in asked.tool_calls] == [("read", '{"path":"a"}'), ("ls", "{}"), ("read", "{}")]
        assert list(asked.tool_results.values()) == ["text of a", '{"n":1}', "Error: no JSON"]
        if wire != "gemini_generate_content":  # which knows no ids but its own
            assert [id for id, *_ in asked.tool_calls] == list(asked.tool_results) == ["c1", "c2", "c3"]


async def test_images_are_sent_with_the_user_message_they_belong_to(talk) -> None:
    """PV-27"""
    picture = user("what is this?", Image(media_type="image/png", data="AAAA"))
    async with talk(says("a")) as t:
        await t.answer(Request("m", [picture]))
        (asked,) = t.server.requests
        assert t.spelling.image in str(asked.items) and asked.prompt == "what is this?"


async def test_address_of_an_image_is_sent_as_it_is_or_refused_before_anything_is_sent(talk, wire: str) -> None:
    """PV-27, PV-47"""
    async with talk(says("a")) as t:
        request = Request("m", [user("what is this?", Image(url="https://h.example/p.png"))])
        if wire == "gemini_generate_content":
            with pytest.raises(InvalidRequest, match="bytes"):
                await t.events(request)
            assert t.server.requests == []
        else:
            await t.answer(request)
            assert "https://h.example/p.png" in str(t.server.requests[0].items)


async def test_image_of_an_assistant_is_refused_before_anything_is_sent(talk) -> None:
    """PV-27"""
    async with talk() as t:
        with pytest.raises(InvalidRequest):
            await t.events(Request("m", [Message("assistant", [Image(url="https://h.example/")])]))
        assert t.server.requests == []


async def test_bounds_are_sent_only_when_set(talk) -> None:
    """PV-45"""
    async with talk(says("a"), says("a")) as t:
        await t.answer(HELLO)
        await t.answer(Request(t.spelling.thinker, [user("x")], temperature=0.5, max_output_tokens=99, effort="low"))
        plain, full = (request.body for request in t.server.requests)
        assert not t.spelling.bounds & set(plain)
        assert "'temperature': 0.5" in str(full) and ": 99" in str(full) and "'low'" in str(full)


async def test_answer_held_to_a_schema_is_text_that_fits_it(talk) -> None:
    """2.4: the schema goes out where the wire has it, in its own place."""
    schema = {
        "type": "object",
        "properties": {"lines": {"type": "integer"}},
        "required": ["lines"],
        "additionalProperties": False,
    }
    async with talk(says('{"lines"', ": 3}")) as t:
        answer = await t.answer(Request("m", [user("count")], output=OutputFormat("count", schema)))
        assert answer.message().text() == '{"lines": 3}'
        assert str(schema) in str(t.server.requests[0].body)


async def test_sealed_reasoning_goes_back_to_the_model_it_is_from_and_to_no_other(talk, wire: str) -> None:
    """PV-41, PV-42"""
    turn = thinks("hm", encrypted="c2VhbGVk") + calls(tool("ls", signature="b2YgY2FsbA=="))
    async with talk(turn, says("a"), says("b")) as t:
        said = (await t.answer(Request(t.spelling.thinker, [user("look")], tools=[LS]))).message()
        (call,) = said.tool_uses()
        conversation = [user("look"), said, Message("user", [ToolResult(call.id, "a.txt")])]
        for model in (t.spelling.thinker, "another"):
            await t.answer(Request(model, conversation, tools=[LS]))
        here, elsewhere = (request.data for request in t.server.requests[1:])
        assert b"c2VhbGVk" not in elsewhere and b"b2YgY2FsbA==" not in elsewhere
        assert (b"c2VhbGVk" in here) is (wire != "chat_completions")
        assert (b"b2YgY2FsbA==" in here) is (wire == "gemini_generate_content")


# --- failures --------------------------------------------------------------------------------------------------------


async def test_statuses_become_kinds_before_any_event(talk) -> None:
    """PV-49, PV-50, PV-51"""
    overflow = {"error": {"message": "This model's maximum context length is 10.", "code": "context_length_exceeded"}}
    async with talk(rate_limits(3), fails(500), fails(401), fails(400), fails(400, overflow)) as t:
        for kind, is_transient in (
            (HttpError, True),
            (HttpError, True),
            (AuthenticationError, False),
            (HttpError, False),
            (ContextLengthExceeded, False),
        ):
            with pytest.raises(ProviderError) as caught:
                await t.events()
            assert type(caught.value) is kind and caught.value.is_transient is is_transient
            if len(t.server.requests) == 1:
                assert caught.value.retry_after_s == 3


async def test_key_is_sent_where_the_wire_has_it_and_appears_in_no_error(talk) -> None:
    """RT-38, PV-62"""
    echo = {"error": {"message": "Incorrect API key provided: sk-contract"}}
    async with talk(fails(401, echo)) as t:
        with pytest.raises(AuthenticationError) as caught:
            await t.events()
        name, value = t.spelling.key
        assert t.server.requests[0].headers[name] == value
        assert "sk-contract" not in f"{caught.value} {caught.value.body} {caught.value.hint} {t.provider!r}"


async def test_without_a_key_no_authorization_is_sent(talk) -> None:
    async with talk(says("a"), key=None) as t:
        await t.answer()
        assert not {"authorization", t.spelling.key[0]} & set(t.server.requests[0].headers)


async def test_missing_path_names_path_and_wire(talk, wire: str) -> None:
    """PV-2"""
    async with talk(wires=()) as t:
        with pytest.raises(HttpError, match=wire) as caught:
            await t.events()
        assert t.server.strays[0].path.lstrip("/") in str(caught.value) and caught.value.hint


@pytest.mark.parametrize("how", ["close", "reset", "end"])
async def test_stream_cut_in_mid_answer_is_transient(talk, how: Any) -> None:
    """PV-55: what came until then was given out."""
    async with talk(cuts(says("a", "b", "c"), after_deltas=2, how=how)) as t:
        seen: list[ProviderEvent] = []
        with pytest.raises(StreamCut) as caught:
            await t.events(seen=seen)
        assert caught.value.is_transient
        if how != "reset":  # a reset may overtake what was sent ahead of it
            assert "".join(e.text for e in seen if isinstance(e, TextDelta)) == "ab"
        assert not any(isinstance(event, MessageStopped) for event in seen)


@pytest.mark.parametrize("after", [0, 1, 60, 700])
async def test_stream_cut_at_any_byte_never_looks_complete(talk, after: int) -> None:
    async with talk(cuts(says("a" * 100), after_bytes=after + 1, how="end")) as t:
        with pytest.raises(StreamCut):
            await t.events()


async def test_server_of_this_machine_that_is_not_running_is_named_and_not_tried_again(talk, wire: Any) -> None:
    """2.11: whoever forgot to start it is told at once, not after five attempts."""
    async with talk() as t:
        await anyio.to_thread.run_sync(t.server.close)
        with pytest.raises(ServerNotRunning, match=r"could not connect to http://127\.0\.0\.1:\d+") as caught:
            await t.events()
        assert not caught.value.is_transient and "start" in (caught.value.hint or "")


async def test_error_inside_the_stream_ends_it_with_its_own_words(talk) -> None:
    """PV-16, PV-29"""
    script = [breaks("boom", after=says("a")), breaks("boom", how="error"), breaks("bad", code="invalid_prompt")]
    async with talk(*script, breaks("busy", code="rate_limit_exceeded")) as t:
        for is_transient, words in ((True, "boom"), (True, "boom"), (False, "bad"), (True, "busy")):
            with pytest.raises(ProviderError, match=words) as caught:
                await t.events()
            assert caught.value.is_transient is is_transient
        assert caught.value.asks_for_pause


async def test_event_that_is_no_json_is_a_malformed_stream(talk) -> None:
    async with talk(malformed(b"{oops", after=says("a"))) as t:
        with pytest.raises(MalformedStream):
            await t.events()


async def test_document_instead_of_a_stream_is_told_by_its_words(talk) -> None:
    async with talk(raw(b'{"error":"not today"}', content_type="application/json")) as t:
        with pytest.raises(HttpError, match="not today"):
            await t.events()


async def test_redirect_is_not_followed(talk, wire: Any) -> None:
    """PV-57, PV-62"""
    async with ModelServer(says("stolen")) as other, talk(fails(307, "", {"location": other.base_url})) as t:
        with pytest.raises(HttpError, match="redirect"):
            await t.events()
        assert other.requests == other.strays == other.listings == []


# --- connections -----------------------------------------------------------------------------------------------------


async def test_connection_is_used_again_after_a_finished_answer(talk) -> None:
    async with talk(says("a"), calls(tool("ls")), says("b")) as t:
        for _ in range(3):
            await t.answer()
        assert [request.connection for request in t.server.requests] == [1, 1, 1]


async def test_connection_is_used_again_after_an_error_status(talk) -> None:
    async with talk(fails(500), says("b")) as t:
        with pytest.raises(HttpError):
            await t.events()
        await t.answer()
        assert [request.connection for request in t.server.requests] == [1, 1]


async def test_stopping_early_releases_the_connection(talk) -> None:
    """PV-65"""
    async with talk(hangs(says("a", "b"), after_deltas=1)) as t:
        stream = t.provider.stream(HELLO)
        assert isinstance(stream, AsyncGenerator)
        with anyio.fail_after(5):
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
            await stream.aclose()
            assert (await t.server.ending()).how == "client_left"


@pytest.mark.parametrize("script", [hangs(), hangs(says("a"), after_deltas=0), hangs(says("a", "b"), after_deltas=1)])
async def test_cancelling_the_reader_releases_the_connection(talk, script: Turn) -> None:
    """PV-65: before the headers, before the first delta, in the middle."""
    async with talk(script) as t:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(t.events)
                await t.server.request()
                await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            assert (await t.server.ending()).how == "client_left"


async def test_plain_task_cancellation_releases_the_connection_too(talk) -> None:
    """PV-65"""
    async with talk(hangs(says("a", "b"), after_deltas=1)) as t:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(t.events())
            await t.server.request()
            task.cancel()
        assert task.cancelled()
        assert (await t.server.ending()).how == "client_left"


async def test_many_conversations_run_at_once_on_one_provider(talk) -> None:
    """RT-5"""
    gate = Gate()
    count = 20

    def respond(request: Any) -> Turn:
        return slow(says(request.prompt), gate=gate)

    async with talk(respond=respond) as t:
        said: dict[int, str] = {}

        async def ask(number: int) -> None:
            said[number] = (await t.answer(Request("m", [user(str(number))]))).message().text()

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for number in range(count):
                    tasks.start_soon(ask, number)
                await gate.arrival(count)  # all of them are under way
                gate.open()
        assert said == {number: str(number) for number in range(count)}


async def test_scope_of_an_agent_speaks_with_the_same_credentials(talk) -> None:
    """RT-14"""
    async with talk(says("a")) as t:
        scoped = t.provider.scope()
        assert [e async for e in scoped.stream(HELLO)] and scoped.id == t.provider.id == "gateway"


# --- models ----------------------------------------------------------------------------------------------------------


async def test_models_are_listed_newest_first_with_their_windows(talk) -> None:
    """RT-30, RT-32"""
    rows = [
        {"id": "old", "created": 10},
        {"id": "unknown-b", "created": None},
        {"id": "new-b", "created": 20, "context_length": 8192, "name": "The New B"},
        {"id": "new-a", "created": 20, "max_model_len": 4096},
        {"id": "unknown-a", "created": 0},
    ]
    async with talk(models=rows, api_key="sk-contract") as t:
        models = await t.provider.list_models()
        assert [m.id for m in models] == ["new-a", "new-b", "old", "unknown-a", "unknown-b"]
        assert [m.context_window for m in models] == [4096, 8192, None, None, None]
        assert models[1].display_name == "The New B" and models[1].provider == "gateway"


async def test_a_model_without_a_name_is_not_listed(talk) -> None:
    """RT-32: it would be taken for the newest, and could not be asked for."""
    async with talk(models=[{"id": "", "created": 30}, {"id": " ", "created": 20}, {"id": "m", "created": 10}]) as t:
        assert [model.id for model in await t.provider.list_models()] == ["m"]


async def test_listing_with_a_wrong_key_is_an_authentication_error(talk) -> None:
    async with talk(api_key="sk-another") as t:
        with pytest.raises(AuthenticationError):
            await t.provider.list_models()
