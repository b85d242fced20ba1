"""Starting the pocket model's process: a private place, a key, the line it is told and the line it answers.

Owns what the process may see of the environment, and why it can't be started in words that help. What happens to it
afterwards is `pocket_server.py`'s.
"""

import asyncio
import hashlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from basis_daemon.processes import PIPE, Child, ChildLabel, CommandNotStarted, ProcessTable
from basis_daemon.runtime.providers.errors import ProviderError, bounded
from basis_protocol.pocket import ENGINE_REQUIREMENT, PocketModel

if TYPE_CHECKING:
    import httpx2

CONTEXT_TOKENS: Final = 4096
SLEEP_IDLE_S: Final = 60
"""Seconds after which an idle process lets go of the model: some 60 MB are left of 250."""
SILENCE_S: Final = 120.0
"""Seconds without a byte after which a request is given up: reading a long prompt on a busy machine takes many."""

SOCKET: Final = "llama.sock"
"""The engine takes a name for a unix socket only when it ends so."""

CHILD: Final = (sys.executable, "-P", str(Path(__file__).with_name("pocket_child.py")))
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables the process is given: what it takes to find Python and its packages, and no key of anybody."""


class PocketUnavailable(ProviderError):
    """The process can't be started: says what is missing and how to get it."""

    kind = "pocket_unavailable"


@dataclass(frozen=True, slots=True)
class Settings:
    """The line a child is told."""

    model: str
    socket: str
    api_key: str
    threads: int
    parent: int
    context_tokens: int = CONTEXT_TOKENS
    sleep_idle_s: int = SLEEP_IDLE_S


@dataclass(frozen=True, slots=True)
class Launched:
    """A child that was told its settings, and the client for the socket it will open."""

    child: Child
    client: "httpx2.AsyncClient"
    directory: Path

    @property
    def log(self) -> Path:
        return self.directory / "log"


def verify(model: PocketModel, path: Path) -> None:
    """Read the whole file and compare its digest. Raises `PocketUnavailable`."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise PocketUnavailable(
            "the pocket model is not installed", hint="install it with `basisctl pocket install`"
        ) from error
    if digest != model.sha256:
        raise PocketUnavailable(
            f"the pocket model's file is not the one it should be ({path})",
            hint="install it again with `basisctl pocket install`",
        )


async def launch(command: Sequence[str], model: Path, processes: ProcessTable) -> Launched:
    directory, client, api_key, log = await asyncio.to_thread(_prepare)
    settings = Settings(
        model=str(model),
        socket=str(directory / SOCKET),
        api_key=api_key,
        # One core stays free: with all of them and a build beside it, the engine's threads wait for each other.
        threads=max(1, (os.cpu_count() or 2) - 1),
        parent=os.getpid(),
    )
    try:
        child = processes.start(
            command,
            cwd=directory,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            label=ChildLabel("pocket", "the pocket model"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=log.fileno(),
        )
    except CommandNotStarted as error:
        await client.aclose()
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        raise PocketUnavailable(f"the pocket model's process can't be started: {error}") from error
    finally:
        log.close()
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            child.stdin.write(msgspec.json.encode(settings) + b"\n")
    return Launched(child, client, directory)


def _prepare() -> "tuple[Path, httpx2.AsyncClient, str, IO[bytes]]":
    """A private directory, a client for the socket in it, a key, and the child's log. Takes a thread: imports, disk."""
    import httpx2

    directory = Path(tempfile.mkdtemp(prefix="basis-pocket-"))
    key = secrets.token_urlsafe(32)
    client = httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(
            uds=str(directory / SOCKET),
            # The engine drops idle connections just as the next request comes; a new one costs nothing here.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        ),
        base_url="http://pocket",
        headers={"authorization": f"Bearer {key}", "accept-encoding": "identity"},
        timeout=httpx2.Timeout(SILENCE_S, connect=5.0, pool=None),
        trust_env=False,
    )
    return directory, client, key, (directory / "log").open("wb")


async def first_line(pipe: IO[bytes] | None) -> dict[str, Any]:
    """The child's answer to its settings; empty when it ended without one."""
    assert pipe is not None
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        line = await reader.readline()
    finally:
        transport.close()
    try:
        answer = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return answer


def why(answer: Mapping[str, Any], log: Path) -> PocketUnavailable:
    """What kept a child from starting, in words that say who can do something about it."""
    text = bounded(str(answer.get("text", "")), 300)
    if answer.get("error") == "engine" and "libgomp" in text:
        return PocketUnavailable(
            "the pocket model needs the system library libgomp.so.1, which is not installed",
            hint="install it: `apt install libgomp1` on Debian and Ubuntu, `dnf install libgomp` on Fedora",
        )
    if answer.get("error") == "engine":
        return PocketUnavailable(
            f"the pocket model's engine can't be loaded: {text}", hint=f"install it: `pip install {ENGINE_REQUIREMENT}`"
        )
    with suppress(OSError):
        text = " ".join((text, bounded(log.read_text(errors="replace")[-300:], 300))).strip()
    return PocketUnavailable(
        f"the pocket model's process ended while it started{f': {text}' if text else ''}",
        hint="install the model again with `basisctl pocket install`",
    )
