"""The Responses wire over a websocket: one socket of an agent, and one answer on it (PV-37…PV-39).

Owns when a socket may be used again and what its end means for the answer under way. Frames and bytes are
`websocket.py`'s; what the messages say is the mapper's.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace

from basis_daemon.runtime.providers.base import ProviderEvent
from basis_daemon.runtime.providers.definition import ProviderDefinition
from basis_daemon.runtime.providers.errors import MalformedStream, ProviderError, SocketEnded, StreamCut, TransportError
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.governor import Place
from basis_daemon.runtime.providers.http import Call, HttpPool
from basis_daemon.runtime.providers.websocket import SocketClosed, WebSocket
from basis_daemon.runtime.providers.wire import StreamMapper

RETRY_S = 0.75
"""Seconds after which it is worth trying to connect again (PV-38)."""
TURN_HEADERS = frozenset(
    {"x-mentra-turn-state", "x-codex-turn-state", "x-mentra-turn-metadata", "x-codex-turn-metadata"}
)
"""Change with every turn, and are told to a socket only when it is opened."""

_COMES_BACK = (1001, 1012, 1013)
"""Close codes of a server that goes away, restarts or is busy: what every server does, and no breach of the wire."""


class SocketSlot:
    """Where an agent's socket waits between two requests. While one is under way, it holds none."""

    def __init__(self) -> None:
        self._socket: WebSocket | None = None
        self._opened_as: object = None

    async def take(self, pool: HttpPool, call: Call, definition: ProviderDefinition, *, is_fresh: bool) -> WebSocket:
        """The waiting socket, if it is as good as a new one; else a new one.

        A socket is authorised once, when it is opened: with another key, a new one is opened (RT-35). Raises
        `SocketEnded` when there is no connection, and what a refused handshake means.
        """
        opened_as = (call.url, {name: value for name, value in call.headers.items() if name not in TURN_HEADERS})
        socket, self._socket = self._socket, None
        if socket is not None:
            is_good = False
            try:
                is_young = socket.age_s < definition.websocket_lifetime_s
                is_good = is_young and not is_fresh and opened_as == self._opened_as and await socket.is_usable()
            finally:
                if not is_good:
                    await socket.close()
            if is_good:
                return socket
        self._opened_as = opened_as
        try:
            return await WebSocket.open(pool, replace(call, connect_timeout_s=definition.websocket_connect_timeout_s))
        except TransportError as error:
            if not error.is_transient:
                raise
            raise SocketEnded(str(error), hint=error.hint, retry_after_s=RETRY_S) from error

    async def give_back(self, socket: WebSocket) -> None:
        """`socket` has brought a whole answer."""
        if self._socket is not None:  # two requests at once had a socket each
            await socket.close()
        else:
            self._socket = socket

    async def close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    def abandon(self, to: list[WebSocket]) -> None:
        """Cut the waiting socket, from any thread, and leave it to whoever can let go of it."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.abandon()
            to.append(socket)


async def exchange(
    socket: WebSocket, request: bytes, mapper: StreamMapper, target: Target, idle_timeout_s: float, place: Place
) -> AsyncGenerator[ProviderEvent]:
    """Send one request and yield its answer's events. Whatever raises leaves the socket unusable."""
    has_begun = False
    try:
        await socket.send(request, idle_timeout_s)
        while not mapper.is_complete:
            messages = await socket.receive(idle_timeout_s)
            has_begun = True
            place.answered()
            for event in mapper.feed([(b"", message) for message in messages]):
                yield event
    except SocketClosed as error:
        raise _ended(target, error, has_begun) from error


def _ended(target: Target, closed: SocketClosed, has_begun: bool) -> ProviderError:
    said = f": {closed.reason}" if closed.reason else ""
    if not has_begun:
        return SocketEnded(f"{target.label} ended the connection ahead of its answer{said}", retry_after_s=RETRY_S)
    if closed.code is None or closed.code in _COMES_BACK:
        return StreamCut(f"{target.label} ended the connection in the middle of the answer{said}")
    return MalformedStream(f"{target.label} closed the connection ({closed.code}) in the middle of the answer{said}")
