"""What one run knows of its workspace: its header, its mode, its standing bounds, and that a model is found in time.

Owns the answers `run.py` asks for before and at the start of a turn. Keeps no workspace alive but for its values.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import anyio

from basis_daemon import __version__
from basis_daemon.errors import BasisError, BudgetExhausted
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.providers.base import ModelInfo
from basis_daemon.workspace.budget import BudgetPool
from basis_daemon.workspace.connection import Connection
from basis_daemon.workspace.run import PreparedRun
from basis_daemon.workspace.spec import RunSpec
from basis_protocol.events import EVENT_SCHEMA_VERSION, ContextFile, RunStarted, SkillSummary

_T = TypeVar("_T")


@dataclass
class RunSurroundings:
    """One run's view of the workspace it was minted from; `run` is set as soon as there is one."""

    workspace: str
    context_files: list[ContextFile]
    connection: Connection
    spec: RunSpec
    notices: Sequence[str]
    look_for_servers: Callable[[], Awaitable[Sequence[str]]]
    """Sentences that offer model servers found on this machine. Asked only when nothing else was chosen."""
    skills_dirs: list[str] = field(default_factory=list[str])
    skills: list[SkillSummary] = field(default_factory=list[SkillSummary])
    run: PreparedRun | None = None

    def mode(self) -> str:
        """The session's mode now. A call judged before there is a run is refused."""
        return self.run.mode if self.run is not None else "never"

    def known_models(self) -> tuple[ModelInfo, ...]:
        """What the run's provider has told of its models by now."""
        return self.connection.known_models

    def header(self, run: PreparedRun, turn_id: str, *, resumed: bool) -> RunStarted:
        """The first event of a turn of `run`."""
        return RunStarted(
            turn_id=turn_id,
            schema=EVENT_SCHEMA_VERSION,
            basis=__version__,
            session_id=run.agent_id,
            workspace=self.workspace,
            model=run.record.model,
            provider=run.record.provider,
            context_files=self.context_files,
            skills_dirs=self.skills_dirs,
            skills=self.skills,
            resumed=resumed,
        )

    async def remarks(self, run: PreparedRun) -> list[str]:
        """At the start of a conversation: what was decided for the person, and what they could have instead."""
        if self.connection.error is not None or len(run.transcript) > 0:
            return []
        return [*self.notices, *(await self.look_for_servers() if self.connection.by_default else ())]

    async def begin(self, run: PreparedRun, options: TurnOptions) -> TurnOptions:
        """Give `run` its model if it has none yet, so that its header can name it. Returns the bounds that hold.

        A provider that can't name a model is nothing to raise here: the turn will fail with it (TN-3). Raises
        `BudgetExhausted`.
        """
        bounds = self._bounds(options)
        if isinstance(bounds.budget, BudgetPool) and bounds.budget.is_exhausted:
            raise BudgetExhausted(bounds.budget.limit, bounds.budget.spent)
        if not run.record.model:
            with anyio.CancelScope() as scope, (bounds.cancel or CancelSignal()).calling(scope.cancel):
                await self._find_model(run)
        return bounds

    async def _find_model(self, run: PreparedRun) -> None:
        try:
            run.set_model(await self.connection.resolve())
        except BasisError:
            return

    def _bounds(self, options: TurnOptions) -> TurnOptions:
        """`options` over the run's standing bounds (TO-5)."""
        spec = self.spec
        return replace(
            options,
            deadline_s=_first(options.deadline_s, spec.deadline_s),
            tool_budget=_first(options.tool_budget, spec.tool_budget),
            token_budget=_first(options.token_budget, spec.token_budget),
            budget=_first(options.budget, spec.budget),
        )


def _first(explicit: _T | None, standing: _T | None) -> _T | None:
    return standing if explicit is None else explicit
