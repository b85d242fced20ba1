"""The HTTP library's transport over our own sockets: direct, or by way of a proxy.

Owns joining the two. Import it where it is first used: the library is slow to load.
"""

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any, cast

import httpcore2
import httpx2

from basis_daemon.runtime.providers.sockets import Sockets


class Transport(httpx2.AsyncBaseTransport):
    """Sends requests over one pool of connections."""

    def __init__(
        self,
        *,
        trust: ssl.SSLContext,
        proxy: httpx2.Proxy | None,
        max_idle: int,
        idle_s: float,
    ) -> None:
        """`max_idle` connections are kept for `idle_s` seconds. `trust` is for servers; a proxy has its own."""
        if proxy is None:
            self._pool = httpcore2.AsyncConnectionPool(
                ssl_context=trust,
                max_connections=None,
                max_keepalive_connections=max_idle,
                keepalive_expiry=idle_s,
                network_backend=Sockets(),
            )
        else:
            self._pool = httpcore2.AsyncHTTPProxy(
                proxy_url=_url(proxy.url),
                proxy_auth=proxy.raw_auth,
                proxy_headers=proxy.headers.raw,
                proxy_ssl_context=proxy.ssl_context,
                ssl_context=trust,
                max_connections=None,
                max_keepalive_connections=max_idle,
                keepalive_expiry=idle_s,
                network_backend=Sockets(),
            )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        ours = httpcore2.Request(
            request.method,
            _url(request.url),
            headers=request.headers.raw,
            content=cast("AsyncIterable[bytes]", request.stream),
            extensions=request.extensions,
        )
        with _translated():
            answer = await self._pool.handle_async_request(ours)
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(cast("AsyncIterable[bytes]", answer.stream)),
            extensions=dict(cast("Any", answer).extensions),
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream: Any = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


def _url(url: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


@contextmanager
def _translated() -> Generator[None]:
    """The lower library's exceptions as the upper one's, which have the same names."""
    try:
        yield
    except Exception as error:
        for kind in type(error).__mro__:
            same = getattr(httpx2, kind.__name__, None) if kind.__module__.startswith("httpcore2") else None
            if same is not None:
                raise same(str(error)) from error
        raise
