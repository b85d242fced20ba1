"""One connection to the daemon for a program without an event loop. Standard library only.

Owns the handshake, requests and their answers, and the queue of notifications that arrive in between. Knows nothing of
sessions: following one across reconnections is `following.py`.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections import deque

from basis_client.connect import ALWAYS, START_TIMEOUT_S, connect
from basis_client.errors import BAD_PEER, CONNECTION_LOST, TIMED_OUT, ClientError, fields_of
from basis_client.handshake import Hello, read_initialize
from basis_protocol.framing import MAX_FRAME_BYTES, Decoder, FramingError, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

REQUEST_TIMEOUT_S = 60.0
"""Every request is answered at once except opening a workspace, which may import a provider and start MCP servers."""

READ_BYTES = 256 * 1024

OVERLOADED = -32001
METHOD_NOT_FOUND = -32601


class Connection:
    """One connection. Usable after `shake_hands`; not for use by several threads."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._decoder = Decoder()
        self._answers: dict[int, dict[str, Any]] = {}
        self._notifications: deque[tuple[str, dict[str, Any]]] = deque()
        self._last_id = 0
        self.daemon: dict[str, Any] = {}
        """What the daemon said of itself: `{version, pid, instanceId, startedAt}`."""

    def shake_hands(self, hello: Hello, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Say who we are and learn who answers. Raises `ClientError`."""
        answer = read_initialize(self.request("initialize", hello.initialize_params(), timeout_s=timeout_s))
        self.notify("initialized")
        self.daemon = fields_of(answer.get("daemon"))

    # --- calling ------------------------------------------------------------------------------------------------

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> dict[str, Any]:
        """Send one request and wait for its answer; what arrives meanwhile is kept for `take`.

        Raises `ClientError`: the daemon's own, `timed_out` or `connection_lost`. After `timed_out` the connection
        stays usable and the late answer is dropped.
        """
        self._last_id += 1
        request_id = self._last_id
        deadline = time.monotonic() + timeout_s
        self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}, timeout_s)
        self._answers[request_id] = {}
        try:
            while not self._answers[request_id]:
                if not self._receive(deadline - time.monotonic()):
                    raise ClientError(
                        f"the daemon did not answer {method} within {timeout_s:g} s",
                        kind=TIMED_OUT,
                        hint="see what it is doing: basisctl daemon logs",
                    )
            answer = self._answers[request_id]
        finally:
            del self._answers[request_id]
        if "error" in answer:
            raise ClientError.from_wire(answer["error"])
        return fields_of(answer.get("result"))

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params or {}}, REQUEST_TIMEOUT_S)

    # --- listening ----------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """To be waited for together with other things; readable means `take(0)` may return something."""
        return self._socket.fileno()

    def take(self, timeout_s: float = 0.0) -> tuple[str, dict[str, Any]] | None:
        """Return the next notification as (method, params), or `None` when none came in time.

        Raises `ClientError` with kind `connection_lost` once everything that had arrived was taken.
        """
        deadline = time.monotonic() + timeout_s
        while not self._notifications:
            if not self._receive(deadline - time.monotonic()):
                return None
        return self._notifications.popleft()

    def close(self) -> None:
        self._socket.close()

    # --- the wire -----------------------------------------------------------------------------------------------

    def _send(self, message: dict[str, Any], timeout_s: float) -> None:
        body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(body) > MAX_FRAME_BYTES:
            raise ClientError(
                f"a message of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}",
                kind="too_large",
                hint="put large text in a file of the workspace and name it in the prompt",
            )
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(encode(body))
        except TimeoutError as error:
            # Half a frame is on its way: nothing sent after it would be understood.
            self._socket.shutdown(socket.SHUT_RDWR)
            raise ClientError("the daemon takes no input", kind=TIMED_OUT) from error
        except OSError as error:
            raise _lost() from error
        finally:
            self._socket.settimeout(None)

    def _receive(self, timeout_s: float) -> bool:
        """Read what is there, waiting at most `timeout_s` for it. Returns whether anything came."""
        if not select.select([self._socket], [], [], max(0.0, timeout_s))[0]:
            return False
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError as error:
            raise _lost() from error
        if not data:
            raise _lost()
        try:
            for body in self._decoder.feed(data):
                self._sort(fields_of(json.loads(body)))
        except (FramingError, ValueError) as error:
            raise ClientError(
                f"what listens there does not speak the basis protocol: {error}",
                kind=BAD_PEER,
                hint="point BASIS_SOCKET at the daemon's socket, or unset it",
            ) from error
        return True

    def _sort(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if not isinstance(method, str):
            if message.get("id") in self._answers:
                self._answers[message["id"]] = message
        elif "id" in message:
            error = {"code": METHOD_NOT_FOUND, "message": f"this client does not answer {method}"}
            self._send({"jsonrpc": "2.0", "id": message["id"], "error": error}, REQUEST_TIMEOUT_S)
        else:
            self._notifications.append((method, fields_of(message.get("params"))))


def open_connection(
    hello: Hello,
    environ: Mapping[str, str] = os.environ,
    *,
    start: str = ALWAYS,
    timeout_s: float = START_TIMEOUT_S,
    on_starting: Callable[[], None] | None = None,
) -> Connection:
    """Find or start the daemon and shake hands. Raises `ClientError`; see `connect.connect`.

    A daemon that is busy is waited for. One that goes away before it answered, or has too much to do, is tried again
    until the time is up.
    """
    deadline = time.monotonic() + timeout_s
    pause = 0.01
    while True:
        found = connect(environ, start=start, timeout_s=timeout_s, on_starting=on_starting)
        connection = Connection(found.socket)
        try:
            connection.shake_hands(hello, timeout_s=max(1.0, deadline - time.monotonic()))
        except ClientError as error:
            connection.close()
            cause = found.explain(error) if error.kind == CONNECTION_LOST else error
            is_passing = cause.kind == CONNECTION_LOST or cause.code == OVERLOADED
            if not is_passing or time.monotonic() + pause > deadline:
                raise cause from None
            time.sleep(pause)
            pause = min(pause * 2, 0.5)
        except BaseException:
            connection.close()
            raise
        else:
            found.answered()
            return connection


def _lost() -> ClientError:
    return ClientError(
        "the daemon closed the connection", kind=CONNECTION_LOST, hint="see why it went: basisctl daemon logs"
    )
