"""Which service a workspace speaks to, with whose key, decided from the least a person had to say (workspace.md 3).

Owns the precedence: what the host says, then the workspace's config.json, the global one, the environment snapshot, and
at last the providers that come with the product. Sends nothing anywhere. Finding a model is `connection.py`'s.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from basis_daemon.errors import (
    MissingCredential,
    NoCompatibleCredential,
    ProviderNotFound,
    UnattributedCredential,
)
from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.endpoint import normalise_base_url
from basis_daemon.runtime.providers.registry import PRESETS, ProviderChoice
from basis_daemon.runtime.runtime import ProviderSettings
from basis_daemon.workspace.config import Config
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

SPOKEN = {provider: name for provider, name in KEY_VARIABLES.items() if provider in PRESETS}
"""The keyed providers this build can speak to; a key of another one does not decide anything by itself."""

HOW_TO_CONNECT = (
    f"set {' or '.join(SPOKEN.values())}, run `basisctl connect PROVIDER` (ollama, for example), "
    "or name one in config.json"
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
    environment: Mapping[str, str],
    *,
    is_pocket_installed: Callable[[], bool],
) -> Decision:
    """Decide (PR-1, PR-2, PR-5). Nobody having asked for anything is no error: an embedded provider is taken then.

    Raises `ProviderSetupError` kinds when what was asked for can't be had.
    """
    provider = _provider(settings, config)
    if provider is not None and provider.value in EMBEDDED:
        if provider.value == POCKET and not is_pocket_installed():
            raise ProviderNotFound("the pocket model is not installed", hint=POCKET_MISSING)
        return Decision(ProviderChoice(provider.value, None, None, "auto", provider.source))
    base_url = _base_url(settings, config, environment)
    if base_url is not None:
        return Decision(_endpoint(settings, provider, base_url, environment))
    if provider is not None:
        return Decision(_named(settings, provider, environment))
    if settings.api_key is not None:
        raise UnattributedCredential(
            "a key was given without saying whose it is", hint="name the provider or the base URL it belongs to"
        )
    found = variable(environment, *SPOKEN.values())
    if found is not None:
        name, key = found
        owner = next(provider for provider, variable_name in SPOKEN.items() if variable_name == name)
        return Decision(
            ProviderChoice(owner, Secret(key), None, settings.wire or "auto", name), notices=_passed_over(environment)
        )
    return _embedded_default(config, environment, is_pocket_installed())


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
    settings: ProviderSettings, provider: _Wanted | None, base_url: _Wanted, environment: Mapping[str, str]
) -> ProviderChoice:
    """A compatible endpoint. No provider's own variable is ever sent to it (PR-2, PR-4)."""
    name = provider.value if provider else "openai"
    key = settings.api_key
    if key is None:
        # A model server on one's own machines has nothing to do with an OpenAI key that happens to be set.
        names = COMPATIBLE_KEY_VARIABLES[:1] if name in LOCAL_SERVERS else COMPATIBLE_KEY_VARIABLES
        found = variable(environment, *names)
        key = Secret(found[1]) if found else None
    if key is None and name not in LOCAL_SERVERS:
        raise NoCompatibleCredential(
            f"a base URL is set ({base_url.source}) but no key for it",
            hint=f"set {' or '.join(COMPATIBLE_KEY_VARIABLES)}; for a server that wants no key, name the provider "
            f"{' or '.join(LOCAL_SERVERS)}",
        )
    return ProviderChoice(name, key, base_url.value, settings.wire or "chat_completions", base_url.source)


def _named(settings: ProviderSettings, provider: _Wanted, environment: Mapping[str, str]) -> ProviderChoice:
    """A provider somebody named, with the key that is its own."""
    wire = settings.wire or "auto"
    if settings.api_key is not None or provider.value in LOCAL_SERVERS:
        return ProviderChoice(provider.value, settings.api_key, None, wire, provider.source)
    name = KEY_VARIABLES[provider.value]
    if provider.value not in PRESETS:
        raise ProviderNotFound(
            f"{provider.source} names the provider {provider.value}, which this version does not speak to",
            hint=f"known are {', '.join((*PRESETS, *EMBEDDED))}",
        )
    found = variable(environment, name)
    if found is None:
        raise MissingCredential(
            f"{provider.source} names the provider {provider.value}, but {name} is not set",
            hint=f"set {name} where you start the client, and try again",
            details={"provider": provider.value, "variable": name},
        )
    return ProviderChoice(provider.value, Secret(found[1]), None, wire, name)


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
        *_passed_over(environment),
    ]
    if config.model is not None:
        notices.append(f"The model named in {config.model.path} is not used: nobody has named the provider it is of.")
    if variable(environment, "BASIS_API_KEY"):
        notices.append("BASIS_API_KEY is set, but it goes only to a base URL: set BASIS_BASE_URL as well.")
    name = POCKET if has_pocket else REHEARSAL
    return Decision(ProviderChoice(name, None, None, "auto", None), by_default=True, notices=notices)


def _passed_over(environment: Mapping[str, str]) -> list[str]:
    """What to say about keys of providers that can't be spoken to yet."""
    others = {provider: name for provider, name in KEY_VARIABLES.items() if provider not in SPOKEN}
    return [
        f"{name} is set, but this version does not speak to {provider}."
        for provider, name in others.items()
        if variable(environment, name)
    ]
