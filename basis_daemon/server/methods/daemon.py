"""`basis/daemon/*`: the daemon about itself."""

import asyncio
import time
from collections import Counter

from basis_daemon.processes import LocalExecutor
from basis_daemon.server.client import Client
from basis_daemon.server.clock import timestamp
from basis_daemon.server.memory import resident_bytes
from basis_daemon.server.services import Services
from basis_daemon.server.workspaces import summary_of
from basis_protocol.base import Empty
from basis_protocol.lifecycle import (
    Counts,
    DaemonSnapshot,
    DaemonStatusResult,
    PingResult,
    ProcessesParams,
    ProcessesResult,
    ProcessInfo,
    ProviderState,
    StopParams,
)


def ping(services: Services, client: Client, params: Empty) -> PingResult:
    return PingResult(now=timestamp())


async def status(services: Services, client: Client, params: Empty) -> DaemonStatusResult:
    info = services.info
    return DaemonStatusResult(
        version=info.version,
        pid=info.pid,
        instance_id=info.instance_id,
        started_at=info.started_at,
        uptime_s=round(time.time() - services.started_at, 3),
        counts=Counts(
            clients=services.client_count(),
            workspaces=len(services.workspaces.list()),
            sessions=_sessions_by_state(services),
            pending_asks=len(services.hub.asks.pending()),
        ),
        memory_bytes=await asyncio.to_thread(resident_bytes),
        data_dir=str(services.paths.data),
        socket=str(services.paths.socket),
        providers=_providers(services),
    )


async def subscribe(services: Services, client: Client, params: Empty) -> DaemonSnapshot:
    services.announcer.subscribe(client)
    return DaemonSnapshot(
        workspaces=[summary_of(each) for each in services.workspaces.list()],
        sessions=[session.summary() for session in services.hub.live],
        asks=services.hub.asks.pending(),
    )


async def processes(services: Services, client: Client, params: ProcessesParams) -> ProcessesResult:
    runtime = services.runtime.built
    if runtime is None or not isinstance(runtime.executor, LocalExecutor):
        return ProcessesResult(processes=[])
    return ProcessesResult(
        processes=[
            ProcessInfo(
                pid=each.pid,
                what=each.what,
                command=each.command,
                session_id=each.owner,
                age_s=round(each.age_s, 3),
                rss_bytes=each.rss_bytes,
            )
            for each in await runtime.executor.processes.running(params.session_id)
        ]
    )


async def stop(services: Services, client: Client, params: StopParams) -> Empty:
    # The answer goes out first: the caller hears that it is heard.
    asyncio.get_running_loop().call_soon(services.stop, params.mode)
    return Empty()


def _sessions_by_state(services: Services) -> dict[str, int]:
    hub = services.hub
    states = Counter(session.state.kind for session in hub.live)
    waiting = {ask.session_id for ask in hub.asks.pending()}
    for session_id in hub.unfinished_ids:
        if hub.find(session_id) is None:
            states["waiting_person" if session_id in waiting else "interrupted"] += 1
    return dict(states)


def _providers(services: Services) -> list[ProviderState]:
    """Every provider an open workspace uses, and whether it can be used."""
    states: dict[str, ProviderState] = {}
    for workspace in services.workspaces.list():
        error = workspace.setup_error
        if workspace.provider:
            states[workspace.provider] = ProviderState(
                provider=workspace.provider,
                state="ready" if error is None else "needs_key",
                detail="" if error is None else str(error),
            )
    return list(states.values())


INSTANT = {"basis/daemon/ping": ping}
HANDLERS = {
    "basis/daemon/status": status,
    "basis/daemon/subscribe": subscribe,
    "basis/daemon/processes": processes,
    "basis/daemon/stop": stop,
}
