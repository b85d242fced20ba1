"""`basis/rule/*`: remembered answers – which there are, forgetting one, and what they make of a call."""

import asyncio

from basis_daemon.runtime.rules import PermissionRuleAddress, RememberedRule, RuleKey, RuleOwner, RuleScope
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.server.client import Client
from basis_daemon.server.error_map import InvalidParams, NoSuchRule
from basis_daemon.server.services import Services
from basis_daemon.server.workspaces import require_absolute
from basis_daemon.workspace.run import PreparedRun
from basis_daemon.workspace.store import runtime_identifier
from basis_protocol.base import Empty
from basis_protocol.workspaces import (
    Rule,
    RuleExplainParams,
    RuleExplainResult,
    RuleListParams,
    RuleListResult,
    RuleRemoveParams,
    RuleRunnerUp,
)

_SCOPES: dict[str, RuleScope] = {"process": "process", "session": "session", "project": "project", "global": "global"}


async def list_rules(services: Services, client: Client, params: RuleListParams) -> RuleListResult:
    answers = await _answers(services, params.workspace, params.session_id)
    rules = await asyncio.to_thread(answers.remembered_rules)
    return RuleListResult(rules=[_wire(rule) for rule in rules], file=answers.file)


async def remove(services: Services, client: Client, params: RuleRemoveParams) -> Empty:
    rule = params.rule
    scope = _SCOPES.get(rule.scope)
    if scope is None:
        raise InvalidParams(f"rule.scope: there is no scope {rule.scope!r}", field="rule.scope")
    answers = await _answers(services, params.workspace, params.session_id)
    address = PermissionRuleAddress(scope, RuleKey(rule.tool_name, rule.pattern))
    if not await asyncio.to_thread(answers.revoke_rule, address):
        raise NoSuchRule(
            f"there is no such rule for {rule.tool_name} in scope `{scope}`",
            hint="see which there are: basisctl rules; those of a session or a project are found through it",
        )
    return Empty()


async def explain(services: Services, client: Client, params: RuleExplainParams) -> RuleExplainResult:
    if not isinstance(params.input, dict):
        raise InvalidParams("input: the input of a tool is a JSON object", field="input")
    if params.session_id is not None:
        return await _explained((await services.hub.get(params.session_id)).session.run, params)
    if params.workspace is None:
        raise InvalidParams("workspace: say in which workspace or session", field="workspace")
    # Nothing is written for a conversation without a prompt.
    run = (await services.workspaces.get(params.workspace)).prepare(ephemeral=True)
    try:
        return await _explained(run, params)
    finally:
        run.close()


async def _explained(run: PreparedRun, params: RuleExplainParams) -> RuleExplainResult:
    told = await run.explain_call(params.tool, params.input)
    return RuleExplainResult(
        outcome=told.outcome,
        decided_by=told.decided_by,
        why=told.why,
        rule=_wire(told.rule) if told.rule is not None else None,
        file=told.file,
        runners_up=[RuleRunnerUp(rule=_wire(loser.rule), why=loser.why) for loser in told.losers],
        uncovered=list(told.uncovered),
    )


async def _answers(services: Services, workspace: str | None, session_id: str | None) -> SessionAnswers:
    """The rules that hold in a session; in a workspace; with neither, everywhere."""
    if session_id is not None:
        return (await services.hub.get(session_id)).session.run.rules
    runtime = await asyncio.to_thread(services.runtime.get)
    project = None
    if workspace is not None:
        project = await asyncio.to_thread(runtime_identifier, require_absolute(workspace, "workspace"))
    return SessionAnswers(runtime.rules, RuleOwner("", project))


def _wire(rule: RememberedRule) -> Rule:
    return Rule(tool_name=rule.tool_name, pattern=rule.pattern, allow=rule.allow, scope=rule.scope, reason=rule.reason)


HANDLERS = {
    "basis/rule/list": list_rules,
    "basis/rule/remove": remove,
    "basis/rule/explain": explain,
}
