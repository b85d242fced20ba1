"""A number of tokens several runs draw on together (workspace.md 4.6).

Owns the shared counter. A running turn counts every response into it as it comes and ends with the round that crosses
the limit, so turns side by side overshoot by at most one round each (BP-3).
"""

import threading
from dataclasses import replace

from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.workspace.spec import RunSpec
from basis_protocol.events import Usage


class _Counter:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.spent = 0


class BudgetPool:
    """`limit` tokens, input and output together. Copies share the counter; equal means the same counter (BP-1)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counter = _Counter()

    def __copy__(self) -> "BudgetPool":
        twin = BudgetPool(self.limit)
        twin._counter = self._counter
        return twin

    def __deepcopy__(self, memo: object) -> "BudgetPool":
        return self.__copy__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BudgetPool) and other._counter is self._counter

    def __hash__(self) -> int:
        return id(self._counter)

    def __repr__(self) -> str:
        return f"BudgetPool({self.spent} of {self.limit} spent)"

    @property
    def spent(self) -> int:
        return self._counter.spent

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.spent)

    @property
    def is_exhausted(self) -> bool:
        return self.remaining == 0

    def record(self, usage: Usage) -> int:
        """Count `usage`. Returns the new total. Safe from any thread."""
        with self._counter.lock:
            self._counter.spent += max(0, usage.total_tokens)
            return self._counter.spent

    def spec(self, prompt: str = "") -> RunSpec:
        """A spec that draws on this pool (BP-2)."""
        return RunSpec(prompt, budget=self)

    def bounds(self, options: TurnOptions | None = None) -> TurnOptions:
        """`options` for a turn that draws on this pool (BP-2)."""
        return replace(options or TurnOptions(), budget=self)
