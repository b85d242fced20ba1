"""Records and entries for tests of the store: `stored()` a conversation's record, `said(n)` its n-th entry."""

from typing import Any

from basis_daemon.runtime.messages import user
from basis_daemon.runtime.store.base import AgentRecord, PromptAccepted
from basis_daemon.runtime.transcript import Entry


def stored(agent_id: str = "agent-1", **fields: Any) -> AgentRecord:
    """A record. Its name is its id unless said."""
    plain: dict[str, Any] = {
        "runtime_identifier": "basis:/repo",
        "name": agent_id,
        "base_dir": "/repo",
        "provider": "provider",
        "model": "model",
        "created_at": 1,
    }
    return AgentRecord(id=agent_id, **{**plain, **fields})


def said(number: int, text: str | None = None) -> Entry:
    """The entry `entry-<number>`, which continues the one before it; 0 begins."""
    parent = f"entry-{number - 1}" if number else None
    return Entry(id=f"entry-{number}", parent_id=parent, kind="user_turn", message=user(text or f"message {number}"))


def prompted(turn_id: str) -> PromptAccepted:
    return PromptAccepted(turn_id=turn_id, message=user(f"do {turn_id}"), by={"client": "test"}, at_ms=7)
