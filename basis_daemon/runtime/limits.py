"""The bounds of one turn and how much of them is used up (runtime.md 3.3, workspace.md 4.4-4.5).

Owns the counting. Hard bounds raise; the token budget is soft and only asked between rounds.
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from basis_daemon.errors import Cancelled, DeadlineExceeded, MaxRoundsExceeded, ModelBudgetExceeded, ToolBudgetExceeded
from basis_daemon.runtime.cancel import CancelSignal, StopSignal
from basis_protocol.events import Usage

if TYPE_CHECKING:
    from basis_daemon.runtime.strategy import RoundStrategy

EndedEarly = Literal["stop_requested", "token_budget"]


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


class Spending:
    """What the runs of one family, a turn and whatever it delegates, have taken together, and where that ends."""

    __slots__ = ("deadline_at", "reported_tokens", "token_limit")

    def __init__(self) -> None:
        self.reported_tokens = 0
        self.deadline_at: float | None = None
        """Loop time."""
        self.token_limit: int | None = None
        """The value of `reported_tokens` at which the family ends."""


class Ending:
    """Why one run ended early. The first word said stays (AG-8)."""

    __slots__ = ("reason",)

    def __init__(self) -> None:
        self.reason: EndedEarly | None = None

    def note(self, reason: EndedEarly) -> EndedEarly:
        if self.reason is None:
            self.reason = reason
        return self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    """What may end one turn early, and what may steer it. Unset bounds don't exist. `deadline_s` counts from the turn's
    start, and so do the budgets. Copies share what is counted (AG-8), so one value is for one turn at a time."""

    cancel: CancelSignal | None = None
    stop: StopSignal | None = None
    deadline_s: float | None = None
    tool_budget: int | None = None
    token_budget: int | None = None
    budget: TokenPool | None = None
    model_budget: int | None = None
    max_rounds: int | None = None
    retry: ProviderRetry = field(default_factory=ProviderRetry)
    strategy: "RoundStrategy | None" = None
    rollback: Literal["round", "run"] = "round"
    """What a failed turn takes back: the round it failed in, or all of itself (AG-25)."""
    is_child: bool = False
    spending: Spending = field(default_factory=Spending, repr=False, compare=False)
    ending: Ending = field(default_factory=Ending, repr=False, compare=False)

    @property
    def reported_tokens(self) -> int:
        """Input and output tokens reported so far under these options, their copies and children."""
        return self.spending.reported_tokens

    @property
    def ended_early(self) -> EndedEarly | None:
        """Why the last turn under these options ended before the model was done, if a soft bound did it."""
        return self.ending.reason

    def cancellable(self) -> "tuple[TurnOptions, CancelSignal]":
        """These options with a signal of their own that abandons the turn (TO-1)."""
        signal = CancelSignal()
        return replace(self, cancel=signal), signal

    def stoppable(self) -> "tuple[TurnOptions, StopSignal]":
        """These options with a signal of their own that ends the turn at its next round boundary (TO-1)."""
        signal = StopSignal()
        return replace(self, stop=signal), signal

    def child(self) -> "TurnOptions":
        """For a run on this one's behalf (AG-9): the same signals, deadline, tokens and retries; budgets of calls and
        requests, strategy and ending of its own. Bounds that have begun to count go on from where they are."""
        has_begun = self.spending.deadline_at is not None or self.spending.token_limit is not None
        return replace(
            self,
            deadline_s=None if has_begun else self.deadline_s,
            token_budget=None if has_begun else self.token_budget,
            tool_budget=None,
            model_budget=None,
            max_rounds=None,
            strategy=None,
            is_child=True,
            ending=Ending(),
        )


class Meter:
    """What one turn has used so far. Made when the turn begins."""

    __slots__ = (
        "deadline_at",
        "model_requests",
        "options",
        "rounds",
        "started_at",
        "token_limit",
        "tool_calls",
        "usage",
    )

    def __init__(self, options: TurnOptions) -> None:
        self.options = options
        self.started_at = asyncio.get_running_loop().time()
        self.usage = Usage()
        self.rounds = 0
        self.model_requests = 0
        self.tool_calls = 0
        spending = options.spending
        own_deadline = None if options.deadline_s is None else self.started_at + options.deadline_s
        own_limit = None if options.token_budget is None else spending.reported_tokens + options.token_budget
        if not options.is_child:
            spending.deadline_at, spending.token_limit = own_deadline, own_limit
        self.deadline_at = _stricter(own_deadline, spending.deadline_at)
        """Loop time at which the turn's deadline passes."""
        self.token_limit = _stricter(own_limit, spending.token_limit)

    @property
    def transport_retries(self) -> int:
        """Model requests that had to be made again."""
        return max(0, self.model_requests - self.rounds)

    def deadline_failure(self) -> DeadlineExceeded:
        if self.options.deadline_s is None:
            return DeadlineExceeded("the deadline of the turn this one works for has passed")
        return DeadlineExceeded(f"the turn took longer than its deadline of {self.options.deadline_s:g} s")

    def check_hard_bounds(self) -> None:
        """Raises `Cancelled`, else `DeadlineExceeded`, if there is nothing more to be done (AG-12)."""
        cancel = self.options.cancel
        if cancel is not None and cancel.is_set:
            raise Cancelled(cancel.reason or "cancelled")
        if self.deadline_at is not None and asyncio.get_running_loop().time() >= self.deadline_at:
            raise self.deadline_failure()

    def soft_bound(self) -> EndedEarly | None:
        """The graceful reason to end at this round boundary, if any. A stop wins over a token budget (AG-8)."""
        if self.options.stop is not None and self.options.stop.is_set:
            return "stop_requested"
        limit, pool = self.token_limit, self.options.budget
        is_spent = limit is not None and self.options.spending.reported_tokens >= limit
        return "token_budget" if is_spent or (pool is not None and pool.is_exhausted) else None

    def allows_another_round(self, max_rounds: int | None) -> bool:
        """Whether one more model request could be made; if not, what waits for it keeps waiting (AG-13)."""
        try:
            self.check_hard_bounds()
        except (Cancelled, DeadlineExceeded):
            return False
        rounds, budget = self._most_rounds(max_rounds), self.options.model_budget
        return (
            self.soft_bound() is None
            and (rounds is None or self.rounds < rounds)
            and (budget is None or self.model_requests < budget)
        )

    def count(self, usage: Usage) -> None:
        """Add what one model response took, to this turn and to all it is bounded with (BP-3)."""
        self.usage += usage
        self.options.spending.reported_tokens += max(0, usage.total_tokens)
        if self.options.budget is not None:
            self.options.budget.record(usage)

    def count_delegated(self, usage: Usage) -> None:
        """Add what a run under `child()` options took: the bounds know of it already (AG-11)."""
        self.usage += usage

    def begin_round(self, max_rounds: int | None) -> None:
        """Count a round. Raises `MaxRoundsExceeded` (AG-10)."""
        limit = self._most_rounds(max_rounds)
        if limit is not None and self.rounds >= limit:
            raise MaxRoundsExceeded(f"the turn used all of its {limit} rounds")
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

    def _most_rounds(self, max_rounds: int | None) -> int | None:
        return _stricter(self.options.max_rounds, max_rounds)


N = TypeVar("N", int, float)


def _stricter(a: N | None, b: N | None) -> N | None:
    """The stricter of two bounds, either of which may be unset."""
    return b if a is None else a if b is None else min(a, b)
