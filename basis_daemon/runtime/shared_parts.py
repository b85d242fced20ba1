"""What one process shares: providers, store, tools, executor. Mints and resumes sessions (runtime.md 1).

Owns the parts, once each, and their end. Knows no repository and no client.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from copy import copy
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from basis_daemon.errors import ProviderNotFound, ProviderSessionScopeIdentityMismatch
from basis_daemon.processes import Executor, LocalExecutor
from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.background import BackgroundTasks
from basis_daemon.runtime.background_results import BackgroundInbox
from basis_daemon.runtime.hooks.table import HookTable
from basis_daemon.runtime.observers import Observers
from basis_daemon.runtime.permissions import Authorizer
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.base import ModelInfo, Provider, RequestOptions
from basis_daemon.runtime.providers.definition import CredentialSource, ProviderDefinition
from basis_daemon.runtime.providers.registry import ProviderRegistry
from basis_daemon.runtime.providers.selection import NEWEST_AVAILABLE, ModelSelector, listed, select
from basis_daemon.runtime.rules import RuleOwner, RuleStore
from basis_daemon.runtime.runtime_parts import ProviderSettings, credentials_of, preset
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.runtime.sessions import Session, SessionOptions
from basis_daemon.runtime.skills import SessionSkills, SkillInfo, SkillTable
from basis_daemon.runtime.store.audit import audit_for
from basis_daemon.runtime.store.base import AgentRecord, Store
from basis_daemon.runtime.store.results import ResultStore
from basis_daemon.runtime.subagents import SessionNursery
from basis_daemon.runtime.tool_host import ToolHost
from basis_daemon.runtime.tool_surface import ToolSurface
from basis_daemon.runtime.tools.app_context import AppContext
from basis_daemon.runtime.tools.ledger import ReadLedger
from basis_daemon.runtime.tools.load_skill import LoadSkillTool
from basis_daemon.runtime.tools.paging import Pager, ReadToolResult
from basis_daemon.runtime.tools.registry import ToolCollision, ToolGuard, ToolRegistry
from basis_daemon.runtime.turn import Inbox

_counter = count(1)

T = TypeVar("T")


class SharedParts(ToolSurface):
    """Process-wide parts of the agent runtime. Safe for use by many workspaces at once (RT-5)."""

    def __init__(
        self,
        *,
        store: Store,
        registry: ToolRegistry,
        providers: ProviderRegistry,
        executor: Executor,
        defaults: ProviderSettings,
        request_options: RequestOptions | None = None,
        policy: RuntimePolicy | None = None,
        authorizer: Authorizer | None = None,
        identifier: str = "default",
        context: AppContext | None = None,
        rules: RuleStore | None = None,
        skills: SkillTable | None = None,
        hooks: HookTable | None = None,
        observers: Observers | None = None,
    ) -> None:
        self.store = store
        self.rules = rules or store.rules
        """Remembered answers that outlive a conversation."""
        self.registry = registry
        self.providers = providers
        self.executor = executor
        self.defaults = defaults
        """What the host said about provider and model; workspaces resolve the rest (workspace.md 3)."""
        self.request_options = request_options or RequestOptions()
        """What is asked of particular providers for every session that says nothing else."""
        self.policy = policy or RuntimePolicy()
        """The hard limits of agents that bring none of their own."""
        self.authorizer = authorizer
        """Who judges the calls of agents that bring nobody; `None` lets run whatever the policy admits."""
        self.identifier = identifier
        """What this runtime's own agents are tagged with (RT-41)."""
        self.context = context or AppContext()
        """What the host gave for its tools; `ToolContext.app_context` finds it there."""
        self.hooks = hooks or HookTable()
        """Who judges calls besides the authorizer; more may be registered while it runs (TL-21)."""
        self.observers = observers or Observers()
        """Who is told of what happens, and the audit trail."""
        self.background = BackgroundTasks(executor)
        """Commands that are not waited for; they end with this runtime."""
        self.inboxes: list[Inbox] = [BackgroundInbox(self.background)]
        """Where things are left for its agents between their rounds; looked into by every session."""
        self.skill_table = skills or SkillTable()
        """The skills of all sessions, and who holds them."""
        self._skill_tool: ToolGuard | None = None
        self.skill_table.tell(self._offer_skills)

    def __repr__(self) -> str:
        """Names only (RT-42)."""
        providers = [provider.id for provider in self.providers.registered]
        return f"Runtime(identifier={self.identifier!r}, providers={providers!r}, store={str(self.store.root)!r})"

    # --- sessions ----------------------------------------------------------------------------------------------------

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
        pager = None if options.paging is None else Pager(options.paging)
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
            app=self.context,
            hooks=self.hooks,
            observers=self.observers,
            background=self.background,
            skills=SessionSkills(self.skill_table, options.skill_roots),
            pager=pager,
            hide_denied_tools=options.hide_denied_tools,
            is_teammate=agent.record.kind == "teammate",
            holds=() if pager is None else (self._offer_pages(agent.id, pager),),
        )
        answers = answers or SessionAnswers(self.rules, RuleOwner(agent.id, options.project_id))
        return Session(agent, options, host, nursery=self._nursery, answers=answers, inboxes=self.inboxes)

    def _offer_pages(self, agent_id: str, pager: Pager) -> ToolGuard:
        # A session that takes another's place is made before that one is closed.
        return self.registry.hold(ReadToolResult(pager), agent=agent_id, replace=True)

    def _nursery(self, parent: Session) -> SessionNursery:
        return SessionNursery(parent, create=self._create, provider=self.providers.by_id, forget=self.store.forget)

    # --- providers ---------------------------------------------------------------------------------------------------

    @property
    def default_provider(self) -> Provider:
        """The one the builder named, else the first there is (RT-7). Raises `ProviderNotFound`."""
        named = self.defaults.provider
        found = self.providers.by_id(named) if named else None
        for provider in (found, *self.providers.registered):
            if provider is not None:
                return provider
        raise ProviderNotFound("this runtime has no provider", hint="register one")

    def register_provider(
        self, provider: Provider | ProviderDefinition | str, api_key: str | CredentialSource | None = None
    ) -> Provider:
        """Have one more provider: ready-made, by its definition, or by the name of a known one (RT-13). It takes the
        place of one with its id (RT-12)."""
        if isinstance(provider, str):
            provider = preset(provider)
        if isinstance(provider, ProviderDefinition):
            provider = self.providers.make(provider, credentials_of(api_key))
        self.providers.register(provider)
        return provider

    def fresh_provider_session_scope(self, provider: str | None = None) -> Provider:
        """A conversation of its own with the provider of that id, on its shared connections; opens nothing (RT-14).

        Raises `ProviderNotFound`, and `ProviderSessionScopeIdentityMismatch` for a provider whose scope says it is
        another.
        """
        found = self._require_provider(provider)
        scope = found.scope()
        if scope.id != found.id:
            raise ProviderSessionScopeIdentityMismatch(f"the scope of provider {found.id!r} calls itself {scope.id!r}")
        return scope

    async def list_models(self, provider: str | None = None) -> Sequence[ModelInfo]:
        """What the provider of that id, else the default one, has on offer (RT-7). Raises `ProviderNotFound`,
        `FailedToListModels`."""
        return await listed(self._require_provider(provider))

    async def resolve_model(
        self, provider: str | None = None, selector: ModelSelector | str = NEWEST_AVAILABLE
    ) -> ModelInfo:
        """The model meant at the provider of that id, else the default one (RT-29, RT-30). Raises `ProviderNotFound`
        ahead of all traffic (RT-31), and as `select` does."""
        selector = ModelSelector(selector) if isinstance(selector, str) else selector
        return await select(self._require_provider(provider), selector)

    def _require_provider(self, id: str | None = None) -> Provider:
        if id is None:
            return self.default_provider
        found = self.providers.by_id(id)
        if found is None:
            raise ProviderNotFound(f"this runtime has no provider {id!r}", hint="register it, or name another")
        return found

    # --- tools -------------------------------------------------------------------------------------------------------

    def register_skills_dirs(self, *roots: str | os.PathLike[str]) -> None:
        """Have the skills below these directories, strongest first, behind those there are; one that is there is read
        again. All or none (SK-3). Blocking: use a thread. Raises `SkillLoadError` kinds."""
        self.skill_table.register(roots)

    def unregister_skills_dirs(self, *roots: str | os.PathLike[str]) -> bool:
        """Let go of skills; those they covered show again. Returns whether there was anything to let go (SK-4)."""
        return self.skill_table.unregister(roots)

    def skills(self) -> list[SkillInfo]:
        """What every skill's name means now, by name (SK-5)."""
        return self.skill_table.skills()

    def skill_body(self, name: str) -> str:
        """The text of any skill, whether or not a model may use it by itself (SK-6). Raises `UnknownSkill`."""
        return self.skill_table.body(name)

    def _offer_skills(self, has_roots: bool) -> None:
        """`load_skill` is there as long as there are skills (SK-4)."""
        if self._skill_tool is not None:
            self._skill_tool.unregister()
            self._skill_tool = None
        if has_roots:
            with suppress(ToolCollision):  # the host has a tool of that name, and its own idea of skills
                self._skill_tool = self.registry.hold(LoadSkillTool())

    def app_context(self, wanted: type[T]) -> T:
        """The host's object of exactly this type. Raises `MissingContext` naming the type (RT-11)."""
        return self.context.get(wanted)

    # --- the whole ---------------------------------------------------------------------------------------------------

    def with_store(self, store: Store) -> Self:
        """Another view of this runtime that keeps conversations elsewhere and shares all the rest. It ends with this
        one."""
        other = copy(self)
        other.store = store
        other.observers = self.observers.keeping(audit_for(store.root))
        return other

    async def aclose(self) -> None:
        """End what the runtime itself owns: connections, what commands have left running, and the store's thread once
        everything is synced. Idempotent. Sessions are closed by who made them."""
        async with AsyncExitStack() as ending:
            ending.push_async_callback(asyncio.to_thread, self.store.close)
            ending.push_async_callback(asyncio.to_thread, self.observers.audit.close)
            if isinstance(self.executor, LocalExecutor):
                ending.push_async_callback(self.executor.processes.end_all)
            ending.push_async_callback(self.providers.aclose)
            ending.push_async_callback(self.background.aclose)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def new_agent_id() -> str:
    """`agent-<nanoseconds hex>-<counter and random hex>`, unique across processes sharing a store (RT-20)."""
    return f"agent-{time.time_ns():x}-{next(_counter):x}{os.urandom(4).hex()}"
