"""Who decides about consequential calls, and by which rule: gates, session modes and approvers (workspace.md 5).

A gate is an authorizer: it says whether a call needs a person. An approver is that person, or stands for one. The
answers remembered between the two are the runtime's: see `runtime/permissions.py`.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from basis_daemon.runtime.permissions import (
    ApprovalAnswer,
    ApprovalRequest,
    Approver,
    Authorization,
    AuthorizationRequest,
)

logger = logging.getLogger(__name__)

Mode = Literal["always", "prompt", "never"]
MODES: tuple[Mode, ...] = ("always", "prompt", "never")


class ApprovalGate:
    """Allows calls without consequences and puts every other one to remembered rules and then to a person (AP-11)."""

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        if request.preparation.side_effect == "none":
            return Authorization("allow", "it changes nothing, and such calls are never asked about")
        return Authorization("prompt")


class PolicyGate:
    """`ApprovalGate` under a session's mode, read at every call: `never` is a final refusal that no remembered rule can
    lift; `always` and `prompt` leave the question to the approver (AP-22, AP-23)."""

    def __init__(self, mode: Callable[[], str]) -> None:
        self._mode = mode
        self._gate = ApprovalGate()

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        authorization = await self._gate.authorize(request)
        if authorization.outcome == "prompt" and self._mode() not in ("always", "prompt"):
            # A mode nobody knows is treated as the strictest one.
            return Authorization("deny", f"the session's mode `{self._mode()}` allows no changes")
        return authorization


class PolicyApprover:
    """Answers for the person where the session's mode already has, sampled once per question (AP-26)."""

    def __init__(self, mode: Callable[[], str], inner: Approver) -> None:
        self._mode = mode
        self._inner = inner

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        match self._mode():
            case "always":
                return ApprovalAnswer(allow=True)
            case "prompt":
                return await self._inner.approve(request)
            case mode:
                return ApprovalAnswer(reason=f"the session's mode `{mode}` allows no changes")


class AllowAll:
    """Allows everything it is asked about (AP-9). Nothing uses it unless it is named."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(allow=True)


class DenyAll:
    """Refuses everything it is asked about, saying why (AP-9)."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(reason=f"{request.tool_name} was refused: this run allows no changes")


@dataclass(frozen=True)
class DefaultDeny:
    """Denies, with a reason, when `inner` raises, takes longer than `timeout_s` or answers nonsense (AP-10, AP-12)."""

    inner: Approver
    timeout_s: float | None = None

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        limit = asyncio.timeout(self.timeout_s)
        try:
            async with limit:
                answer: object = await self.inner.approve(request)
        except TimeoutError:
            if limit.expired():
                return ApprovalAnswer(reason=f"nobody answered within {self.timeout_s:g} s, so it was refused")
            answer = None
        except Exception:
            logger.exception("approver failed for %s", request.request_id)
            return ApprovalAnswer(reason="nobody could be asked, so it was refused")
        if not isinstance(answer, ApprovalAnswer) or not isinstance(answer.allow, bool):
            logger.error("approver gave no usable answer for %s", request.request_id)
            return ApprovalAnswer(reason="the answer could not be understood, so it was refused")
        return answer
