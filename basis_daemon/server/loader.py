"""Making sessions live: new ones, ones from disk, and ones whose workspace was opened again (DM-15).

Owns how a run, its journal and its settings come together. Every session is minted through a workspace, which states
its audience and its policy. Which sessions are live is the hub's.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable

from basis_daemon.errors import InvalidInput, NoSuchSession, WorkspaceClosed
from basis_daemon.server import session_config
from basis_daemon.server.announcer import Announcer
from basis_daemon.server.archive import Archive
from basis_daemon.server.asks import AskBook
from basis_daemon.server.error_map import InvalidParams
from basis_daemon.server.journal import Journal
from basis_daemon.server.recovery import close_open_turn
from basis_daemon.server.session import LiveSession
from basis_daemon.server.workspaces import Workspaces
from basis_daemon.workspace.run import PreparedRun, pinned_provider
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
        config = dict(params.config)
        provider = config.pop("provider", None)

        async def mint(source: Workspace) -> PreparedRun:
            spec = RunSpec(session_name=params.title or DEFAULT_NAME)
            return source.prepare(spec, agent_id=params.session_id, ephemeral=params.ephemeral)

        workspace, run = await self._minted(params.workspace, provider, mint)
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
        workspace, run = await self._minted(record.base_dir, pinned_provider(record), self._resuming(session_id))
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
        before.close()
        try:
            workspace, run = await self._minted(session.root, before.pinned_provider, self._resuming(session.id))
        except BaseException:
            # Its lease is gone: nothing more is accepted here, and the next sweep lets go of it.
            session.is_ending = True
            raise
        run.take_over(before)
        session.run, session.workspace = run, workspace

    def _resuming(self, session_id: str) -> Callable[[Workspace], Awaitable[PreparedRun]]:
        return lambda source: asyncio.to_thread(source.resume, session_id)

    async def _minted(
        self, path: str, provider: str | None, mint: Callable[[Workspace], Awaitable[PreparedRun]]
    ) -> tuple[Workspace, PreparedRun]:
        """A run of the current workspace of `path`. One that is replaced meanwhile — another editor has just opened the
        directory with another environment — is closed, and what took its place is asked."""
        while True:
            workspace = await self._workspaces.get(path)
            try:
                return workspace, await mint(await _with_provider(workspace, provider))
            except WorkspaceClosed:
                if self._workspaces.current(str(workspace.root)) is workspace:
                    raise

    async def _require_free(self, session_id: str) -> None:
        if not _ID.match(session_id):
            raise InvalidParams(
                "sessionId: 1 to 128 of A-Z a-z 0-9 . _ -, not starting with a dot or x-", field="sessionId"
            )
        if await self._archive.record(session_id) is not None:
            raise InvalidInput(f"there is a session {session_id!r} already", hint="attach to it, or choose another id")


async def _with_provider(workspace: Workspace, provider: str | None) -> Workspace:
    return workspace if provider is None else await workspace.using(provider)
