"""A real HTTP server in place of a model, scripted per test.

    with ModelServer(calls(tool("read", {"path": "a.txt"})), says("done")) as server:
        ...                                  # point a provider at server.base_url
        assert server.requests[1].tool_results["call_1"] == "…"

It lives in a thread with a loop of its own, so it also serves daemons in other processes. Every generation request
takes the next turn of the script: a turn, or a function from the request to a turn; `respond=` answers whatever the
script does not. All wires are answered alike (`…/v1/responses`, `…/v1/chat/completions`, `…/v1/messages`,
`…/v1beta/models/…:streamGenerateContent`), and the list of models as each of them has it, below any path prefix. The
words of the script are in `model_turns.py`.

From async tests use `async with`, `await server.request(0)`, `await server.ending(0)`; from others
`server.wait_request(0)`. As a script: `python tests/support/model_server.py --script FILE` prints its base URL and
serves until it is told to end.
"""

if __name__ == "__main__":
    import sys
    from pathlib import Path

    sys.path[0] = str(Path(__file__).resolve().parents[1])  # so that `support` is found, as it is in tests

import asyncio
import concurrent.futures
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import ModuleType, TracebackType
from typing import Any

from support import model_anthropic, model_gemini
from support.milestones import WAIT_S, Milestones
from support.model_anthropic import MessagesStream
from support.model_connection import SWITCHING_PROTOCOLS, Answer, Connection
from support.model_gemini import GenerateContentStream
from support.model_requests import Ending, ModelRequest, Wire, wire_of
from support.model_responses import KeptResponses
from support.model_turns import (
    Called,
    Failure,
    Gate,
    Raw,
    Reply,
    Turn,
    Usage,
    breaks,
    burst,
    calls,
    cuts,
    fails,
    hangs,
    malformed,
    rate_limits,
    raw,
    says,
    slow,
    thinks,
    tool,
)
from support.model_wires import Asked, ChatStream, Piece, ResponsesStream, error_body, models_body

__all__ = [
    "Called",
    "Ending",
    "Failure",
    "Gate",
    "ModelRequest",
    "ModelServer",
    "Raw",
    "Reply",
    "Scripted",
    "Turn",
    "Usage",
    "breaks",
    "burst",
    "calls",
    "cuts",
    "fails",
    "hangs",
    "malformed",
    "rate_limits",
    "raw",
    "says",
    "slow",
    "thinks",
    "tool",
]

Scripted = Reply | Callable[[ModelRequest], Reply]
STREAMS = {
    "responses": ResponsesStream,
    "chat_completions": ChatStream,
    "anthropic_messages": MessagesStream,
    "gemini_generate_content": GenerateContentStream,
}
ALL_WIRES: tuple[Wire, ...] = (*STREAMS, "embeddings")  # type: ignore[assignment]
"""Embeddings are answered with what the script gives them byte for byte: `raw` and `fails`."""


class ModelServer:
    """The server. Starts on entering its context, or by `start()`; ends with `close()`.

    `script`: turns in order. `respond`: answers requests beyond the script; without it they get a 400 saying so.
    `models`: ids or rows of the listing, at most `page_size` at once; `listing`: how listing fails instead.
    `api_key`: requests without exactly this key, where the wire has it, are refused as its vendor does.
    `wires`: the wires spoken; the other ones' paths answer 404, as a server without them does.
    `websockets`: whether the Responses wire is also spoken over a websocket. `continues`: whether responses can be
    continued by their id; without it the parameter is unknown. `answer_headers` go with every answer and handshake.
    """

    def __init__(
        self,
        *script: Scripted,
        respond: Callable[[ModelRequest], Reply] | None = None,
        models: Iterable[str | Mapping[str, Any]] = ("scripted",),
        listing: Failure | None = None,
        page_size: int | None = None,
        api_key: str | None = None,
        wires: Iterable[Wire] = ALL_WIRES,
        websockets: bool = True,
        continues: bool = True,
        answer_headers: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self._has_websockets = websockets
        self._responses = KeptResponses(continues)
        self._answer_headers = dict(answer_headers or {})
        self._lock = threading.Lock()
        self._script = list(script)
        self._taken = 0
        self._respond = respond
        self._models: list[dict[str, Any]] = [{"id": m} if isinstance(m, str) else dict(m) for m in models]
        self._listing = listing
        self._page_size = page_size
        self._api_key = api_key
        self._wires = frozenset(wires)
        self._port = port
        self._call_ids = itertools.count(1)
        self._connections = itertools.count(1)
        self._milestones = Milestones()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._open: set[Connection] = set()
        self.requests: list[ModelRequest] = []
        """Generation requests, on either wire, in order of arrival."""
        self.listings: list[ModelRequest] = []
        """Requests for the list of models."""
        self.handshakes: list[ModelRequest] = []
        """Requests to become a websocket, refused ones too."""
        self.strays: list[ModelRequest] = []
        """Requests for anything else, and for a wire this server doesn't speak."""

    # --- script ------------------------------------------------------------------------------------------------------

    def script(self, *turns: Scripted) -> None:
        """Append turns."""
        with self._lock:
            self._script.extend(turns)

    @property
    def unused(self) -> int:
        """Turns not asked for yet."""
        with self._lock:
            return max(0, len(self._script) - self._taken)

    def assert_exhausted(self) -> None:
        """Every scripted turn was asked for, and nothing beyond them."""
        with self._lock:
            scripted, taken = len(self._script), self._taken
        assert taken == scripted, f"the script has {scripted} turns, the model was asked {taken} times"

    def forget_responses(self) -> None:
        """Know no response that was given out until now."""
        self._responses.forget()

    # --- what came in ------------------------------------------------------------------------------------------------

    async def request(self, index: int = 0) -> ModelRequest:
        """Generation request number `index` (as in `requests[index]`), waiting for it to arrive."""
        return await self._milestones.reached(("request", index))

    def wait_request(self, index: int = 0, *, timeout_s: float = WAIT_S) -> ModelRequest:
        return self._milestones.wait(("request", index), timeout_s)

    async def ending(self, index: int = 0) -> Ending:
        """How the answer to request `index` ended: all `sent`, `cut` by the script, or the `client_left`."""
        return await self._milestones.reached(("ending", index))

    def wait_ending(self, index: int = 0, *, timeout_s: float = WAIT_S) -> Ending:
        return self._milestones.wait(("ending", index), timeout_s)

    # --- life --------------------------------------------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/`: what a provider is configured with."""
        return f"http://127.0.0.1:{self._port}/"

    @property
    def open_connections(self) -> int:
        with self._lock:
            return len(self._open)

    def start(self) -> "ModelServer":
        """Serve from a thread; returns when connections are accepted."""
        ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="model-server", daemon=True)
        self._thread.start()
        ready.result(WAIT_S)
        return self

    def close(self) -> None:
        """End every connection and the thread. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self.end_soon()
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the model server did not end"

    def end_soon(self) -> None:
        """Tell a serving server to end; from any thread."""
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)

    def __enter__(self) -> "ModelServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "ModelServer":
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _run(self, ready: "concurrent.futures.Future[None]") -> None:
        try:
            asyncio.run(self.serve(lambda: ready.set_result(None)))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def serve(self, started: Callable[[], None]) -> None:
        """Serve on the running loop until `close()`, or until cancelled."""
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            listener = await self._loop.create_server(
                lambda: Connection(next(self._connections), self._arrived, tasks, self._open), "127.0.0.1", self._port
            )
            self._port = listener.sockets[0].getsockname()[1]
            started()
            try:
                await self._over.wait()
            finally:
                listener.close()
                for connection in list(self._open):
                    connection.abort()

    # --- answering (in the server's thread) --------------------------------------------------------------------------

    def _arrived(self, connection: int, method: str, target: str, headers: dict[str, str], data: bytes) -> Answer:
        if headers.get("upgrade") == "websocket" and method == "GET":
            return self._shake_hands(connection, method, target, headers)
        wire = wire_of(method, target.partition("?")[0])
        generates = wire in self._wires
        with self._lock:
            record = self.requests if generates else self.listings if wire == "models" else self.strays
            request = ModelRequest(len(record), method, target, wire, headers, data, time.monotonic(), connection)
            record.append(request)
        if generates:
            self._milestones.reach(("request", request.index), request)
        return self._answer(request, generates)

    def _shake_hands(self, connection: int, method: str, target: str, headers: dict[str, str]) -> Answer:
        wire = wire_of("POST", target.partition("?")[0])
        with self._lock:
            index = len(self.handshakes)
            self.handshakes.append(
                ModelRequest(index, method, target, wire, headers, b"", time.monotonic(), connection)
            )
        if not self._has_websockets or wire != "responses" or wire not in self._wires:
            return Answer(404, {"content-type": "text/plain"}, [Piece(b"404 page not found", False)])
        if self._is_unauthorized(headers):
            return Answer.of_json(401, error_body(401))
        return Answer(SWITCHING_PROTOCOLS, self._answer_headers, [])

    def _is_unauthorized(self, headers: Mapping[str, str], dialect: ModuleType | None = None) -> bool:
        if self._api_key is None:
            return False
        if dialect is not None:
            return dialect.key_of(headers) != self._api_key
        return headers.get("authorization") != f"Bearer {self._api_key}"

    def _unauthorized(self, request: ModelRequest, generates: bool) -> Answer:
        ended = self._ended(request, generates)
        if request.dialect is model_gemini:
            return Answer.of_json(400, model_gemini.bad_key_body(), ended=ended)
        return Answer.of_json(401, _error_body(request, 401), ended=ended)

    def _listed(self, request: ModelRequest) -> Answer:
        if request.dialect is None:
            return Answer.of_json(200, models_body(self._models))
        query = request.query
        if self._page_size is not None:
            query |= {"limit": str(self._page_size), "pageSize": str(self._page_size)}
        return Answer.of_json(200, request.dialect.models_body(self._models, query))

    def _refused(self, request: ModelRequest) -> Any:
        """The body of a 400, where the vendor would object to `request`."""
        if request.wire == "responses":
            return self._responses.resolve(request)
        problem = None
        if request.wire == "anthropic_messages":
            problem = model_anthropic.refusal(request.headers, request.body)
        elif request.wire == "gemini_generate_content":
            problem = model_gemini.refusal(request.headers, request.body, request.model or "")
        return {"error": {"message": problem, "type": "invalid_request_error"}} if problem else None

    def _answer(self, request: ModelRequest, generates: bool) -> Answer:
        if request.path == "/_recorded":
            return Answer.of_json(200, self._recorded())
        if self._is_unauthorized(request.headers, request.dialect):
            return self._unauthorized(request, generates)
        if request.wire == "models" and self._listing is not None:
            return Answer.of_failure(self._listing, self._ended(request, generates))
        if request.wire == "models":
            return self._listed(request)
        if not generates:
            return Answer(404, {"content-type": "text/plain"}, [Piece(b"404 page not found", False)])
        try:
            _ = request.body
        except ValueError:
            return Answer.of_json(400, _error_body(request, 400), ended=self._ended(request, generates))
        ended = self._ended(request, generates)
        refused = self._refused(request)
        if refused is not None:
            return Answer.of_failure(Failure(status=400, body=refused), ended)
        reply = self._take(request)
        if isinstance(reply, Failure):
            body = _error_body(request, reply.status) if reply.body is None else reply.body
            return Answer.of_failure(replace(reply, body=body), ended)
        if isinstance(reply, Raw):
            pieces = [Piece(piece, True) for piece in reply.pieces]
            return Answer(reply.status, reply.headers, pieces, reply.delivery, ended)
        return self._stream(request, reply, ended)

    def _take(self, request: ModelRequest) -> Reply:
        with self._lock:
            number, self._taken = self._taken, self._taken + 1
            scripted = self._script[number] if number < len(self._script) else self._respond
            length = len(self._script)
        if scripted is None:
            message = f"the script has {length} turns and this is request {number + 1}"
            return Failure(status=400, body={"error": {"message": message, "type": "script_exhausted"}})
        try:
            return scripted(request) if callable(scripted) else scripted
        except Exception as error:  # a responder is the test's own code: say what it raised where the test will see it
            message = f"the test's responder raised {type(error).__name__}: {error}"
            return Failure(status=400, body={"error": {"message": message, "type": "responder_failed"}})

    def _stream(self, request: ModelRequest, turn: Turn, ended: "Callable[[str], None]") -> Answer:
        parts = tuple(
            replace(part, id=part.id or f"call_{next(self._call_ids)}") if isinstance(part, Called) else part
            for part in turn.parts
        )
        asked = Asked(request.index + 1, {**request.body, "model": request.model or "scripted"})
        stream = STREAMS[request.wire](asked, replace(turn, parts=parts))
        is_streamed = (
            request.body.get("stream")
            or request.body.get("type") == "response.create"
            or request.query.get("alt") == "sse"
        )
        if not is_streamed:
            return Answer.of_json(200, stream.whole(), delivery=turn.delivery, ended=ended)
        headers = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": f"req_{request.index + 1:08d}"}
        pieces = stream.pieces()
        if isinstance(stream, ResponsesStream):
            pieces = self._responses.kept(request, stream)
        return Answer(200, headers | self._answer_headers, pieces, turn.delivery, ended)

    def _ended(self, request: ModelRequest, generates: bool) -> "Callable[[Any], None]":
        def ended(how: Any) -> None:
            request.ending = Ending(how, time.monotonic())
            if generates:
                self._milestones.reach(("ending", request.index), request.ending)

        return ended

    def _recorded(self) -> Any:
        """`GET /_recorded`: when requests arrived and answers ended, for benches that run the server as a process."""
        return [
            {
                "arrivedAt": r.arrived_at,
                "endedAt": r.ending and r.ending.at,
                "how": r.ending and r.ending.how,
                "wire": r.wire,
            }
            for r in self.requests
        ]


def _error_body(request: ModelRequest, status: int) -> Any:
    """The vendor's usual body for an error status, on the wire of `request`."""
    return request.dialect.error_body(status) if request.dialect else error_body(status)


# --- as a script -----------------------------------------------------------------------------------------------------


def load_script(path: str) -> tuple[list[Scripted], Callable[[ModelRequest], Reply] | None]:
    """Run a Python file that sees this vocabulary and sets `script = [turn, …]` or defines `respond(request)`."""
    names: dict[str, Any] = {name: globals()[name] for name in __all__}
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), names)
    return list(names.get("script", [])), names.get("respond")


def main() -> None:
    import argparse
    import signal

    parser = argparse.ArgumentParser(description="Serve a scripted model; prints its base URL.")
    parser.add_argument(
        "--script", required=True, metavar="FILE", help="Python: script = [says('hi')] or def respond(request)"
    )
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--model", action="append", help="an id to list; may be repeated")
    args = parser.parse_args()
    script, respond = load_script(args.script)
    server = ModelServer(*script, respond=respond, models=args.model or ("scripted",), port=args.port)

    async def run() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, server.end_soon)
        await server.serve(lambda: print(server.base_url, flush=True))

    asyncio.run(run())


if __name__ == "__main__":
    main()
