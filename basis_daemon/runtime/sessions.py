"""One process's live view of a conversation: runs its turns, answers for its permissions (runtime.md 6, 1.4).

Owns how a turn ends: which of success, failure, cancellation or interruption it was, what of it stays, and what is
written about it. Guards — policy, roster, authorizer, environment — are stated when the session is made and live only
as long as it does (SE-1).
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import anyio

from basis_daemon.errors import BasisError, Busy, Cancelled, RunFailure
from basis_daemon.runtime.agent import Agent, now_ms
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.limits import Meter, TurnOptions
from basis_daemon.runtime.loop import run_turn
from basis_daemon.runtime.permissions import Approver, Authorizer, Permissions, SessionAnswers
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.base import Effort, ModelInfo, Provider
from basis_daemon.runtime.store.base import PromptAccepted, TurnEnded, TurnStatus
from basis_daemon.runtime.tool_calls import CallRound, ToolHost
from basis_daemon.runtime.turn import Turn
from basis_protocol.events import AnyEvent, Branched, ErrorEvent

logger = logging.getLogger(__name__)

BOUND_NAMES = {"deadline": "deadline", "tool_budget": "tool_budget"}
"""Failures that are bounds, by their kind, and the word `stoppedBy` shows (BD-1)."""


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
    name: str = "basis run"
    agent_id: str | None = None
    overlay: Callable[[Path], str | None] = lambda path: None


class Session:
    """A live session. One turn at a time; a second one raises `Busy` (AG-4)."""

    def __init__(self, agent: Agent, options: SessionOptions, host: ToolHost) -> None:
        self.agent = agent
        self.options = options
        self.answers = SessionAnswers()
        self._host = host
        self._provider = options.provider.scope()
        self._permissions = Permissions(agent.id, options.authorizer, self.answers)
        self._turn: Turn | None = None

    @property
    def provider(self) -> Provider:
        return self._provider

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
        self._turn.steering.append(prompt)

    async def run(
        self,
        prompt: PromptAccepted,
        *,
        emit: Callable[[AnyEvent], None],
        approver: Approver,
        options: TurnOptions,
        resumed: bool = False,
    ) -> TurnEnded:
        """Run one accepted prompt to its end and write how it ended.

        A failed, cancelled or bounded turn is a result (TN-3). Raises `Busy`, and `StoreError` if the end can't
        be written. Cancelling the calling task leaves the turn interrupted: its rounds stay, it can be carried on.
        """
        if self._turn is not None:
            raise Busy("a turn is already running")
        turn = self._new_turn(prompt, emit, approver, options, resumed)
        self._turn = turn
        try:
            failure = await _run_bounded(turn)
            outcome = _outcome(turn, failure)
            if failure is not None and outcome.status == "error":
                recoverable = failure.category == "retryable"
                emit(ErrorEvent(message=outcome.error or "", recoverable=recoverable))
            self._fall_back(turn, outcome.status)
            self.agent.end_turn(outcome)
        finally:
            self._turn = None
        await self.agent.sync()
        return outcome

    def take_over(self, previous: "Session") -> None:
        """Go on as `previous`, the closed live session of the same conversation in this process: what was answered for
        it and what its tools have read still holds. Not a resume, which starts with neither (AP-15)."""
        for rule in previous.answers.rules:
            self.answers.remember(rule)
        self._host = replace(self._host, files=previous._host.files)

    def close(self) -> None:
        self.agent.close()

    def _new_turn(
        self,
        prompt: PromptAccepted,
        emit: Callable[[AnyEvent], None],
        approver: Approver,
        options: TurnOptions,
        resumed: bool,
    ) -> Turn:
        meter = Meter(options)
        calls = CallRound(
            agent=self.agent,
            turn_id=prompt.turn_id,
            host=self._host,
            limits=self._provider.limits,
            permissions=self._permissions,
            approver=approver,
            meter=meter,
            emit=emit,
        )
        return Turn(
            agent=self.agent,
            prompt=prompt,
            provider=self._provider,
            model=self.agent.record.model,
            system=self.options.system,
            effort=cast(Effort | None, self.agent.record.effort),
            calls=calls,
            meter=meter,
            emit=emit,
            resumed=resumed,
        )

    def _fall_back(self, turn: Turn, status: TurnStatus) -> None:
        """Take the conversation back to where it stands after a turn that ended so (AG-25, TO-2)."""
        if status == "ok":
            return
        target = turn.baseline if status == "cancelled" else turn.committed
        abandoned = self.agent.move_leaf(target)
        if abandoned:
            turn.emit(Branched(entry_id=target, abandoned_entries=abandoned))


async def _run_bounded(turn: Turn) -> BasisError | None:
    """Run the turn under its cancel signal and its deadline. Returns what it failed with, if it did."""
    cancel = turn.meter.options.cancel or CancelSignal()
    deadline = turn.meter.deadline_at
    with anyio.CancelScope(deadline=math.inf if deadline is None else deadline) as scope, cancel.calling(scope.cancel):
        try:
            await run_turn(turn)
        except BasisError as error:
            return error
        except Exception as error:
            logger.exception("turn %s failed unexpectedly", turn.id)
            return RunFailure(f"an internal error ended the turn ({type(error).__name__}); the daemon's log has it")
        return None
    return Cancelled(cancel.reason or "cancelled") if cancel.is_set else turn.meter.deadline_failure()


def _outcome(turn: Turn, failure: BasisError | None) -> TurnEnded:
    status: TurnStatus = "ok" if failure is None else "cancelled" if isinstance(failure, Cancelled) else "error"
    return TurnEnded(
        turn_id=turn.id,
        status=status,
        stopped_by=turn.stopped_by if failure is None else BOUND_NAMES.get(failure.kind),
        final_message=turn.final_message if status == "ok" else None,
        error=None if failure is None else describe(failure),
        usage=turn.meter.usage,
        at_ms=now_ms(),
    )


def describe(error: BaseException) -> str:
    """The error's text, its causes' texts where they say something new, and what to do about it (TN-4)."""
    parts = [str(error)]
    cause = error.__cause__
    while cause is not None and isinstance(cause, BasisError):
        if str(cause) not in parts[0]:
            parts.append(str(cause))
        cause = cause.__cause__
    text = ": ".join(part for part in parts if part)
    hint = error.hint if isinstance(error, BasisError) else None
    return f"{text} ({hint})" if hint else text
