"""Choices, presets and what a remote provider does around its wire: RT-33…36, PV-2a, PV-3, PV-56, PV-62, PV-63."""

import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from basis_daemon.errors import InvalidBaseUrl, ProviderNotFound
from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import Image, user
from basis_daemon.runtime.providers.base import Provider, Request, ToolDefinition
from basis_daemon.runtime.providers.definition import (
    AuthScheme,
    Capabilities,
    Credentials,
    ProviderDefinition,
    RetryPolicy,
    StaticCredentials,
)
from basis_daemon.runtime.providers.errors import (
    AuthenticationError,
    HttpError,
    InvalidRequest,
    TransportError,
    UnsupportedCapability,
)
from basis_daemon.runtime.providers.registry import (
    PRESETS,
    ProviderChoice,
    ProviderRegistry,
    chat_completions_definition,
    definition_of,
    openai_definition,
)
from basis_daemon.runtime.providers.remote import RemoteProvider
from support.model_server import ModelRequest, ModelServer, fails, raw, says

pytestmark = pytest.mark.anyio
HELLO = Request("m", [user("hello")])


def choice(provider: str = "openai", **fields: Any) -> ProviderChoice:
    return ProviderChoice(
        **{"api_key": None, "base_url": None, "wire": "auto", "source": None, **fields}, provider=provider
    )


@pytest.fixture
async def registry() -> AsyncIterator[ProviderRegistry]:
    registry = ProviderRegistry()
    yield registry
    await registry.aclose()


async def text(provider: Provider, request: Request = HELLO) -> str:
    return "".join([getattr(event, "text", "") async for event in provider.stream(request)])


# --- choices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "base_url", "wire"),
    [
        ("openai", "https://api.openai.com/", "responses"),
        ("openrouter", "https://openrouter.ai/api/", "responses"),
        ("ollama", "http://127.0.0.1:11434/", "auto"),
        ("lmstudio", "http://127.0.0.1:1234/", "auto"),
    ],
)
async def test_presets_know_their_address_and_wire(provider: str, base_url: str, wire: str) -> None:
    """2.1"""
    definition = definition_of(choice(provider))
    assert (definition.id, definition.base_url, definition.wire) == (provider, base_url, wire)
    assert definition_of(choice(provider, wire="chat_completions")).wire == "chat_completions"


async def test_base_url_makes_a_compatible_endpoint_under_the_same_id() -> None:
    """PR-4"""
    definition = definition_of(choice(base_url="https://gateway.example/v1", api_key=Secret("sk-1")))
    assert (definition.id, definition.base_url, definition.wire) == (
        "openai",
        "https://gateway.example/",
        "chat_completions",
    )
    assert definition.label == "gateway.example" and not definition.is_vendor
    assert definition_of(choice(base_url="https://h", wire="responses")).wire == "responses"
    assert definition_of(choice("my-own", base_url="https://h")).id == "my-own"


async def test_gateway_in_a_vendors_name_is_not_the_vendor() -> None:
    """PV-41: what one of them sealed is never sent to the other, nor to another gateway."""
    choices = (choice(), choice(base_url="https://a.example"), choice(base_url="https://b.example"))
    assert len({definition_of(chosen).identity for chosen in choices}) == 3


async def test_local_server_elsewhere_keeps_finding_out_its_wire() -> None:
    definition = definition_of(choice("ollama", base_url="http://10.0.0.5:11434"))
    assert (definition.wire, definition.label, definition.base_url) == ("auto", "Ollama", "http://10.0.0.5:11434/")


async def test_unknown_provider_is_named() -> None:
    """RT-31"""
    with pytest.raises(ProviderNotFound, match="'mistral'"):
        definition_of(choice("mistral"))


async def test_key_over_plain_http_to_another_machine_is_refused_at_once(registry: ProviderRegistry) -> None:
    """PV-63"""
    with pytest.raises(InvalidBaseUrl):
        registry.get(choice(base_url="http://10.0.0.5/v1", api_key=Secret("sk-1")))
    registry.get(choice(base_url="http://10.0.0.5/v1"))


async def test_own_definition_that_would_leak_its_key_is_refused_before_anything_is_sent(
    registry: ProviderRegistry,
) -> None:
    """PV-63"""
    definition = chat_completions_definition("own", "http://192.0.2.1:9/")
    with pytest.raises(InvalidRequest, match="unencrypted"):
        await text(registry.make(definition, StaticCredentials(Secret("sk-1"))))


async def test_equal_choices_share_a_provider_and_others_do_not(registry: ProviderRegistry) -> None:
    one = registry.get(choice(api_key=Secret("sk-1"), source="A"))
    assert registry.get(choice(api_key=Secret("sk-1"), source="B")) is one
    assert registry.get(choice(api_key=Secret("sk-2"))) is not one
    assert registry.get(choice(api_key=Secret("sk-1"), wire="chat_completions")) is not one
    assert registry.get(choice(api_key=Secret("sk-1"), base_url="https://h")) is not one
    assert registry.by_id("openai") is not None and registry.by_id("anthropic") is None


async def test_registered_provider_is_found_by_its_id_unless_a_base_url_says_otherwise(
    registry: ProviderRegistry,
) -> None:
    own = registry.make(chat_completions_definition("own", "https://own.example"), StaticCredentials())
    registry.register(own)
    assert registry.get(choice("own")) is own is registry.by_id("own")
    assert registry.get(choice("own", base_url="https://h")) is not own


async def test_choice_and_provider_show_no_key(registry: ProviderRegistry) -> None:
    """RT-42"""
    chosen = choice(api_key=Secret("sk-not-for-eyes"))
    definition = replace(openai_definition(), headers={"x": "y"})
    assert "eyes" not in f"{chosen!r} {registry.get(chosen)!r} {definition!r} {StaticCredentials(chosen.api_key)!r}"


def test_making_providers_loads_no_http_library() -> None:
    code = (
        "import sys; from basis_daemon.runtime.providers.registry import ProviderChoice, ProviderRegistry; "
        "ProviderRegistry().get(ProviderChoice('openai', None, None, 'auto', None)); "
        "sys.exit(bool({'httpx2', 'email', 'http.client'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=20).returncode == 0


# --- finding the wire out --------------------------------------------------------------------------------------------


def local(server: ModelServer, registry: ProviderRegistry) -> RemoteProvider:
    provider = registry.get(choice("ollama", base_url=server.base_url))
    assert isinstance(provider, RemoteProvider) and provider.wire is None
    return provider


async def test_server_with_the_responses_path_is_spoken_to_there(registry: ProviderRegistry) -> None:
    """PV-2a, C-12"""
    async with ModelServer(says("a"), says("b")) as server:
        provider = local(server, registry)
        assert await text(provider) + await text(provider) == "ab"
        assert provider.wire == "responses" and [r.wire for r in server.requests] == ["responses"] * 2


async def test_server_without_it_is_asked_again_over_the_other_wire_once(registry: ProviderRegistry) -> None:
    """PV-2a, D-26: remembered afterwards."""
    async with ModelServer(says("a"), says("b"), wires=["chat_completions"]) as server:
        provider = local(server, registry)
        assert await text(provider) + await text(provider) == "ab"
        assert provider.wire == "chat_completions" and len(server.strays) == 1
        assert [r.prompt for r in server.requests] == ["hello", "hello"]


@pytest.mark.parametrize(
    "refusal",
    [
        fails(405),
        fails(404, {"error": "Not Found"}),
        raw(b'{"error":"Unexpected endpoint or method. (POST /v1/responses)"}', content_type="application/json"),
    ],
)
async def test_every_way_of_not_having_a_path_is_understood(refusal: Any, registry: ProviderRegistry) -> None:
    """PV-2a"""

    def respond(request: ModelRequest) -> Any:
        return refusal if request.wire == "responses" else says("a")

    async with ModelServer(respond=respond) as server:
        assert await text(local(server, registry)) == "a"


async def test_unknown_model_does_not_switch_the_wire(registry: ProviderRegistry) -> None:
    """PV-2a"""
    missing = {"error": {"message": 'model "m" not found, try pulling it first'}}
    async with ModelServer(fails(404, missing), fails(500), says("a")) as server:
        provider = local(server, registry)
        for _ in range(2):
            with pytest.raises(HttpError):
                await text(provider)
        assert provider.wire is None and await text(provider) == "a"
        assert [r.wire for r in server.requests] == ["responses"] * 3


async def test_server_with_neither_wire_is_an_error_about_the_second(registry: ProviderRegistry) -> None:
    """PV-2"""
    async with ModelServer(wires=[]) as server:
        with pytest.raises(HttpError, match="chat/completions"):
            await text(local(server, registry))


# --- what is sent ----------------------------------------------------------------------------------------------------


class Rotating:
    """A new token for every request."""

    def __init__(self) -> None:
        self.count = 0

    async def credentials(self) -> Credentials:
        self.count += 1
        return Credentials(key=Secret(f"token-{self.count}"), headers={"X-Account": Secret("acc")})


def at(server: ModelServer, **fields: Any) -> ProviderDefinition:
    return replace(chat_completions_definition("own", server.base_url), **fields)


async def test_credentials_are_asked_for_every_request(registry: ProviderRegistry) -> None:
    """RT-35"""
    async with ModelServer(says("a"), says("b")) as server:
        provider = registry.make(at(server), Rotating())
        await text(provider)
        await text(provider)
        await provider.list_models()
        sent = [r.headers["authorization"] for r in (*server.requests, *server.listings)]
        assert sent == ["Bearer token-1", "Bearer token-2", "Bearer token-3"]
        assert {r.headers["x-account"] for r in server.requests} == {"acc"}


async def test_auth_header_wins_over_the_definitions_own(registry: ProviderRegistry) -> None:
    """RT-36"""
    async with ModelServer(says("a")) as server:
        headers = {"Authorization": "Bearer wrong", "X-Account": "wrong", "X-Title": "basis"}
        await text(registry.make(at(server, headers=headers), Rotating()))
        got = server.requests[0].headers
        assert (got["authorization"], got["x-account"], got["x-title"]) == ("Bearer token-1", "acc", "basis")


@pytest.mark.parametrize(
    ("scheme", "where"),
    [
        (AuthScheme("header", "api-key"), "api-key"),
        (AuthScheme("query_param", "key"), "?b=%C3%A4&key=sk%2F1"),
        (AuthScheme("none"), ""),
    ],
)
async def test_key_goes_where_the_scheme_says(scheme: AuthScheme, where: str, registry: ProviderRegistry) -> None:
    """RT-33"""
    async with ModelServer(says("a")) as server:
        await text(registry.make(at(server, auth=scheme, query={"b": "ä"}), StaticCredentials(Secret("sk/1"))))
        (asked,) = server.requests
        assert "authorization" not in asked.headers
        assert asked.headers.get("api-key") == ("sk/1" if where == "api-key" else None)
        assert where in asked.target if where.startswith("?") else "sk" not in asked.target


@pytest.mark.parametrize(
    ("lacking", "request_"),
    [
        (Capabilities(tool_calls=False), Request("m", [user("x")], tools=[ToolDefinition("a", "", {})])),
        (Capabilities(images=False), Request("m", [user("x", Image(url="https://h.example/"))])),
        (Capabilities(reasoning_effort=False), Request("m", [user("x")], effort="low")),
    ],
)
async def test_what_the_provider_cannot_do_is_refused_before_anything_is_sent(
    lacking: Capabilities, request_: Request, registry: ProviderRegistry
) -> None:
    """PV-3"""
    async with ModelServer() as server:
        provider = registry.make(at(server, capabilities=lacking), StaticCredentials())
        with pytest.raises(UnsupportedCapability, match="own"):
            await text(provider, request_)
        assert server.requests == []


# --- models ----------------------------------------------------------------------------------------------------------


async def test_listing_is_tried_again_as_the_definition_says(registry: ProviderRegistry) -> None:
    """PV-56"""
    for code, attempts in ((500, 3), (429, 1), (404, 1)):
        async with ModelServer(listing=fails(code)) as server:
            definition = at(server, retry=RetryPolicy(max_attempts=3, base_delay_s=0.001))
            with pytest.raises(HttpError):
                await registry.make(definition, StaticCredentials()).list_models()
            assert len(server.listings) == attempts


async def test_local_server_that_is_not_running_is_said_at_once(registry: ProviderRegistry) -> None:
    server = ModelServer().start()
    server.close()
    provider = registry.get(choice("ollama", base_url=server.base_url))
    with pytest.raises(TransportError, match="could not connect") as caught:
        await provider.list_models()
    assert caught.value.hint == "start Ollama, or check the port"


async def test_unlisted_models_are_not_asked_for(registry: ProviderRegistry) -> None:
    """C-13"""
    async with ModelServer() as server:
        definition = at(server, capabilities=Capabilities(model_listing=False))
        with pytest.raises(UnsupportedCapability):
            await registry.make(definition, StaticCredentials()).list_models()
        assert server.listings == []


async def test_openais_own_list_holds_only_models_to_talk_to(registry: ProviderRegistry) -> None:
    """RT-30: the newest of all must be able to answer."""
    ids = ["gpt-5", "o3", "text-embedding-3-large", "whisper-1", "gpt-image-1", "gpt-4o-realtime", "tts-1", "sora-2"]
    ids += ["o4-mini-deep-research", "gpt-4o-search-preview", "computer-use-preview"]
    async with ModelServer(models=ids) as server:
        definition = replace(openai_definition(), base_url=server.base_url)
        models = await registry.make(definition, StaticCredentials()).list_models()
        assert [model.id for model in models] == ["gpt-5", "o3"]


async def test_wrong_key_is_said_at_the_list(registry: ProviderRegistry) -> None:
    async with ModelServer(api_key="sk-right") as server:
        provider = registry.get(choice(base_url=server.base_url, api_key=Secret("sk-wrong")))
        with pytest.raises(AuthenticationError) as caught:
            await provider.list_models()
        assert "sk-wrong" not in f"{caught.value} {caught.value.hint}" and "openai" in (caught.value.hint or "")


@pytest.mark.parametrize("key", ["sk-1\u2026", "sk-1\nx-other: y", "ключ"])
async def test_key_that_no_request_can_carry_is_refused_without_being_shown(
    registry: ProviderRegistry, key: str
) -> None:
    async with ModelServer() as server:
        provider = registry.get(choice(base_url=server.base_url, api_key=Secret(key)))
        with pytest.raises(InvalidRequest, match="the key for openai") as caught:
            await provider.list_models()
        assert key not in str(caught.value) and not server.requests


# --- closing ---------------------------------------------------------------------------------------------------------


async def test_closed_registry_sends_nothing_and_closes_its_connections() -> None:
    registry = ProviderRegistry()
    async with ModelServer(says("a"), says("b")) as server:
        provider = registry.get(choice(base_url=server.base_url))
        assert await text(provider) == "a"
        await registry.aclose()
        await registry.aclose()
        with pytest.raises(TransportError, match="closed"):
            await text(provider)
        assert len(server.requests) == 1


def test_every_preset_is_under_its_own_id() -> None:
    assert {name: make().id for name, make in PRESETS.items()} == {name: name for name in PRESETS}
