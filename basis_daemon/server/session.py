"""One live conversation: its run, its journal, who watches it, and what it is doing.

Owns the session's state as clients see it. Running turns is `turns.py`'s; finding and unloading sessions the hub's.
"""

import time
from collections import deque
from collections.abc import Callable

from basis_daemon.runtime.prompts import speaker
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.server import history, session_config
from basis_daemon.server.announcer import Announcer
from basis_daemon.server.asks import AskBook
from basis_daemon.server.client import Client
from basis_daemon.server.clock import timestamp
from basis_daemon.server.journal import Journal
from basis_daemon.server.painting import Painting
from basis_daemon.server.presence import Presence
from basis_daemon.server.router import Reply
from basis_daemon.server.session_state import RunningTurn, is_same, present_state
from basis_daemon.server.session_views import info_of, title_of, turn_info
from basis_daemon.workspace.run import PreparedRun
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.asks import Actor
from basis_protocol.events import AnyEvent, ConfigChanged, InfoChanged, SessionState
from basis_protocol.lifecycle import SessionSummary
from basis_protocol.sessions import SessionAttachResult, SessionInfo, SessionSnapshot, TurnInfo

SNAPSHOT_ITEMS = 100
"""Items of the conversation an attach is given at once; the rest is paged back from there."""

OF_A_REQUEST = ("waiting_provider", "working")
"""States the runtime tells of, while a request of a turn is under way."""


class LiveSession:
    """A conversation this daemon holds the lease of. Everything here is synchronous and stays on the loop."""

    def __init__(
        self,
        run: PreparedRun,
        workspace: Workspace,
        journal: Journal,
        *,
        asks: AskBook,
        announcer: Announcer,
        ephemeral: bool = False,
    ) -> None:
        self.run = run
        self.workspace = workspace
        """The one `run` was minted from."""
        self.journal = journal
        self.is_ephemeral = ephemeral
        self.is_ending = False
        self.running: RunningTurn | None = None
        self.queue: deque[PromptAccepted] = deque()
        self.painting = Painting()
        self.last_used = time.monotonic()
        self.on_departure: Callable[[], None] = lambda: None
        """Called when a client has detached: it may have been the last one who could answer an ask."""
        self._asks = asks
        self._announcer = announcer
        self._attached: dict[Client, None] = {}
        self._presence = Presence(self.emit)
        self._created_at = time.time()
        self._state = SessionState(kind="idle", since=timestamp(), detail="")

    @property
    def id(self) -> str:
        return self.run.agent_id

    @property
    def root(self) -> str:
        return self.run.record.base_dir

    @property
    def title(self) -> str:
        return title_of(self.run.record)

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs or waits to."""
        return self.running is not None or bool(self.queue)

    @property
    def clients(self) -> list[Client]:
        """The clients attached now."""
        return list(self._attached)

    @property
    def is_watched(self) -> bool:
        return bool(self._attached)

    # --- events ---

    def emit(self, event: AnyEvent) -> None:
        """Number and keep an event. What the runtime calls for every token: nothing here waits or raises."""
        running = self.running
        state = event.state if isinstance(event, InfoChanged) else None
        if state is not None and state is not self._state and state.kind in OF_A_REQUEST:
            # The runtime's view of its own request; what the whole session is doing is told from here.
            if running is not None:
                running.note_state(state)
                self.refresh_state()
            return
        self.painting.observe(event)
        self.journal.append(event)
        if running is not None and running.note_wait(event):
            self.refresh_state()

    def refresh_state(self) -> None:
        """Work out what the session is doing, and tell when that has changed."""
        state = present_state(self.run, self.running, self.queue, self._asks.pending(session_id=self.id))
        if is_same(state, self._state):
            return
        self._state = state
        self.emit(InfoChanged(state=state))
        self.announce()

    def announce(self) -> None:
        """Tell subscribers of the daemon that this session's summary has changed."""
        self._announcer.session_changed(self.id, self.summary)

    # --- clients ---

    def attach(self, client: Client, after_seq: int | None) -> Reply:
        """Watch this session: the answer, and after it every event above its `seq`, exactly once."""
        self.touch()
        self.journal.flush()
        can_replay = after_seq is not None and self.journal.can_replay(after_seq)
        cursor = after_seq if can_replay and after_seq is not None else self.journal.shown_seq
        snapshot = None if can_replay else self._snapshot(reset=after_seq is not None)
        start = client.watch(self.journal, cursor, lambda: self._detached(client))
        is_new = client not in self._attached
        self._attached[client] = None
        result = SessionAttachResult(
            info=self.info(),
            seq=cursor,
            snapshot=snapshot,
            turn=turn_info(self.run, self.running),
            queued=[TurnInfo(turn_id=each.turn_id, state="queued", by=speaker(each.by)) for each in self.queue],
            asks=self._asks.pending(session_id=self.id),
            clients=[each.actor for each in self._attached],
        )
        if is_new and self.run.is_persisted:
            self._presence.arrived(client.identity, client.actor)
        return Reply(result, start)

    def detach_all(self) -> None:
        """The session ends: give everybody what they are owed, and no more after that."""
        self.journal.flush()
        for client in list(self._attached):
            client.finish_watching(self.id)
        self._presence.close()

    def can_be_asked(self) -> bool:
        """Whether somebody is attached who can approve."""
        return any(client.can.approve for client in self._attached)

    # --- settings ---

    def rename(self, title: str) -> None:
        self.run.set_name(title)
        self.emit(InfoChanged(title=title))
        self.announce()

    def set_option(self, option: str, value: str, by: Actor) -> None:
        """Raises `InvalidParams`."""
        session_config.apply(self.run, option, value)
        self.emit(ConfigChanged(option=option, value=value, by=by))

    def touch(self) -> None:
        """Note that somebody uses the session: it isn't unloaded for a while."""
        self.last_used = time.monotonic()

    # --- views ---

    def info(self) -> SessionInfo:
        record = self.run.record
        return info_of(
            record,
            state=self._state,
            mode=self.run.mode,
            pending_asks=len(self._asks.pending(session_id=self.id)),
            messages=record.messages or len(self.run.transcript),
            created_at=record.created_at or self._created_at,
            ephemeral=self.is_ephemeral,
            models=self.run.known_models,
        )

    def summary(self) -> SessionSummary:
        record = self.run.record
        return SessionSummary(
            session_id=self.id,
            workspace=self.root,
            title=self.title,
            state=self._state.kind,
            updated_at=timestamp(record.updated_at or self._created_at),
            pending_asks=len(self._asks.pending(session_id=self.id)),
        )

    # --- below ---

    def _snapshot(self, *, reset: bool) -> SessionSnapshot:
        newest = history.page(
            self.run.transcript,
            cursor=None,
            direction="before",
            limit=SNAPSHOT_ITEMS,
            completed=self.painting.completed,
        )
        return SessionSnapshot(
            items=newest.items,
            previous_cursor=newest.before_cursor,
            partial=self.painting.partial(self.run.transcript),
            reset=reset,
        )

    def _detached(self, client: Client) -> None:
        if client in self._attached:
            del self._attached[client]
            self.touch()
            self._presence.left(client.identity)
            self.on_departure()
