"""Which of the registered tools a session is offered (workspace.md 1.8).

A roster hides; it never unregisters. What it hides resolves to "no such tool" when a model guesses the name (TR-4).
"""

from collections.abc import Iterable
from dataclasses import dataclass

REPLACED_BY_SPAWN = frozenset({"shell", "background_run", "task"})
UNSURFACED = frozenset(
    {
        "check_background",
        "idle",
        "memory_forget",
        "memory_pin",
        "memory_search",
        "task_claim",
        "task_create",
        "task_get",
        "task_list",
        "task_update",
        "team_broadcast",
        "team_list_requests",
        "team_read_inbox",
        "team_request",
        "team_respond",
        "team_send",
        "team_spawn",
    }
)
"""Tools of the runtime that no workspace offers (TR-1)."""


@dataclass(frozen=True, slots=True)
class ToolRoster:
    """Names to hide, or the only names to offer. Calling it answers whether a name is offered."""

    hidden: frozenset[str] = REPLACED_BY_SPAWN | UNSURFACED
    allowed: frozenset[str] | None = None

    @classmethod
    def default(cls) -> "ToolRoster":
        """File tools, `spawn`, and whatever the host and the workspace add (TR-2)."""
        return cls()

    @classmethod
    def only(cls, names: Iterable[str]) -> "ToolRoster":
        """Exactly these; `spawn` is not implied (TR-3)."""
        return cls(hidden=frozenset(), allowed=frozenset(names))

    def hide(self, names: Iterable[str]) -> "ToolRoster":
        """This roster without `names` as well."""
        return ToolRoster(self.hidden | frozenset(names), self.allowed)

    def __call__(self, name: str) -> bool:
        return name not in self.hidden and (self.allowed is None or name in self.allowed)
