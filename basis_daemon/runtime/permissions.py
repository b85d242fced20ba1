"""Whether one consequential call may run: authorizer, remembered rules, then a person (runtime.md 6.4, workspace.md 5).

Owns the order of the questions, the rule matcher and the answers remembered by a live session. Everything doubtful
denies. The person is reached through an `Approver`; who that is, is the host's matter.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import CallPreparation, SideEffectLevel
from basis_protocol.content import Preview
from basis_protocol.events import AnyEvent, PermissionRequested, PermissionResolved

logger = logging.getLogger(__name__)


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


class Unguarded:
    """The authorizer of a host that names none: what the policy admits may run (6.4)."""

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        return Authorization("allow")


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
    covered: str | None = None
    """What an answer "for this session" would hold for, in words; `None` when none would be kept."""


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


@dataclass(frozen=True, slots=True)
class RememberedRule:
    """An answer that holds for later calls: a tool, optionally a pattern over its structured input (SE-19)."""

    tool_name: str
    allow: bool
    pattern: str | None = None
    reason: str | None = None

    def matches(self, tool_name: str, data: str) -> bool:
        """Whether the rule covers a call; `data` is the call's input as `canonical_data` writes it."""
        return self.tool_name == tool_name and (self.pattern is None or matches_data(self.pattern, data))


def canonical_data(structured_input: Json) -> str:
    """The one spelling of a structured input that patterns are matched against: compact JSON, sorted keys (SE-22)."""
    return msgspec.json.encode(structured_input, order="sorted").decode()


def matches_data(pattern: str, data: str) -> bool:
    """The data glob: `*` and `**` are any run of characters, `?` is one, everything else is itself (SE-22)."""
    parts = [_literal(part) for part in re.split(r"\*+", pattern)]
    # Atomic groups keep the match linear: a pattern must never be able to stall the loop.
    middle = "".join(f"(?>.*?{part})" for part in parts[1:-1] if part)
    translated = parts[0] if len(parts) == 1 else f"{parts[0]}{middle}.*{parts[-1]}"
    return re.fullmatch(translated, data, re.DOTALL) is not None


def _literal(text: str) -> str:
    return ".".join(re.escape(part) for part in text.split("?"))


class SessionAnswers:
    """Answers given "for this session". They live in this object only: never stored, gone with the live session
    (AP-14, AP-15)."""

    def __init__(self) -> None:
        self._rules: list[RememberedRule] = []

    @property
    def rules(self) -> tuple[RememberedRule, ...]:
        return tuple(self._rules)

    def remember(self, rule: RememberedRule) -> None:
        """Keep a rule; the same tool and pattern replaces an earlier answer."""
        self._rules = [r for r in self._rules if (r.tool_name, r.pattern) != (rule.tool_name, rule.pattern)] + [rule]

    def forget(self) -> None:
        """Drop all of them (AP-32)."""
        self._rules.clear()

    def find(self, tool_name: str, structured_input: Json) -> RememberedRule | None:
        """The rule that decides: a pattern beats the bare tool; among equals a denial wins (SE-21, AP-20)."""
        data = canonical_data(structured_input)
        matching = [rule for rule in self._rules if rule.matches(tool_name, data)]
        return min(matching, key=lambda rule: (rule.pattern is None, rule.allow, rule.pattern or ""), default=None)


class Permissions:
    """Decides calls of one live session, in the order authorizer → remembered answer → person."""

    def __init__(self, session_id: str, authorizer: Authorizer, answers: SessionAnswers) -> None:
        self._session_id = session_id
        self._authorizer = authorizer
        self._answers = answers
        self._asked: Counter[str] = Counter()

    async def decide(
        self,
        request: AuthorizationRequest,
        *,
        approver: Approver,
        emit: Callable[[AnyEvent], None],
        always_ask: bool = False,
    ) -> Verdict:
        """Whether the call may run. `always_ask` puts even an allowed or remembered call to the person.

        Never raises for a doubt: an authorizer or approver that fails denies, and the reason says so (AP-10, TL-23).
        """
        try:
            authorization = await self._authorizer.authorize(request)
        except Exception:
            logger.exception("authorizer failed for tool %s", request.tool_name)
            return Verdict(allow=False, reason="the call could not be checked, so it was refused")
        if authorization.outcome == "deny":
            return Verdict(allow=False, reason=authorization.reason or "this session does not allow it")
        rule = self._answers.find(request.tool_name, request.preparation.structured_input)
        if rule is not None and not rule.allow:
            return Verdict(allow=False, reason=_remembered_reason(rule), rule_scope="process")
        if not always_ask:
            if authorization.outcome == "allow":
                return Verdict(allow=True)
            if rule is not None:
                return Verdict(allow=True, rule_scope="process")
        covered = None if always_ask else request.preparation.covered or f"every {request.tool_name}"
        return await self._ask(request, authorization.reason, covered, approver, emit)

    async def _ask(
        self,
        request: AuthorizationRequest,
        reason: str | None,
        covered: str | None,
        approver: Approver,
        emit: Callable[[AnyEvent], None],
    ) -> Verdict:
        self._asked[request.tool_call_id] += 1
        preparation = request.preparation
        approval = ApprovalRequest(
            request_id=f"perm-{request.tool_call_id}-{self._asked[request.tool_call_id]}",
            session_id=self._session_id,
            tool_call_id=request.tool_call_id,
            tool_name=request.tool_name,
            title=preparation.title,
            description=reason or preparation.title,
            input=preparation.structured_input,
            preview=preparation.preview,
            side_effect_level=preparation.side_effect,
            covered=covered,
        )
        emit(
            PermissionRequested(
                request_id=approval.request_id,
                tool_call_id=approval.tool_call_id,
                tool_name=approval.tool_name,
                description=approval.description,
                preview=approval.preview,
                side_effect_level=approval.side_effect_level,
            )
        )
        answer = await _answer_or_denial(approver, approval)
        is_kept = answer.scope != "once" and covered is not None
        if is_kept:
            self._answers.remember(
                RememberedRule(
                    request.tool_name,
                    answer.allow,
                    pattern=answer.pattern or preparation.remember_pattern,
                    reason=None if answer.allow else answer.reason,
                )
            )
        emit(
            PermissionResolved(
                request_id=approval.request_id,
                tool_call_id=approval.tool_call_id,
                tool_name=approval.tool_name,
                outcome="allowed" if answer.allow else "denied",
                rule_scope="process" if is_kept else None,
            )
        )
        return Verdict(allow=answer.allow, reason=None if answer.allow else answer.reason)


async def _answer_or_denial(approver: Approver, request: ApprovalRequest) -> ApprovalAnswer:
    try:
        answer: object = await approver.approve(request)
    except Exception:
        logger.exception("approver failed for %s", request.request_id)
        return ApprovalAnswer(reason="nobody could be asked, so it was refused")
    if not isinstance(answer, ApprovalAnswer):
        logger.error("approver gave no ApprovalAnswer for %s", request.request_id)
        return ApprovalAnswer(reason="the answer could not be understood, so it was refused")
    return answer


def _remembered_reason(rule: RememberedRule) -> str:
    return f"{rule.reason or 'refused'} (remembered for this session; asking again will not change it)"
