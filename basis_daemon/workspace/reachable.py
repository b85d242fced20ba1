"""All the providers a workspace could use, for the list of their models: its own, those it has keys of, those that run
on this machine.

Owns who is asked. Nobody is sent a key that isn't theirs, and looking for local servers uses none of them.
"""

import asyncio
import os
from collections.abc import Sequence

from basis_daemon.errors import BasisError
from basis_daemon.runtime.providers.base import ModelInfo
from basis_daemon.runtime.providers.network import Network
from basis_daemon.runtime.providers.registry import ProviderChoice
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.workspace.connection import Connection
from basis_daemon.workspace.credentials import Keychain, vendor_slot
from basis_daemon.workspace.model_catalogue import Listing, ModelCatalogue, Reachable
from basis_daemon.workspace.provider_names import KEY_VARIABLES, LOCAL_SERVERS


async def listings(
    catalogue: ModelCatalogue,
    runtime: Runtime,
    keychain: Keychain,
    own: Connection | None,
    *,
    only: str | None = None,
    refresh: bool = False,
) -> list[Listing]:
    """The models of every provider within reach, the workspace's own first; of provider `only`, if that is given.

    Never raises for what a provider or a key's store does: the listing says it.
    """
    asked, failed = await asyncio.to_thread(_keyed, runtime, keychain, only)
    if own is not None and only in (None, own.provider.id):
        asked = [own.reachable, *(each for each in asked if each.provider is not own.provider)]
    has_own = {each.provider.id for each in asked}
    answers, local = await asyncio.gather(
        catalogue.listings(asked, refresh=refresh),
        _local(keychain, [name for name in LOCAL_SERVERS if name not in has_own and only in (None, name)]),
    )
    return [*answers, *local, *failed]


def _keyed(runtime: Runtime, keychain: Keychain, only: str | None) -> tuple[list[Reachable], list[Listing]]:
    """The vendors there is a key of, and those whose stored key can't be read. Blocking."""
    reachable: list[Reachable] = []
    failed: list[Listing] = []
    network = Network.of(keychain.environment, os.environ)
    for name in KEY_VARIABLES:
        if only not in (None, name):
            continue
        source = keychain.source(vendor_slot(name))
        try:
            found = source.find()
            if found is not None:
                choice = ProviderChoice(name, found.key, None, "auto", found.source, network, source)
                reachable.append(Reachable(runtime.providers.get(choice), source))
        except BasisError as error:
            failed.append(Listing(name, error=error))
    return reachable, failed


async def _local(keychain: Keychain, names: Sequence[str]) -> list[Listing]:
    """What runs on this machine where its provider looks for it."""
    if not names:
        return []
    from basis_daemon.runtime.providers.local_detection import detect

    return [
        Listing(
            found.kind,
            tuple(ModelInfo(model.id, found.kind, context_window=model.context_tokens) for model in found.models),
        )
        for found in await detect(keychain.environment)
        if found.kind in names and found.is_usual_place and not found.needs_key
    ]
