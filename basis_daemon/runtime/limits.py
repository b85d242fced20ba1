"""The bounds of one turn and how much of them is used up (runtime.md 3.3, workspace.md 4.4-4.5).

Owns the counting. Hard bounds raise; the token budget is soft and only asked between rounds.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from basis_daemon.errors import DeadlineExceeded, MaxRoundsExceeded, ModelBudgetExceeded, ToolBudgetExceeded
from basis_daemon.runtime.cancel import CancelSignal, StopSignal
from basis_protocol.events import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRetry:
    """The waits between attempts (PV-52): doubling from `base_delay_s` to `max_delay_s`; a provider's own wish counts
    up to `retry_after_cap_s`. All in seconds."""

    budget: int = 5
    base_delay_s: float = 0.5
    max_delay_s: float = 5.0
    retry_after_cap_s: float = 60.0

    def delay_s(self, attempt: int, retry_after_s: float | None) -> float:
        """Seconds to wait after failed attempt number `attempt` (from 1)."""
        schedule = min(self.max_delay_s, self.base_delay_s * 2 ** min(attempt - 1, 16))
        return max(schedule, min(retry_after_s or 0.0, self.retry_after_cap_s))


class TokenPool(Protocol):
    """Tokens that several turns draw on together (BP-1)."""

    @property
    def is_exhausted(self) -> bool: ...

    def record(self, usage: Usage) -> object:
        """Count what one model response took."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    """What may end one turn early. Unset bounds don't exist. `deadline_s` counts from the turn's start."""

    cancel: CancelSignal | None = None
    stop: StopSignal | None = None
    deadline_s: float | None = None
    tool_budget: int | None = None
    token_budget: int | None = None
    budget: TokenPool | None = None
    model_budget: int | None = None
    max_rounds: int | None = None
    retry: ProviderRetry = field(default_factory=ProviderRetry)


class Meter:
    """What one turn has used so far."""

    __slots__ = ("model_requests", "options", "rounds", "started_at", "tool_calls", "usage")

    def __init__(self, options: TurnOptions) -> None:
        self.options = options
        self.started_at = asyncio.get_running_loop().time()
        self.usage = Usage()
        self.rounds = 0
        self.model_requests = 0
        self.tool_calls = 0

    @property
    def deadline_at(self) -> float | None:
        """Loop time at which the turn's deadline passes."""
        return None if self.options.deadline_s is None else self.started_at + self.options.deadline_s

    def deadline_failure(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"the turn took longer than its deadline of {self.options.deadline_s:g} s")

    def soft_bound(self) -> str | None:
        """The graceful reason to end at this round boundary, if any. A stop wins over a token budget (AG-8)."""
        if self.options.stop is not None and self.options.stop.is_set:
            return "stop_requested"
        budget, pool = self.options.token_budget, self.options.budget
        is_spent = budget is not None and self.usage.total_tokens >= budget
        return "token_budget" if is_spent or (pool is not None and pool.is_exhausted) else None

    def count(self, usage: Usage) -> None:
        """Add what one model response took, to this turn and to the pool it draws on (BP-3)."""
        self.usage += usage
        if self.options.budget is not None:
            self.options.budget.record(usage)

    def begin_round(self, max_rounds: int | None) -> None:
        """Count a round. Raises `MaxRoundsExceeded`."""
        limits = [limit for limit in (self.options.max_rounds, max_rounds) if limit is not None]
        if limits and self.rounds >= min(limits):
            raise MaxRoundsExceeded(f"the turn used all of its {min(limits)} rounds")
        self.rounds += 1

    def begin_request(self) -> None:
        """Count a model request, retries included (PV-53). Raises `ModelBudgetExceeded`."""
        budget = self.options.model_budget
        if budget is not None and self.model_requests >= budget:
            raise ModelBudgetExceeded(f"the turn used all of its {budget} model requests")
        self.model_requests += 1

    def admit_calls(self, count: int) -> None:
        """Admit a batch of tool calls as a unit (TL-31). Raises `ToolBudgetExceeded`; then none of it runs."""
        budget = self.options.tool_budget
        if budget is not None and self.tool_calls + count > budget:
            raise ToolBudgetExceeded(f"{count} more tool calls would exceed the turn's budget of {budget}")
        self.tool_calls += count
