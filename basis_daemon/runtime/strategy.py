"""What a host may decide at the end of each round (runtime.md 3.5).

Owns the vocabulary between the loop and a strategy. `TurnOptions.strategy` is where one is given.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, Protocol

from basis_daemon.errors import RunFailure
from basis_daemon.runtime.messages import Message
from basis_daemon.runtime.providers.base import Effort

Boundary = Literal["assistant_message_committed", "tool_results_committed"]


class StrategyFailed(RunFailure):
    """AG-19: the host's strategy raised."""

    kind = "strategy"


@dataclass(frozen=True, slots=True)
class EffortChange:
    """The reasoning effort of this run's further rounds; `None` is the provider's own. Never persisted (AG-18)."""

    effort: Effort | None


@dataclass(frozen=True, slots=True)
class Continue:
    """Let the run take its course: on after tool results, to its end after an answer without calls."""

    adjust: EffortChange | None = None


@dataclass(frozen=True, slots=True)
class Inject:
    """Say something as the user and go on, also after an answer that would have ended the run."""

    content: Message | str
    adjust: EffortChange | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run here, successfully."""


RoundDecision = Continue | Inject | Stop


@dataclass(frozen=True, slots=True)
class RoundToolResult:
    tool_use_id: str
    tool_name: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """Where the run stands. `assistant_message` is this round's; `tool_results` are empty after an answer without
    calls."""

    boundary: Boundary
    assistant_message: Message
    tool_results: tuple[RoundToolResult, ...] = ()
    rounds_completed: int
    model_requests: int
    transport_retries: int


class RoundStrategy(Protocol):
    def on_round(self, context: RoundContext) -> RoundDecision | Awaitable[RoundDecision]:
        """Decide what follows this round (AG-17). What it raises fails the run (AG-19)."""
        ...
