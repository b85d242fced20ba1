"""Looks for a model server on this machine, so that a person with nothing configured can be told of it.

Owns where and how is looked: literal loopback addresses, short timeouts, no proxy, no redirect, GET only, no key, once,
and only when asked to. Finding one uses nothing: it gives a sentence that offers it. What is recognised, and by what,
is `local_servers.py`'s.
"""

import asyncio
import ipaddress
import os
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from basis_daemon.runtime.providers import local_servers
from basis_daemon.runtime.providers.errors import bounded
from basis_daemon.runtime.providers.local_servers import Fetch, Kind, Listing, LocalModel

if TYPE_CHECKING:
    import httpx2

SWITCH: Final = "BASIS_DETECT"
"""`off` (or `0`, `no`, `false`) in the environment: nothing is looked for."""

HOSTS: Final = ("127.0.0.1", "::1")
CONNECT_S: Final = 0.3
READ_S: Final = 1.0
PROBE_S: Final = 3.0
"""Seconds for everything one server is asked, however slowly it drips."""
MAX_BODY_BYTES: Final = 1024 * 1024
MAX_NAME_CHARS: Final = 200
SMALL_CONTEXT_TOKENS: Final = 16_384
"""Below this an agent soon loses the beginning of what it is doing."""

NAMES: Final[Mapping[Kind, str]] = {"ollama": "Ollama", "lmstudio": "LM Studio", "llama-server": "llama-server"}


@dataclass(frozen=True, slots=True)
class Ports:
    """Where each server usually listens."""

    ollama: int = 11434
    lmstudio: int = 1234
    llama_server: int = 8080


@dataclass(frozen=True, slots=True)
class Found:
    """A server that proved what it is. `owner` is the user whose process it is, when that is neither this one nor a
    system account: they would see all that is sent there."""

    kind: Kind
    base_url: str
    version: str | None = None
    models: tuple[LocalModel, ...] = ()
    cloud_models: int = 0
    needs_key: bool = False
    owner: str | None = None
    is_usual_place: bool = True

    @property
    def sentence(self) -> str:
        """What was found and how to use it, for a person."""
        name = " ".join(filter(None, (NAMES[self.kind], self.version)))
        if self.needs_key:
            return f"A server at {self.base_url}, where {name} usually is, asks for a key."
        if not self.models:
            said = f"{name} runs at {self.base_url}, but it has no model to chat with."
            return " ".join(filter(None, (said, self._cloud_note())))
        return " ".join(
            filter(
                None,
                (
                    f"{name} runs at {self.base_url} with {self._models()}.",
                    self._context_note(),
                    self._cloud_note(),
                    f"It belongs to the user {self.owner}, who would see what you send." if self.owner else None,
                    f"To use it: `{self.command}`.",
                ),
            )
        )

    @property
    def command(self) -> str:
        """What connects to it."""
        # A server of another kind is spoken to like LM Studio: the same wire, and no key.
        provider = "lmstudio" if self.kind == "llama-server" else self.kind
        place = "" if self.is_usual_place and self.kind != "llama-server" else f" --base-url {self.base_url}/v1"
        return f"basisctl connect {provider} --model {shlex.quote(self.models[0].id)}{place}"

    def _models(self) -> str:
        best = self.models[0]
        facts = [
            "tools" if best.has_tools else "no tools" if best.has_tools is False else "",
            f"{best.context_tokens // 1024}k context" if best.context_tokens else "",
            "loaded" if best.is_loaded and self.kind != "llama-server" else "",
        ]
        told = ", ".join(filter(None, facts))
        more = len(self.models) - 1
        return f"{best.id}{f' ({told})' if told else ''}{f' and {more} more' if more else ''}"

    def _context_note(self) -> str | None:
        tokens = self.models[0].context_tokens
        if tokens is None or tokens >= SMALL_CONTEXT_TOKENS:
            return None
        return f"Its context of {tokens} tokens is small for an agent; set it to 32k or more."

    def _cloud_note(self) -> str | None:
        if not self.cloud_models:
            return None
        models = "1 cloud model" if self.cloud_models == 1 else f"{self.cloud_models} cloud models"
        return f"({models}, which would send your code away, left out.)"


async def detect(environ: Mapping[str, str], *, ports: Ports | None = None) -> list[Found]:
    """The servers that run now, in the order Ollama, LM Studio, llama-server. Never raises for what it meets."""
    if environ.get(SWITCH, "").strip().lower() in ("off", "0", "no", "false"):
        return []
    usual = ports or Ports()
    ollama_port = _ollama_port(environ) or usual.ollama
    plan: list[tuple[Kind, int, bool, Callable[[Fetch], Awaitable[Listing | None]]]] = [
        ("ollama", ollama_port, ollama_port == usual.ollama, local_servers.ollama),
        ("lmstudio", usual.lmstudio, True, local_servers.lmstudio),
        ("llama-server", usual.llama_server, True, local_servers.llama_server),
    ]
    ports_listened_at = await _listened_at({(host, port) for _, port, _, _ in plan for host in HOSTS})
    if not ports_listened_at:
        return []
    client = await asyncio.to_thread(_client)
    async with client, asyncio.TaskGroup() as tasks:
        probes = [
            tasks.create_task(_probe(client, kind, host, port, is_usual=is_usual, recognise=recognise))
            for kind, port, is_usual, recognise in plan
            for host in HOSTS
            if (host, port) in ports_listened_at
        ]
    # One that listens on both addresses is one server; the first is the one tools are used to.
    by_kind: dict[Kind, Found] = {}
    for found in (probe.result() for probe in probes):
        if found is not None:
            by_kind.setdefault(found.kind, found)
    return list(by_kind.values())


async def _listened_at(places: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those places where anything accepts a connection. Usually none: then the HTTP library need not be loaded."""

    async def accepts(host: str, port: int) -> bool:
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(host, port)
        except OSError:  # TimeoutError is one
            return False
        writer.close()
        return True

    async with asyncio.TaskGroup() as tasks:
        asked = {place: tasks.create_task(accepts(*place)) for place in places}
    return {place for place, task in asked.items() if task.result()}


async def _probe(
    client: "httpx2.AsyncClient",
    kind: Kind,
    host: str,
    port: int,
    *,
    is_usual: bool,
    recognise: Callable[[Fetch], Awaitable[Listing | None]],
) -> Found | None:
    base_url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        async with asyncio.timeout(PROBE_S):
            listing = await recognise(lambda path: _get(client, base_url + path))
    except TimeoutError:
        return None
    if listing is None:
        return None
    return Found(
        kind,
        base_url,
        version=bounded(listing.version, MAX_NAME_CHARS) if listing.version else None,
        models=tuple(model for model in listing.models if _is_plain(model.id)),
        cloud_models=listing.cloud_models,
        needs_key=listing.needs_key,
        owner=await asyncio.to_thread(stranger_listening, host, port),
        is_usual_place=is_usual and host == HOSTS[0],
    )


def _is_plain(name: str) -> bool:
    """Whether a name is fit to be shown and typed: whoever listens there made it up."""
    return 0 < len(name) <= MAX_NAME_CHARS and name.isprintable() and not any(mark in name for mark in " `'\"")


async def _get(client: "httpx2.AsyncClient", url: str) -> tuple[int, bytes] | None:
    import httpx2

    try:
        async with client.stream("GET", url) as response:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    return None
            return response.status_code, bytes(body)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        # Whatever answers there, it is not what was looked for.
        return None


def _client() -> "httpx2.AsyncClient":
    import httpx2

    return httpx2.AsyncClient(
        # Plain HTTP to this machine only: there are no certificates to load.
        transport=httpx2.AsyncHTTPTransport(verify=False),
        headers={"user-agent": "basis-daemon", "accept": "application/json", "accept-encoding": "identity"},
        timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
        follow_redirects=False,
        trust_env=False,
    )


def _ollama_port(environ: Mapping[str, str]) -> int | None:
    """The port in `OLLAMA_HOST`, if that is this machine; another machine is never asked by itself."""
    named = environ.get("OLLAMA_HOST", "").strip()
    if not named:
        return None
    try:
        parts = urlsplit(named if "://" in named else f"//{named}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return port if _is_here(host) else None


def _is_here(host: str | None) -> bool:
    if host in (None, "", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


# --- whose is it -----------------------------------------------------------------------------------------------------

_LISTENING = "0A"
"""The kernel's word for a listening socket in /proc/net/tcp."""


def stranger_listening(host: str, port: int) -> str | None:
    """The user who listens there, if it is neither this user nor root nor the `ollama` account. `None` if unknown.

    Any local user can open such a port and would then be sent code. Linux only; reads /proc.
    """
    if sys.platform != "linux":
        return None
    table = Path("/proc/net/tcp6" if ":" in host else "/proc/net/tcp")
    try:
        owners = listening_users(table.read_text(), host, port)
    except (OSError, ValueError):
        return None
    strangers = sorted(owners - {os.getuid(), 0} - _service_accounts())
    return _user_name(strangers[0]) if strangers else None


def listening_users(table: str, host: str, port: int) -> set[int]:
    """User ids of the sockets that listen for `host` and `port`, by a table in the kernel's format."""
    owners: set[int] = set()
    for row in table.splitlines()[1:]:
        _, local, _, state, *rest = row.split()
        address, _, hex_port = local.partition(":")
        if state == _LISTENING and int(hex_port, 16) == port and _address(address) in (host, "0.0.0.0", "::"):
            owners.add(int(rest[3]))
    return owners


def _address(text: str) -> str:
    """Address from the kernel's hexadecimal: words of four bytes in the byte order of this machine."""
    data = bytes.fromhex(text)
    words = [int.from_bytes(data[at : at + 4], sys.byteorder).to_bytes(4, "big") for at in range(0, len(data), 4)]
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, b"".join(words))


def _service_accounts() -> set[int]:
    import pwd

    try:
        return {pwd.getpwnam("ollama").pw_uid}
    except KeyError:
        return set()


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
