"""One conversation handle: turns with their bookends, modes and persisted settings (workspace.md 4).

Owns what a turn is told by its workspace: its header, its model, its standing bounds, its mode. How a turn is framed
and works is the runtime's matter; who watches it is the host's.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, Unpack, overload

from basis_daemon.errors import NothingToResume, ResolvedModelProviderMismatch
from basis_daemon.runtime.approvals import ApprovalAnswer, ApprovalRequest, Approver
from basis_daemon.runtime.explaining import CallExplanation
from basis_daemon.runtime.framed_turns import run_framed
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.permissions import Authorizer
from basis_daemon.runtime.prompts import Prompt, new_prompt, require_content
from basis_daemon.runtime.providers.base import Effort, ModelInfo
from basis_daemon.runtime.reports import OutputReport, RunReport
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.runtime.sessions import Session
from basis_daemon.runtime.steering import Steering
from basis_daemon.runtime.store.base import AgentRecord, PromptAccepted, TurnEnded
from basis_daemon.runtime.transcript import Entry, Transcript
from basis_daemon.runtime.typed_output import OutputSpec, OutputWanted, Reservation
from basis_daemon.workspace.typed_turns import TypedTurn, run_typed
from basis_protocol.events import AnyEvent, RunStarted

Mode = Literal["prompt", "always", "never"]
"""What happens to consequential calls nobody decided yet: ask, allow, refuse (AP-22)."""

T = TypeVar("T")

PINNED_PROVIDER = "provider"
"""Key of `AgentRecord.config`."""


class HeaderSource(Protocol):
    """Whoever knows a run's surroundings: the workspace."""

    async def begin(self, run: "PreparedRun", options: TurnOptions) -> TurnOptions:
        """Ahead of a turn's header: settle the model if it is still open, and say which bounds hold (TO-5).

        Raises `BudgetExhausted` to refuse the turn (BP-4).
        """
        ...

    def header(self, run: "PreparedRun", turn_id: str, *, resumed: bool) -> RunStarted: ...

    def known_models(self) -> tuple[ModelInfo, ...]:
        """What the run's provider has told of its models by now. Asks nobody."""
        ...

    async def remarks(self, run: "PreparedRun") -> list[str]:
        """What the person should be told right behind a turn's header: how a model can be had, if none was chosen."""
        ...


class PreparedRun:
    """A live conversation of one workspace. One turn at a time (PU-1); mode and answers may change at any time."""

    def __init__(self, session: Session, source: HeaderSource, *, mode: Mode = "prompt") -> None:
        self._session = session
        self._source = source
        self.mode: Mode = mode

    # --- views -------------------------------------------------------------------------------------------------------

    @property
    def agent_id(self) -> str:
        """The durable id: what clients store and resume with."""
        return self._session.agent.id

    @property
    def record(self) -> AgentRecord:
        return self._session.agent.record

    @property
    def transcript(self) -> Transcript:
        return self._session.agent.transcript

    @property
    def is_persisted(self) -> bool:
        """Whether the conversation exists on disk: from its first accepted prompt on."""
        return self._session.agent.is_persisted

    @property
    def directory(self) -> Path | None:
        """Where its files are, once it has any."""
        return self._session.agent.directory

    @property
    def interrupted(self) -> PromptAccepted | None:
        """The prompt of a turn that started and never ended."""
        return self._session.agent.interrupted

    @property
    def resumable(self) -> PromptAccepted | None:
        """The last turn's prompt, if it was interrupted or failed and can be carried on."""
        return self._session.agent.resumable

    @property
    def queued(self) -> list[PromptAccepted]:
        """Accepted prompts whose turn has not begun, oldest first."""
        return self._session.agent.queued

    @property
    def steering(self) -> Steering:
        """What is said to the agent while it works, or when it would be done (AG-23); for any task or thread."""
        return self._session.steering

    @property
    def leaf(self) -> str | None:
        """Id of the conversation's last entry."""
        return self.transcript.leaf_id

    @property
    def abandoned(self) -> list[Entry]:
        """Entries that were said and are not part of the conversation now (BR-1)."""
        return self.transcript.archived()

    def children(self, entry_id: str | None) -> list[Entry]:
        """What continues an entry: the conversation, and the ways it did not take; `None` asks for its beginnings."""
        return self.transcript.children(entry_id)

    def outcome(self, turn_id: str) -> TurnEnded | None:
        """How a turn ended; `None` while it runs, waits, or when it is too long ago."""
        return self._session.agent.outcomes.get(turn_id)

    def header(self, turn_id: str, *, resumed: bool = False) -> RunStarted:
        """The `run_started` event this run would emit for a turn."""
        return self._source.header(self, turn_id, resumed=resumed)

    # --- prompts and turns -------------------------------------------------------------------------------------------

    def accept(self, prompt: PromptAccepted) -> None:
        """Keep a prompt: it is in the file when this returns. Raises `EmptyPrompt` (RS-2) and `StoreError`."""
        require_content(prompt.message)
        self._session.agent.accept(prompt)

    def withdraw(self, turn_id: str) -> None:
        """Drop a queued prompt. Raises `NoSuchTurn`."""
        self._session.agent.withdraw(turn_id)

    async def sync(self) -> None:
        """Return when everything accepted and committed so far would survive a power cut."""
        await self._session.agent.sync()

    def steer(self, prompt: PromptAccepted) -> None:
        """Say an accepted prompt in the running turn, after its present round. Raises `Busy` when none runs."""
        self._session.steer(prompt)

    async def execute(
        self,
        turn: PromptAccepted,
        *,
        emit: Callable[[AnyEvent], None],
        approver: Approver,
        options: TurnOptions | None = None,
        resumed: bool = False,
        output: OutputWanted | None = None,
    ) -> RunReport:
        """Run an accepted prompt and report how it ended. `run_started` and `run_finished` bracket its events (EV-1).

        An approver is mandatory: nothing is allowed by default (KD-19). A sink that raises is not called again and
        doesn't stop the turn (TN-5). Raises `Busy` and `BudgetExhausted`. A cancelled calling task leaves the turn
        interrupted.
        """
        options = await self._source.begin(self, options or TurnOptions())
        return await run_framed(
            self._session,
            turn,
            header=self.header(turn.turn_id, resumed=resumed),
            remarks=lambda: self._source.remarks(self),
            emit=emit,
            approver=self._approver(approver),
            options=options,
            resumed=resumed,
            output=output,
        )

    async def send(
        self,
        prompt: Prompt,
        *,
        emit: Callable[[AnyEvent], None],
        approver: Approver,
        options: TurnOptions | None = None,
    ) -> RunReport:
        """Accept a prompt and run it: the one call an embedder needs per turn. Raises as `accept` and `execute` do."""
        accepted = new_prompt(prompt)
        self.accept(accepted)
        return await self.execute(accepted, emit=emit, approver=approver, options=options)

    @overload
    async def output(self, prompt: Prompt, wanted: type[T], **how: Unpack[TypedTurn]) -> OutputReport[T]: ...

    @overload
    async def output(
        self, prompt: Prompt, wanted: OutputSpec | Reservation, **how: Unpack[TypedTurn]
    ) -> OutputReport[Json]: ...

    async def output(
        self, prompt: Prompt, wanted: "type[Any] | OutputSpec | Reservation", **how: Unpack[TypedTurn]
    ) -> OutputReport[Any]:
        """A turn that ends with a value: of a dataclass, TypedDict or msgspec struct, or JSON as a spec describes it.

        A `validator` may have the model try again in the same turn (AG-48); `keeps_tools` lets the agent work first
        (AG-45). Raises `OutputFailure` when there is no value, and what `accept` and `execute` do.
        """
        return await run_typed(self, prompt, wanted, **how)

    async def resume_turn(
        self, *, emit: Callable[[AnyEvent], None], approver: Approver, options: TurnOptions | None = None
    ) -> RunReport:
        """Carry the interrupted or failed turn on. Raises `NothingToResume` (AG-6)."""
        prompt = self.resumable
        if prompt is None:
            raise NothingToResume("no turn of this conversation was cut short", hint="send a prompt")
        return await self.execute(prompt, emit=emit, approver=approver, options=options, resumed=True)

    async def run_queued(
        self, *, emit: Callable[[AnyEvent], None], approver: Approver, options: TurnOptions | None = None
    ) -> RunReport | None:
        """Run what waits: the oldest accepted prompt, else what was said through `steering` and no turn has taken.
        `None` when nothing waits (AG-24)."""
        if self.queued:
            return await self.execute(self.queued[0], emit=emit, approver=approver, options=options)
        waiting = self.steering.take_first()
        if waiting is None:
            return None
        self.accept(waiting)
        return await self.execute(waiting, emit=emit, approver=approver, options=options)

    def branch_from(self, entry_id: str | None, *, emit: Callable[[AnyEvent], None] | None = None) -> int:
        """Carry the conversation on from another entry; see `Session.branch_from` (BR-2)."""
        return self._session.branch_from(entry_id, emit=emit)

    # --- settings ----------------------------------------------------------------------------------------------------

    def set_name(self, name: str) -> None:
        """Rename the conversation. Written at once if it exists on disk; counts as use."""
        self._session.agent.change(name=name)

    @property
    def known_models(self) -> tuple[ModelInfo, ...]:
        """The models its provider has told of by now, newest first; empty when it was not asked yet."""
        return self._source.known_models()

    def set_model(self, model: ModelInfo | str) -> None:
        """Use another model of the same provider from the next turn on (PR-10). Ids are not checked.

        Raises `ResolvedModelProviderMismatch`; then nothing has changed.
        """
        if isinstance(model, ModelInfo) and model.provider != self.record.provider:
            raise ResolvedModelProviderMismatch(model.id, model.provider, self.record.provider)
        self._session.agent.change(model=model if isinstance(model, str) else model.id)

    def pin_provider(self, name: str) -> None:
        """Remember that this conversation was asked to use a provider of its own, whatever its workspace's is."""
        self._session.agent.change(config={**self.record.config, PINNED_PROVIDER: name})

    @property
    def pinned_provider(self) -> str | None:
        """The provider this conversation asked for, if it did."""
        return pinned_provider(self.record)

    def set_effort(self, effort: Effort | None) -> None:
        """Use another reasoning effort from the next turn on."""
        self._session.agent.change(effort=effort)

    def take_over(self, previous: "PreparedRun") -> None:
        """Go on where `previous` was closed: the same conversation, minted anew because its workspace was opened again
        under it. Its mode, the answers given for the session and what was read still hold."""
        self.mode = previous.mode
        self._session.take_over(previous._session)

    def forget_session_answers(self) -> None:
        """Drop what was answered "for this session" (AP-32)."""
        self._session.answers.forget()

    @property
    def rules(self) -> SessionAnswers:
        """The remembered answers this conversation goes by: live, of all four scopes (SE-25). Methods that concern
        stored ones are file work: callers on a loop use a thread."""
        return self._session.answers

    def with_tool_authorizer(self, authorizer: Authorizer) -> "PreparedRun":
        """Have every call of this run, and of what it spawns later, judged by `authorizer` alone, in place of the
        session's mode and gate. Not persisted (AP-31). Raises `UsageError` after the first turn. Returns the run."""
        self._session.with_tool_authorizer(authorizer)
        return self

    async def explain_call(self, tool_name: str, input: dict[str, Json]) -> CallExplanation:
        """What would become of a call now, and by whose word: a hard limit's, the mode's, a rule's or a person's. Asks
        nobody, runs nothing, and doesn't ask hooks."""
        explained = await self._session.explain_call(tool_name, input)
        is_moded = self.mode == "always" and not self._session.provider.limits.always_ask
        if explained.outcome == "prompt" and is_moded:
            return replace(explained, outcome="allow", decided_by="mode", why="the session's mode is `always`")
        if explained.decided_by == "authorizer" and explained.outcome == "deny" and self.mode == "never":
            return replace(explained, decided_by="mode")
        return explained

    def close(self) -> None:
        """Let go of the conversation: another process may open it. Nothing of it is lost."""
        self._session.close()

    def _approver(self, inner: Approver) -> Approver:
        if self._session.provider.limits.always_ask:
            return inner
        return _ModeApprover(lambda: self.mode, inner)


class _ModeApprover:
    """Samples the mode once per request (AP-26): `always` allows, everything else asks on."""

    def __init__(self, mode: Callable[[], Mode], inner: Approver) -> None:
        self._mode = mode
        self._inner = inner

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        if self._mode() == "always":
            return ApprovalAnswer(allow=True)
        return await self._inner.approve(request)


def pinned_provider(record: AgentRecord) -> str | None:
    """The provider a stored conversation asked for, if it did."""
    name = record.config.get(PINNED_PROVIDER)
    return name if isinstance(name, str) else None
