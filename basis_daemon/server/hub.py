"""Every conversation of the daemon: found, loaded, listed, unloaded, deleted (architecture.md 4, DM-13 to DM-19).

Owns which sessions are live. A live session holds its conversation's lease; one that nobody uses is let go and loaded
again when asked for. What a session does is `session.py`'s and `turns.py`'s.
"""

import asyncio
import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.errors import Busy, InvalidInput, NoSuchSession
from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.runtime.store.results import Page, ResultStore
from basis_daemon.runtime.transcript import Transcript
from basis_daemon.server import session_config
from basis_daemon.server.announcer import Announcer
from basis_daemon.server.ask_files import AskRecord
from basis_daemon.server.asks import AskBook
from basis_daemon.server.error_map import InvalidParams
from basis_daemon.server.journal import Journal
from basis_daemon.server.recovery import close_open_turn
from basis_daemon.server.runtime_source import RuntimeSource
from basis_daemon.server.session import LiveSession
from basis_daemon.server.turns import Turns
from basis_daemon.server.unfinished import Unfinished
from basis_daemon.server.work import Work
from basis_daemon.server.workspaces import Workspaces
from basis_daemon.workspace.spec import DEFAULT_NAME, RunSpec
from basis_protocol.asks import Ask
from basis_protocol.events import AskClosed, AskOpened, InfoChanged, SessionState
from basis_protocol.sessions import SessionNewParams

log = logging.getLogger(__name__)

RELEASE_AFTER_S = 60.0
"""Seconds after which an idle session keeps its events on disk only."""

UNLOAD_AFTER_S = 600.0
"""Seconds after which a session that nobody watches or uses is let go."""

SWEEP_EVERY_S = 15.0
ENDING_TIMEOUT_S = 5.0
"""Seconds a turn is given to end before its session goes (each for stopping and for cancelling)."""

_ID = re.compile(r"(?![xX]-)[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}\Z")


@dataclass(frozen=True, slots=True)
class Live:
    """A live session and what runs its turns."""

    session: LiveSession
    turns: Turns


class Hub:
    """The live sessions, and the way to all others."""

    def __init__(
        self,
        *,
        runtime: RuntimeSource,
        workspaces: Workspaces,
        work: Work,
        announcer: Announcer,
        asks_directory: Path,
        unfinished: Unfinished,
    ) -> None:
        self._runtime = runtime
        self._workspaces = workspaces
        self._work = work
        self._announcer = announcer
        self._unfinished = unfinished
        self.asks = AskBook(asks_directory, work, on_opened=self._ask_opened, on_closed=self._ask_closed)
        self._live: dict[str, Live] = {}
        self._loading: dict[str, asyncio.Future[Live]] = {}
        self._awaiting_workspace: dict[str, tuple[str, str]] = {}
        self.is_stopping = False
        """Set when the daemon begins to end: no prompt is accepted any more."""

    async def start(self) -> None:
        """Take up what an earlier daemon left on disk."""
        await self.asks.load()
        await asyncio.to_thread(self._unfinished.load)
        self._work.start(self._sweep(), name="sweeping")

    # --- finding ---

    @property
    def live(self) -> list[LiveSession]:
        return [each.session for each in self._live.values()]

    @property
    def unfinished_ids(self) -> frozenset[str]:
        """Conversations with something left to do, live or not."""
        return frozenset(self._unfinished.ids)

    def find(self, session_id: str) -> Live | None:
        """A live session."""
        return self._live.get(session_id)

    async def get(self, session_id: str) -> Live:
        """A session, loaded if it isn't live. Concurrent calls load it once.

        Raises `NoSuchSession`, `LeaseUnavailable`, `CorruptStore`, and what opening its workspace raises.
        """
        live = self._live.get(session_id)
        if live is not None:
            live.session.touch()
            return live
        loading = self._loading.get(session_id)
        if loading is None:
            loading = self._loading[session_id] = asyncio.get_running_loop().create_future()
            loading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._work.start(self._load(session_id, loading), name=f"loading {session_id}")
        return await asyncio.shield(loading)

    async def transcript(self, session_id: str) -> Transcript:
        """A conversation to read: the live one, else as it is on disk, without opening anything."""
        live = self._live.get(session_id)
        if live is not None:
            return live.session.run.transcript
        return (await asyncio.to_thread(self._runtime.get().store.peek, session_id)).transcript

    async def records(self, identifier: str | None) -> list[AgentRecord]:
        """The conversations on disk of one workspace, or of all; live ones as they are now."""
        listed = await asyncio.to_thread(lambda: self._runtime.get().store.list(identifier))
        records = {record.id: record for record in listed if record.kind == "conversation"}
        for session in self.live:
            if session.id in records and session.run.is_persisted:
                records[session.id] = session.run.record
        return list(records.values())

    async def tool_result(self, result_id: str, offset: int, limit: int) -> Page:
        """A page of a tool result kept in full. Its id names its session. Raises `InvalidInput`, `StoreError`."""
        session_id, _, inner = result_id.rpartition("/")
        return await asyncio.to_thread(
            lambda: ResultStore(lambda: self._runtime.get().store.directory(session_id)).page(inner, offset, limit)
        )

    # --- making and ending ---

    async def new(self, params: SessionNewParams) -> LiveSession:
        """A conversation. Nothing is written before its first prompt. Raises what opening the workspace raises, and the
        reason why no model can be reached, if none can."""
        if params.session_id is not None:
            await self._require_free(params.session_id)
        workspace = await self._workspaces.get(params.workspace)
        run = workspace.prepare(
            RunSpec(session_name=params.title or DEFAULT_NAME),
            agent_id=params.session_id,
            ephemeral=params.ephemeral,
        )
        for option, value in params.config.items():
            session_config.apply(run, option, value)
        session = LiveSession(
            run,
            workspace,
            Journal(run.agent_id),
            asks=self.asks,
            announcer=self._announcer,
            ephemeral=params.ephemeral,
        )
        self._adopt(session)
        return session

    async def close(self, session_id: str) -> None:
        """Unload a session; it stays on disk, unless it is ephemeral. One that isn't live is fine.

        Raises `Busy` while a turn runs or waits.
        """
        live = self._live.get(session_id)
        if live is None:
            return
        if live.session.is_busy:
            raise Busy("a turn is running", hint="cancel or stop it first")
        await self._work.run(self._end(live, "closed"))

    async def delete(self, session_id: str) -> None:
        """Remove a conversation for good, ending what it does first (DM-13). An absent one is fine.

        Raises `LeaseUnavailable` when another process has it.
        """
        await self._work.run(self._delete(session_id))

    async def finish_turns(self, *, now: bool, timeout_s: float) -> None:
        """Bring every turn to an end: at its round boundary, or at once."""
        await asyncio.gather(*(live.turns.finish(now=now, timeout_s=timeout_s) for live in self._live.values()))

    def let_go(self) -> None:
        """Write what is not written and give the leases back. Asks stay pending, interrupted turns can be resumed."""
        for live in self._live.values():
            live.session.journal.flush()
            live.session.run.close()

    # --- workspaces ---

    async def carry_on_in(self, root: str) -> None:
        """A client has opened `root` with its environment: go on with turns that were answered but lacked it."""
        for session_id, (waiting_root, turn_id) in list(self._awaiting_workspace.items()):
            if waiting_root == root:
                del self._awaiting_workspace[session_id]
                live = await self.get(session_id)
                await self._renew(live.session)
                live.turns.carry_on(turn_id)

    # --- loading, below ---

    async def _load(self, session_id: str, loading: "asyncio.Future[Live]") -> None:
        try:
            store = self._runtime.get().store
            record = await asyncio.to_thread(store.record, session_id)
            if record is None:
                raise NoSuchSession(session_id)
            workspace = await self._workspaces.get(record.base_dir)
            run = await asyncio.to_thread(workspace.resume, session_id)
            try:
                directory = run.directory
                assert directory is not None, "a stored conversation has a directory"
                journal = await asyncio.to_thread(Journal.recover, session_id, directory)
                run.mode = await asyncio.to_thread(session_config.load, directory)
                await close_open_turn(journal, run.interrupted)
            except BaseException:
                run.close()
                raise
            session = LiveSession(run, workspace, journal, asks=self.asks, announcer=self._announcer)
            live = self._adopt(session)
            await live.turns.recover()
            loading.set_result(live)
        except asyncio.CancelledError:
            loading.cancel()
            raise
        except Exception as error:
            loading.set_exception(error)
        finally:
            del self._loading[session_id]

    def _adopt(self, session: LiveSession) -> Live:
        turns = Turns(
            session,
            asks=self.asks,
            work=self._work,
            unfinished=self._unfinished,
            renew=self._renew,
            is_daemon_stopping=lambda: self.is_stopping,
        )
        live = self._live[session.id] = Live(session, turns)
        session.announce()
        return live

    async def _renew(self, session: LiveSession) -> None:
        """Mint the session's run anew if its workspace has been opened again since. Between turns only."""
        current = self._workspaces.current(session.root)
        if current is None or current is session.workspace or not session.run.is_persisted or session.is_ephemeral:
            return
        before = session.run
        before.close()
        try:
            run = await asyncio.to_thread(current.resume, session.id)
        except BaseException:
            # Its lease is gone: nothing more is accepted here, and the next sweep lets it be loaded afresh.
            session.is_ending = True
            raise
        run.take_over(before)
        session.run, session.workspace = run, current

    async def _require_free(self, session_id: str) -> None:
        if not _ID.match(session_id):
            raise InvalidParams(
                "sessionId: 1 to 128 of A-Z a-z 0-9 . _ -, not starting with a dot or x-", field="sessionId"
            )
        is_stored = await asyncio.to_thread(self._runtime.get().store.record, session_id) is not None
        if is_stored or session_id in self._live:
            raise InvalidInput(f"there is a session {session_id!r} already", hint="attach to it, or choose another id")

    # --- ending, below ---

    async def _end(self, live: Live, why: str) -> None:
        """Bring a session's work to an end and forget it. Whoever watches it is told and let go."""
        session = live.session
        session.is_ending = True
        await live.turns.finish(now=True, timeout_s=ENDING_TIMEOUT_S)
        session.emit(InfoChanged(state=SessionState(kind="ended", since=session.state.since, detail=why)))
        self._forget(live)

    def _forget(self, live: Live) -> None:
        session = live.session
        session.detach_all()
        session.journal.release()
        session.run.close()
        self._live.pop(session.id, None)
        self._announcer.session_removed(session.id)

    async def _delete(self, session_id: str) -> None:
        live = self._live.get(session_id)
        if live is not None:
            await self._end(live, "deleted")
        await asyncio.to_thread(self._runtime.get().store.forget, session_id)
        await self.asks.forget_session(session_id)
        await asyncio.to_thread(self._unfinished.remove, session_id)
        self._awaiting_workspace.pop(session_id, None)

    async def _sweep(self) -> None:
        """Let go of what nobody uses, and deny asks whose time is up."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            for ask_id in self.asks.expired():
                await self.asks.close(ask_id, "nobody answered in time", withdrawn=False)
            self.unload_idle(time.monotonic())

    def unload_idle(self, now: float) -> None:
        """Release or unload sessions by how long they have not been used, as of `now` (monotonic seconds)."""
        for live in list(self._live.values()):
            session = live.session
            idle_s = now - session.last_used
            if session.is_busy or live.turns.is_working:
                continue
            if session.is_ending or (idle_s > UNLOAD_AFTER_S and not session.is_watched):
                self._forget(live)
            elif idle_s > RELEASE_AFTER_S:
                session.journal.release()

    # --- asks, below ---

    def _ask_opened(self, ask: Ask) -> None:
        self._announcer.ask_opened(ask)
        live = self._live.get(ask.session_id)
        if live is not None:
            live.session.emit(AskOpened(ask=ask))
            live.session.refresh_state()

    def _ask_closed(self, record: AskRecord) -> None:
        self._announcer.ask_closed(record.ask)
        live = self._live.get(record.ask.session_id)
        if live is not None:
            self._tell_closed(live, record)
        elif not record.withdrawn:
            self._work.start(self._load_and_tell(record), name="carrying an answered turn on")

    async def _load_and_tell(self, record: AskRecord) -> None:
        self._tell_closed(await self.get(record.ask.session_id), record)

    def _tell_closed(self, live: Live, record: AskRecord) -> None:
        decided = record.decided
        assert decided is not None
        session = live.session
        session.emit(
            AskClosed(
                ask_id=record.ask.ask_id,
                by=decided.by,
                decision=decided.decision,
                scope=decided.scope,
                reason=decided.reason,
            )
        )
        session.refresh_state()
        if not record.withdrawn:
            self._carry_on(live, record.turn_id)

    def _carry_on(self, live: Live, turn_id: str) -> None:
        session = live.session
        if session.run.interrupted is None or session.running is not None:
            return
        workspace = session.workspace
        reaches_model = workspace.setup_error is None and workspace.provider == session.run.record.provider
        if reaches_model or self._workspaces.has_snapshot(session.root):
            live.turns.carry_on(turn_id)
        else:
            # After a restart nobody has sent a key yet: the answer is kept, and the turn goes on once somebody has.
            log.info("an answered turn waits for its workspace to be opened", extra={"session": session.id})
            self._awaiting_workspace[session.id] = (session.root, turn_id)
