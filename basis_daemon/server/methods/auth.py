"""`basis/auth/*`: where keys come from, storing one, forgetting one. A key comes in and never goes out again.

Owns what is accepted as a key, and what follows when one has changed. Where keys are kept is the workspace layer's.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from basis_daemon.errors import BasisError, InvalidBaseUrl, InvalidInput, NotKeyed, ProviderSetupError
from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.definition import RetryPolicy, StaticCredentials, WireChoice
from basis_daemon.runtime.providers.endpoint import normalise_base_url, refuse_plaintext
from basis_daemon.runtime.providers.errors import AuthenticationError
from basis_daemon.runtime.providers.network import Network
from basis_daemon.runtime.providers.registry import ProviderChoice, definition_of
from basis_daemon.server.client import Client
from basis_daemon.server.error_map import InvalidParams
from basis_daemon.server.services import Services
from basis_daemon.workspace.config import WIRES
from basis_daemon.workspace.credentials import Keychain, KeySource, Slot, endpoint_slot, vendor_slot
from basis_daemon.workspace.provider_names import KEY_VARIABLES, LOCAL_SERVERS, provider_id
from basis_daemon.workspace.providers import endpoint_wire
from basis_protocol.base import Empty
from basis_protocol.lifecycle import (
    AuthForgetParams,
    AuthSetParams,
    AuthSetResult,
    AuthState,
    AuthStatusParams,
    AuthStatusResult,
)

MAX_KEY_CHARACTERS = 8192
ORDER = ("host", "store", "workspace_environment", "daemon_environment")
"""Kinds of sources, the one that counts first."""
TRYING_TIMEOUT_S = 15.0
"""Seconds a provider has to say what it thinks of a key."""


async def status(services: Services, client: Client, params: AuthStatusParams) -> AuthStatusResult:
    if params.workspace is not None:
        keychains = [(await services.workspaces.get(params.workspace)).keychain]
    else:
        keychains = [workspace.keychain for workspace in services.workspaces.list()]
    return AuthStatusResult(providers=await asyncio.to_thread(_states, services.workspaces.bare_keychain(), keychains))


async def set_key(services: Services, client: Client, params: AuthSetParams) -> AuthSetResult:
    provider, base_url, slot = _meant(params.provider, params.base_url)
    key = _key(params.secret)
    if base_url is not None:
        refuse_plaintext(base_url)
    wire = _wire(provider, base_url, params.wire)
    verified, problem = await _try(services, provider, base_url, wire, key) if params.verify else (None, None)
    # To the end even if the client leaves now: a key that is stored and told to nobody would be found by some.
    await services.work.run(_store(services, provider, slot, key, in_file=params.in_file))
    state = await asyncio.to_thread(_state, provider, base_url, [services.workspaces.bare_keychain().source(slot)])
    return AuthSetResult(state=state, verified=verified, problem=problem)


async def forget(services: Services, client: Client, params: AuthForgetParams) -> Empty:
    provider, _, slot = _meant(params.provider, params.base_url)
    await services.work.run(_remove(services, provider, slot))
    return Empty()


async def _store(services: Services, provider: str, slot: Slot, key: Secret, *, in_file: bool) -> None:
    await asyncio.to_thread(services.credentials.put, slot.name, key, in_file=in_file)
    await _changed(services, provider)


async def _remove(services: Services, provider: str, slot: Slot) -> None:
    if await asyncio.to_thread(services.credentials.remove, slot.name):
        await _changed(services, provider)


def _meant(name: str, base_url: str | None) -> tuple[str, str | None, Slot]:
    """Provider, endpoint and slot. Raises `UnknownProvider`, `InvalidBaseUrl`, and `NotKeyed` for who takes no key."""
    provider = provider_id(name)
    if base_url is not None and (provider in KEY_VARIABLES or provider in LOCAL_SERVERS):
        url = normalise_base_url(base_url)
        return provider, url, endpoint_slot(provider, url)
    if provider not in KEY_VARIABLES:
        also = "; for a server of yours that does, name its address" if provider in LOCAL_SERVERS else ""
        raise NotKeyed(f"{provider} takes no key", hint=f"those that do are {', '.join(KEY_VARIABLES)}{also}")
    return provider, None, vendor_slot(provider)


def _key(secret: str) -> Secret:
    """What was sent, as a key. Raises `InvalidParams`, which doesn't repeat it."""
    key = secret.strip()
    if not key:
        raise InvalidParams("secret: it is blank", field="secret")
    if len(key) > MAX_KEY_CHARACTERS:
        raise InvalidParams(f"secret: it has more than {MAX_KEY_CHARACTERS} characters", field="secret")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidParams(
            "secret: it holds a space, a line break or a character outside ASCII, which no key has",
            field="secret",
            hint="copy it again, and nothing around it",
        )
    return Secret(key)


def _wire(provider: str, base_url: str | None, said: str | None) -> WireChoice:
    """What the key is tried over. Raises `InvalidParams`."""
    known: WireChoice | None = next((wire for wire in WIRES if wire == said), None)
    if said is not None and known is None:
        raise InvalidParams(f"wire: it is one of {', '.join(WIRES)}", field="wire")
    return "auto" if base_url is None else known or endpoint_wire(provider)


async def _try(
    services: Services, provider: str, base_url: str | None, wire: WireChoice, key: Secret
) -> tuple[bool | None, str | None]:
    """Ask for the list of models with `key`. Raises `InvalidInput` for a key that is refused; anything else that goes
    wrong says nothing about the key, and is returned in words."""
    runtime = await asyncio.to_thread(services.runtime.get)
    opened = services.workspaces.list()
    network = Network.of(opened[0].keychain.environment, os.environ) if opened else None
    try:
        definition = definition_of(ProviderChoice(provider, key, base_url, wire, None))
        once = replace(definition, retry=RetryPolicy(max_attempts=1))
        candidate = runtime.providers.make(once, StaticCredentials(key), network)
        async with asyncio.timeout(TRYING_TIMEOUT_S):
            await candidate.list_models()
    except AuthenticationError as error:
        raise InvalidInput(
            f"the key was not stored: {error}", hint="copy it again as its issuer shows it", details={"field": "secret"}
        ) from None
    except TimeoutError:
        return None, f"{provider} did not answer within {TRYING_TIMEOUT_S:g} s"
    except BasisError as error:
        return None, str(error)
    return True, None


async def _changed(services: Services, provider: str) -> None:
    services.announcer.auth_changed(provider)
    await services.workspaces.credentials_changed()


def _states(bare: Keychain, keychains: Sequence[Keychain]) -> list[AuthState]:
    """The state of every keyed provider and every endpoint with a stored key. Blocking."""
    # A workspace's keychain has all the bare one has: the bare one speaks for a daemon without workspaces.
    chains = keychains or [bare]
    states = [_state(name, None, [chain.source(vendor_slot(name)) for chain in chains]) for name in KEY_VARIABLES]
    try:
        stored = bare.store.names() if bare.store else []
    except ProviderSetupError:  # said of every provider already
        stored = []
    states += [_endpoint_state(name, chains) for name in stored if name not in KEY_VARIABLES]
    return [*states, *(AuthState(provider=name, source="not_needed") for name in LOCAL_SERVERS)]


def _endpoint_state(name: str, chains: Sequence[Keychain]) -> AuthState:
    try:
        slot = endpoint_slot("openai", name)
    except InvalidBaseUrl:  # not repeated: what somebody wrote into the file may be a key in the wrong place
        problem = "the file of stored keys has one under a name that is neither a provider nor an address; take it out"
        return AuthState(provider="unknown", source="none", problem=problem)
    return _state("openai", name, [chain.source(slot) for chain in chains])


def _state(provider: str, base_url: str | None, sources: list[KeySource]) -> AuthState:
    """What counts, and what would count instead, each source once."""
    bare = AuthState(provider=provider, base_url=base_url, source="none", variable=sources[0].slot.variables[0])
    try:
        found = {key.source: key for source in sources for key in source.every()}
    except ProviderSetupError as error:
        hint = f"; {error.hint}" if error.hint else ""
        return msgspec.structs.replace(bare, problem=f"{error}{hint}")
    if not found:
        return bare
    first, *others = sorted(found.values(), key=lambda key: ORDER.index(key.kind))
    return msgspec.structs.replace(bare, source=first.kind, detail=first.source, also=[key.source for key in others])


HANDLERS = {"basis/auth/status": status, "basis/auth/set": set_key, "basis/auth/forget": forget}
