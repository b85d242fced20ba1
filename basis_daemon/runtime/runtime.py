"""What one process shares: providers, store, tools, executor. Mints and resumes sessions (runtime.md 1).

Owns the parts, once each, and their end. Knows no repository and no client.
"""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from basis_daemon.errors import ProviderNotFound, ProviderSessionScopeIdentityMismatch
from basis_daemon.processes import Executor, LocalExecutor
from basis_daemon.redact import Secret
from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.permissions import SessionAnswers
from basis_daemon.runtime.providers.base import ModelInfo, Provider, RequestOptions, ResponsesTransport
from basis_daemon.runtime.providers.definition import WireName
from basis_daemon.runtime.providers.registry import ProviderRegistry
from basis_daemon.runtime.providers.rehearsal import RehearsalProvider
from basis_daemon.runtime.providers.selection import NEWEST_AVAILABLE, ModelSelector, select
from basis_daemon.runtime.sessions import Session, SessionOptions
from basis_daemon.runtime.store.base import AgentRecord, Store
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.store.results import ResultStore
from basis_daemon.runtime.store.volatile import VolatileStore
from basis_daemon.runtime.subagents import SessionNursery
from basis_daemon.runtime.tool_host import ToolHost
from basis_daemon.runtime.tools.base import Tool
from basis_daemon.runtime.tools.builtin import FileToolProfile, file_tools
from basis_daemon.runtime.tools.ledger import ReadLedger
from basis_daemon.runtime.tools.registry import ToolRegistry
from basis_daemon.runtime.tools.task import TaskTool
from basis_daemon.runtime.turn import Inbox
from basis_protocol.address import data_dir

_counter = count(1)


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What a host says about how models are reached. Everything may be left open."""

    provider: str | None = None
    api_key: Secret | None = None
    base_url: str | None = None
    wire: WireName | None = None
    model: str | None = None


class Runtime:
    """Process-wide parts of the agent runtime. Safe for use by many workspaces at once (RT-5)."""

    def __init__(
        self,
        *,
        store: Store,
        registry: ToolRegistry,
        providers: ProviderRegistry,
        executor: Executor,
        defaults: "ProviderSettings",
        request_options: RequestOptions | None = None,
    ) -> None:
        self.store = store
        self.registry = registry
        self.providers = providers
        self.executor = executor
        self.defaults = defaults
        """What the host said about provider and model; workspaces resolve the rest (workspace.md 3)."""
        self.request_options = request_options or RequestOptions()
        """What is asked of particular providers for every session that says nothing else."""
        self.inboxes: list[Inbox] = []
        """Where things are left for its agents between their rounds; looked into by every session."""

    @staticmethod
    def builder() -> "RuntimeBuilder":
        """The configurable way to make one; see `RuntimeBuilder`."""
        return RuntimeBuilder()

    def create_session(self, options: SessionOptions) -> Session:
        """A new conversation. Nothing is written before its first accepted prompt."""
        return self._create(options, None)

    def _create(self, options: SessionOptions, answers: SessionAnswers | None) -> Session:
        record = AgentRecord(
            id=options.agent_id or new_agent_id(),
            runtime_identifier=options.runtime_identifier,
            name=options.name,
            base_dir=str(options.base_dir),
            provider=options.provider.id,
            model=options.model.id,
            effort=options.effort,
            kind="conversation" if options.parent is None else "subagent",
            parent=options.parent,
        )
        return self._session(Agent(self.store, record, None, None), options, answers)

    def resume_session(self, agent_id: str, options: SessionOptions) -> Session:
        """A stored conversation, carried on under these options. Synchronous file work: use a thread.

        Its record keeps what it had — model, effort, name — but for the identifier, which is stated anew and written at
        the next save (ST-12). Raises `NoSuchSession`, `LeaseUnavailable`, `CorruptStore`.
        """
        loaded, log = self.store.open(agent_id)
        record = msgspec.structs.replace(loaded.record, runtime_identifier=options.runtime_identifier)
        return self._session(Agent(self.store, record, loaded, log), options)

    def _session(self, agent: Agent, options: SessionOptions, answers: SessionAnswers | None = None) -> Session:
        if options.request_options is None:
            options = replace(options, request_options=self.request_options)
        host = ToolHost(
            registry=self.registry,
            audience=options.audience,
            roster=options.roster,
            working_directory=options.base_dir,
            policy=options.policy,
            executor=self.executor,
            environment=options.environment,
            overlay=options.overlay,
            files=ReadLedger(),
            results=ResultStore(lambda: agent.directory),
            agent_id=agent.id,
        )
        return Session(agent, options, host, nursery=self._nursery, answers=answers, inboxes=self.inboxes)

    def _nursery(self, parent: Session) -> SessionNursery:
        return SessionNursery(parent, create=self._create, provider=self.providers.by_id, forget=self.store.forget)

    def fresh_provider_session_scope(self, provider: str) -> Provider:
        """A conversation of its own with the provider of that id, on its shared connections; opens nothing (RT-14).

        Raises `ProviderNotFound`, and `ProviderSessionScopeIdentityMismatch` for a provider whose scope says it is
        another.
        """
        found = self.providers.by_id(provider)
        if found is None:
            raise ProviderNotFound(f"this runtime has no provider {provider!r}", hint="register it, or name another")
        scope = found.scope()
        if scope.id != found.id:
            raise ProviderSessionScopeIdentityMismatch(f"the scope of provider {found.id!r} calls itself {scope.id!r}")
        return scope

    async def resolve_model(self, provider: str, selector: ModelSelector = NEWEST_AVAILABLE) -> ModelInfo:
        """The model meant at the provider of that id (RT-29, RT-30). Raises `ProviderNotFound` ahead of all traffic
        (RT-31), and as `select` does."""
        found = self.providers.by_id(provider)
        if found is None:
            raise ProviderNotFound(f"this runtime has no provider {provider!r}", hint="register it, or name another")
        return await select(found, selector)

    async def aclose(self) -> None:
        """End what the runtime itself owns: connections, what commands have left running, and the store's thread once
        everything is synced. Idempotent. Sessions are closed by who made them."""
        async with AsyncExitStack() as ending:
            ending.push_async_callback(asyncio.to_thread, self.store.close)
            if isinstance(self.executor, LocalExecutor):
                ending.push_async_callback(self.executor.processes.end_all)
            ending.push_async_callback(self.providers.aclose)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@dataclass(frozen=True, slots=True)
class RuntimeBuilder:
    """Collects what a runtime is made of. Frozen: every `with_*` returns a new builder (0.3.3)."""

    settings: ProviderSettings = ProviderSettings()
    store: Store | Path | Literal["memory"] | None = None
    executor: Executor | None = None
    instances: tuple[Provider, ...] = ()
    tools: tuple[Tool, ...] = ()
    file_profile: FileToolProfile = "split"
    request_options: RequestOptions | None = None

    def with_provider(self, name: str) -> "RuntimeBuilder":
        """Name the provider: `openai`, `openrouter`, `ollama`, `lmstudio`, `rehearsal`, `pocket`."""
        return replace(self, settings=replace(self.settings, provider=name))

    def with_api_key(self, key: str) -> "RuntimeBuilder":
        """The credential for the provider or base URL named."""
        return replace(self, settings=replace(self.settings, api_key=Secret(key)))

    def with_base_url(self, url: str) -> "RuntimeBuilder":
        """A compatible endpoint."""
        return replace(self, settings=replace(self.settings, base_url=url))

    def with_wire(self, wire: WireName) -> "RuntimeBuilder":
        """The wire a base URL is spoken to in; `chat_completions` unless said."""
        return replace(self, settings=replace(self.settings, wire=wire))

    def with_model(self, model: str) -> "RuntimeBuilder":
        """The model to use where a workspace doesn't say."""
        return replace(self, settings=replace(self.settings, model=model))

    def with_request_options(self, options: RequestOptions) -> "RuntimeBuilder":
        """What is asked of particular providers, for every session that says nothing else (2.4)."""
        return replace(self, request_options=options)

    def with_responses_transport(self, transport: ResponsesTransport) -> "RuntimeBuilder":
        """How the Responses wire is spoken. A provider that can't fails its requests; nothing falls back (PV-39)."""
        options = self.request_options or RequestOptions()
        return self.with_request_options(replace(options, responses=replace(options.responses, transport=transport)))

    def with_provider_instance(self, provider: Provider) -> "RuntimeBuilder":
        """A ready-made provider, chosen by its id."""
        return replace(self, instances=(*self.instances, provider))

    def with_store(self, store: Store) -> "RuntimeBuilder":
        return replace(self, store=store)

    def with_store_dir(self, directory: Path) -> "RuntimeBuilder":
        """Keep conversations in this directory: it is the store's root (ST-2)."""
        return replace(self, store=directory)

    def with_ephemeral_history(self) -> "RuntimeBuilder":
        """Keep conversations in memory only (ST-19)."""
        return replace(self, store="memory")

    def with_executor(self, executor: Executor) -> "RuntimeBuilder":
        """Run commands through this instead of the local shell; there is no fallback."""
        return replace(self, executor=executor)

    def with_tool(self, tool: Tool) -> "RuntimeBuilder":
        """A host tool for every workspace."""
        return replace(self, tools=(*self.tools, tool))

    def with_file_tools(self, profile: FileToolProfile) -> "RuntimeBuilder":
        """Which file tools there are: exactly those of the profile (C-17). `split` unless said."""
        return replace(self, file_profile=profile)

    def build(self) -> Runtime:
        """Make the runtime. No network, no model resolution, nothing on disk but what `Store.prepare` checks (RT-1).

        Raises `StoreError` for a place that can't be used and `UsageError` for a tool name given twice.
        """
        store = _store(self.store)
        store.prepare()
        registry = ToolRegistry()
        for tool in (*file_tools(self.file_profile), TaskTool(), *self.tools):
            registry.register(tool)
        providers = ProviderRegistry()
        for instance in (RehearsalProvider(), *self.instances):
            providers.register(instance)
        return Runtime(
            store=store,
            registry=registry,
            providers=providers,
            executor=self.executor or LocalExecutor(),
            defaults=self.settings,
            request_options=self.request_options,
        )


def _store(wanted: Store | Path | Literal["memory"] | None) -> Store:
    """A store given as it is; otherwise one of this runtime's own, made now, so that two builds don't share it."""
    match wanted:
        case None:
            return FileStore(data_dir() / "store")
        case Path():
            return FileStore(wanted)
        case "memory":
            return VolatileStore()
        case _:
            return wanted


def new_agent_id() -> str:
    """`agent-<nanoseconds hex>-<counter and random hex>`, unique across processes sharing a store (RT-20)."""
    return f"agent-{time.time_ns():x}-{next(_counter):x}{os.urandom(4).hex()}"
