"""Opened directories, one current `Workspace` a canonical root (DM-3, DM-4).

Owns the cache, single-flight opening and which environment snapshot is in force. A workspace is a snapshot of files and
environment: every open looks again, and replaces the current one only if something has changed. Sessions minted from
the old one use the new one from their next turn on.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from basis_daemon.errors import BasisError
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.server.announcer import Announcer
from basis_daemon.server.error_map import InvalidParams
from basis_daemon.server.work import Work
from basis_daemon.workspace.builder import WorkspaceBuilder
from basis_daemon.workspace.credential_store import CredentialStore
from basis_daemon.workspace.credentials import Keychain
from basis_daemon.workspace.discovery import canonical_root, resolved_or_given
from basis_daemon.workspace.model_catalogue import ModelCatalogue
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.lifecycle import WorkspaceSummary

PER_TERMINAL = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "COLUMNS", "LINES", "WINDOWID", "DISPLAY", "GPG_TTY", "STY"})
PER_TERMINAL_PREFIXES = ("TERM", "TMUX", "XDG_SESSION_", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "VSCODE_", "NVIM")
"""Variables that differ between two windows of one person and say nothing about how commands should run: they neither
make a new snapshot nor are passed on."""


class Workspaces:
    """The daemon's workspaces. `overlay` finds unsaved editor text; `socket` is told to every command."""

    def __init__(
        self,
        runtime: Callable[[], Runtime],
        *,
        work: Work,
        announcer: Announcer,
        socket: str,
        overlay: Callable[[Path], str | None],
        credentials: CredentialStore | None = None,
        fallback: Mapping[str, str] | None = None,
        catalogue: ModelCatalogue | None = None,
    ) -> None:
        """`credentials` are the keys a person has stored, `fallback` the ones of this process's own environment;
        `catalogue` keeps what providers tell of their models."""
        self._runtime = runtime
        self._work = work
        self._announcer = announcer
        self._socket = socket
        self._overlay = overlay
        self._credentials = credentials
        self._fallback = fallback
        self._catalogue = catalogue or ModelCatalogue()
        self._senders: dict[str, str | None] = {}
        self._current: dict[str, Workspace] = {}
        self._snapshots: dict[str, Mapping[str, str] | None] = {}
        self._opening: dict[tuple[str, frozenset[tuple[str, str]] | None], asyncio.Future[Workspace]] = {}

    # --- looking ---

    def current(self, root: str) -> Workspace | None:
        return self._current.get(root)

    def list(self) -> list[Workspace]:
        return list(self._current.values())

    def has_snapshot(self, root: str) -> bool:
        """Whether a client has sent its environment for this root since the daemon started."""
        return self._snapshots.get(root) is not None

    def bare_keychain(self) -> Keychain:
        """Where keys are looked for without any client's environment."""
        return Keychain(store=self._credentials, fallback=self._fallback or {})

    # --- opening ---

    async def open(
        self, path: str, environment: Mapping[str, str] | None = None, *, sender: str | None = None
    ) -> Workspace:
        """Open `path` as it is now. Without an environment the snapshot in force is kept; with none ever sent, commands
        get a bare one and only stored keys and the daemon's own are found. `sender` is whose environment it is.
        Concurrent equal calls share one opening, and its failure.

        Raises `InvalidParams` for a relative path (DM-8), `ContextError`, `ConfigError`, `StoreError`.
        """
        root = await asyncio.to_thread(canonical_root, require_absolute(path))
        snapshot = self._snapshots.get(str(root)) if environment is None else _lasting(environment)
        sender = self._senders.get(str(root)) if environment is None else sender
        key = (str(root), frozenset(snapshot.items()) if snapshot is not None else None)
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = asyncio.get_running_loop().create_future()
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._work.start(self._open(root, snapshot, sender, key, opening), name=f"opening {root}")
        return await asyncio.shield(opening)

    async def get(self, path: str) -> Workspace:
        """The current workspace of `path`, opened if it is not. Raises as `open` does."""
        current = self._current.get(path)
        return current if current is not None else await self.open(require_absolute(path, "workspace"))

    async def reload(self, path: str) -> Workspace:
        """Open `path` anew and make that current whatever has changed."""
        root = await asyncio.to_thread(canonical_root, require_absolute(path))
        self._current.pop(str(root), None)
        return await self.open(str(root))

    async def credentials_changed(self) -> None:
        """A key was stored or forgotten. Requests look for theirs anew by themselves; what is decided by whether there
        is one — a provider, the reason why there is none — is decided anew here, and sessions follow with their next
        turn. One that can't be opened any more stays as it was."""
        for root, workspace in list(self._current.items()):
            snapshot, sender = self._snapshots.get(root), self._senders.get(root)
            try:
                opened = await self._built(Path(root), snapshot, sender)
            except BasisError:
                continue
            if self._current.get(root) is workspace:
                await self._make_current(opened, snapshot, sender)
            else:  # it was closed meanwhile, or somebody opened it with what is known now
                await opened.aclose()

    async def close(self, path: str) -> None:
        """Let go of a workspace. Conversations minted from it go on (LC-2). One that isn't open is fine."""
        root = str(await asyncio.to_thread(resolved_or_given, require_absolute(path)))
        workspace = self._current.pop(root, None)
        self._snapshots.pop(root, None)
        self._senders.pop(root, None)
        if workspace is not None:
            self._announcer.workspace_closed(summary_of(workspace))
            await workspace.aclose()

    async def aclose(self) -> None:
        for workspace in self.list():
            await workspace.aclose()
        self._current.clear()

    # --- below ---

    async def _open(
        self,
        root: Path,
        snapshot: Mapping[str, str] | None,
        sender: str | None,
        key: tuple[str, frozenset[tuple[str, str]] | None],
        opening: "asyncio.Future[Workspace]",
    ) -> None:
        try:
            opened = await self._built(root, snapshot, sender)
            opening.set_result(await self._adopt(opened, snapshot, sender))
        except asyncio.CancelledError:
            opening.cancel()
            raise
        except Exception as error:
            opening.set_exception(error)
        finally:
            del self._opening[key]

    async def _built(self, root: Path, snapshot: Mapping[str, str] | None, sender: str | None) -> Workspace:
        runtime = await asyncio.to_thread(self._runtime)
        return await (
            WorkspaceBuilder(root)
            .with_runtime(runtime)
            .with_environment(snapshot, sender=sender)
            .with_credentials(self._credentials, fallback=self._fallback)
            .with_socket(self._socket)
            .with_overlay(self._overlay)
            .with_catalogue(self._catalogue)
            .open()
        )

    async def _adopt(self, opened: Workspace, snapshot: Mapping[str, str] | None, sender: str | None) -> Workspace:
        """Make `opened` the current one, unless the current one says the same."""
        root = str(opened.root)
        current = self._current.get(root)
        if current is not None and self._snapshots.get(root) == snapshot and _is_same(current, opened):
            await opened.aclose()
            return current
        return await self._make_current(opened, snapshot, sender)

    async def _make_current(
        self, opened: Workspace, snapshot: Mapping[str, str] | None, sender: str | None
    ) -> Workspace:
        root = str(opened.root)
        current = self._current.get(root)
        self._current[root] = opened
        self._snapshots[root], self._senders[root] = snapshot, sender
        self._announcer.workspace_opened(summary_of(opened))
        if opened.uses_network:
            # The first prompt is about to come: let it find the HTTP library loaded.
            self._work.start(opened.runtime.providers.warm(), name="loading the HTTP library")
        if current is not None:
            await current.aclose()
        return opened


def require_absolute(path: str, field: str = "path") -> str:
    """Raises `InvalidParams` for `field`: the daemon's own directory means nothing to a client (DM-8)."""
    if not os.path.isabs(path):
        raise InvalidParams(f"{field}: must be absolute, not {path!r}", field=field)
    return path


def summary_of(workspace: Workspace, clients: int = 0) -> WorkspaceSummary:
    return WorkspaceSummary(
        path=str(workspace.root),
        provider=workspace.provider or None,
        model=workspace.model or None,
        clients=clients,
    )


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name not in PER_TERMINAL and not name.startswith(PER_TERMINAL_PREFIXES)
    }


def _is_same(current: Workspace, opened: Workspace) -> bool:
    """Whether two openings of one directory came to the same. A way to a model that failed is always tried again."""
    return (
        current.setup_error is None
        and opened.setup_error is None
        and current.provider == opened.provider
        and current.config == opened.config
        and current.context == opened.context
        and current.notices == opened.notices
        and current.prices == opened.prices
    )
