"""`basis/daemon/event`: what changed since a client subscribed, told to all who did.

Owns the subscribers and the merging of changes of one turn of the loop. Keeps no state of what it announces.
"""

import asyncio
from collections.abc import Callable

from basis_daemon.server.client import Client
from basis_protocol.asks import Actor, Ask
from basis_protocol.lifecycle import DaemonEvent, SessionSummary, WorkspaceSummary


class Announcer:
    """Tells subscribers. Nothing is kept for a client that is not there."""

    def __init__(self) -> None:
        self._subscribers: set[Client] = set()
        self._changed: dict[str, Callable[[], SessionSummary]] = {}

    def subscribe(self, client: Client) -> None:
        self._subscribers.add(client)

    def session_changed(self, session_id: str, summary: Callable[[], SessionSummary]) -> None:
        """A session's summary differs from before. Told once a turn of the loop, with what is true then."""
        if not self._subscribers:
            return
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._tell_changed)
        self._changed[session_id] = summary

    def session_removed(self, session_id: str) -> None:
        self._changed.pop(session_id, None)
        self._tell(DaemonEvent(kind="session_removed", session_id=session_id))

    def workspace_opened(self, summary: WorkspaceSummary) -> None:
        self._tell(DaemonEvent(kind="workspace_opened", workspace=summary))

    def workspace_closed(self, summary: WorkspaceSummary) -> None:
        self._tell(DaemonEvent(kind="workspace_closed", workspace=summary))

    def ask_opened(self, ask: Ask) -> None:
        self._tell(DaemonEvent(kind="ask_opened", ask=ask, ask_id=ask.ask_id, session_id=ask.session_id))

    def ask_closed(self, ask: Ask, by: Actor) -> None:
        self._tell(DaemonEvent(kind="ask_closed", ask_id=ask.ask_id, session_id=ask.session_id, by=by))

    def auth_changed(self, provider: str) -> None:
        self._tell(DaemonEvent(kind="auth_changed", provider=provider))

    def stopping(self) -> None:
        self._tell(DaemonEvent(kind="stopping"))

    def _tell_changed(self) -> None:
        changed, self._changed = self._changed, {}
        for summary in changed.values():
            self._tell(DaemonEvent(kind="session_changed", session=summary()))

    def _tell(self, event: DaemonEvent) -> None:
        self._subscribers = {client for client in self._subscribers if client.is_connected}
        for client in self._subscribers:
            client.notify("basis/daemon/event", event)
