"""One opened repository: what it says about itself, its way to a model, and the runs minted from it (workspace.md 9).

Owns the accessors and the lifetime. How it came to be opened is `builder.py`'s, what a session is told `minting.py`'s;
everything it reports is a snapshot of the moment it was opened (DI-1).
"""

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from basis_daemon.errors import NoSuchSession, ProviderSetupError, WorkspaceClosed
from basis_daemon.runtime.prices import PriceList
from basis_daemon.runtime.providers.base import ModelInfo
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.runtime.store.volatile import VolatileStore
from basis_daemon.workspace import minting
from basis_daemon.workspace.agents_md import WorkspaceContext
from basis_daemon.workspace.config import Config
from basis_daemon.workspace.credentials import Keychain
from basis_daemon.workspace.minting import Opened
from basis_daemon.workspace.model_catalogue import Listing
from basis_daemon.workspace.provider_names import EMBEDDED
from basis_daemon.workspace.reachable import listings
from basis_daemon.workspace.run import PreparedRun
from basis_daemon.workspace.skills import LoadedSkill
from basis_daemon.workspace.spec import RunSpec
from basis_protocol.events import ContextFile

if TYPE_CHECKING:
    from basis_daemon.workspace.builder import WorkspaceBuilder


class Workspace:
    """A ready-to-use directory. Safe to share between tasks; `prepare` and `resume` need no lock (WS-2).

    An async context manager; `aclose` is idempotent and doesn't end runs already minted (LC-2).
    """

    def __init__(self, opened: Opened) -> None:
        """Not called directly: use `Workspace.open` or `Workspace.builder`."""
        self._opened = opened
        self._identifier = opened.identifier
        # For conversations nobody wants kept (ST-19).
        self._ephemeral = opened.runtime.with_store(VolatileStore())
        self._closed = False

    @classmethod
    async def open(cls, path: str | os.PathLike[str]) -> "Workspace":
        """Open `path` with everything found where convention puts it, on a runtime of its own (OP-6).

        Raises `ContextError`, `ConfigError`, `SkillLoadError`, `StoreError`. A missing key is no error: see
        `setup_error`.
        """
        return await cls.builder(path).open()

    @staticmethod
    def builder(path: str | os.PathLike[str]) -> "WorkspaceBuilder":
        """The configurable way to open `path`."""
        from basis_daemon.workspace.builder import WorkspaceBuilder

        return WorkspaceBuilder(path)

    def __repr__(self) -> str:
        """Where it is and what it uses; no content, no environment, not the runtime (WS-24)."""
        return (
            f"Workspace(root={str(self.root)!r}, provider={self.provider!r}, model={self.model!r}, "
            f"context={len(self.context.documents)}, config_files={len(self.config_files)}, "
            f"host_tools={self.host_tools!r}, closed={self._closed})"
        )

    # --- what opening it found ---------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The canonical directory: the one value header, policy and records share (9.3)."""
        return self._opened.root

    @property
    def path(self) -> Path:
        """Another name for `root` (WS-20)."""
        return self._opened.root

    @property
    def identifier(self) -> str:
        """`basis:<root>`: the tag of its conversations and the audience of its sessions (ST-5)."""
        return self._identifier

    @property
    def runtime(self) -> Runtime:
        """The runtime its runs are minted on; reaching past the workspace is supported."""
        return self._opened.runtime

    engine = runtime

    @property
    def provider(self) -> str:
        """Id of the provider in use, or of the one that was asked for and can't be used."""
        return self._opened.connection.provider.id

    @property
    def provider_label(self) -> str:
        """The provider as a person is shown it."""
        return self._opened.connection.provider.label

    @property
    def model(self) -> str:
        """Id of the model in use; empty until a provider that was not told one has been asked (`resolve_model`)."""
        model = self._opened.connection.model
        return model.id if model else ""

    @property
    def uses_network(self) -> bool:
        """Whether its provider is reached over HTTP: neither an embedded one nor one that can't be used."""
        return self.setup_error is None and self.provider not in EMBEDDED

    @property
    def setup_error(self) -> ProviderSetupError | None:
        """Why no model can be reached, when what was asked for can't be had. Opening again tries again (DM-1)."""
        return self._opened.connection.error

    @property
    def notices(self) -> list[str]:
        """Sentences for the person: what was decided for them, and how to decide otherwise."""
        return list(self._opened.notices)

    @property
    def environment(self) -> Mapping[str, str]:
        """What its commands are started with; holds no credential of a provider."""
        return self._opened.environment

    @property
    def keychain(self) -> Keychain:
        """Where its keys are looked for. Shows none by itself."""
        return self._opened.keychain

    @property
    def prices(self) -> PriceList:
        """What tokens cost, as far as it is known."""
        return self._opened.prices

    @property
    def context(self) -> WorkspaceContext:
        """The documents found, weakest first. Repository text: only for clients attached to this workspace (WS-31)."""
        return self._opened.context

    @property
    def context_files(self) -> list[ContextFile]:
        return self._opened.context.files

    @property
    def skills_dirs(self) -> list[Path]:
        """Its directories of skills, most specific first."""
        return list(self._opened.skills_dirs)

    @property
    def skills(self) -> list[LoadedSkill]:
        """What `load_skill` would have known when it was opened, by name: its own and those of its siblings on the
        runtime (SH-8)."""
        return list(self._opened.skills)

    @property
    def config(self) -> Config:
        """What config.json says, and which file said it (CF-7)."""
        return self._opened.config

    @property
    def config_files(self) -> list[ContextFile]:
        """The files that took effect, most specific first."""
        return list(self._opened.config.files)

    @property
    def host_tools(self) -> list[str]:
        """Names of the tools given with `with_tool`, in the order given (WS-22)."""
        return list(self._opened.host_tools)

    @property
    def tools(self) -> list[str]:
        """Names of the tools its runs are offered, sorted."""
        offered = self._opened.connection.provider.limits.tools
        names = (tool.spec.name for tool in self.runtime.registry.tools(self._identifier))
        return [name for name in names if self._opened.roster(name) and (offered is None or name in offered)]

    @property
    def allows_shell(self) -> bool:
        return self._opened.policy.allow_shell

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def resolve_model(self) -> ModelInfo:
        """The model in use, asking the provider when nobody named one. Raises `ProviderSetupError` kinds.

        A host may call this ahead of the first prompt, so that nobody waits for it then.
        """
        return await self._opened.connection.resolve()

    async def reachable_models(self, *, only: str | None = None, refresh: bool = False) -> list[Listing]:
        """The models of every provider within reach — its own, those it has keys of, local ones that run — or `only` of
        one. Answers are kept for some minutes. What goes wrong stands in the listing."""
        opened = self._opened
        return await listings(
            opened.catalogue, opened.runtime, opened.keychain, opened.connection, only=only, refresh=refresh
        )

    async def list_models(self) -> list[ModelInfo]:
        """The models its provider offers, asked for with its own credentials. Raises `BasisError` kinds."""
        return await self._opened.connection.provider.list_models()

    # --- runs --------------------------------------------------------------------------------------------------------

    def prepare(self, spec: RunSpec | str = "", *, agent_id: str | None = None, ephemeral: bool = False) -> PreparedRun:
        """Start a conversation. Nothing is written before its first accepted prompt; an ephemeral one never is.

        Raises `WorkspaceClosed`, and `setup_error` when there is one.
        """
        self._require_open()
        if self.setup_error is not None:
            raise self.setup_error.with_traceback(None)
        runtime = self._ephemeral if ephemeral else self.runtime
        return minting.mint(self._opened, runtime, RunSpec.of(spec), agent_id)

    def resume(self, agent_id: str, spec: RunSpec | str | None = None) -> PreparedRun:
        """Carry a stored conversation on. Synchronous file work: use a thread.

        Raises `NoSuchSession`, `LeaseUnavailable`, `CorruptStore`, `WorkspaceClosed`, and ahead of every effect
        `WorkspaceMismatch` for a conversation that took place elsewhere (WS-13). Having no provider is not raised here:
        the conversation can still be read, and a turn of it fails with the reason.
        """
        self._require_open()
        runtime, record = self._stored(agent_id)
        return minting.resume(self._opened, runtime, record, RunSpec.of(spec))

    async def using(self, provider: str) -> "Workspace":
        """This workspace with another provider, for conversations that ask for one. Nothing else differs, and it need
        not be closed. Raises `UnknownProvider`; a missing key is a `setup_error`, as ever."""
        connection, notices = await self._opened.connect_to(provider)
        return Workspace(replace(self._opened, connection=connection, notices=tuple(notices), holds=AsyncExitStack()))

    async def aclose(self) -> None:
        """Stop minting, give back what was registered, and let go of the runtime. Idempotent (LC-5)."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            await self._opened.holds.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # -----------------------------------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._closed:
            raise WorkspaceClosed(f"the workspace {self.root} is closed", hint="open it again")

    def _stored(self, agent_id: str) -> tuple[Runtime, AgentRecord]:
        """The runtime that has a conversation, and its record. Takes no lease."""
        for runtime in (self._ephemeral, self.runtime):
            record = runtime.store.record(agent_id)
            if record is not None:
                return runtime, record
        raise NoSuchSession(agent_id)
