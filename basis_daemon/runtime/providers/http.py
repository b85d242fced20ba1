"""Requests over HTTP: one pool of connections per runtime, streamed and bounded answers.

Owns connecting, timeouts and giving connections back. Follows no redirect and repeats nothing (PV-57). What is sent and
what the bytes mean is the wires'; what failures mean is `failures.py`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from basis_daemon.runtime.providers.errors import HttpError, MalformedStream, TransportError
from basis_daemon.runtime.providers.failures import (
    Target,
    foreign_exceptions,
    from_exception,
    from_status,
    message_in,
)

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_S = 15.0
"""Seconds until a connection, TLS included, has to stand."""
ERROR_BODY_TIMEOUT_S = 10.0
"""Seconds an error's body may take; what has come by then is used."""
ERROR_BODY_BYTES = 64 * 1024
"""Bytes of an error's body that are read."""
JSON_BODY_BYTES = 16 * 1024 * 1024
"""Bytes of a JSON document that are read; a list of models is a few hundred kilobytes."""
JSON_TIMEOUT_S = 30.0
"""Seconds of silence after which a request for a JSON document is given up."""
DRAIN_S = 0.5
"""Seconds a finished answer's HTTP body gets to end, so that its connection can be used again."""
KEEP_ALIVE_S = 60.0
"""Seconds an idle connection is kept: a tool's run usually fits, so the next round needs no TLS handshake."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: where, with what, and how long it may be silent."""

    method: str
    url: str
    headers: Mapping[str, str]
    target: Target
    body: bytes | None = None
    idle_timeout_s: float = JSON_TIMEOUT_S


class HttpPool:
    """The shared client. The HTTP library is imported and set up in a thread when first needed."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def client(self) -> "httpx2.AsyncClient":
        """The client. Raises `TransportError` once the pool was closed. Calling it early warms the library up."""
        async with self._opening:
            if self._is_closed:
                raise TransportError("the runtime was closed")
            if self._client is None:
                self._client = await asyncio.to_thread(_new_client)
            return self._client

    async def aclose(self) -> None:
        """Drop all connections; streams still open fail."""
        async with self._opening:
            self._is_closed = True
            client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _new_client() -> "httpx2.AsyncClient":
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx2

    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs whole URLs, and a key may be part of one
    return httpx2.AsyncClient(
        headers={"user-agent": "basis-daemon", "accept-encoding": "identity"},
        timeout=httpx2.Timeout(JSON_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=KEEP_ALIVE_S),
        follow_redirects=False,
        trust_env=True,
        # A proxy is for other machines, whatever NO_PROXY forgets to say.
        mounts={f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")},
        # One client serves many keys: a cookie set for one of them must not be sent with another.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


@asynccontextmanager
async def open_stream(pool: HttpPool, call: Call) -> AsyncGenerator[AsyncIterator[bytes]]:
    """Send `call` and give the body of its answer as it comes; leaving closes it (PV-65).

    Raises `ProviderError` kinds, also for what goes wrong while the body is read inside the `async with`.
    """
    async with _answer(pool, call) as response:
        if _is_document(response):
            raise _no_stream(call.target, await _bounded_body(response, ERROR_BODY_BYTES))
        raw = "content-encoding" not in response.headers
        async with aclosing(response.aiter_raw() if raw else response.aiter_bytes()) as chunks:
            yield chunks


async def fetch_json(pool: HttpPool, call: Call) -> bytes:
    """Send `call` and return the whole body of its answer. Raises `ProviderError` kinds."""
    async with _answer(pool, call) as response:
        body = await _bounded_body(response, JSON_BODY_BYTES + 1)
        if len(body) > JSON_BODY_BYTES:
            raise MalformedStream(f"the answer of {call.target.label} is larger than {JSON_BODY_BYTES} bytes")
        return body


async def drain(chunks: AsyncIterator[bytes]) -> None:
    """Let a body end whose content is complete. Nothing that happens now matters any more."""
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass
    except (TimeoutError, *foreign_exceptions()):
        return


@asynccontextmanager
async def _answer(pool: HttpPool, call: Call) -> AsyncGenerator["httpx2.Response"]:
    client = await pool.client()
    import httpx2

    timeout = httpx2.Timeout(call.idle_timeout_s, connect=CONNECT_TIMEOUT_S, pool=None)
    try:
        request = client.build_request(
            call.method, call.url, headers=dict(call.headers), content=call.body, timeout=timeout
        )
        response = await client.send(request, stream=True)
        try:
            if not response.is_success:
                raise await _failure(call.target, response)
            yield response
        finally:
            await response.aclose()
    except foreign_exceptions() as error:
        raise from_exception(call.target, error) from error


async def _failure(target: Target, response: "httpx2.Response") -> Exception:
    body = b""
    try:
        async with asyncio.timeout(ERROR_BODY_TIMEOUT_S):
            body = await _bounded_body(response, ERROR_BODY_BYTES)
    except (TimeoutError, *foreign_exceptions()):
        pass  # the status alone says enough
    return from_status(target, response.status_code, response.headers, body.decode("utf-8", "replace"))


async def _bounded_body(response: "httpx2.Response", limit: int) -> bytes:
    """The body, or its first `limit` bytes."""
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) >= limit:
                break
    return bytes(body[:limit])


def _is_document(response: "httpx2.Response") -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind in ("application/json", "text/html")


def _no_stream(target: Target, body: bytes) -> Exception:
    """A success that is no stream: some servers answer an unknown path or an error that way (PV-2)."""
    text = body.decode("utf-8", "replace")
    said = target.clean(message_in(text) or text)
    if "unexpected endpoint" in said.lower():
        return from_status(target, 404, {}, text)
    message = f"{target.label} answered {target.path} with a document instead of a stream: {said}"
    return HttpError(message, hint="check the base URL", status=200, body=text)
