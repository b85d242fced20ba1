"""A running turn as data: what it works on, with what, and how far it has come.

Owns nothing that happens: `loop.py` moves it on, `model_call.py` asks the model for it, `sessions.py` ends it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.limits import Meter
from basis_daemon.runtime.providers.base import Effort, Provider
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.runtime.tool_calls import CallRound
from basis_protocol.events import AnyEvent


@dataclass(kw_only=True)
class Turn:
    """A running turn: what it works on, with what, and how far it has come."""

    agent: Agent
    prompt: PromptAccepted
    provider: Provider
    model: str
    system: str | None
    effort: Effort | None
    calls: CallRound
    meter: Meter
    emit: Callable[[AnyEvent], None]
    max_output_tokens: int | None = None
    resumed: bool = False
    steering: list[PromptAccepted] = field(default_factory=list[PromptAccepted])
    final_message: str | None = None
    stopped_by: str | None = None
    baseline: str | None = None
    """Leaf before the turn: where a cancelled turn rolls back to."""
    committed: str | None = None
    """Leaf after the last complete round: where a failed turn falls back to (AG-25)."""

    @property
    def id(self) -> str:
        return self.prompt.turn_id
