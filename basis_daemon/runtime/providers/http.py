"""Requests over HTTP: one pool of connections per runtime and network, streamed and bounded answers.

Owns connecting, timeouts and giving connections back. Follows no redirect and repeats nothing (PV-57). What is sent and
what the bytes mean is the wires'; what failures mean is `failures.py`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from basis_daemon.runtime.providers.errors import HttpError, InvalidRequest, MalformedStream, TransportError
from basis_daemon.runtime.providers.failures import (
    Target,
    foreign_exceptions,
    from_exception,
    from_status,
    message_in,
)
from basis_daemon.runtime.providers.network import DIRECT, Network, Route, process_network

if TYPE_CHECKING:
    import ssl

    import httpcore2
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
PIECE_BYTES = 64 * 1024
"""Bytes of an unpacked body that are worked on at once."""
DRAIN_S = 0.5
"""Seconds a finished answer's HTTP body gets to end, so that its connection can be used again."""
SWITCHING_PROTOCOLS = 101
MAX_IDLE = 20
"""Idle connections that are kept."""
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
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    on_headers: Callable[[Mapping[str, str]], None] | None = None
    """Told the headers of an answer that is no error, ahead of its body."""


class HttpPool:
    """The shared connections of one network. The HTTP library is imported and set up in a thread when first needed."""

    def __init__(self, network: Network | None = None) -> None:
        """Without a `network`, what the process's environment says when a connection is first needed."""
        self._network = network
        self._clients: dict[Route, httpx2.AsyncClient] = {}
        self._opening = asyncio.Lock()
        self._is_closed = False

    @property
    def network(self) -> Network:
        if self._network is None:
            self._network = process_network()
        return self._network

    async def client(self, route: Route = DIRECT) -> "httpx2.AsyncClient":
        """The client for `route`. Calling it early warms the library up.

        Raises `TransportError` once the pool was closed and `InvalidRequest` for a proxy or certificates that can't be
        used.
        """
        async with self._opening:
            if self._is_closed:
                raise TransportError("the runtime was closed")
            client = self._clients.get(route)
            if client is None:
                client = self._clients[route] = await asyncio.to_thread(_new_client, route)
            return client

    async def aclose(self) -> None:
        """Drop all connections; streams still open fail."""
        async with self._opening:
            self._is_closed = True
            clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()


def _new_client(route: Route) -> "httpx2.AsyncClient":
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx2

    from basis_daemon.runtime.providers.transport import Transport

    for library in ("httpx2", "httpcore2"):  # they log whole URLs and headers, and a key may be part of those
        logging.getLogger(library).setLevel(logging.WARNING)
    return httpx2.AsyncClient(
        headers={"user-agent": "basis-daemon", "accept-encoding": "identity"},
        timeout=httpx2.Timeout(JSON_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=None),
        transport=Transport(trust=_trust(route), proxy=_proxy(route), max_idle=MAX_IDLE, idle_s=KEEP_ALIVE_S),
        follow_redirects=False,
        trust_env=False,
        # One client serves many keys: a cookie set for one of them must not be sent with another.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


def _proxy(route: Route) -> "httpx2.Proxy | None":
    import httpx2

    if route.proxy is None:
        return None
    try:
        proxy = httpx2.Proxy(route.proxy.reveal())
        if proxy.url.scheme == "https" and route.ca:
            proxy.ssl_context = _context(route)
        if proxy.url.scheme in ("http", "https") and proxy.url.host:
            return proxy
    except (httpx2.InvalidURL, ValueError):
        pass
    raise InvalidRequest(
        f"the proxy configured for this address ({route.via}) is not one that can be used",
        hint="set HTTPS_PROXY to an http:// or https:// address; SOCKS is not spoken",
    )


def _trust(route: Route) -> "ssl.SSLContext":
    import httpx2

    return _context(route) if route.ca else httpx2.create_ssl_context(trust_env=False)


def _context(route: Route) -> "ssl.SSLContext":
    """The certificates a variable names, instead of the system's."""
    import os
    import ssl

    try:
        is_directory = os.path.isdir(route.ca or "")
        return ssl.create_default_context(
            cafile=None if is_directory else route.ca, capath=route.ca if is_directory else None
        )
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            f"{route.ca_variable} names {route.ca}, which can't be read as certificates", hint="correct or unset it"
        ) from error


@asynccontextmanager
async def open_stream(pool: HttpPool, call: Call) -> AsyncGenerator[AsyncIterator[bytes]]:
    """Send `call` and give the body of its answer as it comes; leaving closes it (PV-65).

    Raises `ProviderError` kinds, also for what goes wrong while the body is read inside the `async with`.
    """
    async with _answer(pool, call) as response:
        if _is_document(response):
            raise _no_stream(call.target, await _what_comes(response))
        codings = response.headers.get("content-encoding")
        if codings and "," in codings:  # a few kilobytes could stand for any number of gigabytes
            raise MalformedStream(f"{call.target.label} compressed its answer more than once")
        async with aclosing(_unpacked(response) if codings else response.aiter_raw()) as chunks:
            yield chunks


@asynccontextmanager
async def open_upgrade(pool: HttpPool, call: Call) -> AsyncGenerator["httpcore2.AsyncNetworkStream"]:
    """Ask for another protocol on a connection of its own and give the bare connection; leaving closes it.

    Raises `ProviderError` kinds, also when the server answers in HTTP after all. What goes wrong on the connection
    afterwards is `httpcore2`'s own.
    """
    async with _answer(pool, call) as response:
        if response.status_code != SWITCHING_PROTOCOLS:
            raise _no_stream(call.target, await _what_comes(response))
        yield response.extensions["network_stream"]


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
    route = pool.network.route(call.url)
    client = await pool.client(route)
    import httpx2

    timeout = httpx2.Timeout(call.idle_timeout_s, connect=call.connect_timeout_s, pool=None)
    try:
        request = client.build_request(
            call.method,
            call.url,
            headers=dict(call.headers),
            content=call.body,
            timeout=timeout,
        )
        response = await client.send(request, stream=True)
        try:
            if not response.is_success and response.status_code != SWITCHING_PROTOCOLS:
                raise await _failure(call.target, response)
            if call.on_headers is not None:
                call.on_headers(response.headers)
            yield response
        finally:
            await response.aclose()
    except foreign_exceptions() as error:
        raise from_exception(call.target, error, via=route.via) from error


async def _failure(target: Target, response: "httpx2.Response") -> Exception:
    body = await _what_comes(response)
    return from_status(target, response.status_code, response.headers, body.decode("utf-8", "replace"))


async def _what_comes(response: "httpx2.Response") -> bytes:
    """As much as comes, in bounded time, of a body that only says what is wrong."""
    body = bytearray()
    try:
        async with asyncio.timeout(ERROR_BODY_TIMEOUT_S):
            await _read(response, ERROR_BODY_BYTES, body)
    except (TimeoutError, *foreign_exceptions()):
        pass  # what has come by then, and the status alone if need be, says enough
    return bytes(body)


async def _unpacked(response: "httpx2.Response") -> AsyncGenerator[bytes]:
    """A compressed body. Others get a turn between its pieces: one read may hold a thousand of them."""
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            for at in range(0, len(chunk), PIECE_BYTES):
                yield chunk[at : at + PIECE_BYTES]
                await asyncio.sleep(0)


async def _bounded_body(response: "httpx2.Response", limit: int) -> bytes:
    """The body, or its first `limit` bytes."""
    body = bytearray()
    await _read(response, limit, body)
    return bytes(body)


async def _read(response: "httpx2.Response", limit: int, into: bytearray) -> None:
    """Add the body to `into`, as it comes and up to `limit` bytes."""
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            into += chunk
            if len(into) >= limit:
                break
    del into[limit:]


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
    return HttpError(message, hint="check the base URL", status=200, body=target.scrubbed(text))
