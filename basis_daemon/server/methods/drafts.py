"""`basis/session/draft`: the unsent prompt, read and replaced."""

from basis_daemon.server.client import Client
from basis_daemon.server.services import Services
from basis_protocol.sessions import SessionDraftParams, SessionDraftResult


async def draft(services: Services, client: Client, params: SessionDraftParams) -> SessionDraftResult:
    live = await services.hub.get(params.session_id)
    if params.text is None:
        return await services.drafts.read(live.session)
    return await services.drafts.write(live.session, params.text, client.actor)


HANDLERS = {"basis/session/draft": draft}
