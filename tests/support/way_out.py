"""The network between a daemon and a vendor: a TLS server with an authority of its own, and a proxy that must be asked.

Owns certificates, TLS in front of a scripted model, and CONNECT. Everything stays on this machine: the proxy alone
knows where the names lead.
"""

import asyncio
import base64
import ssl
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """A certificate that signs itself, and its key."""

    certificate: Path
    key: Path


def new_authority(directory: Path, *names: str) -> Authority:
    """One for the hosts `names` and this machine's own address."""
    authority = Authority(directory / "authority.pem", directory / "authority.key")
    alternatives = ",".join([*(f"DNS:{name}" for name in names), "IP:127.0.0.1"])
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a test's authority"]
    what = ["-addext", f"subjectAltName={alternatives}", "-keyout", authority.key, "-out", authority.certificate]
    subprocess.run([*make, *what], check=True, capture_output=True)
    return authority


@asynccontextmanager
async def tls_in_front_of(port: int, authority: Authority) -> AsyncGenerator[int]:
    """A port where TLS is spoken by whoever listens at `port` without it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    await asyncio.to_thread(context.load_cert_chain, authority.certificate, authority.key)

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _join(reader, writer, port)

    async with _serving(passed_on, context) as serving:
        yield serving


@dataclass
class Proxy:
    """A proxy that tunnels to the `hosts` it knows (`name:port`), for who gives `password` if there is one."""

    hosts: Mapping[str, int]
    password: str | None = None
    refusal: str | None = None
    """Answers every CONNECT with this status line instead."""
    port: int = 0
    asked: list[str] = field(default_factory=list[str])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Proxy"]:
        async with _serving(self._serve) as self.port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        self.asked.append(f"{method} {target}")
        answer = self._answer(head, target)
        writer.write(f"HTTP/1.1 {answer}\r\n\r\n".encode())
        await writer.drain()
        if answer.startswith("200"):
            await _join(reader, writer, self.hosts[target])

    def _answer(self, head: str, target: str) -> str:
        if self.refusal is not None:
            return self.refusal
        if self.password is not None:
            wanted = base64.b64encode(self.password.encode()).decode()
            if f"proxy-authorization: basic {wanted}".lower() not in head.lower():
                return "407 Proxy Authentication Required"
        return "200 Connection established" if target in self.hosts else "502 Bad Gateway"


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _serving(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """A port where every connection is given to `serve`. Nothing of any is left at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            tasks.discard(task)
            writer.transport.abort()

    async with await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls) as server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            left = list(tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Pass bytes both ways between a connection and whoever listens at `port`, until either ends."""
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.TaskGroup() as group:
            ways = [group.create_task(_pump(reader, far_writer)), group.create_task(_pump(far_reader, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
    finally:
        far_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
