"""Which of the registered tools a session is offered (workspace.md 1.8).

A roster hides; it never unregisters. What it hides resolves to "no such tool" when a model guesses the name (TR-4).
"""

from dataclasses import dataclass

from basis_daemon.runtime.tools.profile import ToolProfile

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


@dataclass(frozen=True)
class ToolRoster(ToolProfile):
    """The profile of a workspace's sessions. `only` offers exactly the names given; `spawn` is not implied (TR-3)."""

    hidden_tools: frozenset[str] = REPLACED_BY_SPAWN | UNSURFACED

    @classmethod
    def default(cls) -> "ToolRoster":
        """File tools, `spawn`, and whatever the host and the workspace add (TR-2)."""
        return cls()
