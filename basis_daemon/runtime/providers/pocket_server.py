"""The pocket model's child process: started when first asked, ended when idle, started again after a crash.

Owns the child's life and the way to it: a unix socket and a key in a directory of its own that only this user can
enter. Knows no prompt: see `pocket.py`.
"""

import asyncio
import hashlib
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from basis_daemon.processes import PIPE, Child, ChildLabel, CommandNotStarted, ProcessTable
from basis_daemon.runtime.providers.errors import InvalidRequest, ProviderError, bounded
from basis_daemon.runtime.providers.sse import SseParser
from basis_protocol.pocket import ENGINE_REQUIREMENT, PocketModel

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)

CONTEXT_TOKENS: Final = 4096
IDLE_S: Final = 300.0
"""Seconds without a request after which the process is ended; the next request waits a second for a new one."""
SLEEP_IDLE_S: Final = 60
"""Seconds after which an idle process lets go of the model: some 60 MB are left of 250."""
START_S: Final = 60.0
"""Seconds a process may take to load the model: a second here, more from a cold, slow disk."""
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


class PocketCrashed(ProviderError):
    """The process ended in the middle of a request. The next request starts a new one."""

    kind = "pocket_crashed"


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


class TokenDetails(msgspec.Struct):
    cached_tokens: int | None = None


class ChatUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta = msgspec.field(default_factory=Delta)
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One event of a streamed chat completion, as far as it is looked at."""

    choices: list[Choice] = []
    usage: ChatUsage | None = None
    error: Any = None


class PocketServer:
    """At most one child, for any number of requests at once. Belongs to one event loop."""

    def __init__(
        self,
        model: PocketModel,
        path: Path,
        *,
        processes: ProcessTable | None = None,
        idle_s: float = IDLE_S,
        command: Sequence[str] = CHILD,
    ) -> None:
        self._model = model
        self._path = path
        self._processes = processes or ProcessTable()
        self._idle_s = idle_s
        self._command = command
        self._starting = asyncio.Lock()
        self._running: _Running | None = None
        self._keepers: set[asyncio.Task[None]] = set()
        self._is_verified = False
        self._is_closed = False

    @property
    def child(self) -> Child | None:
        """The child, while there is one."""
        return self._running.child if self._running else None

    async def chat(self, body: Mapping[str, Any]) -> AsyncGenerator[Chunk]:
        """The chunks of one streamed chat completion. A child that dies before the first is replaced once.

        Raises `PocketUnavailable`, `PocketCrashed`, `InvalidRequest` for a prompt that does not fit, `ProviderError`.
        """
        for is_last in (False, True):
            running = await self._ready()
            try:
                async with aclosing(running.chat(body)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except _ChildGone as error:
                if is_last or error.after_output:
                    raise PocketCrashed(
                        "the pocket model's process ended unexpectedly",
                        hint="ask again: it is started anew; if it goes on, look at `basisctl pocket status`",
                    ) from error
                logger.warning("the pocket model's process ended unexpectedly; starting it again")

    async def aclose(self) -> None:
        """End the child. Requests that still run fail."""
        self._is_closed = True
        # A child that is just being started is waited for: it has to be there to be ended.
        async with self._starting:
            if self._running is not None:
                await self._running.child.end()
            if self._keepers:
                await asyncio.wait(self._keepers)

    async def _ready(self) -> "_Running":
        async with self._starting:
            if self._is_closed:
                raise PocketUnavailable("the runtime was closed")
            if self._running is None or self._running.child.has_exited:
                self._running = await self._start()
                # Owned by this object: `aclose` ends it and waits for it.
                keeper = asyncio.get_running_loop().create_task(self._keep(self._running), name="pocket-keeper")
                self._keepers.add(keeper)
                keeper.add_done_callback(self._keepers.discard)
            return self._running

    async def _start(self) -> "_Running":
        if not self._is_verified:
            await asyncio.to_thread(verify, self._model, self._path)
            self._is_verified = True
        running = await _start_child(self._command, self._path, self._processes)
        try:
            async with asyncio.timeout(START_S):
                answer = await _first_line(running.child.stdout)
            if "ready" not in answer:
                raise await asyncio.to_thread(_why, answer, running.log)
        except TimeoutError as error:
            await running.close()
            raise PocketUnavailable(f"the pocket model did not load within {START_S:g} s") from error
        except BaseException:
            await running.close()
            raise
        return running

    async def _keep(self, running: "_Running") -> None:
        """Watch over one child until it has exited or been idle for long, and clear it away."""
        try:
            while not running.child.has_exited and running.idle_for() < self._idle_s:
                await running.child.wait(max(self._idle_s - running.idle_for(), 0.01))
        finally:
            # No await between the look and this: a request can't be given a child that is about to be ended.
            if self._running is running:
                self._running = None
            await running.close()


class _ChildGone(Exception):
    """The connection broke and the child has exited."""

    def __init__(self, *, after_output: bool) -> None:
        super().__init__("the child has exited")
        self.after_output = after_output


@dataclass(kw_only=True)
class _Running:
    """A child that answers, and the client that talks to it."""

    child: Child
    client: "httpx2.AsyncClient"
    directory: Path
    processes: ProcessTable
    in_flight: int = 0
    used_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def idle_for(self) -> float:
        return 0.0 if self.in_flight else asyncio.get_running_loop().time() - self.used_at

    async def chat(self, body: Mapping[str, Any]) -> AsyncGenerator[Chunk]:
        import httpx2

        self.in_flight += 1
        after_output = False
        try:
            async with self.client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
                if response.status_code != 200:
                    raise _refusal(response.status_code, await response.aread())
                parser = SseParser()
                async for data in response.aiter_raw():
                    for _, event in parser.feed(data):
                        after_output = True
                        yield _chunk(event)
                if not parser.is_done:
                    raise httpx2.RemoteProtocolError("the stream ended early")
        except httpx2.HTTPError as error:
            if await self.child.wait(1.0):
                raise _ChildGone(after_output=after_output) from error
            if isinstance(error, httpx2.TimeoutException):
                raise ProviderError(f"the pocket model said nothing for {SILENCE_S:g} s") from error
            raise ProviderError(f"the pocket model can't be reached: {bounded(str(error))}") from error
        finally:
            self.in_flight -= 1
            self.used_at = asyncio.get_running_loop().time()

    async def close(self) -> None:
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()
        await self.client.aclose()
        await self.child.end()
        await self.processes.release(self.child)
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)


# --- starting --------------------------------------------------------------------------------------------------------


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


async def _start_child(command: Sequence[str], model: Path, processes: ProcessTable) -> _Running:
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
    return _Running(child=child, client=client, directory=directory, processes=processes)


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


async def _first_line(pipe: IO[bytes] | None) -> dict[str, Any]:
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


def _why(answer: Mapping[str, Any], log: Path) -> PocketUnavailable:
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


# --- answers ---------------------------------------------------------------------------------------------------------


def _refusal(status: int, body: bytes) -> ProviderError:
    text = bounded(_message(body), 300)
    if status == 400 and "context size" in text:
        return InvalidRequest(
            "this is too much text for the pocket model", hint="ask about something shorter, or connect a real model"
        )
    return ProviderError(f"the pocket model refused the request: {text}", status=status)


def _chunk(event: bytes) -> Chunk:
    try:
        chunk = msgspec.json.decode(event, type=Chunk)
    except msgspec.DecodeError as error:
        raise ProviderError("the pocket model's process sent something that can't be read") from error
    if chunk.error is not None:
        raise ProviderError(f"the pocket model failed: {bounded(_message(event), 300)}")
    return chunk


def _message(body: bytes) -> str:
    try:
        answer: Any = msgspec.json.decode(body)
        return str(answer["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body.decode("utf-8", "replace")
