"""One conversation as a program without a workspace holds it (runtime.md 3.2, 6.1): what `Runtime.spawn` gives.

Owns putting the parts within reach — turns, their events, the questions they ask — and that a turn refused for being
the second one leaves nothing behind. How a turn works is the session's matter.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack, overload

from basis_daemon import __version__
from basis_daemon.errors import Busy, NothingToResume
from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.delegation import SubagentTemplate
from basis_daemon.runtime.feed import Feed
from basis_daemon.runtime.framed_turns import run_framed, run_typed
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import Json, Message
from basis_daemon.runtime.pending_permissions import PendingPermissions
from basis_daemon.runtime.permissions import Approver
from basis_daemon.runtime.prompts import Prompt, new_prompt, require_content
from basis_daemon.runtime.providers.base import Effort, ModelInfo, Provider
from basis_daemon.runtime.reports import OutputReport, RunReport
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.runtime.sessions import Session
from basis_daemon.runtime.steering import Steering
from basis_daemon.runtime.store.base import AgentRecord, PromptAccepted
from basis_daemon.runtime.subagent_run import SubagentHandle
from basis_daemon.runtime.transcript import Transcript
from basis_daemon.runtime.typed_output import OutputSpec, OutputWanted, Reservation, Validator
from basis_protocol.events import EVENT_SCHEMA_VERSION, RunStarted

T = TypeVar("T")


class ValueTurn(TypedDict, total=False):
    """How a turn for a value is run: as any other, with a judge of the value if there is one."""

    validator: Validator | None
    keeps_tools: bool
    options: TurnOptions | None
    approver: Approver | None


class AgentHandle:
    """A live conversation. One turn at a time: a second one raises `Busy` at once (AG-4).

    `events` is its stream: subscriptions, taps, snapshots and waiting (SE-11, AG-31…AG-36). `permissions` is what it
    asks and nobody was named to answer. As a context it is closed at the end.
    """

    def __init__(
        self, session: Session, config: AgentConfig, *, base_dir: Path, provider: Callable[[str], Provider]
    ) -> None:
        """`provider` finds another one by its id, raising `ProviderNotFound`."""
        self.events = Feed()
        self.permissions = PendingPermissions(config.permission_timeout_s)
        self._session = session
        self._config = config
        self._base_dir = base_dir
        self._provider = provider

    def __repr__(self) -> str:
        return f"AgentHandle({self.id!r}, name={self.record.name!r}, model={self.record.model!r})"

    # --- views -------------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """What it is resumed with."""
        return self._session.agent.id

    @property
    def record(self) -> AgentRecord:
        """Name, model, provider, effort, times and totals, as they are stored."""
        return self._session.agent.record

    @property
    def context_window(self) -> int | None:
        """Tokens its model takes, if that is known."""
        return self._session.options.model.context_window

    @property
    def transcript(self) -> Transcript:
        return self._session.agent.transcript

    @property
    def history(self) -> Sequence[Message]:
        """What has been said, as the model is sent it."""
        return self.transcript.messages()

    @property
    def last_message(self) -> Message | None:
        return self.history[-1] if len(self.transcript) else None

    @property
    def steering(self) -> Steering:
        """What is said to the agent while it works, or when it would be done (AG-23); for any task or thread."""
        return self._session.steering

    @property
    def rules(self) -> SessionAnswers:
        """The remembered answers that hold here: listed, given and revoked at any time (SE-25)."""
        return self._session.answers

    @property
    def queued(self) -> Sequence[PromptAccepted]:
        """Accepted prompts whose turn has not begun, oldest first."""
        return tuple(self._session.agent.queued)

    @property
    def resumable(self) -> PromptAccepted | None:
        """The last turn's prompt, if it was interrupted or failed and can be carried on (AG-6)."""
        return self._session.agent.resumable

    # --- turns -------------------------------------------------------------------------------------------------------

    async def send(
        self, prompt: Prompt, *, options: TurnOptions | None = None, approver: Approver | None = None
    ) -> RunReport:
        """Say something and run the turn to its end (AG-3, SE-12). A failed, cancelled or bounded turn is a report, not
        an exception. Raises `EmptyPrompt` and `Busy`; then nothing was kept."""
        return await self._accepted(new_prompt(prompt), options, approver)

    @overload
    async def output(self, prompt: Prompt, wanted: type[T], **how: Unpack[ValueTurn]) -> OutputReport[T]: ...

    @overload
    async def output(
        self, prompt: Prompt, wanted: OutputSpec | Reservation, **how: Unpack[ValueTurn]
    ) -> OutputReport[Json]: ...

    async def output(
        self, prompt: Prompt, wanted: "type[Any] | OutputSpec | Reservation", **how: Unpack[ValueTurn]
    ) -> OutputReport[Any]:
        """A turn that ends with a value: of a dataclass, TypedDict or msgspec struct, or JSON as a spec describes it.

        A `validator` may have the model try again in the same turn (AG-48); with `keeps_tools` the agent works first
        (AG-45). Raises `OutputFailure` when there is no value, and what `send` raises.
        """

        async def run(accepted: PromptAccepted, output: OutputWanted) -> RunReport:
            return await self._accepted(accepted, how.get("options"), how.get("approver"), output)

        return await run_typed(
            prompt, wanted, run, validator=how.get("validator"), keeps_tools=how.get("keeps_tools", False)
        )

    async def resume_turn(self, *, options: TurnOptions | None = None, approver: Approver | None = None) -> RunReport:
        """Carry the interrupted or failed turn on. Raises `NothingToResume`, `Busy` (AG-6)."""
        prompt = self.resumable
        if prompt is None:
            raise NothingToResume("no turn of this conversation was cut short", hint="send a prompt")
        return await self._run(prompt, options, approver, resumed=True)

    async def run_queued(
        self, *, options: TurnOptions | None = None, approver: Approver | None = None
    ) -> RunReport | None:
        """Run what waits: the oldest accepted prompt, else what was said through `steering` and no turn has taken.
        `None` when nothing waits (AG-24)."""
        self._require_idle()
        if self.queued:
            return await self._run(self.queued[0], options, approver)
        waiting = self.steering.take_first()
        return None if waiting is None else await self._accepted(waiting, options, approver)

    # --- changes -----------------------------------------------------------------------------------------------------

    def branch_from(self, entry_id: str | None) -> int:
        """Carry on from another entry of the transcript; see `Session.branch_from` (AG-39)."""
        return self._session.branch_from(entry_id, emit=self.events)

    def set_model(self, model: ModelInfo) -> None:
        """Use another model, of another provider if it is one's, from the next turn on. Written at once (AG-5).

        Raises `ProviderNotFound`; then nothing has changed.
        """
        is_same = model.provider == self._session.options.provider.id
        self._session.set_model(model, provider=None if is_same else self._provider(model.provider))

    def set_effort(self, effort: Effort | None) -> None:
        """Use another reasoning effort from the next turn on."""
        self._session.agent.change(effort=effort)

    def set_name(self, name: str) -> None:
        self._session.agent.change(name=name)

    # --- subagents ---------------------------------------------------------------------------------------------------

    def spawn_subagent(
        self,
        name: str,
        prompt: str,
        *,
        tasks: asyncio.TaskGroup,
        options: TurnOptions | None = None,
        template: SubagentTemplate | None = None,
        approver: Approver | None = None,
    ) -> SubagentHandle:
        """Start a subagent in `tasks`, told of on this one's `events`; see `Session.spawn_subagent` (SE-28)."""
        return self._session.spawn_subagent(
            name,
            prompt,
            tasks=tasks,
            emit=self.events,
            approver=self._approver(approver),
            options=options,
            template=template,
        )

    def subagent_template(self) -> SubagentTemplate:
        """How this one's subagents may differ from it (CO-4)."""
        return self._session.subagent_template()

    def active_subagents(self) -> list[SubagentHandle]:
        return self._session.active_subagents()

    # --- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the conversation: it may be resumed, here or in another process (AG-7). Its subscriptions end, what
        waits for an answer is refused. Idempotent. File work: a program with a loop uses a thread, or `async with`."""
        self._end_streams()
        self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_streams()
        await asyncio.to_thread(self._session.close)

    # -----------------------------------------------------------------------------------------------------------------

    async def _accepted(
        self,
        prompt: PromptAccepted,
        options: TurnOptions | None,
        approver: Approver | None,
        output: OutputWanted | None = None,
    ) -> RunReport:
        require_content(prompt.message)
        self._require_idle()
        self._session.agent.accept(prompt)
        return await self._run(prompt, options, approver, output=output)

    async def _run(
        self,
        prompt: PromptAccepted,
        options: TurnOptions | None,
        approver: Approver | None,
        *,
        resumed: bool = False,
        output: OutputWanted | None = None,
    ) -> RunReport:
        self._require_idle()
        return await run_framed(
            self._session,
            prompt,
            header=self._header(prompt.turn_id, resumed),
            emit=self.events,
            approver=self._approver(approver),
            options=options or TurnOptions(retry=self._config.retry),
            resumed=resumed,
            output=output,
        )

    def _header(self, turn_id: str, resumed: bool) -> RunStarted:
        return RunStarted(
            turn_id=turn_id,
            schema=EVENT_SCHEMA_VERSION,
            basis=__version__,
            session_id=self.id,
            workspace=str(self._base_dir),
            model=self.record.model,
            provider=self.record.provider,
            resumed=resumed,
        )

    def _approver(self, approver: Approver | None) -> Approver:
        return approver or self._config.approver or self.permissions

    def _require_idle(self) -> None:
        if self._session.running_turn is not None:
            raise Busy("a turn is already running", hint="wait for it, or use `steering`")

    def _end_streams(self) -> None:
        self.permissions.close()
        self.events.close()
