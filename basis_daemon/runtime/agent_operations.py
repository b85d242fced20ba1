"""What a running call may do to its agent, done (TL-4): end the turn, hand work on, note it, account for it.

Owns what of that stands in the transcript and in the turn's accounts. How a subagent lives is `subagent_run.py`'s
matter.
"""

from basis_daemon.runtime.artifacts import DelegationArtifact, DelegationEdge
from basis_daemon.runtime.delegation import SubagentOutcome, SubagentTemplate
from basis_daemon.runtime.envelopes import envelope
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import ToolUse, user
from basis_daemon.runtime.permissions import Approver
from basis_daemon.runtime.subagent_run import Nursery, Subagent, check_depth, usage_of
from basis_daemon.runtime.tools.base import ToolError
from basis_daemon.runtime.transcript import Entry
from basis_daemon.runtime.turn import Turn
from basis_protocol.events import AnyEvent, ToolProgress, Usage, UsageReported

MAX_NOTE_CHARS = 2000
"""Of a task or a result, kept with the transcript's note about it; all of it stands in the call."""


class TurnOperations:
    """`AgentOperations` for one call of one turn."""

    def __init__(self, turn: Turn, call: ToolUse, nursery: Nursery, approver: Approver) -> None:
        self._turn = turn
        self._call = call
        self._nursery = nursery
        self._approver = approver

    @property
    def id(self) -> str:
        return self._turn.agent.id

    @property
    def name(self) -> str:
        return self._turn.agent.record.name

    @property
    def model(self) -> str:
        return self._turn.model

    @property
    def depth(self) -> int:
        return self._nursery.depth

    def request_idle(self) -> None:
        self._turn.is_idle_requested = True

    def child_run_options(self) -> TurnOptions:
        return self._turn.meter.options.child()

    def subagent_template(self) -> SubagentTemplate:
        return SubagentTemplate(agent_id=self.id)

    def check_delegation(self) -> None:
        check_depth(self._nursery)

    async def spawn_subagent(
        self, prompt: str, *, template: SubagentTemplate | None = None, name: str = "task"
    ) -> SubagentOutcome:
        full_name = f"{self.name}::{name}"
        subagent = Subagent(self._nursery, self.id, full_name, prompt, template, emit=self._relay)
        self._tell(f"{full_name} works with {subagent.model}")
        self._note_request(subagent)
        options = self.child_run_options()
        outcome = await subagent.run(approver=self._approver, options=options)
        self._note_result(subagent, outcome)
        return outcome

    def record_delegation_request(self, delegation: DelegationArtifact, edge: DelegationEdge) -> None:
        task = delegation.task_summary or ""
        text = envelope("delegation-request", task, agent=delegation.agent_name, model=self.model)
        self._note(Entry(kind="delegation_request", message=user(text), delegation=delegation, edge=edge))

    def record_delegation_result(self, delegation: DelegationArtifact, edge: DelegationEdge) -> None:
        said = delegation.result_summary or ""
        text = envelope("delegation-result", said, agent=delegation.agent_name, status=delegation.status)
        self._note(Entry(kind="delegation_result", message=user(text), delegation=delegation, edge=edge))

    def relay_subagent_usage(self, agent_id: str, usage: Usage) -> None:
        self._turn.meter.count_delegated(usage)
        self._turn.emit(_reported(agent_id, usage))

    async def compact_history(self, instructions: str | None = None) -> None:
        raise ToolError("this conversation can't be compacted yet")

    def _relay(self, event: AnyEvent) -> None:
        if isinstance(event, UsageReported):
            self._turn.meter.count_delegated(usage_of(event))
        self._turn.emit(event)

    def _tell(self, text: str) -> None:
        self._turn.emit(ToolProgress(tool_call_id=self._call.id, tool_name=self._call.name, progress=text))

    def _note_request(self, subagent: "Subagent") -> None:
        self.record_delegation_request(
            DelegationArtifact(
                kind="subagent",
                agent_id=subagent.id,
                agent_name=subagent.name,
                status="requested",
                task_summary=subagent.task[:MAX_NOTE_CHARS],
            ),
            self._edge(subagent),
        )

    def _note_result(self, subagent: "Subagent", outcome: SubagentOutcome) -> None:
        said = outcome.text if outcome.succeeded else outcome.error
        self.record_delegation_result(
            DelegationArtifact(
                kind="subagent",
                agent_id=subagent.id,
                agent_name=subagent.name,
                status="finished" if outcome.succeeded else "failed",
                result_summary=(said or "")[:MAX_NOTE_CHARS],
            ),
            self._edge(subagent),
        )

    def _edge(self, subagent: "Subagent") -> DelegationEdge:
        return DelegationEdge(kind="subagent", local_agent_id=self.id, remote_agent_id=subagent.id)

    def _note(self, entry: Entry) -> None:
        self._turn.to_record.append(entry)


def _reported(agent_id: str, usage: Usage) -> UsageReported:
    return UsageReported(
        agent_id=agent_id,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_creation_tokens=usage.cache_creation_tokens,
        reasoning_tokens=usage.reasoning_tokens or None,
        thoughts_tokens=usage.thoughts_tokens or None,
    )
