"""The providers of one runtime: presets, and instances made from choices or registered ready-made.

Owns which provider a choice stands for. How it was chosen is the workspace's (`workspace/providers.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from basis_daemon.errors import ProviderNotFound, UsageError
from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.abilities import EmbeddingProvider, embeddings_of
from basis_daemon.runtime.providers.anthropic import API_VERSION, BINDING_CONTROLS
from basis_daemon.runtime.providers.base import Provider
from basis_daemon.runtime.providers.definition import (
    AuthScheme,
    Capabilities,
    CredentialSource,
    ProviderDefinition,
    RetryPolicy,
    StaticCredentials,
    WireChoice,
)
from basis_daemon.runtime.providers.endpoint import normalise_base_url, refuse_plaintext
from basis_daemon.runtime.providers.errors import UnsupportedCapability
from basis_daemon.runtime.providers.governor import Governor
from basis_daemon.runtime.providers.http import HttpPool
from basis_daemon.runtime.providers.network import Network, process_network
from basis_daemon.runtime.providers.remote import RemoteProvider

_LOCAL = Capabilities(reasoning_effort=False, embeddings=True)
_NO_WAITING = RetryPolicy(max_attempts=1)
"""A server on this machine that refuses the connection isn't running; asking again only keeps a person waiting."""
_LOCAL_REQUESTS = 4
"""A server on one machine works on a few requests at once; those beyond wait where they can be seen waiting."""


def openai_definition() -> ProviderDefinition:
    """OpenAI's own API."""
    return ProviderDefinition(
        id="openai",
        label="OpenAI",
        base_url="https://api.openai.com/",
        wire="responses",
        capabilities=Capabilities(
            websockets=True,
            deferred_tools=True,
            hosted_tool_search=True,
            hosted_web_search=True,
            image_generation=True,
            reports_reasoning_tokens=True,
            embeddings=True,
        ),
        keeps_responses=True,
        is_vendor=True,
    )


def openrouter_definition() -> ProviderDefinition:
    """OpenRouter: many vendors' models over OpenAI's wires."""
    return ProviderDefinition(
        id="openrouter", label="OpenRouter", base_url="https://openrouter.ai/api/", wire="responses"
    )


def anthropic_definition() -> ProviderDefinition:
    """Anthropic's own API."""
    return ProviderDefinition(
        id="anthropic",
        label="Anthropic",
        base_url="https://api.anthropic.com/",
        wire="anthropic_messages",
        auth=AuthScheme("header", "x-api-key"),
        capabilities=Capabilities(deferred_tools=True, hosted_tool_search=True, reports_reasoning_tokens=True),
        headers={"anthropic-version": API_VERSION, "anthropic-beta": BINDING_CONTROLS},
        is_vendor=True,
    )


def gemini_definition() -> ProviderDefinition:
    """Google's Gemini API."""
    return ProviderDefinition(
        id="gemini",
        label="Gemini",
        base_url="https://generativelanguage.googleapis.com/",
        wire="gemini_generate_content",
        auth=AuthScheme("header", "x-goog-api-key"),
        capabilities=Capabilities(structured_tool_results=True, reports_thoughts_tokens=True),
        is_vendor=True,
    )


def ollama_definition() -> ProviderDefinition:
    """An Ollama on this machine."""
    return ProviderDefinition(
        id="ollama",
        label="Ollama",
        base_url="http://127.0.0.1:11434/",
        wire="auto",
        capabilities=_LOCAL,
        retry=_NO_WAITING,
        max_concurrent=_LOCAL_REQUESTS,
    )


def lmstudio_definition() -> ProviderDefinition:
    """An LM Studio on this machine."""
    return ProviderDefinition(
        id="lmstudio",
        label="LM Studio",
        base_url="http://127.0.0.1:1234/",
        wire="auto",
        capabilities=_LOCAL,
        retry=_NO_WAITING,
        max_concurrent=_LOCAL_REQUESTS,
    )


def chat_completions_definition(id: str, base_url: str) -> ProviderDefinition:
    """Any server that speaks chat/completions. Raises `InvalidBaseUrl`."""
    url = normalise_base_url(base_url)
    return ProviderDefinition(id=id, label=urlsplit(url).netloc, base_url=url, wire="chat_completions")


PRESETS: Final[dict[str, Callable[[], ProviderDefinition]]] = {
    "openai": openai_definition,
    "openrouter": openrouter_definition,
    "anthropic": anthropic_definition,
    "gemini": gemini_definition,
    "ollama": ollama_definition,
    "lmstudio": lmstudio_definition,
}


VENDORS_OF_WIRES: Final[dict[str, str]] = {
    "anthropic_messages": "anthropic",
    "gemini_generate_content": "gemini",
}
"""Wires that are one vendor's: an endpoint that speaks one wants that vendor's headers, and can what the vendor can."""


@dataclass(frozen=True)
class ProviderChoice:
    """Which provider, with whose key, where, over which wire; `source` says where the choice was found.

    `auto` is the preset's own wire. A `base_url` makes it a compatible endpoint under the same id.
    """

    provider: str
    api_key: Secret | None
    base_url: str | None
    wire: WireChoice
    source: str | None
    network: Network | None = None
    """The way out, as the environment says that opened the workspace; unset is this process's own."""
    credentials: CredentialSource | None = field(default=None, compare=False)
    """Where the key is looked up for every request; unset uses `api_key` for ever."""

    @property
    def is_compatible_endpoint(self) -> bool:
        return self.base_url is not None


def definition_of(choice: ProviderChoice) -> ProviderDefinition:
    """The definition a choice amounts to. Raises `ProviderNotFound` or `InvalidBaseUrl`; sends nothing."""
    preset = PRESETS.get(choice.provider)
    if choice.base_url is None:
        if preset is None:
            raise ProviderNotFound(
                f"there is no provider {choice.provider!r} here", hint=f"known are {', '.join(PRESETS)}"
            )
        definition = preset()
    else:
        definition = _endpoint(choice, choice.base_url)
    if choice.wire != "auto":
        definition = replace(definition, wire=choice.wire)
    if choice.api_key:
        refuse_plaintext(definition.base_url)
    return definition


def _endpoint(choice: ProviderChoice, base_url: str) -> ProviderDefinition:
    """An endpoint under the chosen id: like the vendor whose wire it speaks, like the local server it stands in for, or
    plain chat/completions. Raises as `definition_of` does."""
    plain = chat_completions_definition(choice.provider, base_url)
    vendor = VENDORS_OF_WIRES.get(choice.wire)
    preset = PRESETS.get(vendor or choice.provider)
    if vendor is not None and preset is None:
        raise ProviderNotFound(f"this version does not speak the wire {choice.wire}", hint="choose another wire")
    like = preset() if preset is not None else plain
    if vendor is not None:
        headers = {name: value for name, value in like.headers.items() if name != "anthropic-beta"}  # the vendor's own
        like = replace(like, headers=headers, is_vendor=False)
        return replace(like, id=choice.provider, label=plain.label, base_url=plain.base_url)
    return replace(like, base_url=plain.base_url) if like.capabilities == _LOCAL else plain


class ProviderRegistry:
    """All providers of a runtime. They share one governor, and the connections of one network; equal choices share a
    provider."""

    def __init__(self, governor: Governor | None = None) -> None:
        self._pools: dict[Network, HttpPool] = {}
        self._governor = governor or Governor()
        self._registered: dict[str, Provider] = {}
        self._made: dict[tuple[str, CredentialSource, str | None, str, Network], Provider] = {}
        self._is_closed = False

    def get(self, choice: ProviderChoice) -> Provider:
        """The provider `choice` stands for. Touches no network. Raises `ProviderNotFound` or `InvalidBaseUrl`."""
        if choice.base_url is None and choice.provider in self._registered:
            return self._registered[choice.provider]
        network = choice.network or process_network()
        credentials = choice.credentials or StaticCredentials(choice.api_key)
        key = (choice.provider, credentials, choice.base_url, choice.wire, network)
        provider = self._made.get(key)
        if provider is None:
            provider = self._made[key] = self.make(definition_of(choice), credentials, network)
        return provider

    def make(
        self, definition: ProviderDefinition, credentials: CredentialSource, network: Network | None = None
    ) -> Provider:
        """A provider of an embedder's own definition on the shared connections; `register` it to be found by id."""
        return RemoteProvider(definition, credentials, self._pool(network or process_network()), self._governor)

    def register(self, provider: Provider) -> None:
        """Offer a ready-made provider under its id; choices without a base URL that name it get it."""
        self._registered[provider.id] = provider

    @property
    def registered(self) -> tuple[Provider, ...]:
        """The ready-made ones, in the order they were registered; a later one of an id is where the first was
        (RT-12)."""
        return tuple(self._registered.values())

    def by_id(self, id: str) -> Provider | None:
        """The registered provider of that id, else the one made last for it."""
        made = [provider for (name, *_), provider in self._made.items() if name == id]
        return self._registered.get(id) or (made[-1] if made else None)

    def embedding_provider(self) -> EmbeddingProvider:
        """The provider that embeddings are asked from: the first here that has any (PV-58).

        Raises `UnsupportedCapability` when none has.
        """
        for provider in (*self._registered.values(), *self._made.values()):
            try:
                return embeddings_of(provider)
            except UnsupportedCapability:
                continue
        raise UnsupportedCapability("no provider here has embeddings", hint="connect OpenAI, Ollama or LM Studio")

    async def warm(self) -> None:
        """Load the HTTP library in a thread, so that the first request needn't wait for it."""
        for pool in tuple(self._pools.values()) or (self._pool(process_network()),):
            await pool.client()

    async def aclose(self) -> None:
        """Close every provider and all connections."""
        for provider in (*self._registered.values(), *self._made.values()):
            await provider.aclose()
        self._is_closed = True
        for pool in self._pools.values():
            await pool.aclose()

    def _pool(self, network: Network) -> HttpPool:
        pool = self._pools.get(network)
        if pool is None:
            if self._is_closed:
                raise UsageError("the runtime was closed")
            pool = self._pools[network] = HttpPool(network)
        return pool
