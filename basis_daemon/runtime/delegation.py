"""What a running call may do to the agent that makes it, and what a piece of work handed on looks like (TL-4, CO-4).

Owns the contract tools are written against. `subagents.py` and `agent_operations.py` fulfil it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from basis_daemon.errors import UsageError
from basis_daemon.runtime.artifacts import DelegationArtifact, DelegationEdge
from basis_daemon.runtime.limits import TurnOptions
from basis_protocol.events import TurnStatus, Usage


class SubagentTemplateMismatch(UsageError):
    """CO-4: a template was used by another agent than the one it was made for."""

    kind = "template_mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentTemplate:
    """How a subagent differs from the agent that spawns it (CO-4). What is set replaces what would be inherited; what
    the spawning agent is denied stays denied (TR-5). Made by `AgentOperations.subagent_template`."""

    agent_id: str
    """The only agent that may use it."""
    tools: Callable[[str], bool] | None = None
    model: str | None = None
    provider: str | None = None
    system: str | None = None

    def with_tool_profile(self, allows: Callable[[str], bool]) -> "SubagentTemplate":
        return replace(self, tools=allows)

    def with_model(self, model: str, *, provider: str | None = None) -> "SubagentTemplate":
        """Another model; an unknown provider fails when the subagent is spawned."""
        return replace(self, model=model, provider=provider)

    def with_system(self, system: str | None) -> "SubagentTemplate":
        return replace(self, system=system)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentOutcome:
    """How a subagent's run ended. `text` is its final answer; `usage` is what all of it took."""

    agent_id: str
    name: str
    status: TurnStatus
    text: str | None = None
    error: str | None = None
    usage: Usage

    @property
    def succeeded(self) -> bool:
        return self.status == "ok"


class AgentOperations(Protocol):
    """`ToolContext.agent`. Good while its call runs, on the loop's thread."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def depth(self) -> int:
        """Delegations above this agent; 0 is one a person talks to (SP-19)."""
        ...

    def request_idle(self) -> None:
        """End the turn once this round's results are committed (AG-14)."""
        ...

    def child_run_options(self) -> TurnOptions:
        """Bounds for a run this call starts: the turn's own, with the same counters (AG-9)."""
        ...

    def subagent_template(self) -> SubagentTemplate:
        """A template that only this agent may use (CO-4)."""
        ...

    def check_delegation(self) -> None:
        """Raises `ToolError` when this agent may not hand work on: it is too deep already (CO-7, SP-19)."""
        ...

    async def spawn_subagent(
        self, prompt: str, *, template: SubagentTemplate | None = None, name: str = "task"
    ) -> SubagentOutcome:
        """Have a subagent do a piece of work within this turn's bounds, and wait for it (CO-1). It is told of on this
        agent's stream, asks there, is accounted here and is cancelled with the turn. A failure is an outcome.

        Raises `ToolError` when too deep, `SubagentTemplateMismatch`, `ProviderNotFound`.
        """
        ...

    def record_delegation_request(self, delegation: DelegationArtifact, edge: DelegationEdge) -> None:
        """Note in the transcript that work was handed on (CO-2). It is committed behind this round's results."""
        ...

    def record_delegation_result(self, delegation: DelegationArtifact, edge: DelegationEdge) -> None: ...

    def relay_subagent_usage(self, agent_id: str, usage: Usage) -> None:
        """Count what an agent run on this one's behalf took, and show it on this one's stream (AG-11, EV-5)."""
        ...

    async def compact_history(self, instructions: str | None = None) -> None:
        """Raises `ToolError`: there is no compaction yet."""
        ...
