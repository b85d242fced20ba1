"""One agent's conversation with a remote provider (RT-14, PV-35).

Owns what lives only as long as the conversation: the link to the last response, the sticky state of a turn, the
websocket, and messages as they were encoded. Everything that agents share is `remote_endpoint.py`'s.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from basis_daemon.runtime.providers.base import (
    Limits,
    MessageDelta,
    MessageStopped,
    ModelInfo,
    Provider,
    ProviderEvent,
    Request,
    ResponseStarted,
)
from basis_daemon.runtime.providers.compression import zstd
from basis_daemon.runtime.providers.definition import WireName
from basis_daemon.runtime.providers.encoded import EncodedMessages
from basis_daemon.runtime.providers.errors import HttpError, ProviderError
from basis_daemon.runtime.providers.failures import names_model
from basis_daemon.runtime.providers.governor import Place
from basis_daemon.runtime.providers.http import Call, drain, open_stream
from basis_daemon.runtime.providers.remote_endpoint import Endpoint
from basis_daemon.runtime.providers.requirements import require
from basis_daemon.runtime.providers.response_chain import (
    CONTINUABLE,
    ResponseChain,
    is_stored,
    refuses_id,
    refuses_parameter,
    require_link,
)
from basis_daemon.runtime.providers.responses_socket import SocketSlot, exchange
from basis_daemon.runtime.providers.session_headers import STICKY_HEADER, session_headers
from basis_daemon.runtime.providers.sse import SseParser
from basis_daemon.runtime.providers.websocket import WebSocket
from basis_daemon.runtime.providers.wire import StreamMapper, Wire


class RemoteScope:
    """A `Provider` for one agent. Requests at the same time don't disturb each other; the last one is continued."""

    def __init__(self, provider: Provider, endpoint: Endpoint, wires: Mapping[WireName, Wire]) -> None:
        self._provider = provider
        self._endpoint = endpoint
        self._wires = wires
        self._history = EncodedMessages(endpoint.shelf)
        self._chain = ResponseChain()
        self._turn_state: tuple[str, str] | None = None
        """The turn and what the provider wants to be told again in it."""
        self._slot = SocketSlot()
        weakref.finalize(self, self._slot.abandon, endpoint.abandoned).atexit = False

    @property
    def id(self) -> str:
        return self._provider.id

    @property
    def label(self) -> str:
        return self._provider.label

    @property
    def limits(self) -> Limits:
        return self._provider.limits

    @property
    def inner(self) -> Provider:
        """What this is a conversation with: whatever else it can do, it does itself (PV-59)."""
        return self._provider

    async def list_models(self) -> list[ModelInfo]:
        return await self._provider.list_models()

    def scope(self) -> Provider:
        return self._provider.scope()

    def __repr__(self) -> str:
        return f"RemoteScope({self._provider!r})"

    async def aclose(self) -> None:
        """Close the agent's own socket."""
        await self._slot.close()

    # --- answers

    def stream(self, request: Request) -> AsyncGenerator[ProviderEvent]:
        """See `Provider.stream`."""
        wire = self._endpoint.wire
        return self._answer(self._wires[wire], request) if wire else self._first_answer(request)

    async def _first_answer(self, request: Request) -> AsyncGenerator[ProviderEvent]:
        """Find the wire out (PV-2a): a server without `v1/responses` has run nothing, so the other one is tried."""
        for name in ("responses", "chat_completions"):
            async with aclosing(self._answer(self._wires[name], request)) as answer:
                try:
                    async for event in answer:
                        self._endpoint.wire = name
                        yield event
                    return
                except HttpError as error:
                    if name == "chat_completions" or error.status not in (404, 405) or names_model(error.body or ""):
                        raise

    def _answer(self, wire: Wire, request: Request) -> AsyncGenerator[ProviderEvent]:
        is_continued = wire.name == "responses" and self._endpoint.definition.keeps_responses
        return self._recovering(wire, request) if is_continued else self._attempt(wire, request)

    async def _recovering(self, wire: Wire, request: Request) -> AsyncGenerator[ProviderEvent]:
        """An attempt; and once more with the whole conversation if the id it continued is refused (PV-32, PV-33)."""
        has_begun = False
        async with aclosing(self._attempt(wire, request)) as answer:
            try:
                async for event in answer:
                    has_begun = True
                    yield event
                return
            except ProviderError as error:
                if has_begun or not refuses_id(error):
                    raise
                self._chain.forget()
                if request.options.responses.state_mode == "stateful":
                    raise
                if refuses_parameter(error):
                    self._endpoint.models_without_ids.add(request.model)
        async with aclosing(self._attempt(wire, request)) as answer:
            async for event in answer:
                yield event

    def _attempt(self, wire: Wire, request: Request) -> AsyncGenerator[ProviderEvent]:
        is_on_socket = wire.name == "responses" and request.options.responses.transport == "web_socket"
        return self._over_websocket(wire, request) if is_on_socket else self._over_http(wire, request)

    # --- over HTTP

    async def _over_http(self, wire: Wire, request: Request) -> AsyncGenerator[ProviderEvent]:
        endpoint = self._endpoint
        require(endpoint.definition, request, wire.name)
        sent = self._continued(wire, request, None)
        body = await self._body(wire, sent)
        async with endpoint.placed(partial(self._call, wire, request), request.on_wait) as (call, place):
            call = _with_body(call, body, is_compressed=_is_compressed(wire, request))
            heard: list[ProviderEvent] | None = [] if self._is_remembered(wire, request) else None
            try:
                async with aclosing(self._streamed(wire, sent, call, place)) as events:
                    async for event in events:
                        if heard is not None:
                            heard.append(event)
                        yield event
            finally:
                self._remember(request, heard, None)

    async def _streamed(self, wire: Wire, request: Request, call: Call, place: Place) -> AsyncGenerator[ProviderEvent]:
        definition = self._endpoint.definition
        parser, mapper = SseParser(), wire.map_stream(request, definition, call.target)
        async with open_stream(self._endpoint.pool, replace(call, idle_timeout_s=definition.idle_timeout_s)) as chunks:
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

    async def _body(self, wire: Wire, request: Request) -> bytes:
        body = wire.build_body(request, self._endpoint.definition, self._history_for(request))
        return await asyncio.to_thread(zstd, body) if _is_compressed(wire, request) else body

    # --- over a websocket

    async def _over_websocket(self, wire: Wire, request: Request) -> AsyncGenerator[ProviderEvent]:
        endpoint = self._endpoint
        definition = endpoint.definition
        require(definition, request, wire.name)
        await endpoint.let_go()
        is_fresh = request.options.session.connection_reuse == "prefer-fresh"
        async with endpoint.placed(partial(self._call, wire, request), request.on_wait) as (call, place):
            # In its place already: a handshake is a request too.
            socket = await self._slot.take(endpoint.pool, call, definition, is_fresh=is_fresh)
            mapper: StreamMapper | None = None
            heard: list[ProviderEvent] | None = [] if self._is_remembered(wire, request) else None
            try:
                sent = self._continued(wire, request, socket)
                frame = wire.build_body(sent, definition, self._history_for(sent))
                mapper = wire.map_stream(sent, definition, call.target)
                talk = exchange(socket, frame, mapper, call.target, definition.idle_timeout_s, place)
                async with aclosing(talk) as events:
                    async for event in events:
                        if heard is not None:
                            heard.append(event)
                        yield event
            finally:
                self._remember(request, heard, socket)
                is_whole = mapper is not None and mapper.is_complete
                await (self._slot.give_back(socket) if is_whole else socket.drop())

    # --- what is sent

    async def _call(self, wire: Wire, request: Request) -> Call:
        path = wire.path(request)
        hints = request.options.session
        if wire.name != "responses":
            return await self._endpoint.call("POST", path, wire.name, hints=hints)
        session = session_headers(hints, self._sticky(request), request.options.responses.transport)
        call = await self._endpoint.call("POST", path, wire.name, session=session, hints=hints)

        def keep_sticky(headers: Mapping[str, str]) -> None:
            self._keep_sticky(request, headers)

        return replace(call, on_headers=keep_sticky)

    def _continued(self, wire: Wire, request: Request, socket: WebSocket | None) -> Request:
        """What of `request` is sent: what is new behind an id, or all of it without one. Never both (PV-34)."""
        if wire.name != "responses":
            return request
        endpoint, options = self._endpoint, request.options.responses
        is_possible = endpoint.definition.keeps_responses and options.state_mode != "replay_only"
        if options.state_mode == "hybrid":
            is_possible &= request.model not in endpoint.models_without_ids
        if is_possible:
            has_stored = (
                socket is not None or options.state_mode == "stateful" or endpoint.definition.continues_over_http
            )
            continued = self._chain.continuation(request, socket, has_stored=has_stored)
            if continued is not None:
                return continued
        if options.state_mode == "stateful":
            require_link(request)
        if options.previous_response_id is None:
            return request
        return replace(request, options=replace(request.options, responses=replace(options, previous_response_id=None)))

    def _history_for(self, request: Request) -> EncodedMessages:
        """What is new is encoded for this once; the whole conversation is kept as it was encoded."""
        is_part = request.options.responses.previous_response_id is not None
        return EncodedMessages() if is_part else self._history

    # --- what is remembered

    def _is_remembered(self, wire: Wire, request: Request) -> bool:
        is_kept = wire.name == "responses" and self._endpoint.definition.keeps_responses
        return is_kept and request.options.responses.state_mode != "replay_only"

    def _remember(self, request: Request, heard: list[ProviderEvent] | None, socket: WebSocket | None) -> None:
        """Take over a whole answer as what the next request may continue; anything less changes nothing."""
        if not heard or not isinstance(heard[-1], MessageStopped):
            return
        ids = [event.id for event in heard if isinstance(event, ResponseStarted)]
        reasons = [event.stop_reason for event in heard if isinstance(event, MessageDelta) and event.stop_reason]
        place = None if is_stored(request.options.responses) else socket
        is_there = place is not None or is_stored(request.options.responses)
        is_whole = bool(reasons) and reasons[-1] in CONTINUABLE
        self._chain.answered(request, heard, ids[-1] if ids and is_whole and is_there else None, place)

    def _sticky(self, request: Request) -> str | None:
        is_same = self._turn_state is not None and self._turn_state[0] == request.turn_id
        return self._turn_state[1] if self._turn_state is not None and is_same else None

    def _keep_sticky(self, request: Request, headers: Mapping[str, str]) -> None:
        state = headers.get(STICKY_HEADER)
        if state and request.turn_id is not None:
            self._turn_state = (request.turn_id, state)


def _is_compressed(wire: Wire, request: Request) -> bool:
    return wire.name == "responses" and request.options.responses.compression == "zstd"


def _with_body(call: Call, body: bytes, *, is_compressed: bool) -> Call:
    headers = {**call.headers, "content-encoding": "zstd"} if is_compressed else call.headers
    return replace(call, body=body, headers=headers)
