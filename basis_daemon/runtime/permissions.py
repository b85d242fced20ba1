"""Whether one consequential call may run: authorizer, remembered rules, then a person (runtime.md 6.4, workspace.md 5).

Owns the order of the questions, and that an answer is kept before it is told and acted upon. Everything doubtful
denies. The person is reached through an `Approver`; who that is, is the host's matter. Which rules there are and what
they mean is `session_rules.py`'s.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from basis_daemon.errors import BasisError
from basis_daemon.runtime.approvals import ApprovalAnswer, ApprovalRequest, Approver, Offer, offers_for, rule_for
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.rule_lookup import Finding
from basis_daemon.runtime.rules import RememberedRule, RuleScope
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.runtime.tools.base import CallPreparation
from basis_daemon.runtime.tools.spec import ToolSpec
from basis_protocol.events import AnyEvent, PermissionRequested, PermissionResolved

logger = logging.getLogger(__name__)

_REMEMBERED_FOR: dict[RuleScope, str] = {
    "process": "this session",
    "session": "this conversation",
    "project": "this project",
    "global": "all projects",
}


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """What an authorizer judges: one call as it would really run (TL-22)."""

    agent_id: str
    tool_call_id: str
    tool_name: str
    preparation: CallPreparation
    agent_name: str = ""
    model: str = ""
    history_len: int = 0
    """Entries of the conversation so far."""
    working_directory: Path | None = None
    raw_input: Json = None
    """The call's input as hooks left it."""
    spec: ToolSpec = field(default_factory=lambda: ToolSpec(""))
    """What the tool says of itself: capabilities, durability, approval category."""


@dataclass(frozen=True, slots=True)
class Authorization:
    """`allow` and `deny` are final; `prompt` lets rules and then a person decide (AP-2)."""

    outcome: Literal["allow", "prompt", "deny"]
    reason: str | None = None


class Authorizer(Protocol):
    async def authorize(self, request: AuthorizationRequest) -> Authorization: ...


@runtime_checkable
class HasTimeout(Protocol):
    """An authorizer that is given so many seconds to judge. A person's time to answer is not its own (TL-26)."""

    timeout_s: float | None


class Unguarded:
    """The authorizer of a host that names none: what the policy admits may run (6.4)."""

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        return Authorization("allow")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it was decided. `rule_scope` is set when a remembered rule, not a person, answered."""

    allow: bool
    reason: str | None = None
    rule_scope: RuleScope | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would become of a call, without asking anybody: the authorizer's word, and what the rules make of it."""

    authorization: Authorization
    finding: Finding


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
        authorization = await self._authorized(request)
        if authorization.outcome == "deny":
            return Verdict(allow=False, reason=authorization.reason or "this session does not allow it")
        if authorization.outcome == "allow" and not always_ask:
            return Verdict(allow=True)
        try:
            found = await self._found(request)
        except BasisError as error:
            return Verdict(allow=False, reason=_told(error))
        except Exception:
            logger.exception("remembered rules could not be looked up for tool %s", request.tool_name)
            return Verdict(allow=False, reason="the remembered rules could not be looked up, so it was refused")
        if found.rule is not None and not found.allow:
            return Verdict(allow=False, reason=_remembered_reason(found.rule), rule_scope=found.rule.scope)
        if found.rule is not None and not always_ask:
            return Verdict(allow=True, rule_scope=found.rule.scope)
        offers = () if always_ask else self._offers(request)
        return await self._ask(request, authorization.reason, offers, approver, emit)

    async def explain(self, request: AuthorizationRequest) -> Explanation:
        """What `decide` would go by. Raises `StoreError` when stored rules can't be read."""
        preparation = request.preparation
        finding = await asyncio.to_thread(
            self._answers.explain,
            request.tool_name,
            preparation.structured_input,
            command_key=preparation.command_key,
        )
        return Explanation(await self._authorized(request), finding)

    async def _authorized(self, request: AuthorizationRequest) -> Authorization:
        """The authorizer's word; a denial when it has none that counts (TL-23)."""
        timeout_s = self._authorizer.timeout_s if isinstance(self._authorizer, HasTimeout) else None
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                said: object = await self._authorizer.authorize(request)
        except TimeoutError:
            if limit.expired():
                return Authorization("deny", f"it was not judged within {timeout_s:g} s, so it was refused")
            said = None
        except Exception:
            logger.exception("authorizer failed for tool %s", request.tool_name)
            said = None
        if not isinstance(said, Authorization) or said.outcome not in ("allow", "prompt", "deny"):
            return Authorization("deny", "the call could not be checked, so it was refused")
        return said

    async def _found(self, request: AuthorizationRequest) -> Finding:
        preparation = request.preparation
        return await asyncio.to_thread(
            self._answers.find,
            request.tool_name,
            preparation.structured_input,
            command_key=preparation.command_key,
        )

    def _offers(self, request: AuthorizationRequest) -> tuple[Offer, ...]:
        has_project = self._answers.owner.project_id is not None
        return offers_for(request.tool_name, request.preparation, has_project=has_project)

    async def _ask(
        self,
        request: AuthorizationRequest,
        reason: str | None,
        offers: tuple[Offer, ...],
        approver: Approver,
        emit: Callable[[AnyEvent], None],
    ) -> Verdict:
        self._asked[request.tool_call_id] += 1
        preparation = request.preparation
        question = _Question(request, offers, self._answers)
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
            offers=offers,
            keep=question.keep,
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
        try:
            answer = await _answer_or_denial(approver, approval)
            answer, rule = await question.settle(answer)
        finally:
            question.is_over = True
        emit(
            PermissionResolved(
                request_id=approval.request_id,
                tool_call_id=approval.tool_call_id,
                tool_name=approval.tool_name,
                outcome="allowed" if answer.allow else "denied",
                rule_scope=None if rule is None else rule.scope,
            )
        )
        return Verdict(allow=answer.allow, reason=None if answer.allow else answer.reason)


class _Question:
    """One question while it is open: what an answer to it would leave behind."""

    def __init__(self, request: AuthorizationRequest, offers: tuple[Offer, ...], answers: SessionAnswers) -> None:
        self._request = request
        self._offers = offers
        self._answers = answers
        self._kept: RememberedRule | None = None
        self.is_over = False

    async def keep(self, answer: ApprovalAnswer) -> None:
        """`ApprovalRequest.keep`. A rule for the session is nothing that could fail: it waits until it is settled."""
        rule = self._rule(answer)
        if rule is None or rule.scope == "process" or rule == self._kept or self.is_over:
            return
        await asyncio.to_thread(self._answers.remember_rule, rule)
        self._kept = rule

    async def settle(self, answer: ApprovalAnswer) -> tuple[ApprovalAnswer, RememberedRule | None]:
        """Keep what the answer says of later calls, and return what counts: a denial if that could not be kept."""
        try:
            await self.keep(answer)
            rule = self._rule(answer)
            if rule is not None and rule.scope == "process":
                self._answers.remember(rule)
        except BasisError as error:
            return ApprovalAnswer(reason=f"the answer could not be remembered, so it was refused: {_told(error)}"), None
        except Exception:
            logger.exception("the answer about tool %s could not be remembered", self._request.tool_name)
            return ApprovalAnswer(reason="the answer could not be remembered, so it was refused"), None
        return answer, rule

    def _rule(self, answer: ApprovalAnswer) -> RememberedRule | None:
        return rule_for(answer, self._request.tool_name, self._request.preparation, self._offers)


async def _answer_or_denial(approver: Approver, request: ApprovalRequest) -> ApprovalAnswer:
    try:
        answer: object = await approver.approve(request)
    except Exception:
        logger.exception("approver failed for %s", request.request_id)
        return ApprovalAnswer(reason="nobody could be asked, so it was refused")
    if not isinstance(answer, ApprovalAnswer) or not isinstance(answer.allow, bool):
        logger.error("approver gave no ApprovalAnswer for %s", request.request_id)
        return ApprovalAnswer(reason="the answer could not be understood, so it was refused")
    return answer


def _remembered_reason(rule: RememberedRule) -> str:
    """SE-24."""
    return f"{rule.reason or 'refused'} (remembered for {_REMEMBERED_FOR[rule.scope]}; asking again will not change it)"


def _told(error: BasisError) -> str:
    return f"{error} ({error.hint})" if error.hint else str(error)
