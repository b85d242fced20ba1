"""The daemon put together: every part built once, run until it is told to stop, taken apart in order (DM-25).

Owns the composition and the end. Nothing here knows what a session or a method does.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from basis_daemon import __version__
from basis_daemon.paths import Paths
from basis_daemon.processes import end_leftovers, tags
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.server import logs
from basis_daemon.server.announcer import Announcer
from basis_daemon.server.clock import timestamp
from basis_daemon.server.connection import Connection
from basis_daemon.server.documents import Documents
from basis_daemon.server.hub import Hub
from basis_daemon.server.instance import Instance
from basis_daemon.server.language import LanguageSide
from basis_daemon.server.listener import Listener
from basis_daemon.server.methods.table import HANDLERS, INSTANT
from basis_daemon.server.router import Router
from basis_daemon.server.runtime_source import RuntimeSource
from basis_daemon.server.services import Services
from basis_daemon.server.unfinished import Unfinished
from basis_daemon.server.work import Work
from basis_daemon.server.workspaces import Workspaces
from basis_daemon.workspace.credential_store import CredentialStore
from basis_daemon.workspace.credentials import credentials_of
from basis_daemon.workspace.model_catalogue import ModelCatalogue
from basis_protocol.lifecycle import DaemonInfo

log = logging.getLogger(__name__)

DRAIN_TIMEOUT_S = 30.0
"""Seconds a drain waits for round boundaries; turns that take longer are interrupted and can be resumed."""

LOOK_EVERY_S = 5.0
"""Seconds between two looks at whether the lock and the socket are still in their places."""

NOW_TIMEOUT_S = 3.0
"""Seconds interrupted turns have to end their commands."""


def serve(instance: Instance, *, log_level: str, foreground: bool) -> int:
    """Run the daemon on a claimed instance until it is told to stop. Returns the exit code."""
    paths = Paths.from_environment()
    logs.configure(paths.log, log_level, foreground=foreground)
    _raise_descriptor_limit()
    info = DaemonInfo(version=__version__, pid=os.getpid(), instance_id=os.urandom(8).hex(), started_at=timestamp())
    instance.describe(
        {"pid": info.pid, "version": info.version, "startedAt": info.started_at, "children": tags.INSTANCE}
    )
    log.info("started", extra={"version": info.version, "pid": info.pid, "socket": str(paths.socket)})
    try:
        asyncio.run(Daemon(instance, paths, info).run())
    except Exception:
        log.exception("the daemon failed")
        return 1
    finally:
        instance.release()
        log.info("ended")
        logging.shutdown()
    return 0


class Daemon:
    """One run of the daemon."""

    def __init__(self, instance: Instance, paths: Paths, info: DaemonInfo) -> None:
        self._instance = instance
        self._paths = paths
        self._info = info
        self._stop_requested = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._credentials = CredentialStore(paths.data)

    async def run(self) -> None:
        """Serve until asked to stop; then end turns, sessions, workspaces and the runtime, in this order."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_stray)
        try:
            async with asyncio.TaskGroup() as group:
                await self._end_leftovers()
                services = self._build(Work(group))
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, self._on_signal, services.hub)
                await services.hub.start()
                listening = group.create_task(self._listener.run())
                group.create_task(self._watch_place(services.hub))
                # What was allocated so far lives as long as the process: the collector need not look at it again.
                gc.freeze()
                await self._stop_requested.wait()
                await self._end(services, listening)
                # What the background tasks had to finish is finished; leaving so cancels them.
                raise _Ended
        except* _Ended:
            pass

    async def _end_leftovers(self) -> None:
        """A daemon before this one was killed: its commands end before what they were for can be carried on."""
        children = self._instance.left_by_previous.get("children")
        if isinstance(children, int):
            await asyncio.to_thread(end_leftovers, children)

    def _build(self, work: Work) -> Services:
        paths, announcer, documents, runtime = self._paths, Announcer(), Documents(), RuntimeSource(self._build_runtime)
        catalogue = ModelCatalogue()
        workspaces = Workspaces(
            runtime.get,
            work=work,
            announcer=announcer,
            socket=str(paths.socket),
            overlay=documents.overlay,
            credentials=self._credentials,
            fallback=credentials_of(os.environ),
            catalogue=catalogue,
        )
        hub = Hub(
            runtime=runtime,
            workspaces=workspaces,
            work=work,
            announcer=announcer,
            asks_directory=paths.asks,
            unfinished=Unfinished(paths.data / "unfinished"),
        )
        services = Services(
            info=self._info,
            paths=paths,
            started_at=time.time(),
            work=work,
            runtime=runtime,
            hub=hub,
            workspaces=workspaces,
            announcer=announcer,
            documents=documents,
            credentials=self._credentials,
            catalogue=catalogue,
            client_count=lambda: len(self._listener.connections),
            stop=lambda mode: self._request_stop(hub, mode),
        )
        self._listener = Listener(self._instance.listening, self._connector(services))
        return services

    def _build_runtime(self) -> Runtime:
        return Runtime.builder().with_store_dir(self._paths.store).build()

    def _connector(self, services: Services) -> Callable[[], Connection]:
        router = Router(services, handlers=HANDLERS, instant=INSTANT)

        def language_side(connection: Connection, initialize: bytes | None) -> LanguageSide:
            return LanguageSide(
                connection.client.connection_id,
                connection.channel,
                services.documents,
                self._info.version,
                initialize=initialize,
                start=connection.start,
            )

        return lambda: Connection(router, self._info, language_side)

    # --- ending ---

    def _on_signal(self, hub: Hub) -> None:
        # The second signal means: don't wait.
        self._request_stop(hub, "now" if self._stop_requested.is_set() else "drain")

    async def _watch_place(self, hub: Hub) -> None:
        """End when nobody can find this daemon any more, so that the next client can start one that is found."""
        is_in_place = True
        while is_in_place:
            await asyncio.sleep(LOOK_EVERY_S)
            is_in_place = await asyncio.to_thread(self._instance.is_in_place)
        log.warning("the lock or the socket is gone from its place")
        self._request_stop(hub, "drain")

    def _request_stop(self, hub: Hub, mode: str) -> None:
        log.info("asked to stop", extra={"mode": mode})
        hub.is_stopping = True
        if mode == "now":
            self._stop_now.set()
        self._stop_requested.set()

    async def _end(self, services: Services, listening: asyncio.Task[None]) -> None:
        services.announcer.stopping()
        await self._end_turns(services.hub)
        await self._listener.end()
        listening.cancel()
        await asyncio.wait([listening], timeout=NOW_TIMEOUT_S)
        await services.workspaces.aclose()
        runtime = services.runtime.built
        if runtime is not None:
            await runtime.aclose()

    async def _end_turns(self, hub: Hub) -> None:
        """Wait for round boundaries, unless or until somebody says not to."""
        async with asyncio.TaskGroup() as group:
            if not self._stop_now.is_set():
                drain = group.create_task(hub.finish_turns(now=False, timeout_s=DRAIN_TIMEOUT_S))
                hurry = group.create_task(self._stop_now.wait())
                await asyncio.wait([drain, hurry], return_when=asyncio.FIRST_COMPLETED)
                drain.cancel()
                hurry.cancel()
        await hub.finish_turns(now=True, timeout_s=NOW_TIMEOUT_S)
        hub.let_go()


class _Ended(Exception):
    """The daemon has come to its end in good order."""


def _log_stray(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A callback failed where nobody was looking: never the end of the daemon, always a line in the log."""
    log.error("stray failure: %s", context.get("message"), exc_info=context.get("exception"))


def _raise_descriptor_limit() -> None:
    """Use as many descriptors as this user may: every client and every open conversation takes some."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
        if soft < wanted:
            with suppress(ValueError, OSError):  # some systems allow less than they say; the present limit then stays
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
