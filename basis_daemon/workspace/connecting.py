"""From what was said to a provider: the decision carried out on a runtime.

Owns where the runtime's own settings stand, instances a host gave it, and how the pocket model joins it. What is
decided is `providers.py`'s; which model is used, `connection.py`'s.
"""

import asyncio
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from basis_daemon.errors import ProviderSetupError
from basis_daemon.processes.local import LocalExecutor
from basis_daemon.runtime.providers.base import Provider
from basis_daemon.runtime.providers.endpoint import origin
from basis_daemon.runtime.providers.network import Network
from basis_daemon.runtime.providers.registry import ProviderChoice
from basis_daemon.runtime.runtime import ProviderSettings, Runtime
from basis_daemon.workspace.config import Config
from basis_daemon.workspace.connection import Connection, UnavailableProvider
from basis_daemon.workspace.credentials import Keychain
from basis_daemon.workspace.model_catalogue import ModelCatalogue
from basis_daemon.workspace.provider_names import NAMES, POCKET
from basis_daemon.workspace.providers import decide_provider
from basis_protocol.address import NoDataDirectory, data_dir


async def connect(
    runtime: Runtime,
    own: ProviderSettings,
    config: Config,
    keychain: Keychain,
    *,
    models_dir: Path | None = None,
    catalogue: ModelCatalogue | None = None,
) -> tuple[Connection, list[str]]:
    """The way to a model for a workspace whose host said `own`, and what the person should know about it.

    What was asked for and can't be had is kept in the connection, not raised: the workspace still opens (DM-1).
    """
    settings = _merged(own, runtime.defaults)
    model = settings.model or (config.model.value if config.model else None) or runtime.defaults.model
    custom = settings.provider if settings.provider not in NAMES else None
    instance = runtime.providers.by_id(custom) if custom else None
    if instance is not None:
        return Connection(instance, model=model, catalogue=catalogue), []
    try:
        has_pocket = partial(_is_installed, models_dir) if runtime.providers.by_id(POCKET) is None else lambda: True
        # In a thread: a key may be in a keyring, and the last thing asked is what lies in the directory of models.
        decision = await asyncio.to_thread(decide_provider, settings, config, keychain, is_pocket_installed=has_pocket)
        # A daemon started at login knows no proxy; whoever opens the workspace does.
        choice = replace(decision.choice, network=Network.of(keychain.environment, os.environ))
        provider = _provider(runtime, choice, models_dir)
    except ProviderSetupError as error:
        asked_for = settings.provider or (config.provider.value if config.provider else "")
        hint = f" To fix it, {error.hint}." if error.hint else ""
        notice = f"No model can be reached: {error}.{hint}"
        return Connection(UnavailableProvider(asked_for, error), model=model, error=error), [notice]
    connection = Connection(
        provider,
        model=model,
        by_default=decision.by_default,
        credentials=choice.credentials,
        catalogue=catalogue,
        billed_as=choice.provider if choice.base_url is None else f"{choice.provider}@{origin(choice.base_url)}",
    )
    return connection, decision.notices


def _merged(own: ProviderSettings, runtime: ProviderSettings) -> ProviderSettings:
    """What the workspace was told over what its runtime was; a key never leaves the provider it was given for."""
    names_one = own.provider is not None or own.base_url is not None or own.api_key is not None
    return own if names_one else replace(runtime, model=own.model)


def _models(directory: Path | None) -> Path:
    return directory or data_dir() / "models"


def _is_installed(models_dir: Path | None) -> bool:
    """Whether the pocket model is there to be used. Looks at the disk."""
    from basis_daemon.runtime.providers.pocket import is_installed

    try:
        return is_installed(_models(models_dir))
    except NoDataDirectory:
        return False


def _provider(runtime: Runtime, choice: ProviderChoice, models_dir: Path | None) -> Provider:
    """What `choice` stands for. The pocket model joins the runtime when it is first chosen; it starts nothing yet."""
    if choice.provider == POCKET and runtime.providers.by_id(POCKET) is None:
        from basis_daemon.runtime.providers.pocket import PocketProvider

        processes = runtime.executor.processes if isinstance(runtime.executor, LocalExecutor) else None
        runtime.providers.register(PocketProvider(_models(models_dir), processes=processes))
    return runtime.providers.get(choice)
