"""What the scripted vendor knows of responses it gave before, as the real one does.

Owns which ids can be continued: stored responses from anywhere, and the last one of a websocket on that socket.
"""

import threading
from collections.abc import Iterator
from typing import Any

from support.model_requests import ModelRequest
from support.model_wires import Piece, ResponsesStream

Json = Any


class KeptResponses:
    """Responses by id, with all that each of them stood for. Safe from any thread."""

    def __init__(self, continues: bool) -> None:
        self._continues = continues
        self._lock = threading.Lock()
        self._stored: dict[str, list[Json]] = {}
        self._last: dict[int, tuple[str, list[Json]]] = {}

    def forget(self) -> None:
        with self._lock:
            self._stored.clear()
            self._last.clear()

    def resolve(self, request: ModelRequest) -> Json | None:
        """Give `request` its whole context. Returns the body of the refusal if the id it continues is unknown."""
        id = request.body.get("previous_response_id")
        if id is None:
            return None
        if not self._continues:
            return _refusal("Unsupported parameter: 'previous_response_id'.", "unsupported_parameter")
        with self._lock:
            last = self._last.get(request.connection)
            before = last[1] if last is not None and last[0] == id else self._stored.get(id)
        if before is None:
            return _refusal(f"Previous response with id '{id}' not found.", "previous_response_not_found")
        request.context = [*before, *request.body["input"]]
        return None

    def kept(self, request: ModelRequest, stream: ResponsesStream) -> Iterator[Piece]:
        """The answer's pieces; the response is known before its last one is out."""
        last: Piece | None = None
        for piece in stream.pieces():
            if last is not None:
                yield last
            last = piece
        with self._lock:
            whole = [*request.items, *stream.output]
            if request.body.get("store", True):
                self._stored[stream.id] = whole
            if request.body.get("type") == "response.create":
                self._last[request.connection] = (stream.id, whole)
        if last is not None:
            yield last


def _refusal(message: str, code: str) -> Json:
    error = {"message": message, "type": "invalid_request_error", "param": "previous_response_id", "code": code}
    return {"error": error}
