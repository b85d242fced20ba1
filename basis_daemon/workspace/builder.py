"""Opening a directory: the knobs, and the order in which everything happens (workspace.md 1.3, 1.4).

Owns OP-1…OP-7. What is read from disk is read before anything is registered, so a malformed file changes nothing; what
fails or is cancelled later gives back what was registered before.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import anyio

from basis_daemon.errors import ProviderSetupError
from basis_daemon.paths import config_dir
from basis_daemon.redact import Secret
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.prices import PriceList
from basis_daemon.runtime.providers.definition import WireName
from basis_daemon.runtime.runtime import ProviderSettings, Runtime, RuntimeBuilder
from basis_daemon.runtime.tools.base import Tool
from basis_daemon.workspace.agents_md import ContextConfig, WorkspaceContext, discover_context
from basis_daemon.workspace.approval import ApprovalGate
from basis_daemon.workspace.config import Config, discover_config
from basis_daemon.workspace.connecting import connect
from basis_daemon.workspace.connection import Connection
from basis_daemon.workspace.credential_store import CredentialStore
from basis_daemon.workspace.credentials import Keychain
from basis_daemon.workspace.discovery import GlobalDir, Inherit, Source, canonical_root, chosen_global_dir
from basis_daemon.workspace.environment import command_environment, minimal_environment
from basis_daemon.workspace.host_tools import held
from basis_daemon.workspace.local_servers import LocalServers
from basis_daemon.workspace.minting import Opened
from basis_daemon.workspace.model_catalogue import ModelCatalogue
from basis_daemon.workspace.price_files import discover_prices
from basis_daemon.workspace.prompt import Append, SystemPrompt, system_prompt
from basis_daemon.workspace.provider_names import provider_id
from basis_daemon.workspace.roster import ToolRoster
from basis_daemon.workspace.skills import SkillHold, SkillsConfig, discover_skill_roots
from basis_daemon.workspace.spawn import SpawnTool
from basis_daemon.workspace.store import identifier_of
from basis_daemon.workspace.workspace import Workspace

Environment = Mapping[str, str] | Literal["process"] | None
"""A snapshot, this process's own environment as it is when the workspace opens, or none."""


@dataclass(frozen=True, slots=True, repr=False)
class WorkspaceBuilder:
    """How to open one directory. Frozen: every `with_*` returns a new builder, so half a one may be kept (0.3.3)."""

    path: str | os.PathLike[str]
    runtime: Runtime | RuntimeBuilder = field(default_factory=RuntimeBuilder)
    environment: Environment = "process"
    sender: str | None = None
    credentials: CredentialStore | None = None
    fallback: Mapping[str, str] = field(default_factory=dict[str, str])
    global_dir: GlobalDir = Inherit.GLOBAL_DIR
    config: Config | None = None
    context: ContextConfig = field(default_factory=ContextConfig)
    skills: SkillsConfig = field(default_factory=SkillsConfig)
    settings: ProviderSettings = field(default_factory=ProviderSettings)
    shell: bool = True
    prompt: SystemPrompt | None = None
    roster: ToolRoster = field(default_factory=ToolRoster)
    tools: tuple[Tool, ...] = ()
    socket: str | None = None
    models_dir: Path | None = None
    catalogue: ModelCatalogue | None = None
    overlay: Callable[[Path], str | None] = lambda path: None

    def __repr__(self) -> str:
        """The path and the tools' names: never an environment, a key or a prompt."""
        names = [tool.spec.name for tool in self.tools]
        return f"WorkspaceBuilder(path={os.fspath(self.path)!r}, shell={self.shell}, tools={names!r})"

    def with_runtime(self, runtime: Runtime) -> "WorkspaceBuilder":
        """Open on a shared runtime, which outlives the workspace."""
        return replace(self, runtime=runtime)

    def with_runtime_builder(self, builder: RuntimeBuilder) -> "WorkspaceBuilder":
        """Open on a runtime of its own, built from `builder` and closed with the workspace."""
        return replace(self, runtime=builder)

    def with_environment(
        self, environment: Mapping[str, str] | None, *, sender: str | None = None
    ) -> "WorkspaceBuilder":
        """Use this snapshot for commands, credentials and `${VAR}`; `None` if the client sent none (protocol.md 6).
        `sender` is named where a key of it is refused."""
        return replace(self, environment=None if environment is None else dict(environment), sender=sender)

    def with_credentials(
        self, store: CredentialStore | None, *, fallback: Mapping[str, str] | None = None
    ) -> "WorkspaceBuilder":
        """Look for keys in `store` ahead of the environment, and in `fallback`, another environment, behind it. By
        default only the environment is looked at."""
        return replace(self, credentials=store, fallback=dict(fallback or {}))

    def with_socket(self, socket: str | os.PathLike[str]) -> "WorkspaceBuilder":
        """Tell commands where the daemon is reached (`BASIS_SOCKET`)."""
        return replace(self, socket=os.fspath(socket))

    def with_global_dir(self, directory: Path | None) -> "WorkspaceBuilder":
        """The person's global configuration directory; `None` is none. By default the environment says."""
        return replace(self, global_dir=directory)

    def with_config(self, config: Config) -> "WorkspaceBuilder":
        """Use these settings instead of the config files; an empty `Config()` switches them off."""
        return replace(self, config=config)

    def with_context(self, context: ContextConfig) -> "WorkspaceBuilder":
        return replace(self, context=context)

    def with_skills(self, skills: SkillsConfig) -> "WorkspaceBuilder":
        """Where skills are looked for (workspace.md 2.3)."""
        return replace(self, skills=skills)

    def without_discovery(self) -> "WorkspaceBuilder":
        """Look for no convention on disk. What is given explicitly still holds."""
        disabled = ContextConfig.disabled()
        return replace(self, config=self.config or Config(), context=disabled, skills=SkillsConfig.disabled())

    def with_model(self, model: str) -> "WorkspaceBuilder":
        """Use this model, whatever the files say."""
        return replace(self, settings=replace(self.settings, model=model))

    def with_provider(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        wire: WireName | None = None,
    ) -> "WorkspaceBuilder":
        """Use this provider, whatever the runtime and the files say; also the id of an instance the runtime was given.
        What is not said here is looked up as usual."""
        key = Secret(api_key) if api_key is not None else None
        said = ProviderSettings(name, key, base_url, wire, self.settings.model)
        return replace(self, settings=said)

    def with_shell(self, allowed: bool) -> "WorkspaceBuilder":
        """Whether commands may be run (GT-4)."""
        return replace(self, shell=allowed)

    def with_system_prompt(self, prompt: SystemPrompt | str) -> "WorkspaceBuilder":
        """Add to the system prompt, or replace what the repository says in it (CX-8, CX-9)."""
        return replace(self, prompt=Append(prompt) if isinstance(prompt, str) else prompt)

    def with_tool(self, tool: Tool) -> "WorkspaceBuilder":
        """A native tool for this workspace only (SH-22)."""
        return replace(self, tools=(*self.tools, tool))

    def with_tool_roster(self, roster: ToolRoster) -> "WorkspaceBuilder":
        return replace(self, roster=roster)

    def with_models_dir(self, directory: Path) -> "WorkspaceBuilder":
        """Where `basisctl pocket install` puts models; by default `<data>/models`."""
        return replace(self, models_dir=directory)

    def with_catalogue(self, catalogue: ModelCatalogue) -> "WorkspaceBuilder":
        """Share what providers tell of their models with other workspaces; by default each keeps its own."""
        return replace(self, catalogue=catalogue)

    def with_overlay(self, overlay: Callable[[Path], str | None]) -> "WorkspaceBuilder":
        """Where unsaved text of a file is asked for, by canonical path; tools read it instead of the disk's."""
        return replace(self, overlay=overlay)

    async def open(self) -> Workspace:
        """Open the directory. Fast and without network; a missing key is no error here (`Workspace.setup_error`).

        Raises `ContextError`, `ConfigError`, `SkillLoadError`, `HostToolRefused`, and `StoreError` for a runtime of its
        own whose store can't be used. Whatever it raises, and when it is cancelled, everything is as it was before
        (OP-3, OP-7).
        """
        found = await asyncio.to_thread(self._discover)
        async with AsyncExitStack() as undo:
            runtime = await self._acquire(undo)
            opened = await self._assemble(found, runtime, undo)
            return Workspace(replace(opened, holds=undo.pop_all()))

    def _discover(self) -> "_Found":
        """Everything that is read from disk (OP-1 steps 1 and 2). Blocking; touches no runtime (OP-2)."""
        root = canonical_root(self.path)
        snapshot = _snapshot(self.environment)
        global_dir = chosen_global_dir(self.global_dir, config_dir(snapshot))
        context = discover_context(root, self.context, global_dir=global_dir)
        config = self.config
        if config is None:
            config = discover_config(root, global_dir=global_dir, environment=snapshot)
        prices, remarks = discover_prices(global_dir)
        return _Found(
            root,
            snapshot,
            context,
            config,
            prices,
            remarks,
            RuntimePolicy.workspace_bounded(root, allow_shell=self.shell),
            discover_skill_roots(root, self.skills, global_dir=global_dir, environment=snapshot),
        )

    async def _acquire(self, undo: AsyncExitStack) -> Runtime:
        """The shared runtime, or one of the workspace's own that ends with it (RT-8)."""
        if isinstance(self.runtime, Runtime):
            return self.runtime
        parts = self.runtime
        if parts.authorizer is None:
            # Its conversations bring a gate of their own; whoever else uses this runtime is asked, too (AP-25).
            parts = parts.with_tool_authorizer(ApprovalGate())
        # Cancelled meanwhile, the runtime is simply dropped: one that was just built holds nothing yet.
        runtime = await asyncio.to_thread(parts.build)
        undo.push_async_callback(_close, runtime)
        return runtime

    async def _assemble(self, found: "_Found", runtime: Runtime, undo: AsyncExitStack) -> Opened:
        """Resolve the provider and register what the workspace adds (OP-1 steps 6 to 9)."""
        root, config = found.root, found.config
        keychain = Keychain(found.snapshot, self.sender, self.credentials, self.fallback)
        catalogue = self.catalogue or ModelCatalogue()
        connection, notices = await connect(
            runtime, self.settings, config, keychain, models_dir=self.models_dir, catalogue=catalogue
        )
        if connection.is_local:
            with suppress(ProviderSetupError):  # a turn will say so
                await connection.resolve()
        _furnish(runtime)
        hold = SkillHold(runtime.skill_table, [each.path for each in found.skill_roots])
        undo.callback(hold.release)
        skills = await asyncio.to_thread(hold.take)
        undo.enter_context(held(runtime.registry, self.tools, identifier_of(root)))
        return Opened(
            root=root,
            runtime=runtime,
            config=config,
            context=found.context,
            connection=connection,
            policy=found.policy,
            roster=self.roster,
            environment=command_environment(found.snapshot, socket=self.socket),
            system=system_prompt(found.context, self.prompt),
            skills_dirs=tuple(each.path for each in found.skill_roots),
            skills=skills,
            host_tools=tuple(tool.spec.name for tool in self.tools),
            notices=(*notices, *found.remarks),
            prices=found.prices,
            overlay=self.overlay,
            servers=LocalServers(found.snapshot),
            keychain=keychain,
            catalogue=catalogue,
            connect_to=partial(self._connect_to, runtime, config, keychain, catalogue),
            holds=undo,
        )

    async def _connect_to(
        self, runtime: Runtime, config: Config, keychain: Keychain, catalogue: ModelCatalogue, provider: str
    ) -> tuple[Connection, list[str]]:
        """The way to `provider` with this workspace's credentials. A configured model or base URL belongs to the
        configured one."""
        if config.provider is None or provider_id(config.provider.value) != provider_id(provider):
            if config.provider is not None:
                config = replace(config, base_url=None, wire=None)
            config = replace(config, model=None, provider=None)
        settings = ProviderSettings(provider=provider)
        return await connect(runtime, settings, config, keychain, models_dir=self.models_dir, catalogue=catalogue)


@dataclass(frozen=True, slots=True)
class _Found:
    root: Path
    snapshot: Mapping[str, str]
    context: WorkspaceContext
    config: Config
    prices: PriceList
    remarks: list[str]
    policy: RuntimePolicy
    skill_roots: list[Source]


def _snapshot(wanted: Environment) -> Mapping[str, str]:
    """The environment everything of the workspace goes by. May look the account up: blocking."""
    if wanted == "process":
        return dict(os.environ)
    return minimal_environment() if wanted is None else wanted


def _furnish(runtime: Runtime) -> None:
    """Give the runtime the one tool that is this layer's. The first workspace on it does; it stays for the others."""
    spawn = SpawnTool()
    if runtime.registry.resolve(spawn.spec.name, audience=None) is None:
        runtime.registry.register(spawn)


async def _close(runtime: Runtime) -> None:
    """Close a private runtime, also when what went before was cancelled (OP-7)."""
    with anyio.CancelScope(shield=True):
        await runtime.aclose()
