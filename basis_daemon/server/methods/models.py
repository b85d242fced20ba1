"""`basis/model/list`: the models that can be chosen, of every provider within reach."""

import asyncio
from collections.abc import Iterable

from basis_daemon.runtime.providers.base import ModelInfo as RuntimeModelInfo
from basis_daemon.server.client import Client
from basis_daemon.server.services import Services
from basis_daemon.workspace.model_catalogue import Listing
from basis_daemon.workspace.provider_names import provider_id
from basis_daemon.workspace.reachable import listings
from basis_protocol.lifecycle import ModelInfo, ModelListParams, ModelListProblem, ModelListResult


async def list_models(services: Services, client: Client, params: ModelListParams) -> ModelListResult:
    only = provider_id(params.provider) if params.provider is not None else None
    workspaces = [await services.workspaces.get(params.workspace)] if params.workspace else services.workspaces.list()
    if workspaces:
        answers = await asyncio.gather(
            *(workspace.reachable_models(only=only, refresh=params.refresh) for workspace in workspaces)
        )
    else:
        runtime = await asyncio.to_thread(services.runtime.get)
        keychain = services.workspaces.bare_keychain()
        answers = [await listings(services.catalogue, runtime, keychain, None, only=only, refresh=params.refresh)]
    return _result(listing for answer in answers for listing in answer)


def _result(found: Iterable[Listing]) -> ModelListResult:
    """Everything once: workspaces may reach the same providers, and one provider with different keys."""
    models: dict[tuple[str, str], ModelInfo] = {}
    problems: dict[tuple[str, str], ModelListProblem] = {}
    for listing in found:
        for model in listing.models:
            models.setdefault((model.provider, model.id), _model(model))
        error = listing.error
        if error is not None:
            problem = ModelListProblem(provider=listing.provider, message=str(error), hint=error.hint)
            problems.setdefault((listing.provider, str(error)), problem)
    return ModelListResult(
        models=list(models.values()),
        degraded=list(dict.fromkeys(problem.provider for problem in problems.values())),
        problems=list(problems.values()),
    )


def _model(model: RuntimeModelInfo) -> ModelInfo:
    return ModelInfo(
        id=model.id,
        provider=model.provider,
        display_name=model.display_name,
        context_window=model.context_window,
        description=model.description,
        created_at=model.created_at,
    )


HANDLERS = {"basis/model/list": list_models}
