"""PV-36…PV-39, PV-18, PV-65: an agent's websocket: opened, kept, recycled, refused, and how it ends."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
from websockets.asyncio.server import ServerConnection, serve

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import assistant, user
from basis_daemon.runtime.providers.base import (
    ProviderWait,
    Request,
    RequestOptions,
    ResponsesOptions,
    SessionHints,
    TextDelta,
)
from basis_daemon.runtime.providers.definition import Capabilities, Credentials, ProviderDefinition, StaticCredentials
from basis_daemon.runtime.providers.errors import (
    AuthenticationError,
    HttpError,
    InvalidRequest,
    MalformedStream,
    ProviderError,
    ServerNotRunning,
    SocketEnded,
    StreamCut,
    TransportError,
    UnsupportedCapability,
)
from basis_daemon.runtime.providers.http import HttpPool
from basis_daemon.runtime.providers.registry import chat_completions_definition, openai_definition
from basis_daemon.runtime.providers.remote import RemoteProvider
from support.model_server import Gate, ModelServer, Turn, cuts, fails, hangs, says, slow
from support.responses_talk import Talk, responses_talk, vendor

pytestmark = pytest.mark.anyio

ON_SOCKET = RequestOptions(responses=ResponsesOptions(transport="web_socket"))
HELLO = Request("m", [user("hello")], options=ON_SOCKET)
DONE = '{"type":"response.completed","response":{"id":"r1"}}'


def talking(*script: Any, options: RequestOptions = ON_SOCKET, **fields: Any) -> Any:
    return responses_talk(*script, options=options, **fields)


# --- the way of one request ------------------------------------------------------------------------------------------


async def test_request_is_one_message_with_the_fields_of_the_body() -> None:
    """PV-37"""
    async with talking(says("a"), says("b")) as talk:
        await talk.say("hi")
        await talk.say("and?", system="Be brief.")
        first, second = (request.body for request in talk.asked)
        assert first == {
            "type": "response.create",
            "model": "m",
            "store": False,
            "instructions": "",
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        }
        assert second["instructions"] == "Be brief." and "stream" not in second


async def test_socket_serves_every_turn_of_its_agent_and_no_other_agent() -> None:
    """PV-37, PV-35"""
    async with talking(respond=lambda request: says("a")) as talk:
        other = talk.another()
        for text in ("one", "two", "three"):
            await talk.say(text)
            await other.say(text)
        assert len(talk.server.handshakes) == 2
        assert [request.connection for request in talk.asked] == [1, 2, 1, 2, 1, 2]
        assert talk.server.handshakes[0].headers["authorization"] == "Bearer sk-1234567890"
        await other.scope.aclose()


async def test_requests_at_the_same_moment_have_a_socket_each() -> None:
    """PV-37: one request in flight for each socket."""
    gate = Gate()
    async with talking(slow(says("a"), gate=gate), slow(says("b"), gate=gate), says("c")) as talk:
        talk.messages.append(user("x"))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk.ask)
                tasks.start_soon(talk.ask)
                await gate.arrival(2)
                gate.open()
        await talk.ask()
        assert len(talk.server.handshakes) == 2
        assert talk.asked[0].connection != talk.asked[1].connection


async def test_provider_without_a_scope_closes_its_socket_after_the_answer() -> None:
    """PV-35, PV-65"""
    async with talking(says("a"), says("b")) as talk:
        for _ in range(2):
            assert [event async for event in talk.provider.stream(HELLO)]
        assert len(talk.server.handshakes) == 2


async def test_hundreds_of_kilobytes_travel_both_ways() -> None:
    text = "ä" * 200_000
    async with talking(says(text)) as talk:
        assert (await talk.say(text)).message() == assistant(text)
        assert talk.asked[0].prompt == text


# --- another one -----------------------------------------------------------------------------------------------------


async def test_socket_that_grew_old_is_replaced_between_requests() -> None:
    """PV-38: sockets are recycled before an hour is over, which is when the vendor ends them."""
    assert openai_definition().websocket_lifetime_s < 3600
    async with talking(says("a"), says("b"), definition={"websocket_lifetime_s": 0.0}) as talk:
        await talk.say("one")
        await talk.say("two")
        assert len(talk.server.handshakes) == 2
        assert talk.ids == [None, None] and talk.asked[1].conversation[0] == ("user", "one")


async def test_host_that_prefers_a_fresh_socket_gets_one() -> None:
    """PV-40"""
    options = replace(ON_SOCKET, session=SessionHints(connection_reuse="prefer-fresh"))
    async with talking(says("a"), says("b"), options=options) as talk:
        await talk.say("one")
        await talk.say("two")
        assert len(talk.server.handshakes) == 2
        assert talk.server.handshakes[0].headers["x-mentra-connection-reuse"] == "prefer-fresh"


async def test_rotated_key_opens_a_new_socket() -> None:
    """RT-35: a socket is authorised once."""
    keys = iter(["sk-first-key", "sk-first-key", "sk-first-key", "sk-second-key"])

    class Rotating:
        async def credentials(self) -> Credentials:
            return Credentials(key=Secret(next(keys)))

    pool = HttpPool()
    async with ModelServer(respond=lambda request: says("a")) as server:
        talk = Talk(RemoteProvider(vendor(server), Rotating(), pool), server, ON_SOCKET)
        for text in ("one", "two", "three", "four"):
            await talk.say(text)
        sent = [request.headers["authorization"] for request in server.handshakes]
        assert sent == ["Bearer sk-first-key", "Bearer sk-second-key"]
        assert talk.ids == [None, "resp_00000001", "resp_00000002", None]
        await talk.scope.aclose()
        await pool.aclose()


@pytest.mark.parametrize("transport", ["http_sse", "web_socket"])
async def test_key_changed_while_a_request_waits_is_the_one_it_is_sent_with(transport: Any) -> None:
    """RT-35: the next request is the next one that is sent, not the next that was asked for."""
    keys = ["sk-first-key"]
    gate = Gate()

    class Changing:
        async def credentials(self) -> Credentials:
            return Credentials(key=Secret(keys[-1]))

    def told(wait: ProviderWait | None) -> None:
        if wait is not None:
            keys.append("sk-second-key")
            gate.open()

    options = RequestOptions(responses=ResponsesOptions(transport=transport))
    pool = HttpPool()
    async with ModelServer(slow(says("a"), gate=gate), says("b")) as server:
        provider = RemoteProvider(vendor(server, max_concurrent=1), Changing(), pool)
        one, two = (Talk(provider, server, options) for _ in range(2))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.say, "one")
            await server.request(0)
            two.messages.append(user("two"))
            await two.ask(on_wait=told)
        sent = server.handshakes if transport == "web_socket" else server.requests
        assert [request.headers["authorization"] for request in sent] == [f"Bearer {key}" for key in keys]
        assert len(keys) == 2
        for talk in (one, two):
            await talk.scope.aclose()
    await pool.aclose()


async def test_scope_that_is_forgotten_leaves_no_socket_behind() -> None:
    """PV-65"""
    served: list[ServerConnection] = []
    async with odd(answering(served)) as scope:
        with anyio.fail_after(5):
            one = scope.scope()
            assert [event async for event in one.stream(HELLO)]
            del one
            gc.collect()
            await served[0].wait_closed()
            assert [event async for event in scope.stream(HELLO)]


async def test_closing_the_scope_says_goodbye() -> None:
    with anyio.fail_after(5):
        closed: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        async def serves(socket: ServerConnection) -> None:
            await socket.recv()
            await socket.send(DONE)
            await socket.wait_closed()
            closed.set_result(socket.close_code)

        async with odd(serves) as scope:
            assert [event async for event in scope.stream(HELLO)]
            await scope.aclose()
            assert await closed == 1000


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "definition",
    [
        replace(openai_definition(), id="proxy", base_url="http://127.0.0.1:9/", capabilities=Capabilities()),
        chat_completions_definition("gateway", "http://127.0.0.1:9/"),
        replace(chat_completions_definition("odd", "http://127.0.0.1:9/"), capabilities=Capabilities(websockets=True)),
    ],
    ids=lambda definition: definition.id,
)
async def test_provider_without_websockets_refuses_ahead_of_all_traffic(definition: ProviderDefinition) -> None:
    """PV-39, D-29: terminal, names the provider, and nothing falls back."""
    pool = HttpPool()
    scope = RemoteProvider(definition, StaticCredentials(), pool).scope()
    with pytest.raises(UnsupportedCapability, match=definition.id) as caught:
        await anext(scope.stream(HELLO))
    assert not caught.value.is_transient and "websocket" in str(caught.value)
    await pool.aclose()


async def test_endpoint_that_answers_in_http_is_named_and_never_spoken_to_over_http() -> None:
    """PV-2, PV-39"""
    async with talking(says("a"), websockets=False) as talk:
        with pytest.raises(HttpError, match="v1/responses") as caught:
            await talk.say("hi")
        assert caught.value.status == 404 and not caught.value.is_transient
        assert talk.asked == [] and len(talk.server.handshakes) == 1


async def test_refused_key_is_an_authentication_error() -> None:
    async with talking(says("a"), api_key="sk-another") as talk:
        with pytest.raises(AuthenticationError) as caught:
            await talk.say("hi")
        assert "sk-1234567890" not in f"{caught.value}{caught.value.body}"


async def test_handshake_that_is_told_to_wait_holds_back_all_handshakes_of_the_key() -> None:
    """2.11: an opening socket is a request as any other, and keeps its place while it opens."""
    came: list[bytes] = []
    over = asyncio.Event()

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 429 Slow down\r\nretry-after: 30\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        over.set()

    waits: list[ProviderWait | None] = []
    async with await asyncio.start_server(refuses, "127.0.0.1", 0) as server, at(server) as scope:
        error, _ = await failure(scope)
        assert error.asks_for_pause and 29 < error.held_s <= 30
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:

                def told(wait: ProviderWait | None) -> None:
                    waits.append(wait)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(anext, scope.scope().stream(replace(HELLO, on_wait=told)))
        await over.wait()
    assert waits[0] is not None and waits[0].reason == "rate_limit" and len(came) == 1


async def test_requests_over_a_socket_are_not_compressed() -> None:
    """PV-36"""
    options = RequestOptions(responses=ResponsesOptions(transport="web_socket", compression="zstd"))
    async with talking(options=options) as talk:
        with pytest.raises(InvalidRequest, match="compressed"):
            await talk.say("hi")
        assert talk.server.handshakes == []


async def test_connection_that_fails_may_be_tried_again_soon() -> None:
    """PV-38: 750 ms later, and no other agent has to wait for that."""

    over = asyncio.Event()

    async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        over.set()

    async with await asyncio.start_server(hangs_up, "127.0.0.1", 0) as server, at(server) as scope:
        error, _ = await failure(scope)
        await over.wait()
    assert isinstance(error, SocketEnded) and error.is_transient and error.retry_after_s == 0.75
    assert not error.asks_for_pause


async def test_server_of_this_machine_that_does_not_run_is_said_so() -> None:
    pool = HttpPool()
    definition = replace(openai_definition(), base_url="http://127.0.0.1:9/")
    with pytest.raises(ServerNotRunning):
        await anext(RemoteProvider(definition, StaticCredentials(), pool).scope().stream(HELLO))
    await pool.aclose()


async def test_handshake_that_never_ends_is_given_up() -> None:
    """1.6, D-15: the connect timeout of the definition."""

    over = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        over.set()

    async with (
        await asyncio.start_server(silent, "127.0.0.1", 0) as server,
        at(server, websocket_connect_timeout_s=0.05) as scope,
    ):
        error, _ = await failure(scope)
        await over.wait()
    assert isinstance(error, SocketEnded) and "silent" in str(error)


# --- how it ends -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def odd(serves: Callable[[ServerConnection], Awaitable[None]], **fields: Any) -> AsyncGenerator[Any]:
    """A scope whose server is the test's own, on another library's websocket."""
    async with (
        serve(serves, "127.0.0.1", 0, compression=None, close_timeout=0.01) as server,
        at(server, **fields) as scope,
    ):
        yield scope


@asynccontextmanager
async def at(server: Any, **fields: Any) -> AsyncGenerator[Any]:
    """A scope of the vendor's definition at the address of `server`."""
    port = next(iter(server.sockets)).getsockname()[1]
    pool = HttpPool()
    definition = replace(openai_definition(), base_url=f"http://127.0.0.1:{port}/", **fields)
    try:
        yield RemoteProvider(definition, StaticCredentials(), pool).scope()
    finally:
        await pool.aclose()


async def failure(scope: Any) -> tuple[ProviderError, str]:
    """What a request fails with, and the text that came until then."""
    text: list[str] = []
    try:
        with anyio.fail_after(5):
            async for event in scope.stream(HELLO):
                text += [event.text] if isinstance(event, TextDelta) else []
    except ProviderError as error:
        return error, "".join(text)
    raise AssertionError("the answer was complete")


BEGIN = '{"type":"response.output_text.delta","delta":"a"}'


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1000, MalformedStream), (1001, StreamCut), (1011, MalformedStream), (1012, StreamCut), (1013, StreamCut)],
)
async def test_socket_closed_in_mid_answer_breaks_the_wire_unless_the_server_goes_away(code: int, kind: type) -> None:
    """PV-38, PV-55: servers restart, and what they cut off then may be asked for again."""

    async def serves(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(BEGIN)
        await socket.close(code, "so long")

    async with odd(serves) as scope:
        error, text = await failure(scope)
    assert type(error) is kind and text == "a" and "so long" in str(error)


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_connection_that_breaks_in_mid_answer_is_a_cut_stream(how: Any) -> None:
    """PV-55"""
    async with talking(cuts(says("a", "b"), how=how)) as talk:
        with pytest.raises(StreamCut):
            await talk.say("hi")


async def test_socket_closed_ahead_of_the_first_event_may_be_tried_again() -> None:
    """PV-38"""

    async def serves(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.close(1011)

    async with odd(serves) as scope:
        error, _ = await failure(scope)
    assert isinstance(error, SocketEnded) and error.retry_after_s == 0.75


async def test_binary_message_is_a_malformed_stream() -> None:
    """PV-38"""

    async def serves(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(BEGIN)
        await socket.send(b"\x00")
        await socket.wait_closed()

    async with odd(serves) as scope:
        error, _ = await failure(scope)
    assert isinstance(error, MalformedStream) and "binary" in str(error)


async def test_silence_ends_the_answer_as_over_http() -> None:
    """PV-18, PV-38, D-15"""
    async with talking(hangs(says("a", "b"), after_deltas=1), definition={"idle_timeout_s": 0.05}) as talk:
        with pytest.raises(TransportError, match="silent") as caught:
            await talk.say("hi")
        assert caught.value.is_transient
        assert (await talk.server.ending()).how == "client_left"


async def test_ping_is_answered_while_an_answer_is_awaited() -> None:
    async def serves(socket: ServerConnection) -> None:
        await socket.recv()
        await (await socket.ping())
        await socket.send(DONE)
        await socket.wait_closed()

    async with odd(serves) as scope:
        with anyio.fail_after(5):
            assert [event async for event in scope.stream(HELLO)]


async def test_socket_that_ended_while_idle_is_replaced_unseen() -> None:
    """PV-37: also when the server has pinged it in vain before."""
    served: list[ServerConnection] = []

    async def serves(socket: ServerConnection) -> None:
        served.append(socket)
        await socket.recv()
        await socket.send(DONE)
        await socket.ping()
        if len(served) == 1:
            await socket.close(1001)
        await socket.wait_closed()

    async with odd(serves) as scope:
        with anyio.fail_after(5):
            assert [event async for event in scope.stream(HELLO)]
            await served[0].wait_closed()
            assert [event async for event in scope.stream(HELLO)]
    assert len(served) == 2


async def test_idle_socket_that_was_pinged_is_used_again() -> None:
    pinged = asyncio.Event()
    count = 0

    async def serves(socket: ServerConnection) -> None:
        nonlocal count
        count += 1
        async for _ in socket:
            await socket.send(DONE)
            await socket.ping()
            pinged.set()

    async with odd(serves) as scope:
        with anyio.fail_after(5):
            for _ in range(3):
                assert [event async for event in scope.stream(HELLO)]
                await pinged.wait()
    assert count == 1


@pytest.mark.parametrize(
    ("status", "kind", "is_transient"),
    [(401, AuthenticationError, False), (429, HttpError, True), (500, HttpError, True), (400, HttpError, False)],
)
async def test_error_message_is_the_status_it_names(status: int, kind: type, is_transient: bool) -> None:
    """PV-38, PV-49, PV-51"""
    async with talking(fails(status, headers={"Retry-After": "7"}), says("b")) as talk:
        with pytest.raises(kind) as caught:
            await talk.say("hi")
        error = caught.value
        assert isinstance(error, ProviderError)
        assert (error.status, error.retry_after_s, error.is_transient) == (status, 7, is_transient)
        if not is_transient:  # else the whole lane pauses
            assert (await talk.ask()).message() == assistant("b")


@pytest.mark.parametrize("field", ["status", "status_code"])
async def test_status_of_an_error_message_may_have_either_name(field: str) -> None:
    """PV-38"""

    async def serves(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(f'{{"type":"error","{field}":503,"error":{{"message":"busy","code":"overloaded"}}}}')
        await socket.wait_closed()

    async with odd(serves) as scope:
        error, _ = await failure(scope)
    assert isinstance(error, HttpError) and error.status == 503 and "busy" in str(error)


async def test_socket_the_vendor_calls_too_old_is_replaced_by_the_next_attempt() -> None:
    """PV-38: `websocket_connection_limit_reached`"""
    limit = {"error": {"message": "60 minutes are over", "code": "websocket_connection_limit_reached"}}
    async with talking(says("a"), fails(400, limit), says("b")) as talk:
        await talk.say("one")
        talk.messages.append(user("two"))
        with pytest.raises(SocketEnded) as caught:
            await talk.ask()
        assert caught.value.is_transient
        assert (await talk.ask()).message() == assistant("b")
        assert talk.asked[2].connection != talk.asked[1].connection and talk.ids[2] is None


# --- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [hangs(), hangs(says("a"), after_deltas=0), hangs(says("a", "b"), after_deltas=1)])
async def test_cancelling_the_reader_closes_the_socket(script: Turn) -> None:
    """PV-65"""
    async with talking(script, says("b")) as talk:
        talk.messages.append(user("x"))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk.ask)
                await talk.server.request()
                await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            assert (await talk.server.ending()).how == "client_left"
            assert (await talk.ask()).message() == assistant("b")
        assert talk.asked[1].connection != talk.asked[0].connection


async def test_stopping_early_closes_the_socket() -> None:
    """PV-65"""
    async with talking(hangs(says("a", "b"), after_deltas=1)) as talk:
        stream = talk.scope.stream(HELLO)
        assert isinstance(stream, AsyncGenerator)
        with anyio.fail_after(5):
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
            await stream.aclose()
            assert (await talk.server.ending()).how == "client_left"


async def test_closing_the_pool_ends_idle_sockets_too() -> None:
    served: list[ServerConnection] = []
    async with odd(answering(served)) as scope:
        with anyio.fail_after(5):
            assert [event async for event in scope.stream(HELLO)]
    with anyio.fail_after(5):
        await served[0].wait_closed()


def answering(served: list[ServerConnection]) -> Callable[[ServerConnection], Awaitable[None]]:
    """A server that answers everything with nothing, and keeps its sockets in `served`."""

    async def serves(socket: ServerConnection) -> None:
        served.append(socket)
        async for _ in socket:
            await socket.send(DONE)

    return serves
