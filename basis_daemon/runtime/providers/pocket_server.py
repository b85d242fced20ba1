"""The pocket model's child process: started when first asked, ended when idle, started again after a crash.

Owns the child's life and the requests to it. How it is started is `pocket_launch.py`'s, what it says
`pocket_wire.py`'s; what is asked, `pocket.py`'s.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from basis_daemon.processes import Child, ProcessTable
from basis_daemon.runtime.providers.errors import ProviderError, bounded
from basis_daemon.runtime.providers.pocket_launch import (
    CHILD,
    SILENCE_S,
    Launched,
    PocketUnavailable,
    first_line,
    launch,
    verify,
    why,
)
from basis_daemon.runtime.providers.pocket_wire import Chunk, chunk_of, refusal
from basis_daemon.runtime.providers.sse import SseParser
from basis_protocol.pocket import PocketModel

logger = logging.getLogger(__name__)

IDLE_S: Final = 300.0
"""Seconds without a request after which the process is ended; the next request waits a second for a new one."""
START_S: Final = 60.0
"""Seconds a process may take to load the model: a second here, more from a cold, slow disk."""


class PocketCrashed(ProviderError):
    """The process ended in the middle of a request. The next request starts a new one."""

    kind = "pocket_crashed"


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
        running = _Running(await launch(self._command, self._path, self._processes), self._processes)
        try:
            async with asyncio.timeout(START_S):
                answer = await first_line(running.child.stdout)
            if "ready" not in answer:
                raise await asyncio.to_thread(why, answer, running.launched.log)
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


@dataclass
class _Running:
    """A child that answers, and what is being asked of it."""

    launched: Launched
    processes: ProcessTable
    in_flight: int = 0
    used_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def child(self) -> Child:
        return self.launched.child

    def idle_for(self) -> float:
        return 0.0 if self.in_flight else asyncio.get_running_loop().time() - self.used_at

    async def chat(self, body: Mapping[str, Any]) -> AsyncGenerator[Chunk]:
        import httpx2

        self.in_flight += 1
        after_output = False
        try:
            client = self.launched.client
            async with client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
                if response.status_code != 200:
                    raise refusal(response.status_code, await response.aread())
                parser = SseParser()
                async for data in response.aiter_raw():
                    for _, event in parser.feed(data):
                        after_output = True
                        yield chunk_of(event)
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
        await self.launched.client.aclose()
        await self.child.end()
        await self.processes.release(self.child)
        await asyncio.to_thread(shutil.rmtree, self.launched.directory, ignore_errors=True)
