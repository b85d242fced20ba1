"""Servers that mean no good: whatever they send ends in an answer or in one of our own errors, soon and in little
memory."""

import asyncio
import contextlib
import gzip
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import msgspec
import pytest

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import Message, Text, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.providers import http
from basis_daemon.runtime.providers.base import BlockStarted, Request, TextDelta, ToolDefinition
from basis_daemon.runtime.providers.errors import HttpError, MalformedStream, ProviderError, RetryableError
from basis_daemon.runtime.providers.failures import LONGEST_WISH_S, Target, from_stream, retry_after
from basis_daemon.runtime.providers.http import Call, HttpPool, open_stream
from basis_daemon.runtime.providers.network import Network
from basis_daemon.runtime.providers.registry import chat_completions_definition
from basis_daemon.runtime.providers.remote import WIRES
from basis_daemon.runtime.providers.sse import SseParser
from basis_daemon.runtime.providers.streamed import MAX_ANSWER_CHARS, StreamedMessage
from basis_daemon.runtime.providers.websocket_frames import FrameParser, TextMessage
from support.model_server import ModelServer, Raw, hangs
from support.wire_streams import body, collected, stream

pytestmark = pytest.mark.anyio

KEY = Secret("sk-do-not-show")
TARGET = Target("Gateway", "gateway", "http://127.0.0.1:1", "v1/x", "x", True, (KEY,))
DEFINITION = chat_completions_definition("gateway", "http://127.0.0.1:1")
EVENTS = {"content-type": "text/event-stream"}


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["Mon, 01 Jan 2024 00:00:00 +99999999999999", "9" * 50 + " Jan 2024 00:00:00 GMT", "1 Jan " + "9" * 30]
)
def test_date_that_is_in_no_calendar_asks_for_no_wait(value: str) -> None:
    """PV-51"""
    assert retry_after(value) is None


@pytest.mark.parametrize("value", ["9" * 400, "1000000000", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_wait_without_end_is_a_number_that_can_be_shown(value: str) -> None:
    """PV-51"""
    assert retry_after(value) == LONGEST_WISH_S
    assert from_stream(TARGET, "rate_limit", f"try again in {'9' * 400} s").retry_after_s == LONGEST_WISH_S


@pytest.mark.parametrize("code", ["²", "9" * 5000, 10**30, -1, [], {"a": 1}, True, 1.5])
def test_code_that_is_no_status_is_none(code: object) -> None:
    """PV-16"""
    error = from_stream(TARGET, code, "it said sk-do-not-show")
    assert type(error) is ProviderError and error.status is None and str(error).endswith("it said [redacted]")


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("it broke", "it broke"),
        (["it broke"], '["it broke"]'),
        (True, "true"),
        ({"code": "odd", "message": {"why": "it broke"}}, '{"why":"it broke"}'),
        ({"code": [1], "status": [1], "type": {}, "message": ["it broke"]}, '["it broke"]'),
    ],
)
def test_error_of_any_shape_is_told_in_its_words(wire: Any, error: object, said: str) -> None:
    """PV-16"""
    with pytest.raises(ProviderError) as caught:
        stream(wire, DEFINITION, {"error": error})
    assert str(caught.value) == f"Odd gave up on the answer: {said}"


def test_event_that_is_an_error_by_its_name_alone_is_one() -> None:
    """PV-16"""
    with pytest.raises(RetryableError, match="come back later"):
        stream(
            WIRES["chat_completions"],
            DEFINITION,
            b'event: error\ndata: {"code":"overloaded","message":"come back later"}\n\n',
        )


# --- counts ----------------------------------------------------------------------------------------------------------


def usage_of(wire: str, value: object) -> list[dict[str, Any]]:
    """A whole answer, every count of which is `value`."""
    match wire:
        case "responses":
            said = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
            usage = {"input_tokens": value, "output_tokens": value, "input_tokens_details": {"cached_tokens": value}}
            return [{"type": "response.completed", "response": {"output": [said], "usage": usage}}]
        case "chat_completions":
            usage = {"prompt_tokens": value, "completion_tokens": value, "total_tokens": value}
            return [{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage}]
        case "anthropic_messages":
            return [
                {"type": "message_start", "message": {"usage": {"input_tokens": value, "output_tokens": value}}},
                {"type": "content_block_start", "content_block": {"type": "text", "text": "hi"}},
                {"type": "message_delta", "usage": {"output_tokens": value, "cache_read_input_tokens": value}},
                {"type": "message_stop"},
            ]
        case _:
            said = {"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}
            return [{"candidates": [said], "usageMetadata": {"promptTokenCount": value, "candidatesTokenCount": value}}]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("value", "known"), [(12.0, 12), ("12", None), (-1, None), (1e300, None), (10**30, None), (True, None), ([], None)]
)
def test_count_that_is_none_is_unknown_and_costs_no_answer(wire: Any, value: object, known: int | None) -> None:
    """2.6"""
    answer = collected(stream(WIRES[wire], DEFINITION, *usage_of(wire, value)))
    assert answer.message().content == [Text("hi")]
    assert answer.usage.output_tokens == known
    assert (answer.usage.input_tokens or 0) == (known or 0) * (2 if wire == "anthropic_messages" else 1)


# --- depth -----------------------------------------------------------------------------------------------------------

DEEP = {
    "chat_completions": b'{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"r","arguments":%b}}]}}]}',
    "responses": b'{"type":"response.output_item.done","item":{"type":"function_call","id":"f","arguments":%b}}',
    "anthropic_messages": b'{"type":"content_block_start","content_block":{"type":"tool_use","name":"b","input":%b}}',
    "gemini_generate_content": b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"r","args":%b}}]}}]}',
}
STOP = {"anthropic_messages": {"type": "content_block_stop"}, "responses": {"type": "response.completed"}}


@pytest.mark.parametrize("wire", WIRES)
def test_nesting_of_any_depth_is_an_input_that_is_refused_or_a_stream_that_is(wire: Any) -> None:
    """TL-16: also where it can just be read, and no longer be written."""
    for levels in (*range(850, 1010), 100_000):
        with contextlib.suppress(ProviderError):
            stream(WIRES[wire], DEFINITION, b"data: " + DEEP[wire] % nested(levels) + b"\n\n", STOP.get(wire, {}))


def test_hosted_work_that_no_log_could_be_read_with_is_refused() -> None:
    """PV-11"""

    def searched(levels: int) -> list[Any]:
        item = b'{"type":"web_search_call","id":"ws_1","action":%b}' % nested(levels)
        event = b'data: {"type":"response.output_item.done","item":%b}\n\n' % item
        return stream(WIRES["responses"], DEFINITION, event, {"type": "response.completed"})

    assert collected(searched(100)).message().content
    with pytest.raises(MalformedStream, match="nested too deeply"):
        collected(searched(101))


def test_query_of_a_search_that_is_no_text_is_none() -> None:
    start = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": msgspec.Raw(nested(500))}}
    answer = stream(
        WIRES["anthropic_messages"],
        DEFINITION,
        {"type": "content_block_start", "content_block": start},
        {"type": "message_stop"},
    )
    assert collected(answer).message().content[0].action == {"type": "search", "query": None}  # type: ignore[union-attr]


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize("name", ["", "functions.read", "read file\n", "1st", "é" * 100])
def test_name_that_a_model_made_up_is_sent_back_as_every_vendor_takes_it(wire: Any, name: str) -> None:
    """A vendor that refuses one would refuse the conversation for ever."""
    called = [user("x"), assistant(ToolUse("c", name, {})), Message("user", [ToolResult("c", "no such tool")])]
    sent = names_in(body(wire, DEFINITION, Request("m", called)))
    assert len(set(sent)) == 1
    assert re.fullmatch("[A-Za-z_][A-Za-z0-9_-]{0,63}", sent[0])


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_name_that_is_on_offer_is_sent_back_as_it_is(wire: Any) -> None:
    called = [user("x"), assistant(ToolUse("c", "a.b", {})), Message("user", [ToolResult("c", "done")])]
    tools = [ToolDefinition("a.b", "Does it.", {})]
    assert set(names_in(body(wire, DEFINITION, Request("m", called, tools=tools)))) == {"a.b"}


def names_in(sent: Any) -> list[str]:
    """The names in calls and results of a request, wherever its wire has them."""
    if isinstance(sent, list):
        return [name for item in sent for name in names_in(item)]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(sent, dict):
        return []
    fields: dict[str, Any] = {key: value for key, value in sent.items() if key != "tools"}  # pyright: ignore[reportUnknownVariableType]
    own = [fields["name"]] if isinstance(fields.get("name"), str) else []
    return own + [name for value in fields.values() for name in names_in(value)]


# --- amounts ---------------------------------------------------------------------------------------------------------


def test_answer_without_end_is_given_up() -> None:
    answer = StreamedMessage()
    answer.apply(BlockStarted(0, "text"))
    megabyte = TextDelta(0, "x" * (1 << 20))
    for _ in range(MAX_ANSWER_CHARS >> 20):
        answer.apply(megabyte)
    with pytest.raises(MalformedStream, match="longer than"):
        answer.apply(megabyte)


def test_lines_without_content_count_as_well() -> None:
    parser = SseParser(max_event_bytes=10_000)
    for _ in range(5):
        parser.feed(b"data\n" * 1000)
    with pytest.raises(MalformedStream, match="larger than"):
        parser.feed(b"data\n" * 6000)


def test_parts_without_content_are_not_kept() -> None:
    parser = FrameParser()
    assert parser.feed(b"\x01\x00" + b"\x00\x00" * 100_000) == []
    assert not parser._parts  # pyright: ignore[reportPrivateUsage]
    assert parser.feed(b"\x80\x02{}") == [TextMessage(b"{}")]


async def test_answer_that_unpacks_to_gigabytes_leaves_the_others_their_turns() -> None:
    """One read of it may stand for a thousand times as much."""
    squeezed = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(squeezed.compress(b":\n" * (1 << 19)) for _ in range(40)) + squeezed.flush()
    turns = pieces = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    pool = HttpPool(Network())
    packed = Raw(pieces=(bomb,), headers={**EVENTS, "content-encoding": "gzip"})
    async with ModelServer(packed) as server, opened(pool, server) as body, anyio.create_task_group() as group:
        group.start_soon(others)
        async for piece in body:
            assert len(piece) <= http.PIECE_BYTES
            pieces += 1
        group.cancel_scope.cancel()
    await pool.aclose()
    assert pieces == 40 * (1 << 20) // http.PIECE_BYTES
    assert turns > pieces / 2


def opened(pool: HttpPool, server: ModelServer) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    return open_stream(pool, Call("POST", f"{server.base_url}/v1/responses", {}, TARGET, b'{"model":"m"}'))


async def test_answer_compressed_more_than_once_is_refused() -> None:
    twice = gzip.compress(gzip.compress(b"data: {}\n\n"))
    pool = HttpPool(Network())
    async with ModelServer(Raw(pieces=(twice,), headers={**EVENTS, "content-encoding": "gzip, gzip"})) as server:
        with pytest.raises(MalformedStream, match="more than once"):
            async with opened(pool, server):
                pass
    await pool.aclose()


async def test_document_that_never_ends_is_known_by_what_had_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A success that is no stream is waited for no longer than an error."""
    monkeypatch.setattr(http, "ERROR_BODY_TIMEOUT_S", 0.1)
    pool = HttpPool(Network())
    page = Raw(pieces=(b"<p>Please log in", b"</p>"), headers={"content-type": "text/html"})
    async with ModelServer(hangs(page, after_deltas=1)) as server:
        with pytest.raises(HttpError, match="Please log in"):
            async with opened(pool, server):
                pass
    await pool.aclose()
