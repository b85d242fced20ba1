"""What a session is doing, worked out from its parts (protocol.md 3, `state`).

Owns the running turn's own facts and the order in which causes are looked at. Tells nobody.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from basis_daemon.runtime.cancel import CancelSignal, StopSignal
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.server.approver import TurnApprover
from basis_daemon.server.clock import timestamp
from basis_daemon.workspace.run import PreparedRun
from basis_protocol.asks import Ask
from basis_protocol.events import AnyEvent, InfoChanged, Retry, SessionState


@dataclass(kw_only=True)
class RunningTurn:
    """The turn that runs now."""

    prompt: PromptAccepted
    approver: TurnApprover
    cancel: CancelSignal
    stop: StopSignal
    started_at: str = field(default_factory=timestamp)
    retry: Retry | None = None
    retry_until: str | None = None
    held: SessionState | None = None
    """What the runtime says its request is held back by."""

    @property
    def id(self) -> str:
        return self.prompt.turn_id

    def note_wait(self, event: AnyEvent) -> bool:
        """Follow waits for the provider. Returns whether one has begun or ended with this event."""
        if isinstance(event, Retry):
            self.retry, self.retry_until = event, timestamp(time.time() + event.next_delay_ms / 1000)
            return True
        if isinstance(event, InfoChanged) or (self.retry is None and self.held is None):
            return False
        self.retry = self.retry_until = self.held = None
        return True

    def note_state(self, state: SessionState) -> None:
        """Take what the runtime says of itself: held back, or working again."""
        if state.kind == "waiting_provider":
            self.held = state
        else:
            self.retry = self.retry_until = self.held = None


def present_state(
    run: PreparedRun, running: RunningTurn | None, queue: Sequence[PromptAccepted], pending: Sequence[Ask]
) -> SessionState:
    """The state now. A question that is open explains a turn that runs, and one that was cut short, alike."""
    since = timestamp()
    is_under_way = running is not None or run.interrupted is not None
    if is_under_way and pending:
        return SessionState(kind="waiting_person", since=since, detail=pending[0].title, ask_id=pending[0].ask_id)
    if running is not None:
        return _waiting_state(running, since) or SessionState(kind="working", since=since, detail="")
    if run.interrupted is not None:
        return interrupted_state(since)
    if queue:
        return SessionState(kind="queued", since=since, detail=f"{len(queue)} waiting")
    return SessionState(kind="idle", since=since, detail="")


def _waiting_state(running: RunningTurn, since: str) -> SessionState | None:
    """What of the provider the turn waits for, if it does. Its own failed attempt explains more than its lane does."""
    held, retry = running.held, running.retry
    if retry is None:
        return held and msgspec.structs.replace(held, since=since)
    return SessionState(
        kind="waiting_provider",
        since=since,
        detail=f"attempt {retry.attempt} of {retry.max_attempts} failed",
        until=(held and held.until) or running.retry_until,
        cause=retry.error,
    )


def interrupted_state(since: str) -> SessionState:
    return SessionState(
        kind="interrupted", since=since, detail="the turn was cut short and can be resumed", cause="daemon_ended"
    )


def is_same(one: SessionState, other: SessionState) -> bool:
    """Whether nothing a client shows differs, but for when it began."""
    return _shown(one) == _shown(other)


def _shown(state: SessionState) -> tuple[str | None, ...]:
    # A question's words and the length of a queue change without the state being another.
    detail = state.detail if state.kind == "waiting_provider" else None
    return (state.kind, state.ask_id, state.cause, state.until, detail)
