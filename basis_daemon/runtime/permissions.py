"""Whether one consequential call may run: authorizer, remembered rules, then a person (runtime.md 6.4, workspace.md 5).

Owns the order of the questions, the rule matcher and the answers remembered by a live session. Everything doubtful
denies. The person is reached through an `Approver`; who that is, is the host's matter.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import CallPreparation, SideEffectLevel
from basis_protocol.content import Preview


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """What an authorizer judges: one call as it would really run."""

    agent_id: str
    tool_call_id: str
    tool_name: str
    preparation: CallPreparation


@dataclass(frozen=True, slots=True)
class Authorization:
    """`allow` and `deny` are final; `prompt` lets rules and then a person decide (AP-2)."""

    outcome: Literal["allow", "prompt", "deny"]
    reason: str | None = None


class Authorizer(Protocol):
    async def authorize(self, request: AuthorizationRequest) -> Authorization: ...


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a person is asked (AP-6). `request_id` is `perm-<tool call id>-<n>`."""

    request_id: str
    session_id: str
    tool_call_id: str
    tool_name: str
    title: str
    description: str
    input: Json
    preview: Preview
    side_effect_level: SideEffectLevel | None


RememberScope = Literal["once", "session", "project", "global"]


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """A decision, how long it holds, and why (AP-7). The default is a denial."""

    allow: bool = False
    scope: RememberScope = "once"
    reason: str | None = None
    pattern: str | None = None


class Approver(Protocol):
    """Asks whoever may decide. May take as long as a person takes; cancelling it withdraws the question."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it was decided. `rule_scope` is set when a remembered rule, not a person, answered."""

    allow: bool
    reason: str | None = None
    rule_scope: str | None = None
