"""What entries of the rarer kinds carry besides their message: delegations and summaries (runtime.md 3.10).

Data only, written into the transcript and read back. Who delegates is `subagents.py`'s matter.
"""

from typing import Literal

import msgspec

DelegationStatus = Literal["requested", "finished", "failed"]
DelegationKind = Literal["subagent", "teammate", "parent", "child"]


class DelegationArtifact(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who was asked to do what, and what came of it (AG-38)."""

    kind: DelegationKind
    agent_id: str
    agent_name: str
    role: str | None = None
    status: DelegationStatus
    task_summary: str | None = None
    result_summary: str | None = None
    artifacts: list[str] = []


class DelegationEdge(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The arrow between two agents' conversations, as seen from `local_agent_id`."""

    kind: DelegationKind
    local_agent_id: str
    remote_agent_id: str


class CompactionSummary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What replaces the older part of a conversation (AG-42)."""

    goal: str = ""
    progress: str = ""
    decisions: list[str] = []
    constraints: list[str] = []
    delegated_work: list[str] = []
    artifacts: list[str] = []
    open_questions: list[str] = []
    next_steps: list[str] = []
    files_touched: list[str] = []
