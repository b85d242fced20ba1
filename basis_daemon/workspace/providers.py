"""Which service a workspace speaks to, with whose key, decided from the least a person had to say (workspace.md 3).

Owns the precedence: what the host says, then the workspace's config.json, the global one, stored keys, the environments
and at last the providers that come with the product. Where a key is looked for is `credentials.py`'s. Sends nothing
anywhere. Finding a model is `connection.py`'s.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from basis_daemon.errors import (
    NoCompatibleCredential,
    ProviderNotFound,
    UnattributedCredential,
)
from basis_daemon.runtime.providers.definition import WireChoice
from basis_daemon.runtime.providers.endpoint import normalise_base_url
from basis_daemon.runtime.providers.registry import PRESETS, VENDORS_OF_WIRES, ProviderChoice
from basis_daemon.runtime.runtime import ProviderSettings
from basis_daemon.workspace.config import Config
from basis_daemon.workspace.credentials import FoundKey, Keychain, KeySource, Slot, endpoint_slot, vendor_slot
from basis_daemon.workspace.provider_names import (
    BASE_URL_VARIABLES,
    COMPATIBLE_KEY_VARIABLES,
    EMBEDDED,
    KEY_VARIABLES,
    LOCAL_SERVERS,
    POCKET,
    REHEARSAL,
    provider_id,
    variable,
)
from basis_protocol.pocket import INTRODUCTION

HOW_TO_CONNECT = (
    f"run `basisctl auth login PROVIDER`, set {' or '.join(KEY_VARIABLES.values())}, run `basisctl connect PROVIDER` "
    "(ollama, for example), or name one in config.json"
)
HOST = "the host"
"""Names the embedding program, or the person's command line, as the source of a setting."""

POCKET_MISSING = "install it with `basisctl pocket install`"


@dataclass(frozen=True, slots=True)
class Decision:
    """A provider and how it came to be chosen. `by_default` means that nobody asked for any."""

    choice: ProviderChoice
    by_default: bool = False
    notices: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One field of the decision and where it is from."""

    value: str
    source: str


def decide_provider(
    settings: ProviderSettings,
    config: Config,
    keychain: Keychain,
    *,
    is_pocket_installed: Callable[[], bool],
) -> Decision:
    """Decide (PR-1, PR-2, PR-5). Nobody having asked for anything is no error: an embedded provider is taken then.

    Blocking: keys are looked up where they are stored. Raises `ProviderSetupError` kinds when what was asked for can't
    be had.
    """
    provider = _provider(settings, config)
    if provider is not None and provider.value in EMBEDDED:
        if provider.value == POCKET and not is_pocket_installed():
            raise ProviderNotFound("the pocket model is not installed", hint=POCKET_MISSING)
        return Decision(ProviderChoice(provider.value, None, None, "auto", provider.source))
    base_url = _base_url(settings, config, keychain.environment)
    if base_url is not None:
        wire = settings.wire or (config.wire.value if config.wire else None)
        return Decision(_endpoint(settings, provider, base_url, wire, keychain))
    if provider is not None:
        return Decision(_named(settings, provider, keychain))
    if settings.api_key is not None:
        raise UnattributedCredential(
            "a key was given without saying whose it is", hint="name the provider or the base URL it belongs to"
        )
    found = first_keyed(keychain)
    if found is not None:
        owner, key, source = found
        choice = ProviderChoice(owner, key.key, None, settings.wire or "auto", key.source, credentials=source)
        return Decision(choice)
    return _embedded_default(config, keychain.environment, is_pocket_installed())


def first_keyed(keychain: Keychain) -> tuple[str, FoundKey, KeySource] | None:
    """The provider whose key decides when nobody named one (PR-5): stored ones go ahead of the environment a client
    sent, and that ahead of the daemon's own; among equals the order of `KEY_VARIABLES` holds. Blocking."""
    sources = {provider: keychain.source(vendor_slot(provider)) for provider in KEY_VARIABLES}
    for kind in ("store", "workspace_environment", "daemon_environment"):
        for provider, source in sources.items():
            found = source.find()
            if found is not None and found.kind == kind:
                return provider, found, source
    return None


def _provider(settings: ProviderSettings, config: Config) -> _Wanted | None:
    if settings.provider is not None:
        return _Wanted(provider_id(settings.provider), HOST)
    setting = config.provider
    return _Wanted(provider_id(setting.value), str(setting.path)) if setting else None


def _base_url(settings: ProviderSettings, config: Config, environment: Mapping[str, str]) -> _Wanted | None:
    if settings.base_url is not None:
        return _Wanted(normalise_base_url(settings.base_url), HOST)
    if config.base_url is not None:
        return _Wanted(normalise_base_url(config.base_url.value), str(config.base_url.path))
    found = variable(environment, *BASE_URL_VARIABLES)
    return _Wanted(normalise_base_url(found[1]), found[0]) if found else None


def _endpoint(
    settings: ProviderSettings,
    provider: _Wanted | None,
    base_url: _Wanted,
    wire: WireChoice | None,
    keychain: Keychain,
) -> ProviderChoice:
    """A compatible endpoint. No key of a provider's own, stored or in its variable, is ever sent to it (PR-2, PR-4)."""
    name = provider.value if provider else "openai"
    wants_key = name not in LOCAL_SERVERS
    source = _source(settings, endpoint_slot(name, base_url.value), keychain, is_required=wants_key)
    found = source.find()
    if found is None and wants_key:
        raise NoCompatibleCredential(
            f"a base URL is set ({base_url.source}) but no key for it",
            hint=f"run `basisctl auth login --base-url {source.slot.name}`, or set "
            f"{' or '.join(COMPATIBLE_KEY_VARIABLES)}; for a server that wants no key, name the provider "
            f"{' or '.join(LOCAL_SERVERS)}",
        )
    key, spoken = found.key if found else None, wire or endpoint_wire(name)
    return ProviderChoice(name, key, base_url.value, spoken, base_url.source, credentials=source)


def endpoint_wire(provider: str) -> WireChoice:
    """What an endpoint speaks when nobody said: what the provider it stands in for does, if that has a wire of its own;
    else chat/completions, which everybody can (PR-4)."""
    preset = PRESETS.get(provider)
    own = preset().wire if preset else "auto"
    return own if own in VENDORS_OF_WIRES else "chat_completions"


def _named(settings: ProviderSettings, provider: _Wanted, keychain: Keychain) -> ProviderChoice:
    """A provider somebody named, with the key that is its own."""
    name, wire = provider.value, settings.wire or "auto"
    if name in LOCAL_SERVERS:
        return ProviderChoice(name, settings.api_key, None, wire, provider.source)
    source = _source(settings, vendor_slot(name), keychain)
    found = source.find()
    if found is None:
        raise source.slot.missing(f"{provider.source} names the provider {name}")
    said = provider.source if found.kind == "host" else found.source
    return ProviderChoice(name, found.key, None, wire, said, credentials=source)


def _source(settings: ProviderSettings, slot: Slot, keychain: Keychain, *, is_required: bool = True) -> KeySource:
    """What the host gave, and nothing else; or what can be found."""
    if settings.api_key is None:
        return keychain.source(slot, is_required=is_required)
    return KeySource(slot, named=(FoundKey(settings.api_key, "host", HOST),))


def _embedded_default(config: Config, environment: Mapping[str, str], has_pocket: bool) -> Decision:
    """Nobody said anything: take what is always there, and say so."""
    answering = (
        f"No model is connected, so the pocket model answers. {INTRODUCTION}"
        if has_pocket
        else "No model is connected, so the rehearsal answers: it is none, and carries out `!command`, `read PATH`, "
        "`write PATH: text` and `edit PATH: old -> new` to the letter."
    )
    notices = [
        answering,
        f"To connect a real model, {HOW_TO_CONNECT}.",
    ]
    if config.model is not None:
        notices.append(f"The model named in {config.model.path} is not used: nobody has named the provider it is of.")
    if variable(environment, "BASIS_API_KEY"):
        notices.append("BASIS_API_KEY is set, but it goes only to a base URL: set BASIS_BASE_URL as well.")
    name = POCKET if has_pocket else REHEARSAL
    return Decision(ProviderChoice(name, None, None, "auto", None), by_default=True, notices=notices)
