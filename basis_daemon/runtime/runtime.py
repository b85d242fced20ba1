"""The runtime a program makes: its builder, and the conversations it has without any workspace (runtime.md 1).

Owns what an embedder sees first. The parts behind it, and how a session is made of them, are `shared_parts.py`'s.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from basis_daemon.errors import BasisError, NoSuchSession, ProviderNotFound, UsageError
from basis_daemon.processes import LocalExecutor
from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.agent_handle import AgentHandle
from basis_daemon.runtime.hooks.table import HookTable
from basis_daemon.runtime.host_environment import HostEnvironment, detect_environment
from basis_daemon.runtime.observers import Observers
from basis_daemon.runtime.permissions import Unguarded
from basis_daemon.runtime.providers.base import ModelInfo, Provider
from basis_daemon.runtime.providers.registry import ProviderRegistry
from basis_daemon.runtime.providers.rehearsal import RehearsalProvider
from basis_daemon.runtime.runtime_parts import DefinedProvider, RuntimeParts
from basis_daemon.runtime.runtime_parts import ProviderSettings as ProviderSettings
from basis_daemon.runtime.sessions import Session, SessionOptions
from basis_daemon.runtime.shared_parts import SharedParts
from basis_daemon.runtime.shared_parts import new_agent_id as new_agent_id
from basis_daemon.runtime.skills import SkillTable
from basis_daemon.runtime.store.audit import audit_for
from basis_daemon.runtime.store.base import AgentRecord, Store
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.store.volatile import VolatileStore
from basis_daemon.runtime.tools.app_context import AppContext
from basis_daemon.runtime.tools.builtin import file_tools, runtime_tools
from basis_daemon.runtime.tools.registry import ToolRegistry
from basis_protocol.address import data_dir


@dataclass(frozen=True, slots=True)
class Resumed:
    """The conversations that go on, and why others could not, by their ids (RT-23)."""

    agents: list[AgentHandle]
    failures: dict[str, BasisError]


class Runtime(SharedParts):
    """Where agents live. One serves any number of them, and of workspaces, at once."""

    @staticmethod
    def builder() -> "RuntimeBuilder":
        """The configurable way to make one, with the tools everybody needs (RT-1); see `RuntimeBuilder`."""
        return RuntimeBuilder()

    @staticmethod
    def empty_builder() -> "RuntimeBuilder":
        """The same without any tool or provider that was not asked for (RT-1)."""
        return RuntimeBuilder(has_builtins=False, file_profile="none")

    @staticmethod
    def detect_environment() -> HostEnvironment:
        """What kind of place this process runs in; changes nothing (RT-17)."""
        return detect_environment()

    def spawn(
        self, name: str = "agent", model: ModelInfo | str | None = None, config: AgentConfig | None = None
    ) -> AgentHandle:
        """A new conversation, for a program of its own. Nothing is written before its first prompt (RT-19).

        `model` may be an id at the default provider; unset is the builder's `with_model`. Raises `ProviderNotFound`,
        and `UsageError` when no model is named.
        """
        config = config or AgentConfig()
        chosen = self._model(model)
        base_dir = config.base_dir or _here()
        options = self._options(config, self._require_provider(chosen.provider), chosen, base_dir)
        return self._handle(self.create_session(replace(options, name=name, effort=config.effort)), config, base_dir)

    async def resume_agent(self, agent_id: str, config: AgentConfig | None = None) -> AgentHandle:
        """A stored conversation, carried on; what its config said and is not stored has to be said again (RT-28).

        Raises `NoSuchSession`, `LeaseUnavailable`, `CorruptStore`, and `ProviderNotFound` for a provider that is not
        here.
        """
        record = await asyncio.to_thread(self.store.record, agent_id)
        if record is None:
            raise NoSuchSession(agent_id)
        return await self._resume(record, config or AgentConfig())

    async def resume(self, identifier: str | None = None, config: AgentConfig | None = None) -> "Resumed":
        """Every conversation of that tag, else of this runtime's own. One that can't be had keeps nobody from the
        others: it is reported (RT-23)."""
        records = await self.list_agents(identifier)
        return await self._resume_each(records, config or AgentConfig())

    async def resume_all(self, config: AgentConfig | None = None) -> "Resumed":
        """`resume`, whatever their tags."""
        records = await asyncio.to_thread(self.store.list, None)
        return await self._resume_each(records, config or AgentConfig())

    async def list_agents(self, identifier: str | None = None) -> Sequence[AgentRecord]:
        """What is stored under that tag, else this runtime's own, most recently used first. Takes no lease and reads no
        transcript (RT-24)."""
        return await asyncio.to_thread(self.store.list, identifier if identifier is not None else self.identifier)

    async def delete_agent(self, agent_id: str) -> None:
        """Remove a conversation for good; one that isn't there is fine (RT-25). Raises `LeaseUnavailable` for an open
        one: close it first."""
        await asyncio.to_thread(self.store.forget, agent_id)

    def _handle(self, session: Session, config: AgentConfig, base_dir: Path) -> AgentHandle:
        return AgentHandle(session, config, base_dir=base_dir, provider=self._require_provider)

    async def _resume_each(self, records: Sequence[AgentRecord], config: AgentConfig) -> "Resumed":
        agents, failures = list[AgentHandle](), dict[str, BasisError]()
        for record in records:
            if record.kind != "conversation":
                continue
            try:
                agents.append(await self._resume(record, config))
            except BasisError as error:
                failures[record.id] = error
        return Resumed(agents, failures)

    async def _resume(self, record: AgentRecord, config: AgentConfig) -> AgentHandle:
        provider = self._require_provider(record.provider)
        base_dir = config.base_dir or Path(record.base_dir)
        config = replace(config, runtime_identifier=config.runtime_identifier or record.runtime_identifier)
        # What is known of the model was its provider's to tell; it is asked again when a model is set (RT-22).
        options = self._options(config, provider, ModelInfo(record.model, provider.id), base_dir)
        session = await asyncio.to_thread(self.resume_session, record.id, options)
        if config.effort is not None:
            session.agent.record = msgspec.structs.replace(session.agent.record, effort=config.effort)
        return self._handle(session, config, base_dir)

    def _options(self, config: AgentConfig, provider: Provider, model: ModelInfo, base_dir: Path) -> SessionOptions:
        return SessionOptions(
            runtime_identifier=config.runtime_identifier or self.identifier,
            base_dir=base_dir,
            provider=provider,
            model=model,
            policy=config.policy or self.policy,
            authorizer=config.authorizer or self.authorizer or Unguarded(),
            environment=config.environment or {},
            roster=config.tools,
            audience=config.audience,
            project_id=config.project_id,
            paging=config.tool_result_paging,
            hide_denied_tools=config.hide_denied_tools,
            system=config.system,
            request_options=config.request_options,
            pricing=config.pricing,
            keep_subagents=config.keep_subagents,
        )

    def _model(self, model: ModelInfo | str | None) -> ModelInfo:
        if isinstance(model, ModelInfo):
            return model
        name = model or self.defaults.model
        if name is None:
            raise UsageError("no model is named", hint="name one, or ask `resolve_model` for the newest")
        return ModelInfo(name, self.default_provider.id)


@dataclass(frozen=True, slots=True)
class RuntimeBuilder(RuntimeParts):
    """Collects what a runtime is made of."""

    def build(self) -> Runtime:
        """Make the runtime. No network, no model resolution, nothing on disk but what `Store.prepare` checks (RT-1).

        Raises `ProviderNotFound` without any provider (RT-4), `StoreError` for a place that can't be used, and
        `UsageError` for a tool name given twice, and `SkillLoadError` kinds for skills that can't be used.
        """
        providers = ProviderRegistry()
        embedded = (RehearsalProvider(),) if self.has_builtins else ()
        for instance in (*self.instances, *embedded):
            made = isinstance(instance, DefinedProvider)
            providers.register(providers.make(instance.definition, instance.credentials) if made else instance)
        if not providers.registered:
            raise ProviderNotFound("a runtime needs a provider", hint="`with_provider` names a known one")
        registry = ToolRegistry()
        intrinsics = runtime_tools() if self.has_builtins else ()
        for tool in (*file_tools(self.file_profile), *intrinsics, *self.tools):
            registry.register(tool)
        skills = SkillTable()
        skills.register(self.skills_dirs)
        # The last thing that can fail, and the only one that touches anything (RT-6, RT-39).
        store = _store(self.store)
        store.prepare()
        observers = Observers(self.observers, audit_for(store.root))
        observers.notify("recovery_prepared")
        return Runtime(
            store=store,
            registry=registry,
            providers=providers,
            executor=self.executor or LocalExecutor(),
            defaults=self.settings,
            request_options=self.request_options,
            policy=self.policy,
            authorizer=self.authorizer,
            identifier=self.runtime_identifier,
            context=AppContext(*self.context),
            hooks=HookTable(self.hooks),
            observers=observers,
            skills=skills,
        )

    async def build_async(self) -> Runtime:
        """`build` for a program whose loop runs already: a store on disk is looked at in a thread (RT-3). Cancelled, it
        leaves nothing open (RT-39)."""
        return await asyncio.to_thread(self.build)


def _here() -> Path:
    return Path.cwd()


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
