"""A provider reached over HTTP: one definition, one wire (or two to find out about), shared connections.

Owns a request's way from the vocabulary of `base.py` to the network and back. Wires know the shapes, `http.py` the
network; this joins them.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from basis_daemon.errors import InvalidBaseUrl
from basis_daemon.redact import Secret
from basis_daemon.runtime.providers import embeddings, openai_chat, openai_responses
from basis_daemon.runtime.providers.abilities import EmbeddingBatch
from basis_daemon.runtime.providers.base import Limits, ModelInfo, Provider, ProviderEvent, Request, TokenUsage
from basis_daemon.runtime.providers.definition import (
    Credentials,
    CredentialSource,
    ProviderDefinition,
    WireName,
    require,
)
from basis_daemon.runtime.providers.encoded import EncodedMessages
from basis_daemon.runtime.providers.endpoint import is_loopback, join_url, origin, refuse_plaintext
from basis_daemon.runtime.providers.errors import (
    HttpError,
    InvalidRequest,
    UnsupportedCapability,
)
from basis_daemon.runtime.providers.failures import Target, names_model
from basis_daemon.runtime.providers.governor import Governor, LaneKey, Place
from basis_daemon.runtime.providers.http import Call, HttpPool, drain, fetch_json, open_stream
from basis_daemon.runtime.providers.raw_calls import repeated
from basis_daemon.runtime.providers.sse import SseParser
from basis_daemon.runtime.providers.wire import Wire, newest_first

WIRES: dict[WireName, Wire] = {"responses": openai_responses.RESPONSES, "chat_completions": openai_chat.CHAT}
MAX_MODEL_PAGES = 100
"""Pages of a list of models that are read (PV-1)."""
NO_LIMITS = Limits()


class RemoteProvider:
    """A `Provider` over HTTP. Holds no conversation: every request carries all of it, so agents can share one."""

    def __init__(
        self,
        definition: ProviderDefinition,
        credentials: CredentialSource,
        pool: HttpPool,
        governor: Governor | None = None,
    ) -> None:
        self._definition = definition
        self._credentials = credentials
        self._pool = pool
        self._governor = governor or Governor()
        self._wire: WireName | None = None if definition.wire == "auto" else definition.wire

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
        return self._wire

    def __repr__(self) -> str:
        return f"RemoteProvider({self.id!r}, {origin(self._definition.base_url)!r}, wire={self._wire!r})"

    def scope(self) -> Provider:
        """Itself: there is no conversation state to keep apart (PV-31, PV-35)."""
        return self

    async def aclose(self) -> None:
        """Nothing: connections belong to the pool."""

    # --- answers

    def stream(self, request: Request) -> AsyncGenerator[ProviderEvent]:
        """See `Provider.stream`."""
        return self._answer(WIRES[self._wire], request) if self._wire else self._first_answer(request)

    async def _first_answer(self, request: Request) -> AsyncGenerator[ProviderEvent]:
        """Find the wire out (PV-2a): a server without `v1/responses` has run nothing, so the other one is tried."""
        for name in ("responses", "chat_completions"):
            async with aclosing(self._answer(WIRES[name], request)) as answer:
                try:
                    async for event in answer:
                        self._wire = name
                        yield event
                    return
                except HttpError as error:
                    if name == "chat_completions" or error.status not in (404, 405) or names_model(error.body or ""):
                        raise

    async def _answer(self, wire: Wire, request: Request) -> AsyncGenerator[ProviderEvent]:
        """One attempt over `wire`, once it is this request's turn."""
        require(self._definition, request)
        body = wire.build_body(request, self._definition, EncodedMessages())
        call = await self._call("POST", wire.path(request), wire.name)
        lane = LaneKey(self.id, call.target.origin, call.target.secrets)
        async with self._governor.place(lane, self._definition.max_concurrent, request.on_wait) as place:
            if place.waited:  # a key may have been changed meanwhile
                call = await self._call("POST", wire.path(request), wire.name)
            call = replace(call, body=body, idle_timeout_s=self._definition.idle_timeout_s)
            async with aclosing(self._stream(wire, request, call, place)) as events:
                async for event in events:
                    yield event

    async def _stream(self, wire: Wire, request: Request, call: Call, place: Place) -> AsyncGenerator[ProviderEvent]:
        parser, mapper = SseParser(), wire.map_stream(request, self._definition, call.target)
        async with open_stream(self._pool, call) as chunks:
            place.answered()
            async for chunk in chunks:
                for event in mapper.feed(parser.feed(chunk)):
                    yield event
                if mapper.is_complete or parser.is_done:
                    break
            if not mapper.is_complete:
                for event in mapper.finish(marked=parser.is_done):
                    yield event
            await drain(chunks)

    # --- models

    async def list_models(self) -> list[ModelInfo]:
        """See `Provider.list_models`. Newest first; tries again as the definition says (PV-56)."""
        if not self._definition.capabilities.model_listing:
            raise UnsupportedCapability(f"{self.label} ({self.id}) lists no models")
        return await repeated(self._definition.retry, self._models)

    async def _models(self) -> list[ModelInfo]:
        wire = WIRES[self._wire or "chat_completions"]
        models: list[ModelInfo] = []
        query: Mapping[str, str] | None = wire.models_query
        for _ in range(MAX_MODEL_PAGES):
            body = await fetch_json(self._pool, await self._call("GET", wire.models_path, wire.name, query))
            page = wire.read_models(body, self._definition)
            models += page.models
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

        async def attempt() -> EmbeddingBatch:
            call = await self._call("POST", embeddings.PATH, self._wire or "chat_completions")
            call = replace(call, body=body, headers={**call.headers, "accept": "application/json"})
            lane = LaneKey(self.id, call.target.origin, call.target.secrets)
            async with self._governor.place(lane, self._definition.max_concurrent) as place:
                answer = await fetch_json(self._pool, call)
                place.answered()
            return embeddings.read_vectors(answer, len(texts), model)

        return await repeated(self._definition.retry, attempt)

    # --- requests

    async def _call(self, method: str, path: str, wire: WireName, query: Mapping[str, str] | None = None) -> Call:
        """Address and authorise a request. The key goes to the definition's own origin and nowhere else (PV-62)."""
        definition = self._definition
        credentials = await self._credentials.credentials()
        secrets = tuple(credentials.secrets())
        if not all(_can_be_sent(secret) for secret in secrets):
            raise InvalidRequest(
                f"the key for {definition.id} holds a line break or a character outside ASCII, which no key has",
                hint="set it again, as its issuer shows it",
            )
        if secrets and not definition.allow_plaintext:
            try:
                refuse_plaintext(definition.base_url)
            except InvalidBaseUrl as error:
                raise InvalidRequest(str(error), hint=error.hint) from error
        query = {**definition.query, **(query or {})}
        if definition.auth.kind == "query_param" and credentials.key:
            query[definition.auth.name] = credentials.key.reveal()
        target = Target(
            label=definition.label,
            provider=definition.id,
            origin=origin(definition.base_url),
            path=path,
            wire=wire,
            is_local=is_loopback(definition.base_url),
            secrets=secrets,
            hidden=tuple(definition.hidden),
            key_source=credentials.source,
        )
        headers = _headers(definition, credentials)
        if method == "POST":
            headers |= {"content-type": "application/json", "accept": "text/event-stream"}
        return Call(method, join_url(definition.base_url, path, query), headers, target)


def _headers(definition: ProviderDefinition, credentials: Credentials) -> dict[str, str]:
    """Definition, then credential, then the auth header; later ones win (RT-36), and the order is fixed (CV-8)."""
    headers = {name.lower(): value for name, value in sorted(definition.headers.items())}
    headers |= {name.lower(): secret.reveal() for name, secret in sorted(credentials.headers.items(), key=_name)}
    if credentials.key:
        if definition.auth.kind == "bearer_token":
            headers["authorization"] = f"Bearer {credentials.key.reveal()}"
        elif definition.auth.kind == "header":
            headers[definition.auth.name.lower()] = credentials.key.reveal()
    return headers


def _can_be_sent(secret: Secret) -> bool:
    return secret.reveal().isascii() and secret.reveal().isprintable()


def _name(header: tuple[str, Secret]) -> str:
    return header[0]
