"""What a session's calls run in and are limited by, and which tools it is offered (runtime.md 4.2).

Owns the answer to "what does this name mean here". Carries out nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from basis_daemon.processes import Executor
from basis_daemon.runtime.background import (
    AgentBackground,
    BackgroundEvent,
    BackgroundTask,
    BackgroundTasks,
    TaskWatch,
)
from basis_daemon.runtime.guards import Guard
from basis_daemon.runtime.hooks.table import HookTable
from basis_daemon.runtime.observers import Observers
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.base import Limits, ToolChoice, ToolDefinition
from basis_daemon.runtime.skills import SessionSkills
from basis_daemon.runtime.store.results import ResultStore
from basis_daemon.runtime.tools.app_context import AppContext
from basis_daemon.runtime.tools.base import FileLedger
from basis_daemon.runtime.tools.load_skill import NAME as LOAD_SKILL
from basis_daemon.runtime.tools.paging import Pager
from basis_daemon.runtime.tools.registry import Registration, ToolRegistry
from basis_daemon.runtime.tools.spec import ToolSpec
from basis_protocol.events import AnyEvent

TEAMMATES_ONLY = frozenset({"idle"})
"""Tools that make sense for an agent somebody else gives work to (TL-13)."""


@dataclass(frozen=True, slots=True)
class ToolHost:
    """The surroundings of one session's calls. Its parts are live: what is registered later is seen at once (RT-10)."""

    registry: ToolRegistry
    audience: str | None
    roster: Callable[[str], bool]
    """Whether a name is offered: a `ToolProfile`, or anything that answers alike (TL-12)."""
    working_directory: Path
    policy: RuntimePolicy
    executor: Executor
    environment: Mapping[str, str]
    overlay: Callable[[Path], str | None]
    files: FileLedger
    results: ResultStore
    agent_id: str | None = None
    """Whose own tools are offered as well."""
    hooks: HookTable = field(default_factory=HookTable)
    observers: Observers = field(default_factory=Observers)
    app: AppContext = field(default_factory=AppContext)
    pager: Pager | None = None
    """Hands long results out in pages; `None` shortens them only."""
    hide_denied_tools: bool = False
    """Whether tools the policy refuses anyway are left out (TL-13)."""
    is_teammate: bool = False
    holds: tuple[Guard, ...] = ()
    """What was registered for this session alone."""
    background: BackgroundTasks | None = None
    """Where commands go on that are not waited for."""
    skills: SessionSkills | None = None

    def close(self) -> None:
        """Take back what was registered for this session."""
        for guard in self.holds:
            guard.unregister()

    def find(self, name: str, limits: Limits) -> Registration | None:
        """What a name means in this session, if the session is offered it (TL-7, TL-12)."""
        found = self.registry.find(name, audience=self.audience, agent=self.agent_id)
        return found if found is not None and self._is_offered(found.spec, limits) else None

    def why_not(self, name: str) -> str:
        """What is said of a name that means nothing here (TL-11)."""
        if self.registry.has_name(name):
            return f"There is no tool {name!r} available for this agent."
        return f"There is no tool {name!r}: no such name was found."

    def definitions(self, limits: Limits) -> list[ToolDefinition]:
        """The tools the model is offered, sorted by name (CV-8)."""
        return [
            _definition(found.spec)
            for found in self.registry.registrations(self.audience, self.agent_id)
            if self._is_offered(found.spec, limits)
        ]

    def skill_list(self, limits: Limits) -> str | None:
        """What the model is told of skills, if it can load any (SK-6, AG-2)."""
        if self.skills is None or self.find(LOAD_SKILL, limits) is None:
            return None
        return self.skills.listing()

    def background_of(self, agent_id: str, emit: Callable[[AnyEvent], None]) -> AgentBackground | None:
        """The background as an agent's calls have it; what becomes of its tasks is told to `emit`."""
        if self.background is None:
            return None

        def observe(kind: BackgroundEvent, task: BackgroundTask) -> None:
            self.observers.notify(kind, task.agent_id, task_id=task.id, status=task.status)

        keep = self.results.write if self.policy.spill_full_tool_output else None
        return AgentBackground(self.background, agent_id, TaskWatch(emit, keep, observe))

    def _is_offered(self, spec: ToolSpec, limits: Limits) -> bool:
        return (
            (limits.tools is None or spec.name in limits.tools)
            and (self.is_teammate or spec.name not in TEAMMATES_ONLY)
            and not (self.hide_denied_tools and _is_denied(spec, self.policy))
            and self.roster(spec.name)
        )


def available_choice(wanted: ToolChoice, offered: Sequence[ToolDefinition]) -> ToolChoice:
    """`wanted`, or `auto` where it forces a tool that is not there (TL-14)."""
    is_missing = wanted.mode == "tool" and all(tool.name != wanted.name for tool in offered)
    return ToolChoice() if is_missing else wanted


def _is_denied(spec: ToolSpec, policy: RuntimePolicy) -> bool:
    needs_background = "background_exec" in spec.capabilities
    needs_shell = needs_background or "process_exec" in spec.capabilities
    return (needs_shell and not policy.allow_shell) or (needs_background and not policy.allow_background)


def _definition(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        spec.name,
        spec.description,
        spec.input_schema,
        strict=spec.strict,
        output_schema=spec.output_schema,
        kind=spec.kind,
        deferred=spec.loading == "deferred",
        options=spec.options,
    )
