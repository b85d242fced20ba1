"""A client that knows only the protocol page: a unix socket, `Content-Length` frames and JSON.

Imports nothing of the project, so that a test using it shows what a stranger can write. Blocking, for one thread.
"""

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S = 20.0
"""Bounds every wait. Far more than anything takes, so that a loaded machine fails no test."""


class Closed(Exception):
    """The daemon closed this connection."""


class Refused(Exception):
    """The answer was an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error.get("message"))
        self.code: int = error["code"]
        self.data: dict[str, Any] = error.get("data") or {}


class RawClient:
    """One connection. `notifications` keeps everything that came unasked, in order."""

    def __init__(self, path: Path, *, name: str = "stranger") -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._name = name
        self._buffer = b""
        self._last_id = 0
        self._next = 0
        self.notifications: list[dict[str, Any]] = []

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def die(self) -> None:
        """Be gone without a word, as a killed process is."""
        self._socket.close()

    def initialize(self, versions: tuple[int, ...] = (1,)) -> dict[str, Any]:
        """The handshake; returns what the daemon states about itself."""
        hello = {
            "protocolVersions": list(versions),
            "client": {"name": self._name, "version": "0", "kind": "cli"},
            "clientId": self._name,
            "can": {"approve": True},
        }
        result = self.call("initialize", {"processId": None, "capabilities": {"experimental": {"basis": hello}}})
        self.send({"method": "initialized", "params": {}})
        stated: dict[str, Any] = result["capabilities"]["experimental"]["basis"]
        return stated

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """One request and its answer. Raises `Refused` or `Closed`."""
        self._last_id += 1
        self.send({"id": self._last_id, "method": method, "params": params or {}})
        deadline = time.monotonic() + WAIT_S
        while True:
            message = self._read(deadline)
            if message.get("id") == self._last_id and "method" not in message:
                if "error" in message:
                    raise Refused(message["error"])
                return message["result"]
            self.notifications.append(message)

    def send(self, message: dict[str, Any]) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_bytes(self, body: bytes) -> None:
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def send_garbage(self, data: bytes) -> None:
        self._socket.sendall(data)

    def event(self, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next `basis/session/event` params for which `matches(event)`, waiting for it."""
        deadline = time.monotonic() + WAIT_S
        while True:
            while self._next == len(self.notifications):
                self.notifications.append(self._read(deadline))
            message = self.notifications[self._next]
            self._next += 1
            if message.get("method") == "basis/session/event" and matches(message["params"]["event"]):
                params: dict[str, Any] = message["params"]
                return params

    def event_of_type(self, kind: str) -> dict[str, Any]:
        return self.event(lambda event: event["type"] == kind)

    def records(self) -> list[dict[str, Any]]:
        """Every session event received so far, as (seq, time, event)."""
        return [m["params"] for m in self.notifications if m.get("method") == "basis/session/event"]

    def is_ended(self) -> bool:
        """Whether the daemon ended this connection, waiting for it to do so."""
        try:
            while True:
                self.notifications.append(self._read(time.monotonic() + WAIT_S))
        except Closed:
            return True
        except TimeoutError:
            return False

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\r\n\r\n" not in self._buffer:
            self._fill(deadline)
        header, _, rest = self._buffer.partition(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in header.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        while len(rest) < length:
            self._fill(deadline)
            rest = self._buffer.partition(b"\r\n\r\n")[2]
        self._buffer = rest[length:]
        message: dict[str, Any] = json.loads(rest[:length])
        return message

    def _fill(self, deadline: float) -> None:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self._socket.recv(65536)
        except ConnectionError as error:
            raise Closed from error
        if not data:
            raise Closed
        self._buffer += data
