"""Running a turn under its bounds, and what its end is called (runtime.md 3.12, workspace.md 4.3).

Owns which of success, failure and cancellation it was, and the words for it. What of the turn stays is the session's.
"""

import logging
import math

import anyio

from basis_daemon.errors import BasisError, Cancelled, RunFailure
from basis_daemon.runtime.agent import now_ms
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.loop import run_turn
from basis_daemon.runtime.store.base import TurnEnded, TurnStatus
from basis_daemon.runtime.turn import Turn
from basis_protocol.events import ErrorEvent, Notice

logger = logging.getLogger(__name__)

BOUND_NAMES = {"deadline": "deadline", "tool_budget": "tool_budget"}
"""Failures that are bounds, by their kind, and the word `stoppedBy` shows (BD-1)."""


async def run_bounded(turn: Turn) -> BasisError | None:
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


def outcome_of(turn: Turn, failure: BasisError | None) -> TurnEnded:
    status: TurnStatus = "ok" if failure is None else "cancelled" if isinstance(failure, Cancelled) else "error"
    return TurnEnded(
        turn_id=turn.id,
        status=status,
        stopped_by=turn.stopped_by if failure is None else BOUND_NAMES.get(failure.kind),
        final_message=turn.final_message if status == "ok" else None,
        error=None if failure is None else describe(failure),
        output=turn.output.value if turn.output is not None and status == "ok" else None,
        usage=turn.meter.usage,
        at_ms=now_ms(),
    )


def tell_end(turn: Turn, outcome: TurnEnded, failure: BasisError | None) -> None:
    if failure is not None and outcome.status == "error":
        turn.emit(ErrorEvent(message=outcome.error or "", recoverable=failure.category == "retryable"))
    # A turn that was ended well but early has no answer: that is said, not left to be guessed (TO-3).
    if outcome.status == "ok" and outcome.stopped_by is not None and outcome.final_message is None:
        turn.emit(Notice(message="the turn was ended before its answer; what was done until then stays"))


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
