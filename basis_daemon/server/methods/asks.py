"""`basis/ask/*`: what waits for a person, and their answers."""

from basis_daemon.server.client import Client
from basis_daemon.server.services import Services
from basis_protocol.asks import AskAnswerParams, AskAnswerResult, AskListParams, AskListResult


async def list_asks(services: Services, client: Client, params: AskListParams) -> AskListResult:
    return AskListResult(asks=services.hub.asks.pending(workspace=params.workspace, session_id=params.session_id))


async def answer(services: Services, client: Client, params: AskAnswerParams) -> AskAnswerResult:
    await services.hub.asks.answer(params, client.actor)
    return AskAnswerResult(outcome="allowed" if params.decision == "allow" else "denied")


HANDLERS = {
    "basis/ask/list": list_asks,
    "basis/ask/answer": answer,
}
