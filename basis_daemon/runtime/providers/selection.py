"""Which model is meant: one that is named, or the newest the provider lists (runtime.md 1.5).

Owns the choice among what a provider tells. Keeps nothing; whoever asks often keeps the list (`ModelCatalogue`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from basis_daemon.errors import BasisError, NoModelsAvailable, ProviderSetupError
from basis_daemon.runtime.providers.base import ModelInfo, Provider
from basis_daemon.runtime.providers.wire import newest_first

LISTING_TIMEOUT_S = 5.0
"""Seconds a provider has to list its models. A person waits for it with their first prompt."""

NAME_A_MODEL = 'name the model: "model" in config.json, or --model'


class FailedToListModels(ProviderSetupError):
    """RT-30: no model was named and the provider could not say which ones it has."""

    kind = "models_unlisted"


@dataclass(frozen=True, slots=True)
class ModelSelector:
    """A model by its id, or `NEWEST_AVAILABLE`."""

    id: str | None = None


NEWEST_AVAILABLE = ModelSelector()


async def select(provider: Provider, selector: ModelSelector) -> ModelInfo:
    """The model `selector` means at `provider`.

    A named one is never refused for want of a list: what is not told of it stays unknown (RT-29). Raises
    `FailedToListModels` and `NoModelsAvailable` for the newest (RT-30).
    """
    if selector.id is None:
        return newest(await listed(provider), provider)
    bare = ModelInfo(selector.id, provider.id)
    try:
        models = await listed(provider)
    except FailedToListModels:
        return bare
    return next((model for model in models if model.id == selector.id), bare)


async def listed(provider: Provider) -> Sequence[ModelInfo]:
    """The models `provider` lists, in bounded time. Raises `FailedToListModels`."""
    try:
        async with asyncio.timeout(LISTING_TIMEOUT_S):
            return await provider.list_models()
    except TimeoutError:
        raise unlisted(provider, f"it took longer than {LISTING_TIMEOUT_S:g} s") from None
    except BasisError as error:
        raise unlisted(provider, str(error)) from error


def unlisted(provider: Provider, problem: str) -> FailedToListModels:
    """The error for a provider whose models could not be had."""
    return FailedToListModels(
        f"no model is named, and {provider.label} could not list its models: {problem}", hint=NAME_A_MODEL
    )


def newest(models: Sequence[ModelInfo], provider: Provider) -> ModelInfo:
    """The model listed last, unknown dates after all others, ties by id (RT-30). Raises `NoModelsAvailable`."""
    if not models:
        raise NoModelsAvailable(f"{provider.label} lists no models", hint=NAME_A_MODEL)
    return newest_first(list(models))[0]
