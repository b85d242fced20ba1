"""Making sessions live: new ones, ones from disk, and ones whose workspace was opened again (DM-15).

Owns how a run, its journal and its settings come together. Every session is minted through a workspace, which states
its audience and its policy. Which sessions are live is the hub's.
"""

import asyncio
import re

from basis_daemon.errors import InvalidInput, NoSuchSession
from basis_daemon.server import session_config
from basis_daemon.server.announcer import Announcer
from basis_daemon.server.archive import Archive
from basis_daemon.server.asks import AskBook
from basis_daemon.server.error_map import InvalidParams
from basis_daemon.server.journal import Journal
from basis_daemon.server.recovery import close_open_turn
from basis_daemon.server.session import LiveSession
from basis_daemon.server.workspaces import Workspaces
from basis_daemon.workspace.run import pinned_provider
from basis_daemon.workspace.spec import DEFAULT_NAME, RunSpec
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.sessions import SessionNewParams

_ID = re.compile(r"(?![xX]-)[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}\Z")


class Loader:
    """Makes live sessions; keeps none."""

    def __init__(self, *, archive: Archive, workspaces: Workspaces, asks: AskBook, announcer: Announcer) -> None:
        self._archive = archive
        self._workspaces = workspaces
        self._asks = asks
        self._announcer = announcer

    async def new(self, params: SessionNewParams) -> LiveSession:
        """A conversation that nothing is written of before its first prompt.

        Raises `InvalidParams` for an id or option that can't be, what opening the workspace raises, and the reason why
        no model can be reached, if none can.
        """
        if params.session_id is not None:
            await self._require_free(params.session_id)
        workspace = await self._workspaces.get(params.workspace)
        config = dict(params.config)
        provider = config.pop("provider", None)
        run = (await _with_provider(workspace, provider)).prepare(
            RunSpec(session_name=params.title or DEFAULT_NAME),
            agent_id=params.session_id,
            ephemeral=params.ephemeral,
        )
        if provider is not None:
            run.pin_provider(provider)
        for option, value in config.items():
            session_config.apply(run, option, value)
        return LiveSession(
            run,
            workspace,
            Journal(run.agent_id),
            asks=self._asks,
            announcer=self._announcer,
            ephemeral=params.ephemeral,
        )

    async def load(self, session_id: str) -> LiveSession:
        """A conversation from disk, leased.

        Raises `NoSuchSession`, `LeaseUnavailable`, `CorruptStore`, and what opening its workspace raises.
        """
        record = await self._archive.record(session_id)
        if record is None:
            raise NoSuchSession(session_id)
        workspace = await self._workspaces.get(record.base_dir)
        source = await _with_provider(workspace, pinned_provider(record))
        run = await asyncio.to_thread(source.resume, session_id)
        try:
            directory = run.directory
            assert directory is not None, "a conversation from disk has a directory"
            journal = await asyncio.to_thread(Journal.recover, session_id, directory)
            run.mode = await asyncio.to_thread(session_config.load, directory)
            await close_open_turn(journal, run.interrupted)
        except BaseException:
            run.close()
            raise
        return LiveSession(run, workspace, journal, asks=self._asks, announcer=self._announcer)

    async def renew(self, session: LiveSession) -> None:
        """Mint a session's run anew if its workspace has been opened again since. Between turns only.

        Raises what resuming raises; the session can't go on then and has to be loaded afresh.
        """
        current = self._workspaces.current(session.root)
        if current is None or current is session.workspace or not session.run.is_persisted or session.is_ephemeral:
            return
        before = session.run
        source = await _with_provider(current, before.pinned_provider)
        before.close()
        try:
            run = await asyncio.to_thread(source.resume, session.id)
        except BaseException:
            # Its lease is gone: nothing more is accepted here, and the next sweep lets go of it.
            session.is_ending = True
            raise
        run.take_over(before)
        session.run, session.workspace = run, current

    async def _require_free(self, session_id: str) -> None:
        if not _ID.match(session_id):
            raise InvalidParams(
                "sessionId: 1 to 128 of A-Z a-z 0-9 . _ -, not starting with a dot or x-", field="sessionId"
            )
        if await self._archive.record(session_id) is not None:
            raise InvalidInput(f"there is a session {session_id!r} already", hint="attach to it, or choose another id")


async def _with_provider(workspace: Workspace, provider: str | None) -> Workspace:
    return workspace if provider is None else await workspace.using(provider)
