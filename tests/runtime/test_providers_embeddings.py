"""Embeddings and what else only some providers can do: PV-56, PV-58, PV-59, D-17, D-18."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import Message, assistant, user
from basis_daemon.runtime.providers.abilities import compact, embeddings_of, summarize_memories
from basis_daemon.runtime.providers.base import Request, TokenUsage
from basis_daemon.runtime.providers.definition import Capabilities, RetryPolicy, StaticCredentials
from basis_daemon.runtime.providers.embeddings import read_vectors
from basis_daemon.runtime.providers.errors import HttpError, MalformedStream, TransportError, UnsupportedCapability
from basis_daemon.runtime.providers.governor import Governor
from basis_daemon.runtime.providers.registry import ProviderChoice, ProviderRegistry, chat_completions_definition
from basis_daemon.runtime.providers.rehearsal import RehearsalProvider
from basis_daemon.runtime.providers.remote import RemoteProvider
from basis_daemon.workspace.connection import AwaitingModel, Connection
from support.model_server import ModelServer, Raw, cuts, fails, rate_limits, raw

pytestmark = pytest.mark.anyio
HELLO = Request("m", [user("hello")])
AT_ONCE = RetryPolicy(base_delay_s=0.0)


def vectors(*rows: Any, **fields: Any) -> Raw:
    body = {"object": "list", "data": list(rows), "model": "embedder-1", **fields}
    return raw(json.dumps(body).encode(), content_type="application/json")


def row(index: int, *numbers: float) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": list(numbers)}


@pytest.fixture
async def registry() -> AsyncIterator[ProviderRegistry]:
    registry = ProviderRegistry(Governor(first_pause_s=0))
    yield registry
    await registry.aclose()


def provider(registry: ProviderRegistry, server: ModelServer, **fields: Any) -> RemoteProvider:
    able = {"capabilities": Capabilities(embeddings=True), "retry": AT_ONCE}
    definition = replace(chat_completions_definition("own", server.base_url), **{**able, **fields})
    made = registry.make(definition, StaticCredentials(Secret("sk-key")))
    assert isinstance(made, RemoteProvider)
    return made


async def test_texts_become_vectors_in_their_order(registry: ProviderRegistry, server: ModelServer) -> None:
    """PV-58: whatever order they come in; usage is reported."""
    usage = {"prompt_tokens": 5, "total_tokens": 6}
    server.script(vectors(row(1, 0.5, -1), row(0, 1, 2), usage=usage))
    batch = await provider(registry, server).embed_batch(["one", "zwei ✓"], "embedder")
    assert batch.vectors == [[1.0, 2.0], [0.5, -1.0]] and batch.model == "embedder-1"
    assert batch.usage == TokenUsage(input_tokens=5, total_tokens=6)
    request = server.requests[0]
    assert request.path == "/v1/embeddings" and request.body == {"model": "embedder", "input": ["one", "zwei ✓"]}
    assert request.headers["authorization"] == "Bearer sk-key" and request.headers["accept"] == "application/json"


async def test_one_text_becomes_one_vector(registry: ProviderRegistry, server: ModelServer) -> None:
    server.script(vectors(row(0, 1, 2)))
    assert await provider(registry, server).embed("one", "m") == [1.0, 2.0]


async def test_no_texts_need_no_request(registry: ProviderRegistry, server: ModelServer) -> None:
    assert (await provider(registry, server).embed_batch([], "m")).vectors == []
    assert server.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        vectors(row(0, 1)),
        vectors(row(0, 1), row(0, 2)),
        vectors(row(0, 1), row(2, 2)),
        vectors(row(0, 1), row(1, 2), row(2, 3)),
        vectors(row(0, 1), {"index": 1, "embedding": "AAAA"}),
        raw(b"{}", content_type="application/json"),
        raw(b"<html>", content_type="text/html"),
        raw(b'{"data":[],"deep":' + b"[" * 100_000, content_type="application/json"),
    ],
)
async def test_answer_without_one_vector_for_each_text_is_refused(
    answer: Raw, registry: ProviderRegistry, server: ModelServer
) -> None:
    server.script(answer)
    with pytest.raises(MalformedStream):
        await provider(registry, server).embed_batch(["a", "b"], "m")


@given(st.permutations(range(5)))
def test_vectors_are_put_in_order_whatever_order_they_come_in(order: list[int]) -> None:
    """PV-58."""
    body = json.dumps({"data": [row(index, index) for index in order]}).encode()
    assert read_vectors(body, 5, "m").vectors == [[float(index)] for index in range(5)]


# --- trying again -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "policy", "attempts"),
    [
        (fails(500), AT_ONCE, 5),
        (fails(503), replace(AT_ONCE, max_attempts=2), 2),
        (fails(500), replace(AT_ONCE, retry_5xx=False), 1),
        (rate_limits(), AT_ONCE, 1),
        (rate_limits(), replace(AT_ONCE, retry_429=True), 5),
        (fails(400), replace(AT_ONCE, retry_429=True), 1),
        (fails(401), AT_ONCE, 1),
        (cuts(fails(500), after_bytes=3), AT_ONCE, 5),
        (cuts(raw(b"x" * 99, content_type="application/json"), after_bytes=5), AT_ONCE, 5),
        (cuts(raw(b"x" * 99), after_bytes=5), replace(AT_ONCE, retry_transport=False), 1),
    ],
)
async def test_calls_outside_a_turn_are_tried_again_as_the_definition_says(
    failure: Any, policy: RetryPolicy, attempts: int, registry: ProviderRegistry, server: ModelServer
) -> None:
    """PV-56, D-17, C-15."""
    server.script(*[failure] * 9)
    with pytest.raises((HttpError, TransportError)):
        await provider(registry, server, retry=policy).embed("a", "m")
    assert len(server.requests) == attempts


async def test_wait_a_provider_asks_for_is_heeded_outside_a_turn_too(
    registry: ProviderRegistry, server: ModelServer
) -> None:
    """PV-51."""
    server.script(rate_limits(1), vectors(row(0, 1)))
    with anyio.fail_after(10):
        await provider(registry, server, retry=replace(AT_ONCE, retry_429=True)).embed("a", "m")
    refused, again = server.requests
    assert again.arrived_at - refused.arrived_at > 0.9


# --- who can ----------------------------------------------------------------------------------------------------------


async def test_default_is_the_first_provider_that_has_embeddings(
    registry: ProviderRegistry, server: ModelServer
) -> None:
    """PV-58, D-18: registered or made, there is one way to find it."""
    with pytest.raises(UnsupportedCapability, match="no provider here has embeddings"):
        registry.embedding_provider()
    registry.register(RehearsalProvider())
    registry.get(ProviderChoice("gateway", Secret("k"), server.base_url, "chat_completions", None))
    ollama = registry.get(ProviderChoice("ollama", None, server.base_url, "auto", None))
    assert registry.embedding_provider() is ollama
    first = provider(registry, server)
    registry.register(first)
    assert registry.embedding_provider() is first


async def test_provider_without_embeddings_refuses_ahead_of_all_traffic(
    registry: ProviderRegistry, server: ModelServer
) -> None:
    """PV-3, PV-58."""
    unable = provider(registry, server, capabilities=Capabilities())
    with pytest.raises(UnsupportedCapability, match="own"):
        await unable.embed("a", "m")
    with pytest.raises(UnsupportedCapability, match="embeddings"):
        embeddings_of(unable)
    assert server.requests == server.strays == []


async def test_what_a_provider_does_not_offer_is_refused_by_name() -> None:
    """PV-59."""
    for call in (compact(RehearsalProvider(), HELLO), summarize_memories(RehearsalProvider(), HELLO)):
        with pytest.raises(UnsupportedCapability, match="rehearsal"):
            await call


class Able(RehearsalProvider):
    """Offers everything."""

    can_compact = True
    can_summarize_memories = True
    can_embed = True

    async def compact(self, request: Request) -> list[Message]:
        return [assistant("shorter")]

    async def summarize_memories(self, request: Request) -> str:
        return "learnt"


async def test_wrapper_forwards_what_the_provider_inside_can_do() -> None:
    """PV-59, D-18."""
    wrapped = AwaitingModel(Able(), Connection(Able(), model=None))
    assert await compact(wrapped, HELLO) == [assistant("shorter")]
    assert await summarize_memories(wrapped, HELLO) == "learnt"
    with pytest.raises(UnsupportedCapability):
        embeddings_of(AwaitingModel(RehearsalProvider(), Connection(RehearsalProvider(), model=None)))
