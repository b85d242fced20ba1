"""Who is at the other end of a connection, what they can do, and which sessions they watch.

Owns a client's identity and its watches. Handlers are given one of these; they never see a socket.
"""

from collections.abc import Callable

from basis_daemon.server import frames
from basis_daemon.server.channel import Channel
from basis_daemon.server.journal import Journal
from basis_daemon.server.pump import EventPump, Watch
from basis_protocol.asks import Actor
from basis_protocol.base import WireModel
from basis_protocol.lifecycle import ClientCan, ClientHello


class Client:
    """One connected client. `on_detached` hooks run whenever a session is no longer watched, for whatever reason."""

    def __init__(self, connection_id: str, channel: Channel) -> None:
        self.connection_id = connection_id
        self.actor = Actor(client="unknown", kind="lsp")
        self.can = ClientCan()
        self.pump = EventPump(channel)
        self._channel = channel
        self._watches: dict[str, tuple[Watch, Callable[[], None]]] = {}

    def introduce(self, hello: ClientHello) -> None:
        """Take on what the client says of itself in the handshake."""
        self.can = hello.can
        self.actor = Actor(client=hello.client.name, kind=hello.client.kind, client_id=hello.client_id)

    @property
    def identity(self) -> str:
        """Stable across reconnects where the client gives an id; else this connection's own."""
        return self.actor.client_id or self.connection_id

    @property
    def is_connected(self) -> bool:
        return self._channel.is_open

    def notify(self, method: str, params: WireModel) -> None:
        """Send a notification; never waits."""
        self._channel.send(frames.notification(method, params))

    def watch(self, journal: Journal, after_seq: int, on_detached: Callable[[], None]) -> Callable[[], None]:
        """Owe this client every event of `journal` above `after_seq`. Replaces an earlier watch of the same session.

        Nothing is delivered before the returned function is called.
        """
        session_id = journal.session_id
        previous = self._watches.pop(session_id, None)
        if previous is not None:
            previous[0].stop()
        watch = Watch(journal, after_seq, self.pump, on_lagged=lambda: self.unwatch(session_id))
        self._watches[session_id] = (watch, on_detached)

        def start() -> None:
            current = self._watches.get(session_id)
            if current is not None and current[0] is watch:
                watch.start()

        return start

    def unwatch(self, session_id: str) -> None:
        """Stop owing this client a session's events. Nothing happens if it doesn't watch it."""
        entry = self._watches.pop(session_id, None)
        if entry is not None:
            watch, on_detached = entry
            watch.stop()
            on_detached()

    def finish_watching(self, session_id: str) -> None:
        """The session ends: give the client what it is still owed, then stop."""
        entry = self._watches.pop(session_id, None)
        if entry is not None:
            watch, on_detached = entry
            watch.finish()
            on_detached()

    def finish_all(self) -> None:
        """The daemon ends: give the client what it is still owed of every session."""
        for session_id in list(self._watches):
            self.finish_watching(session_id)

    def unwatch_all(self) -> None:
        for session_id in list(self._watches):
            self.unwatch(session_id)
