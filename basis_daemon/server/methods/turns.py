"""`basis/turn/*` and `basis/tool/result`: what becomes of a prompt."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from basis_daemon.server.client import Client
from basis_daemon.server.error_map import WaitTimedOut
from basis_daemon.server.prompts import message_of
from basis_daemon.server.services import Services
from basis_protocol.base import Empty
from basis_protocol.sessions import (
    SessionIdParams,
    SessionPromptResult,
    ToolResultPage,
    ToolResultParams,
    TurnOutcome,
    TurnParams,
    TurnResumeResult,
    TurnSteerParams,
    TurnWaitParams,
)


async def wait(services: Services, client: Client, params: TurnWaitParams) -> TurnOutcome:
    live = await services.hub.get(params.session_id)
    async with _patience(params.timeout_ms):
        return await live.turns.wait(params.turn_id)


async def steer(services: Services, client: Client, params: TurnSteerParams) -> SessionPromptResult:
    message = message_of(params.input)
    live = await services.hub.get(params.session_id)
    return await live.turns.steer(message, expected_turn_id=params.expected_turn_id, by=client.actor)


async def resume(services: Services, client: Client, params: SessionIdParams) -> TurnResumeResult:
    live = await services.hub.get(params.session_id)
    return TurnResumeResult(turn_id=await live.turns.resume())


async def cancel(services: Services, client: Client, params: TurnParams) -> Empty:
    live = await services.hub.get(params.session_id)
    await live.turns.cancel(params.turn_id, client.actor)
    return Empty()


async def stop(services: Services, client: Client, params: TurnParams) -> Empty:
    live = await services.hub.get(params.session_id)
    await live.turns.stop(params.turn_id, client.actor)
    return Empty()


async def tool_result(services: Services, client: Client, params: ToolResultParams) -> ToolResultPage:
    page = await services.hub.archive.tool_result(params.result_id, params.offset, params.limit)
    return ToolResultPage(text=page.text, next_offset=page.next_offset, total_bytes=page.total_bytes)


@asynccontextmanager
async def _patience(timeout_ms: int | None) -> AsyncGenerator[None]:
    """Bound a wait. Raises `WaitTimedOut`, which says to wait again."""
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            yield
    except TimeoutError:
        raise WaitTimedOut("the turn has not ended yet", hint="wait again") from None


HANDLERS = {
    "basis/turn/wait": wait,
    "basis/turn/steer": steer,
    "basis/turn/resume": resume,
    "basis/turn/cancel": cancel,
    "basis/turn/stop": stop,
    "basis/tool/result": tool_result,
}
