"""A provider reached over HTTP: one definition, one wire (or two to find out about), shared connections.

Owns which wires there are, and what is asked of a provider beside answers: models and embeddings. An answer's way from
the vocabulary of `base.py` to the network and back is `remote_scope.py`'s.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from basis_daemon.runtime.providers import anthropic, embeddings, gemini, openai_chat, openai_responses
from basis_daemon.runtime.providers.abilities import EmbeddingBatch
from basis_daemon.runtime.providers.base import Limits, ModelInfo, ProviderEvent, Request, TokenUsage
from basis_daemon.runtime.providers.definition import CredentialSource, ProviderDefinition, WireName
from basis_daemon.runtime.providers.endpoint import origin
from basis_daemon.runtime.providers.errors import UnsupportedCapability
from basis_daemon.runtime.providers.governor import Governor
from basis_daemon.runtime.providers.http import Call, HttpPool, fetch_json
from basis_daemon.runtime.providers.raw_calls import repeated
from basis_daemon.runtime.providers.remote_endpoint import Endpoint
from basis_daemon.runtime.providers.remote_scope import RemoteScope
from basis_daemon.runtime.providers.wire import Wire, newest_first

WIRES: dict[WireName, Wire] = {
    "responses": openai_responses.RESPONSES,
    "chat_completions": openai_chat.CHAT,
    "anthropic_messages": anthropic.MESSAGES,
    "gemini_generate_content": gemini.GENERATE_CONTENT,
}
MAX_MODEL_PAGES = 100
"""Pages of a list of models that are read (PV-1)."""
NO_LIMITS = Limits()


class RemoteProvider:
    """A `Provider` over HTTP, for any number of agents: what continues a conversation is in their scopes (PV-35)."""

    def __init__(
        self,
        definition: ProviderDefinition,
        credentials: CredentialSource,
        pool: HttpPool,
        governor: Governor | None = None,
    ) -> None:
        self._definition = definition
        self._pool = pool
        self._endpoint = Endpoint(definition, credentials, pool, governor or Governor())

    @property
    def id(self) -> str:
        return self._definition.id

    @property
    def label(self) -> str:
        return self._definition.label

    @property
    def limits(self) -> Limits:
        return NO_LIMITS

    @property
    def wire(self) -> WireName | None:
        """The wire spoken; `None` while it isn't known yet (PV-2a)."""
        return self._endpoint.wire

    def __repr__(self) -> str:
        return f"RemoteProvider({self.id!r}, {origin(self._definition.base_url)!r}, wire={self.wire!r})"

    def scope(self) -> RemoteScope:
        """See `Provider.scope`: one agent's conversation over this provider's connections."""
        return RemoteScope(self, self._endpoint, WIRES)

    async def aclose(self) -> None:
        """Let go of what ended scopes left behind. Connections belong to the pool, sockets in use to their scopes."""
        await self._endpoint.let_go()

    # --- answers

    def stream(self, request: Request) -> AsyncGenerator[ProviderEvent]:
        """See `Provider.stream`. A conversation of its own, of this one request."""
        scope = self.scope()
        is_on_socket = request.options.responses.transport == "web_socket"
        return _closing(scope, request) if is_on_socket else scope.stream(request)

    # --- models

    async def list_models(self) -> list[ModelInfo]:
        """See `Provider.list_models`. Newest first; tries again as the definition says (PV-56)."""
        if not self._definition.capabilities.model_listing:
            raise UnsupportedCapability(f"{self.label} ({self.id}) lists no models")
        return await repeated(self._definition.retry, self._models)

    async def _models(self) -> list[ModelInfo]:
        wire = WIRES[self.wire or "chat_completions"]
        models: list[ModelInfo] = []
        query: Mapping[str, str] | None = wire.models_query
        for _ in range(MAX_MODEL_PAGES):
            body = await fetch_json(self._pool, await self._endpoint.call("GET", wire.models_path, wire.name, query))
            page = wire.read_models(body, self._definition)
            models += [model for model in page.models if model.id.strip()]  # nobody could ask for one without a name
            query = page.next_query
            if query is None:
                break
        return newest_first(models)

    # --- embeddings

    @property
    def can_embed(self) -> bool:
        return self._definition.capabilities.embeddings

    async def embed(self, text: str, model: str) -> list[float]:
        """See `EmbeddingProvider`."""
        return (await self.embed_batch([text], model)).vectors[0]

    async def embed_batch(self, texts: Sequence[str], model: str) -> EmbeddingBatch:
        """See `EmbeddingProvider`. Waits its turn as answers do, and tries again as the definition says (PV-56)."""
        if not self.can_embed:
            raise UnsupportedCapability(f"{self.label} ({self.id}) has no embeddings")
        if not texts:
            return EmbeddingBatch([], model, TokenUsage())
        body = embeddings.build_body(texts, model)

        async def make() -> Call:
            call = await self._endpoint.call("POST", embeddings.PATH, self.wire or "chat_completions")
            return replace(call, body=body, headers={**call.headers, "accept": "application/json"})

        async def attempt() -> EmbeddingBatch:
            async with self._endpoint.placed(make) as (call, place):
                answer = await fetch_json(self._pool, call)
                place.answered()
            return embeddings.read_vectors(answer, len(texts), model)

        return await repeated(self._definition.retry, attempt)


async def _closing(scope: RemoteScope, request: Request) -> AsyncGenerator[ProviderEvent]:
    """The answer, and then the end of the scope's socket."""
    try:
        async with aclosing(scope.stream(request)) as answer:
            async for event in answer:
                yield event
    finally:
        await scope.aclose()
