"""Connections, timeouts and bounds of requests over HTTP: PV-18, PV-57, PV-62, PV-65, RT-38."""

import gzip
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import user
from basis_daemon.runtime.providers import http
from basis_daemon.runtime.providers.base import MessageStopped, Request, TextDelta
from basis_daemon.runtime.providers.definition import AuthScheme, StaticCredentials
from basis_daemon.runtime.providers.errors import (
    ContextLengthExceeded,
    HttpError,
    MalformedStream,
    StreamCut,
    TransportError,
)
from basis_daemon.runtime.providers.http import HttpPool
from basis_daemon.runtime.providers.registry import chat_completions_definition
from basis_daemon.runtime.providers.remote import RemoteProvider
from support.model_server import Gate, ModelServer, Raw, cuts, fails, hangs, raw, says, slow

pytestmark = pytest.mark.anyio
HELLO = Request("m", [user("hello")])
SSE = {"content-type": "text/event-stream"}
WHOLE = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@pytest.fixture
async def pool() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.aclose()


def provider(server: ModelServer, pool: HttpPool, *, key: str | None = None, **fields: Any) -> RemoteProvider:
    definition = replace(chat_completions_definition("own", server.base_url), **fields)
    return RemoteProvider(definition, StaticCredentials(Secret(key) if key else None), pool)


async def text(remote: RemoteProvider) -> str:
    with anyio.fail_after(5):
        return "".join([event.text async for event in remote.stream(HELLO) if isinstance(event, TextDelta)])


@pytest.mark.parametrize("script", [hangs(), hangs(says("a", "b"), after_deltas=1)])
async def test_silence_beyond_the_idle_timeout_is_transient(script: Any, pool: HttpPool) -> None:
    """PV-18, D-15: ahead of the headers and in mid-stream; the connection is given up."""
    async with ModelServer(script) as server:
        with pytest.raises(TransportError, match="silent") as caught:
            await text(provider(server, pool, idle_timeout_s=0.1))
        assert caught.value.is_transient
        assert (await server.ending()).how == "client_left"


async def test_stream_slower_than_the_idle_timeout_in_all_is_fine(pool: HttpPool) -> None:
    """PV-18: the gap counts, not the sum."""
    async with ModelServer(slow(says(*"abcdefgh"), delay_s=0.05)) as server:
        assert await text(provider(server, pool, idle_timeout_s=0.3)) == "abcdefgh"


async def test_answer_that_is_complete_need_not_be_waited_for(pool: HttpPool) -> None:
    """A server may keep the connection open behind the last event; the reader has all it needs."""
    async with ModelServer(hangs(raw(WHOLE), after_deltas=1)) as server:
        assert await text(provider(server, pool)) == "hi"
        assert (await server.ending()).how == "client_left"


async def test_last_event_is_given_out_ahead_of_the_bodys_end(pool: HttpPool) -> None:
    gate = Gate()
    async with ModelServer(slow(raw(WHOLE, b": bye\n\n"), gate=gate, before=1)) as server:
        with anyio.fail_after(5):
            async for event in provider(server, pool).stream(HELLO):
                if isinstance(event, MessageStopped):
                    gate.open()
            assert (await server.ending()).how == "sent"


async def test_trouble_behind_the_last_event_is_no_trouble(pool: HttpPool) -> None:
    junk = raw(WHOLE + b"data: {junk\n\n")
    async with ModelServer(junk, cuts(junk, after_deltas=1), cuts(junk, after_deltas=1, how="reset")) as server:
        for _ in range(3):
            assert await text(provider(server, pool)) == "hi"


async def test_compressed_stream_is_read_although_none_was_asked_for(pool: HttpPool) -> None:
    async with ModelServer(Raw(pieces=(gzip.compress(WHOLE),), headers={**SSE, "content-encoding": "gzip"})) as server:
        assert await text(provider(server, pool)) == "hi"
        assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_stream_without_a_content_type_is_read(pool: HttpPool) -> None:
    async with ModelServer(Raw(pieces=(WHOLE,), headers={})) as server:
        assert await text(provider(server, pool)) == "hi"


async def test_page_of_a_portal_instead_of_a_stream_is_an_error(pool: HttpPool) -> None:
    async with ModelServer(raw(b"<html>Please log in</html>", content_type="text/html; charset=utf-8")) as server:
        with pytest.raises(HttpError, match="Please log in"):
            await text(provider(server, pool))


async def test_endless_error_body_is_cut(pool: HttpPool) -> None:
    """RT-38: memory and message are bounded, whatever the server sends."""
    endless = Raw(pieces=(b"x" * 65536,) * 64, status=500, headers={"content-type": "text/plain"})
    async with ModelServer(endless) as server:
        with pytest.raises(HttpError) as caught:
            await text(provider(server, pool))
        assert len(caught.value.body or "") == http.ERROR_BODY_BYTES and len(str(caught.value)) < 2200


async def test_error_whose_body_breaks_off_is_known_by_what_had_come(pool: HttpPool) -> None:
    """PV-50: what had come may say all that matters."""
    broken = Raw(pieces=(b"prompt is too long: 9 > 8", b"x" * 99), status=413, headers={"content-type": "text/plain"})
    async with ModelServer(cuts(broken, after_deltas=1)) as server:
        with pytest.raises(ContextLengthExceeded, match="9 > 8"):
            await text(provider(server, pool))


async def test_error_whose_body_never_comes_is_known_by_its_status(
    pool: HttpPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "ERROR_BODY_TIMEOUT_S", 0.1)
    async with ModelServer(hangs(fails(503), after_deltas=0)) as server:
        with pytest.raises(HttpError, match="503"):
            await text(provider(server, pool))


async def test_document_beyond_the_limit_is_refused(pool: HttpPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "JSON_BODY_BYTES", 1000)
    async with ModelServer(models=[f"model-{n}" for n in range(100)]) as server:
        with pytest.raises(MalformedStream, match="larger"):
            await provider(server, pool).list_models()


async def test_list_that_is_no_list_is_an_error(pool: HttpPool) -> None:
    async with ModelServer(listing=fails(200, "<html>")) as server:
        with pytest.raises(MalformedStream):
            await provider(server, pool).list_models()


async def test_cookies_are_not_kept(pool: HttpPool) -> None:
    """One client serves many keys: nothing of one conversation travels with the next."""
    cookie = Raw(pieces=(WHOLE,), headers={**SSE, "set-cookie": "session=1; Path=/"})
    async with ModelServer(cookie, cookie) as server:
        remote = provider(server, pool)
        assert await text(remote) + await text(remote) == "hihi"
        assert all("cookie" not in request.headers for request in server.requests)


async def test_proxy_is_used_for_other_machines_and_never_for_this_one(
    pool: HttpPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ModelServer(says("direct")) as server, ModelServer(respond=lambda _: says("by proxy")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url)
        assert await text(provider(server, pool)) == "direct"
        away = RemoteProvider(chat_completions_definition("away", "http://away.invalid/"), StaticCredentials(), pool)
        assert await text(away) == "by proxy"
        assert proxy.requests[0].target == "http://away.invalid/v1/chat/completions"


async def test_key_is_never_sent_to_where_a_redirect_points(pool: HttpPool) -> None:
    """PV-57, PV-62"""
    async with ModelServer(says("a")) as other:
        location = {"location": f"{other.base_url}v1/chat/completions"}
        async with ModelServer(fails(308, headers=location)) as server:
            with pytest.raises(HttpError, match="redirect"):
                await text(provider(server, pool, key="sk-redirected"))
        assert other.requests == []


async def test_http_library_logs_no_key(pool: HttpPool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(0):
        async with ModelServer(says("a"), says("a")) as server:
            await text(provider(server, pool, key="sk-logged"))
            await text(provider(server, pool, key="sk-logged", auth=AuthScheme("query_param", "key")))
    assert "sk-logged" not in caplog.text


async def test_closing_the_pool_ends_streams_still_open(pool: HttpPool) -> None:
    async with ModelServer(hangs(says("a", "b"), after_deltas=1)) as server:
        with pytest.raises(TransportError):
            await _close_at_the_first_delta(provider(server, pool), pool)
        assert (await server.ending()).how == "client_left"


async def _close_at_the_first_delta(remote: RemoteProvider, pool: HttpPool) -> None:
    with anyio.fail_after(5):
        async for event in remote.stream(HELLO):
            if isinstance(event, TextDelta):
                await pool.aclose()


async def test_first_use_from_many_tasks_makes_one_client(pool: HttpPool) -> None:
    clients: list[object] = []

    async def use() -> None:
        clients.append(await pool.client())

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(use)
    assert len(clients) == 10 and len(set(map(id, clients))) == 1


async def test_cut_ahead_of_the_first_byte_is_transient(pool: HttpPool) -> None:
    async with ModelServer(cuts(says("a"), after_bytes=1)) as server:
        with pytest.raises(StreamCut):
            await text(provider(server, pool))
