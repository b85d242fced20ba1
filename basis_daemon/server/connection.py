"""One client's connection: messages in, answers and events out (protocol.md 1, 2, 8).

Owns the envelope, the handshake's place in the order of things, requests in flight and their cancellation. Everything
a client sends is handled here as untrusted: the worst it can do is to end its own connection.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Protocol

import msgspec

from basis_daemon.server import frames, handshake
from basis_daemon.server.channel import Channel
from basis_daemon.server.client import Client
from basis_daemon.server.error_map import (
    InvalidRequest,
    NotInitialized,
    Overloaded,
    ParseFailed,
    Refusal,
    refusal,
)
from basis_daemon.server.frames import RequestId
from basis_daemon.server.router import Reply, Route, Router
from basis_protocol import errors
from basis_protocol.errors import ErrorData
from basis_protocol.lifecycle import CancelParams, DaemonInfo

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 256
"""Requests of one client being worked on; more are refused with -32001."""

LANGUAGE_METHODS = (
    "textDocument/",
    "workspace/",
    "window/",
    "notebookDocument/",
    "codeAction/",
    "codeLens/",
    "completionItem/",
)
"""What is LSP's: passed on, which loads the language side at first use."""

_NO_PARAMS = msgspec.Raw(b"")
_numbers = count(1)


class Envelope(msgspec.Struct):
    """Any JSON-RPC message, its parts untouched."""

    jsonrpc: str = ""
    method: str | None = None
    id: RequestId | msgspec.UnsetType | None = msgspec.UNSET
    params: msgspec.Raw = _NO_PARAMS
    result: msgspec.Raw = _NO_PARAMS
    error: msgspec.Raw = _NO_PARAMS


class _IdOnly(msgspec.Struct):
    id: RequestId


class LanguageSide(Protocol):
    """Whatever serves LSP's own methods for this client. Messages reach it in order; answers go to the channel."""

    def accept(self, body: bytes) -> None: ...

    def close(self) -> None: ...


_envelopes = msgspec.json.Decoder(Envelope)


class Connection:
    """Serves one client until it leaves. Owns its tasks: none of them outlives `serve`."""

    def __init__(
        self,
        router: Router[Any],
        daemon: DaemonInfo,
        language_side: Callable[["Connection", bytes | None], LanguageSide],
    ) -> None:
        """`language_side` makes the LSP side of a connection when it is needed; it is given the `initialize` message if
        that was answered already."""
        self.channel = Channel(self._receive, self._break_off)
        self.client = Client(f"connection-{next(_numbers)}", self.channel)
        self._router = router
        self._daemon = daemon
        self._language_side = language_side
        self._language: LanguageSide | None = None
        self._initialize: bytes | None = None
        self._is_shut_down = False
        self._in_flight: dict[RequestId, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._group: asyncio.TaskGroup | None = None

    async def serve(self) -> None:
        """Return when the connection is over. What the client had asked for and waited on is cancelled; turns go on."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self.start(self.client.pump.run())
                await self.channel.closed.wait()
                for task in (*self._tasks, *self._in_flight.values()):
                    task.cancel()
        finally:
            self._group = None
            self.client.unwatch_all()
            if self._language is not None:
                self._language.close()
            self.channel.abort("the daemon ended the connection")

    def end(self, why: str) -> None:
        """Give the client what it is owed and close; it has a moment to take it."""
        self.client.finish_all()
        self.channel.close(why)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run `coroutine` as long as the connection lasts. Its failure ends the connection."""
        if self._group is not None:
            self._tasks.append(self._group.create_task(coroutine))

    # --- messages ---

    def _receive(self, body: bytes) -> None:
        try:
            envelope = _envelopes.decode(body)
            if not body.isascii():
                body.decode()  # the decoder skips over params without looking into their strings
        except msgspec.ValidationError:
            what = "a batch is not supported: send one message a frame" if body.lstrip()[:1] == b"[" else "not JSON-RPC"
            self._refuse(_id_of(body), InvalidRequest(f"the message is no JSON-RPC request: {what}"))
        except UnicodeDecodeError:
            self._refuse(_id_of(body), ParseFailed("the message is not valid JSON in UTF-8"))
        except msgspec.DecodeError:
            self._refuse(None, ParseFailed("the message is not valid JSON in UTF-8"))
        except RecursionError:
            self._refuse(None, ParseFailed("the message is nested too deeply"))
        else:
            self._dispatch(envelope, body)

    def _dispatch(self, envelope: Envelope, body: bytes) -> None:
        request_id = None if envelope.id is msgspec.UNSET else envelope.id
        if envelope.jsonrpc != "2.0":
            self._refuse(request_id, InvalidRequest('`jsonrpc` must be "2.0"'))
        elif envelope.method is None:
            self._take_answer(envelope, body)
        elif envelope.id is msgspec.UNSET:
            self._take_notification(envelope.method, envelope.params, body)
        elif request_id is None:
            self._refuse(None, InvalidRequest("a request's id must be a number or a string"))
        else:
            self._take_request(request_id, envelope.method, envelope.params, body)

    def _take_answer(self, envelope: Envelope, body: bytes) -> None:
        if not envelope.result and not envelope.error:
            self._refuse(None, InvalidRequest("the message has neither a method nor a result"))
        elif self._language is not None:
            self._language.accept(body)

    def _take_notification(self, method: str, params: msgspec.Raw, body: bytes) -> None:
        match method:
            case "exit":
                self.channel.close("the client said exit")
            case "$/cancelRequest":
                self._cancel(params)
            case "initialized" | "$/setTrace":
                pass
            case _ if self._initialize is not None and method.startswith(LANGUAGE_METHODS):
                self._language_of_client().accept(body)
            case _:
                log.debug("ignored a notification", extra={"method": method[:80]})

    def _take_request(self, request_id: RequestId, method: str, params: msgspec.Raw, body: bytes) -> None:
        try:
            if request_id in self._in_flight:
                raise InvalidRequest(f"a request with id {request_id!r} is still being worked on")
            if method == "initialize":
                self._handshake(request_id, params, body)
                return
            if self._initialize is None:
                raise NotInitialized("send `initialize` first")
            if self._is_shut_down:
                raise InvalidRequest("the client has said shutdown; only `exit` may follow")
            if method == "shutdown":
                self._is_shut_down = True
                self._answer(request_id, None)
            elif method.startswith(LANGUAGE_METHODS):
                self._language_of_client().accept(body)
            else:
                self._call(request_id, self._router.route(method), params)
        except Exception as error:
            self._refuse(request_id, error)

    def _handshake(self, request_id: RequestId, params: msgspec.Raw, body: bytes) -> None:
        if self._initialize is not None:
            raise InvalidRequest("`initialize` was sent before")
        hello = handshake.read_hello(params)
        if hello is None:
            self._language = self._language_side(self, None)
            self._initialize = body
            self._language.accept(body)
            return
        version = handshake.agree(hello)
        self._initialize = body
        self.client.introduce(hello)
        self._answer(request_id, handshake.result(version, self._daemon, self._router.features))

    def _language_of_client(self) -> LanguageSide:
        if self._language is None:
            self._language = self._language_side(self, self._initialize)
        return self._language

    # --- requests ---

    def _call(self, request_id: RequestId, route: Route[Any], params: msgspec.Raw) -> None:
        typed = route.decode(params)
        if route.instant is not None:
            self._answer(request_id, route.instant(self._router.services, self.client, typed))
            return
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            raise Overloaded(f"{MAX_IN_FLIGHT} requests of this client wait already", hint="retry with back-off")
        if self._group is None:
            return
        task = self._in_flight[request_id] = self._group.create_task(self._run(request_id, route, typed))
        # Not in the task itself: one that is cancelled before its first step never gets to run.
        task.add_done_callback(lambda done: done.cancelled() and self._was_cancelled(request_id))

    async def _run(self, request_id: RequestId, route: Route[Any], params: Any) -> None:
        assert route.handler is not None
        try:
            result = await route.handler(self._router.services, self.client, params)
            del self._in_flight[request_id]
            if isinstance(result, Reply):
                self._answer(request_id, result.result)
                result.then()
            else:
                self._answer(request_id, result)
        except Exception as error:
            self._in_flight.pop(request_id, None)
            self._refuse(request_id, error)

    def _was_cancelled(self, request_id: RequestId) -> None:
        self._in_flight.pop(request_id, None)
        data = ErrorData(kind="cancelled", message="the client cancelled this request")
        self._send_refusal(request_id, Refusal(errors.REQUEST_CANCELLED, data))

    def _cancel(self, params: msgspec.Raw) -> None:
        try:
            request_id = msgspec.json.decode(params, type=CancelParams).id
        except (ValueError, RecursionError):
            return
        task = self._in_flight.get(request_id)
        if task is not None:
            task.cancel()
        elif self._language is not None and self._initialize is not None:
            self._language.accept(b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":%b}' % bytes(params))

    # --- answers ---

    def _answer(self, request_id: RequestId, result: Any) -> None:
        self.channel.send(frames.response(request_id, result))

    def _refuse(self, request_id: RequestId | None, error: Exception) -> None:
        self._send_refusal(request_id, refusal(error))

    def _send_refusal(self, request_id: RequestId | None, refused: Refusal) -> None:
        self.channel.send(frames.error(request_id, refused.code, refused.data.message, refused.data))

    def _break_off(self, problem: str) -> None:
        """The byte stream makes no sense any more: say so, where the client may still read it, and end."""
        self._refuse(None, ParseFailed(f"the connection's framing is broken: {problem}"))
        self.channel.close(f"garbage: {problem}")


def _id_of(body: bytes) -> RequestId | None:
    try:
        return msgspec.json.decode(body, type=_IdOnly).id
    except (ValueError, RecursionError):
        return None
