"""`basis/model/list`: the models that can be chosen."""

import asyncio

from basis_daemon.errors import BasisError
from basis_daemon.runtime.providers.base import ModelInfo as RuntimeModelInfo
from basis_daemon.server.client import Client
from basis_daemon.server.services import Services
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.lifecycle import ModelInfo, ModelListParams, ModelListResult

LISTING_TIMEOUT_S = 10.0
"""Seconds one provider has to answer; after that it counts as one that could not be asked."""


async def list_models(services: Services, client: Client, params: ModelListParams) -> ModelListResult:
    workspaces = [await services.workspaces.get(params.workspace)] if params.workspace else services.workspaces.list()
    # One question a provider, however many workspaces use it.
    asked = {workspace.provider: workspace for workspace in workspaces}
    answers = await asyncio.gather(*(_models(workspace) for workspace in asked.values()))
    return ModelListResult(
        models=[
            ModelInfo(
                id=model.id,
                provider=model.provider,
                display_name=model.display_name,
                context_window=model.context_window,
            )
            for answer in answers
            for model in answer or ()
        ],
        degraded=[provider for provider, answer in zip(asked, answers, strict=True) if answer is None],
    )


async def _models(workspace: Workspace) -> list[RuntimeModelInfo] | None:
    """The models of a workspace's provider, `None` when it could not be asked."""
    try:
        async with asyncio.timeout(LISTING_TIMEOUT_S):
            return await workspace.list_models()
    except (BasisError, TimeoutError):
        return None


HANDLERS = {"basis/model/list": list_models}
