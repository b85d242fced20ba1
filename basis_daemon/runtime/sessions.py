"""One process's live view of a conversation: runs its turns, answers for its permissions (runtime.md 6, 1.4).

Owns how a turn ends: which of success, failure, cancellation or interruption it was, what of it stays, and what is
written about it. Guards — policy, roster, authorizer, environment — are stated when the session is made and live only
as long as it does (SE-1).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from basis_daemon.errors import BasisError, Busy, ProviderNotFound, UsageError
from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.agent_operations import TurnOperations
from basis_daemon.runtime.delegation import SubagentOutcome, SubagentTemplate
from basis_daemon.runtime.explaining import CallExplanation, explain_call
from basis_daemon.runtime.limits import Meter, TurnOptions
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.permissions import Approver, Authorizer, Permissions
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.prices import Pricing, unpriced
from basis_daemon.runtime.providers.base import Effort, ModelInfo, Provider, RequestOptions, ToolChoice
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.runtime.steering import Steering
from basis_daemon.runtime.store.base import PromptAccepted, TurnEnded, TurnStatus
from basis_daemon.runtime.subagent_run import Nursery, Subagent, SubagentHandle
from basis_daemon.runtime.tool_calls import CallRound
from basis_daemon.runtime.tool_host import ToolHost
from basis_daemon.runtime.tools.paging import ToolResultPaging
from basis_daemon.runtime.turn import Inbox, Turn
from basis_daemon.runtime.turn_end import outcome_of, run_bounded, tell_end
from basis_daemon.runtime.typed_output import OutputWanted, TerminalTool
from basis_protocol.events import AnyEvent, Branched


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Everything a session is told when it is minted or resumed (1.5). Nothing of it is persisted but provider, model,
    effort and name."""

    runtime_identifier: str
    base_dir: Path
    provider: Provider
    model: ModelInfo
    policy: RuntimePolicy
    authorizer: Authorizer
    environment: Mapping[str, str]
    roster: Callable[[str], bool]
    audience: str | None = None
    system: str | None = None
    effort: Effort | None = None
    request_options: RequestOptions | None = None
    """What the host wants of particular providers, for every request of the session (2.4); unset is the runtime's."""
    name: str = "basis run"
    agent_id: str | None = None
    overlay: Callable[[Path], str | None] = lambda path: None
    pricing: Pricing = unpriced
    """What responses cost, as far as that is known."""
    parent: str | None = None
    """The agent this one works for."""
    depth: int = 0
    """Delegations above it."""
    max_delegation_depth: int = 8
    """Depth at which no further work is handed on (CO-7)."""
    skill_roots: tuple[Path, ...] = ()
    """Whose skills are stronger than others of the same name, strongest first (SH-7)."""
    keep_subagents: bool = False
    """Whether conversations of finished subagents stay in the store (CO-5)."""
    paging: ToolResultPaging | None = None
    """How long results are handed out in pages; unset, they are only shortened (TL-37)."""
    hide_denied_tools: bool = False
    """Whether tools the policy refuses anyway are left out (TL-13)."""
    project_id: str | None = None
    """Which project's remembered answers hold here; unset, none do and none can be given (SE-20)."""


class Session:
    """A live session. One turn at a time; a second one raises `Busy` (AG-4)."""

    def __init__(
        self,
        agent: Agent,
        options: SessionOptions,
        host: ToolHost,
        *,
        nursery: "Callable[[Session], Nursery]",
        answers: SessionAnswers | None = None,
        inboxes: Sequence[Inbox] = (),
    ) -> None:
        """`answers` are those of the agent this one works for, if it does: what was allowed there is allowed here."""
        self.agent = agent
        self.options = options
        self.answers = answers or SessionAnswers()
        self.steering = Steering()
        """What is said to the agent while it works; a handle for any task or thread (AG-23)."""
        self._host = host
        self._nursery = nursery(self)
        self._inboxes = inboxes
        self._subagents: dict[str, SubagentHandle] = {}
        self.failure: BasisError | None = None
        """What the last turn failed with, if it did."""
        self._provider = options.provider.scope()
        self._permissions = Permissions(agent.id, options.authorizer, self.answers)
        self._turn: Turn | None = None
        self._has_begun = False

    @property
    def provider(self) -> Provider:
        return self._provider

    @property
    def effort(self) -> Effort | None:
        """The reasoning effort turns begin with."""
        return cast(Effort | None, self.agent.record.effort)

    @property
    def running_turn(self) -> str | None:
        """Id of the turn that runs now."""
        return self._turn.id if self._turn else None

    def steer(self, prompt: PromptAccepted) -> None:
        """Add input to the running turn; it is said after the present round. Raises `Busy` when none runs.

        The prompt must have been accepted. If the turn ends before, it stays queued as a turn of its own.
        """
        if self._turn is None:
            raise Busy("no turn is running that could be steered")
        self.steering.add("steering", prompt)

    def set_model(self, model: ModelInfo, *, provider: Provider | None = None) -> None:
        """Use another model from the next turn on; of another provider if that is given. Written at once (AG-5).

        Raises `ProviderNotFound`, and then nothing has changed, when `model` is not the provider's.
        """
        chosen = provider or self.options.provider
        if model.provider != chosen.id:
            raise ProviderNotFound(f"model {model.id!r} is {model.provider}'s, and no such provider was given")
        self.agent.change(model=model.id, provider=chosen.id)
        if provider is not None:
            self._provider = provider.scope()
        self.options = replace(self.options, provider=chosen, model=model)

    def branch_from(self, entry_id: str | None, *, emit: Callable[[AnyEvent], None] | None = None) -> int:
        """Carry the conversation on from another entry of its tree; `None` is its beginning. Returns how many entries
        left the path; they are kept, and branching back to them restores them (AG-39, BR-2).

        Raises `Busy` during a turn, `UnknownEntry`, `BrokenChain`, `NotABranchPoint` (AG-40).
        """
        if self._turn is not None:
            raise Busy("the conversation can't be branched while a turn is running")
        abandoned = self.agent.branch_from(entry_id)
        if emit is not None:
            emit(Branched(entry_id=entry_id, abandoned_entries=abandoned))
        return abandoned

    # --- permissions -------------------------------------------------------------------------------------------------

    def with_tool_authorizer(self, authorizer: Authorizer) -> None:
        """Have all calls of this live session, and of the subagents it spawns, judged by `authorizer` alone: it also
        decides which calls need no question. Not persisted (AP-31, SE-5). Raises `UsageError` after the first turn."""
        if self._has_begun:
            raise UsageError("the authorizer can't be replaced any more: a turn has begun", hint="do it before")
        self.options = replace(self.options, authorizer=authorizer)
        self._permissions = Permissions(self.agent.id, authorizer, self.answers)

    async def explain_call(self, tool_name: str, input: dict[str, Json]) -> CallExplanation:
        """What would become of a call now, and by whose word. Asks nobody and changes nothing."""
        return await explain_call(
            tool_name,
            input,
            agent=self.agent,
            host=self._host,
            limits=self._provider.limits,
            permissions=self._permissions,
            answers=self.answers,
        )

    # --- subagents ---------------------------------------------------------------------------------------------------

    def active_subagents(self) -> list[SubagentHandle]:
        """Those started by `spawn_subagent` that have not ended."""
        return list(self._subagents.values())

    def subagent_template(self) -> SubagentTemplate:
        """A template for this session's subagents (CO-4)."""
        return SubagentTemplate(agent_id=self.agent.id)

    def spawn_subagent(
        self,
        name: str,
        prompt: str,
        *,
        tasks: asyncio.TaskGroup,
        emit: Callable[[AnyEvent], None],
        approver: Approver,
        options: TurnOptions | None = None,
        template: SubagentTemplate | None = None,
    ) -> SubagentHandle:
        """Start a subagent beside whatever runs here, in `tasks`. It is bounded by `options` alone: give it a turn's
        `child()` to bound it with that turn. What it asks is asked of `approver`, and told of to `emit` (SE-28).

        Raises `EmptyPrompt`, `ToolError` when too deep, `SubagentTemplateMismatch`, `ProviderNotFound`.
        """
        full_name = f"{self.agent.record.name}::{name}"
        subagent = Subagent(self._nursery, self.agent.id, full_name, prompt, template, emit=emit)

        async def work() -> SubagentOutcome:
            try:
                return await subagent.run(approver=approver, options=options or TurnOptions())
            finally:
                self._subagents.pop(subagent.id, None)

        handle = SubagentHandle(subagent, tasks.create_task(work(), name=f"subagent {subagent.id}"))
        self._subagents[subagent.id] = handle
        return handle

    # --- turns -------------------------------------------------------------------------------------------------------

    async def run(
        self,
        prompt: PromptAccepted,
        *,
        emit: Callable[[AnyEvent], None],
        approver: Approver,
        options: TurnOptions,
        resumed: bool = False,
        output: OutputWanted | None = None,
    ) -> TurnEnded:
        """Run one accepted prompt to its end and write how it ended.

        With `output` the turn ends with a value (3.11). A failed, cancelled or bounded turn is a result (TN-3).

        Raises `Busy`, and `StoreError` if the end can't
        be written. Cancelling the calling task leaves the turn interrupted: its rounds stay, it can be carried on.
        """
        if self._turn is not None:
            raise Busy("a turn is already running")
        turn = self._new_turn(prompt, emit, approver, options, resumed, output)
        self._turn = turn
        self._has_begun = True
        status: TurnStatus = "interrupted"
        try:
            if output is not None:
                self._host.registry.register(TerminalTool(output, self.agent.id), agent=self.agent.id)
            self.failure = failure = await run_bounded(turn)
            outcome = outcome_of(turn, failure)
            tell_end(turn, outcome, failure)
            self._fall_back(turn, outcome.status)
            self.agent.end_turn(outcome)
            status = outcome.status
            if status != "ok":
                self._host.observers.notify(
                    "run_aborted", self.agent.id, turn_id=turn.id, status=status, stopped_by=outcome.stopped_by
                )
        finally:
            self._turn = None
            self._settle(turn, status)
        await self.agent.sync()
        return outcome

    def take_over(self, previous: "Session") -> None:
        """Go on as `previous`, the closed live session of the same conversation in this process: what was answered for
        it and what its tools have read still holds. Not a resume, which starts with neither (AP-15)."""
        for rule in previous.answers.rules:
            self.answers.remember(rule)
        self._host = replace(self._host, files=previous._host.files)
        if self._host.pager is not None and previous._host.pager is not None:
            self._host.pager.adopt(previous._host.pager)
        self.steering = previous.steering

    def close(self) -> None:
        self._host.close()
        self.agent.close()

    def _new_turn(
        self,
        prompt: PromptAccepted,
        emit: Callable[[AnyEvent], None],
        approver: Approver,
        options: TurnOptions,
        resumed: bool,
        output: OutputWanted | None,
    ) -> Turn:
        meter = Meter(options)
        calls = CallRound(
            agent=self.agent,
            turn_id=prompt.turn_id,
            host=self._host if output is None else replace(self._host, roster=self._roster_for(output)),
            limits=self._provider.limits,
            permissions=self._permissions,
            approver=approver,
            meter=meter,
            emit=emit,
            operations=lambda call: TurnOperations(turn, call, self._nursery, approver),
        )
        is_forced = output is not None and not output.keeps_tools
        turn = Turn(
            agent=self.agent,
            prompt=prompt,
            provider=self._provider,
            model=self.agent.record.model,
            system=self.options.system,
            effort=self.effort,
            calls=calls,
            meter=meter,
            emit=emit,
            pricing=self.options.pricing,
            resumed=resumed,
            request_options=self.options.request_options or RequestOptions(),
            steering=self.steering,
            inboxes=self._inboxes,
            tool_choice=ToolChoice("tool", output.tool_name) if output and is_forced else ToolChoice(),
            wanted=output,
        )
        return turn

    def _roster_for(self, output: OutputWanted) -> Callable[[str], bool]:
        """A typed turn is offered its answering tool, and the others only if it keeps them (AG-45)."""
        roster = self._host.roster
        return lambda name: name == output.tool_name or (output.keeps_tools and roster(name))

    def _settle(self, turn: Turn, status: TurnStatus) -> None:
        """Give back what the turn was lent: the answering tool, and deliveries that it did not keep (AG-15, AG-44)."""
        if turn.wanted is not None:
            self._host.registry.unregister(turn.wanted.tool_name, agent=self.agent.id)
        for inbox, deliveries in turn.kept:
            settle = inbox.put_back if status == "cancelled" else inbox.acknowledge
            settle(self.agent.id, deliveries)
        for inbox, deliveries in turn.taken:
            settle = inbox.acknowledge if status == "ok" else inbox.put_back
            settle(self.agent.id, deliveries)
        # What was accepted as a prompt of its own and not said becomes a turn of its own.
        self.steering.discard(lambda prompt: prompt in self.agent.queued)

    def _fall_back(self, turn: Turn, status: TurnStatus) -> None:
        """Take the conversation back to where it stands after a turn that ended so (AG-25, TO-2)."""
        if status == "ok":
            return
        is_all_void = status == "cancelled" or turn.meter.options.rollback == "run"
        target = turn.baseline if is_all_void else turn.committed
        abandoned = self.agent.move_leaf(target)
        if abandoned:
            turn.emit(Branched(entry_id=target, abandoned_entries=abandoned))
