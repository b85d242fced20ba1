"""A client written from `protocol.md` alone: a socket, Content-Length frames and JSON. No import from the project."""

import itertools
import json
import socket
import time
from collections import deque
from typing import Any


class Refused(RuntimeError):
    """A request was answered with an error: its `code`, and `data` with its `kind`."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error.get('message')} {error.get('data', '')}")
        self.code: int = error["code"]
        self.data: dict[str, Any] = error.get("data") or {}


class RawClient:
    """One connection. Blocking; every wait is bounded by `timeout_s` seconds and raises `TimeoutError`."""

    def __init__(self, socket_path: str, *, timeout_s: float = 30.0) -> None:
        self.timeout_s = timeout_s
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect(socket_path)
        except OSError:
            self.socket.close()
            raise
        self.notifications: deque[dict[str, Any]] = deque()
        self.records: list[dict[str, Any]] = []
        """Params of every session event that was ever read from this connection."""
        self._answers: dict[Any, dict[str, Any]] = {}
        self._buffer = b""
        self._ids = itertools.count(1)

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def initialize(self, *, name: str = "raw", approve: bool = True, **hello: Any) -> dict[str, Any]:
        """The handshake of protocol.md 2. Returns the daemon's half of it."""
        hello = {"protocolVersions": [1], "client": {"name": name, "kind": "cli"}, "can": {"approve": approve}, **hello}
        result = self.call("initialize", {"capabilities": {"experimental": {"basis": hello}}})
        self.notify("initialized", {})
        return result["capabilities"]["experimental"]["basis"]

    def die(self) -> None:
        """Be gone without a word, as a killed process is."""
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, message: Any) -> None:
        body = json.dumps(message).encode()
        self.send_bytes(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def notify(self, method: str, params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def request(self, method: str, params: Any = None) -> int:
        """Send a request and return its id; its answer is taken with `answer`."""
        request_id = next(self._ids)
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}})
        return request_id

    def answer(self, request_id: Any) -> dict[str, Any]:
        """The whole answer to a request: with `result` or `error`."""
        while request_id not in self._answers:
            self._sort(self.receive())
        return self._answers.pop(request_id)

    def call(self, method: str, params: Any = None) -> Any:
        """A request's result. Raises `Refused`."""
        answer = self.answer(self.request(method, params))
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def refusal(self, method: str, params: Any = None) -> dict[str, Any]:
        """The error a request is answered with."""
        return self.answer(self.request(method, params))["error"]

    def next_notification(self, method: str | None = None) -> dict[str, Any]:
        """The next notification, or the next of that method; others of them are dropped."""
        while True:
            while not self.notifications:
                self._sort(self.receive())
            notification = self.notifications.popleft()
            if method in (None, notification["method"]):
                return notification["params"]

    def events_until(self, kind: str, session_id: str | None = None) -> list[dict[str, Any]]:
        """Event notifications of a session, up to and with the first whose event is of that type."""
        events: list[dict[str, Any]] = []
        while not events or events[-1]["event"]["type"] != kind:
            params = self.next_notification("basis/session/event")
            if session_id in (None, params["sessionId"]):
                events.append(params)
        return events

    def event_of_type(self, kind: str) -> dict[str, Any]:
        """The next event notification of that type; those before it are passed over."""
        return self.events_until(kind)[-1]

    def receive(self) -> dict[str, Any]:
        """The next message of any kind. Raises `EOFError` when the daemon has closed the connection."""
        deadline = time.monotonic() + self.timeout_s
        while (header_end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._fill(deadline)
        length = int(self._buffer[:header_end].lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(self._buffer) < header_end + 4 + length:
            self._fill(deadline)
        body, self._buffer = self._buffer[header_end + 4 :][:length], self._buffer[header_end + 4 + length :]
        return json.loads(body)

    def is_closed_by_daemon(self) -> bool:
        """Whether the daemon ends this connection (within the time limit)."""
        try:
            while True:
                self._sort(self.receive())
        except (EOFError, ConnectionError):
            return True
        except TimeoutError:
            return False

    def _sort(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.notifications.append(message)
            if message["method"] == "basis/session/event":
                self.records.append(message["params"])
        else:
            self._answers[message["id"]] = message

    def _fill(self, deadline: float) -> None:
        self.socket.settimeout(max(0.001, deadline - time.monotonic()))
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError("the daemon closed the connection")
        self._buffer += data
