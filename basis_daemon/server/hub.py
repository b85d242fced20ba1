"""Which conversations are live, and the way to all others (architecture.md 4, DM-13 to DM-19).

Owns the live sessions: one that is asked for is loaded, one that nobody uses is let go, one that is deleted is ended
first. A live session holds its conversation's lease. What a session does is `session.py`'s and `turns.py`'s.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.errors import Busy, InvalidInput
from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.runtime.transcript import Transcript
from basis_daemon.server.announcer import Announcer
from basis_daemon.server.archive import Archive
from basis_daemon.server.ask_files import AskRecord
from basis_daemon.server.asks import AskBook
from basis_daemon.server.loader import Loader
from basis_daemon.server.runtime_source import RuntimeSource
from basis_daemon.server.session import LiveSession
from basis_daemon.server.turn_runner import TurnRunner
from basis_daemon.server.turns import Turns
from basis_daemon.server.unfinished import Unfinished
from basis_daemon.server.work import Work
from basis_daemon.server.workspaces import Workspaces
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


@dataclass(frozen=True, slots=True)
class Live:
    """A live session and what runs its turns."""

    session: LiveSession
    turns: Turns


class Hub:
    """The live sessions. `archive` has all that are on disk, live or not."""

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
        self.asks = AskBook(asks_directory, work, on_opened=self._ask_opened, on_closed=self._ask_closed)
        self.archive = Archive(runtime)
        self.is_stopping = False
        """Set when the daemon begins to end: no prompt is accepted any more."""
        self._loader = Loader(archive=self.archive, workspaces=workspaces, asks=self.asks, announcer=announcer)
        self._workspaces = workspaces
        self._work = work
        self._announcer = announcer
        self._unfinished = unfinished
        self._live: dict[str, Live] = {}
        self._loading: dict[str, asyncio.Future[Live]] = {}
        self._awaiting_workspace: dict[str, tuple[str, str]] = {}

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
        """A session, loaded if it isn't live; concurrent calls load it once. Raises as `Loader.load` does."""
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
        """A conversation to read: the live one, else as it is on disk. Raises `NoSuchSession`."""
        live = self._live.get(session_id)
        return live.session.run.transcript if live else (await self.archive.conversation(session_id)).transcript

    async def records(self, identifier: str | None) -> list[AgentRecord]:
        """The conversations on disk of one workspace, or of all; live ones as they are now."""
        records = {record.id: record for record in await self.archive.records(identifier)}
        for session in self.live:
            if session.id in records and session.run.is_persisted:
                records[session.id] = session.run.record
        return list(records.values())

    # --- making and ending ---

    async def new(self, params: SessionNewParams) -> LiveSession:
        """A conversation. Raises as `Loader.new` does."""
        if params.session_id in self._live:
            raise InvalidInput(f"there is a session {params.session_id!r} already", hint="attach to it")
        session = await self._loader.new(params)
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

    async def carry_on_in(self, root: str) -> None:
        """A client has opened `root` with its environment: go on with turns that were answered but lacked it."""
        for session_id, (waiting_root, turn_id) in list(self._awaiting_workspace.items()):
            if waiting_root == root:
                del self._awaiting_workspace[session_id]
                (await self.get(session_id)).turns.carry_on(turn_id)

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

    # --- below ---

    async def _load(self, session_id: str, loading: "asyncio.Future[Live]") -> None:
        try:
            live = self._adopt(await self._loader.load(session_id))
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
        asks, work, unfinished = self.asks, self._work, self._unfinished
        runner = TurnRunner(session, asks=asks, work=work, unfinished=unfinished, renew=self._loader.renew)
        turns = Turns(
            session,
            runner,
            asks=asks,
            work=work,
            unfinished=unfinished,
            is_daemon_stopping=lambda: self.is_stopping,
        )
        live = self._live[session.id] = Live(session, turns)
        session.announce()
        return live

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
        await self.archive.forget(session_id)
        await self.asks.forget_session(session_id)
        await asyncio.to_thread(self._unfinished.remove, session_id)
        self._awaiting_workspace.pop(session_id, None)

    async def _sweep(self) -> None:
        """Let go of what nobody uses, and deny asks whose time is up."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            try:
                for ask_id in self.asks.expired():
                    await self.asks.close(ask_id, "nobody answered in time", withdrawn=False)
                self.unload_idle(time.monotonic())
            except Exception:
                log.exception("a sweep failed; the next one tries again")

    # --- asks ---

    def _ask_opened(self, ask: Ask) -> None:
        self._announcer.ask_opened(ask)
        live = self._live.get(ask.session_id)
        if live is not None:
            live.session.emit(AskOpened(ask=ask))
            live.session.refresh_state()

    def _ask_closed(self, record: AskRecord) -> None:
        decided = record.decided
        assert decided is not None
        self._announcer.ask_closed(record.ask, decided.by)
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
        if not record.withdrawn and session.running is None and session.run.interrupted is not None:
            self._carry_on(live, record.turn_id)

    def _carry_on(self, live: Live, turn_id: str) -> None:
        """Go on with an interrupted turn whose question was answered, or as soon as its model can be reached."""
        session = live.session
        workspace = session.workspace
        reaches_model = workspace.setup_error is None and workspace.provider == session.run.record.provider
        if reaches_model or self._workspaces.has_snapshot(session.root):
            live.turns.carry_on(turn_id)
        else:
            # After a restart nobody has sent a key yet: the answer is kept, and the turn goes on once somebody has.
            log.info("an answered turn waits for its workspace to be opened", extra={"session": session.id})
            self._awaiting_workspace[session.id] = (session.root, turn_id)
