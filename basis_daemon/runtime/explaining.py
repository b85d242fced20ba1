"""What would become of a call, and by whose word, without asking anybody and without running it.

Owns the telling. The way there is the calls' own: the pipeline takes the call as far as the question whether it may
run, and is stopped there. Hooks are left out: they are other people's programs, and asking them is no look-up.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from basis_daemon.errors import BasisError
from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.approvals import ApprovalAnswer, ApprovalRequest, Approver
from basis_daemon.runtime.call_pipeline import CallPipeline
from basis_daemon.runtime.hooks.table import HookTable
from basis_daemon.runtime.messages import Json, ToolUse
from basis_daemon.runtime.observers import Observers
from basis_daemon.runtime.permissions import AuthorizationRequest, Explanation, Permissions, Unguarded, Verdict
from basis_daemon.runtime.providers.base import Limits
from basis_daemon.runtime.rule_lookup import Finding, Loser
from basis_daemon.runtime.rules import RememberedRule
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.runtime.tool_host import ToolHost
from basis_daemon.runtime.tools.base import default_preparation
from basis_protocol.events import AnyEvent

DecidedBy = Literal["tool", "authorizer", "mode", "rule", "rules_file", "person"]
"""`tool` is everything ahead of the question: no such tool, bad input, a hard limit of the policy."""


@dataclass(frozen=True, slots=True)
class CallExplanation:
    """What would become of a call. `prompt` means that a person would be asked."""

    outcome: Literal["allow", "deny", "prompt"]
    decided_by: DecidedBy
    why: str
    rule: RememberedRule | None = None
    file: str | None = None
    """Where the deciding rule is kept, or the file that can't be read."""
    losers: tuple[Loser, ...] = ()
    uncovered: tuple[str, ...] = ()
    """Commands of the line that no rule covers, where some are covered."""


async def explain_call(
    tool_name: str,
    input: dict[str, Json],
    *,
    agent: Agent,
    host: ToolHost,
    limits: Limits,
    permissions: Permissions,
    answers: SessionAnswers,
) -> CallExplanation:
    """What this session would make of a call now. Changes nothing."""
    noting = _Noting(agent.id, answers)
    pipeline = CallPipeline(
        agent=agent,
        turn_id="",
        host=replace(host, hooks=HookTable(), observers=Observers()),
        limits=limits,
        permissions=noting,
        approver=_Nobody(),
        emit=_unheard,
    )
    planned = pipeline.plan(ToolUse(f"explained-{os.urandom(4).hex()}", tool_name, input))
    ongoing = await pipeline.admit(planned)
    request = noting.request
    if request is None and planned.found is not None and "delegation" in planned.found.spec.capabilities:
        # Only a running turn can hand work on; what rules make of it can be told all the same.
        preparation = default_preparation(planned.found.spec, input)
        request = AuthorizationRequest(agent.id, planned.call.id, tool_name, preparation, spec=planned.found.spec)
    if request is None:
        return CallExplanation("deny", "tool", str(ongoing.refusal.content) if ongoing.refusal else "it was refused")
    try:
        explained = await permissions.explain(request)
    except BasisError as error:
        return CallExplanation("deny", "rules_file", str(error), file=answers.file)
    always_ask = limits.always_ask and request.preparation.side_effect != "none"
    return _told(explained, answers.file, always_ask=always_ask)


def _told(explained: Explanation, file: str | None, *, always_ask: bool) -> CallExplanation:
    said, finding = explained.authorization, explained.finding
    if said.outcome == "deny":
        return CallExplanation(
            "deny", "authorizer", said.reason or "this session does not allow it", losers=_all_lose(finding)
        )
    if said.outcome == "allow" and not always_ask:
        return CallExplanation(
            "allow", "authorizer", said.reason or "nobody needs to be asked about it", losers=_all_lose(finding)
        )
    rule = finding.rule
    if rule is None or (rule.allow and always_ask):
        why = "calls of this model are always put to a person" if always_ask else "no remembered answer covers it"
        return CallExplanation("prompt", "person", why, losers=finding.losers, uncovered=finding.uncovered)
    return CallExplanation(
        "allow" if rule.allow else "deny",
        "rule",
        _of(rule),
        rule=rule,
        file=None if rule.scope == "process" else file,
        losers=finding.losers,
    )


def _of(rule: RememberedRule) -> str:
    words = "allowed" if rule.allow else "denied"
    where = "in this session only" if rule.scope == "process" else f"in scope `{rule.scope}`"
    return f"{words} by a remembered answer {where}" + (f": {rule.reason}" if rule.reason else "")


def _all_lose(finding: Finding) -> tuple[Loser, ...]:
    """Rules are not asked where the authorizer has decided (SE-31)."""
    ours = () if finding.rule is None else (Loser(finding.rule, "rules are not asked: this is decided before"),)
    return (*ours, *finding.losers)


class _Noting(Permissions):
    """Takes the question down and answers nothing."""

    def __init__(self, agent_id: str, answers: SessionAnswers) -> None:
        super().__init__(agent_id, Unguarded(), answers)
        self.request: AuthorizationRequest | None = None

    async def decide(
        self,
        request: AuthorizationRequest,
        *,
        approver: Approver,
        emit: Callable[[AnyEvent], None],
        always_ask: bool = False,
    ) -> Verdict:
        self.request = request
        return Verdict(allow=False)


class _Nobody:
    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer()


def _unheard(event: AnyEvent) -> None:
    """What is looked up is no event of the conversation."""
