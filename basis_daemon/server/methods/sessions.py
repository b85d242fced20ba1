"""`basis/session/*`: finding, watching, prompting and ending conversations."""

from basis_daemon.runtime.typed_output import InvalidOutputSpec
from basis_daemon.server import history, listing
from basis_daemon.server.client import Client
from basis_daemon.server.error_map import InvalidParams
from basis_daemon.server.prompts import message_of
from basis_daemon.server.router import Reply
from basis_daemon.server.services import Services
from basis_daemon.server.turn_runner import PromptOptions, spec_of
from basis_protocol.base import Empty
from basis_protocol.sessions import (
    Bounds,
    SessionAttachParams,
    SessionHistoryParams,
    SessionHistoryResult,
    SessionIdParams,
    SessionInfo,
    SessionListParams,
    SessionListResult,
    SessionNewParams,
    SessionPromptParams,
    SessionPromptResult,
    SessionRenameParams,
    SessionSetConfigParams,
    Unattended,
)


async def new(services: Services, client: Client, params: SessionNewParams) -> SessionInfo:
    if params.mcp_servers:
        raise InvalidParams("mcpServers: MCP servers are not served yet", field="mcpServers")
    return (await services.hub.new(params)).info()


async def list_sessions(services: Services, client: Client, params: SessionListParams) -> SessionListResult:
    return await listing.page(services.hub, params)


async def attach(services: Services, client: Client, params: SessionAttachParams) -> Reply:
    live = await services.hub.get(params.session_id)
    return live.session.attach(client, params.after_seq)


async def detach(services: Services, client: Client, params: SessionIdParams) -> Empty:
    client.unwatch(params.session_id)
    return Empty()


async def close(services: Services, client: Client, params: SessionIdParams) -> Empty:
    await services.hub.close(params.session_id)
    return Empty()


async def delete(services: Services, client: Client, params: SessionIdParams) -> Empty:
    await services.hub.delete(params.session_id)
    return Empty()


async def rename(services: Services, client: Client, params: SessionRenameParams) -> SessionInfo:
    live = await services.hub.get(params.session_id)
    await live.turns.rename(params.title)
    return live.session.info()


async def set_config(services: Services, client: Client, params: SessionSetConfigParams) -> SessionInfo:
    live = await services.hub.get(params.session_id)
    await live.turns.set_option(params.option, params.value, client.actor)
    return live.session.info()


async def session_history(services: Services, client: Client, params: SessionHistoryParams) -> SessionHistoryResult:
    transcript = await services.hub.transcript(params.session_id)
    live = services.hub.find(params.session_id)
    return history.page(
        transcript,
        cursor=params.cursor,
        direction=params.direction,
        limit=params.limit,
        completed=live.session.painting.completed if live is not None else None,
    )


async def prompt(services: Services, client: Client, params: SessionPromptParams) -> SessionPromptResult:
    if params.output is not None:
        _check_output(params)
    message = message_of(params.input)
    live = await services.hub.get(params.session_id)
    return await live.turns.submit(
        message,
        by=client.actor,
        options=PromptOptions(
            bounds=params.bounds or Bounds(),
            unattended=params.unattended or Unattended(),
            output=params.output,
        ),
        when_busy=params.when_busy,
    )


def _check_output(params: SessionPromptParams) -> None:
    """Raises `InvalidParams` for a typed answer that can't be given."""
    if params.when_busy == "steer":
        raise InvalidParams("output: what steers a turn can't ask for an answer of its own", field="output")
    assert params.output is not None
    try:
        spec_of(params.output)
    except InvalidOutputSpec as error:
        raise InvalidParams(f"output: {error}", field="output", hint=error.hint) from None


HANDLERS = {
    "basis/session/new": new,
    "basis/session/list": list_sessions,
    "basis/session/attach": attach,
    "basis/session/detach": detach,
    "basis/session/close": close,
    "basis/session/delete": delete,
    "basis/session/rename": rename,
    "basis/session/setConfig": set_config,
    "basis/session/history": session_history,
    "basis/session/prompt": prompt,
}
