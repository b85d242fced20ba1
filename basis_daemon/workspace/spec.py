"""What a run is asked for: prompt, name, effort and bounds (workspace.md 4.1)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from basis_daemon.runtime.providers.base import Effort

if TYPE_CHECKING:
    from basis_daemon.workspace.budget import BudgetPool

DEFAULT_NAME = "basis run"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A bare string is accepted wherever a spec is (RS-1). An empty prompt is legal: a conversation exists before its
    first message (RS-2). Bounds stand for every turn of the run and are unset by default (RS-4)."""

    prompt: str = ""
    session_name: str = DEFAULT_NAME
    effort: Effort | None = None
    deadline_s: float | None = None
    tool_budget: int | None = None
    token_budget: int | None = None
    budget: "BudgetPool | None" = None

    @classmethod
    def of(cls, spec: "RunSpec | str | None") -> "RunSpec":
        """A spec from whatever a caller may pass for one."""
        return spec if isinstance(spec, RunSpec) else cls(spec or "")
