"""`basis/model/list`: the models that can be chosen, of every provider within reach."""

import asyncio
from collections.abc import Iterable

from basis_daemon.runtime.prices import Price, PriceList, shipped_prices
from basis_daemon.runtime.providers.base import ModelInfo as RuntimeModelInfo
from basis_daemon.server.client import Client
from basis_daemon.server.services import Services
from basis_daemon.workspace.efforts import efforts_of
from basis_daemon.workspace.model_catalogue import Listing
from basis_daemon.workspace.provider_names import provider_id
from basis_daemon.workspace.reachable import listings
from basis_protocol.lifecycle import ModelInfo, ModelListParams, ModelListProblem, ModelListResult, ModelPrice


async def list_models(services: Services, client: Client, params: ModelListParams) -> ModelListResult:
    only = provider_id(params.provider) if params.provider is not None else None
    workspaces = [await services.workspaces.get(params.workspace)] if params.workspace else services.workspaces.list()
    if not workspaces:
        runtime = await asyncio.to_thread(services.runtime.get)
        keychain, prices = services.workspaces.bare_keychain(), await asyncio.to_thread(shipped_prices)
        found = await listings(services.catalogue, runtime, keychain, None, only=only, refresh=params.refresh)
        return _result((listing, prices) for listing in found)
    answers = await asyncio.gather(
        *(workspace.reachable_models(only=only, refresh=params.refresh) for workspace in workspaces)
    )
    return _result(
        (listing, workspace.prices) for workspace, answer in zip(workspaces, answers, strict=True) for listing in answer
    )


def _result(found: Iterable[tuple[Listing, PriceList]]) -> ModelListResult:
    """Everything once: workspaces may reach the same providers, and one provider with different keys."""
    models: dict[tuple[str, str], ModelInfo] = {}
    problems: dict[tuple[str, str], ModelListProblem] = {}
    for listing, prices in found:
        for model in listing.models:
            price = prices.find(listing.billed_as or listing.provider, model.id)
            models.setdefault((model.provider, model.id), _model(model, price))
        error = listing.error
        if error is not None:
            problem = ModelListProblem(provider=listing.provider, message=str(error), hint=error.hint)
            problems.setdefault((listing.provider, str(error)), problem)
    return ModelListResult(
        models=list(models.values()),
        degraded=list(dict.fromkeys(problem.provider for problem in problems.values())),
        problems=list(problems.values()),
    )


def _model(model: RuntimeModelInfo, price: Price | None) -> ModelInfo:
    efforts = efforts_of(model.provider, model.id)
    return ModelInfo(
        id=model.id,
        provider=model.provider,
        display_name=model.display_name,
        context_window=model.context_window,
        description=model.description,
        created_at=model.created_at,
        efforts=None if efforts is None else list(efforts),
        price=None if price is None else _price(price),
    )


def _price(price: Price) -> ModelPrice:
    """The price of a short prompt; long ones may cost more."""
    return ModelPrice(
        input=price.input or "0",
        output=price.output or "0",
        cache_read=price.cache_read,
        cache_write=price.cache_write,
        as_of=price.as_of,
    )


HANDLERS = {"basis/model/list": list_models}
