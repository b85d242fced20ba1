"""What a person is asked about a call, how they may answer, and what an answer would cover (workspace.md 5.2, 5.4).

Owns the values and the offers. Asks nobody and keeps nothing: see `permissions.py`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.rule_lookup import command_glob, find
from basis_daemon.runtime.rules import OperationDenied, RememberedRule, RuleScope
from basis_daemon.runtime.session_rules import call_data
from basis_daemon.runtime.tools.base import CallPreparation, SideEffectLevel
from basis_daemon.runtime.tools.command_lines import suggested
from basis_protocol.content import Preview

RememberScope = Literal["once", "session", "project", "global"]
"""How long an answer holds, in a person's words. `session` is the rule scope `process`: it ends with the live session
(AP-14)."""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """A decision, how long it holds, and why (AP-7). The default is a denial. `pattern` narrows what is remembered: a
    pattern over the call's structured input, or for a command simply one over the command (SE-23)."""

    allow: bool = False
    scope: RememberScope = "once"
    reason: str | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A scope in which an answer may be kept, and what it would cover there unless a pattern is given with it."""

    scope: RememberScope
    covered: str
    """In words for the person who decides, e.g. `every command`."""
    pattern: str | None = None


async def _keep_nothing(answer: ApprovalAnswer) -> None:
    """For requests nobody keeps answers of."""


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
    offers: tuple[Offer, ...] = ()
    """How an answer may be remembered; empty when none would be kept."""
    keep: Callable[[ApprovalAnswer], Awaitable[None]] = field(default=_keep_nothing, compare=False, repr=False)
    """Writes down what an answer says about later calls, ahead of giving it. Whoever tells a person that their answer
    counts calls this first: what it raises (`OperationDenied`, `StoreError`) leaves the question open (SE-16). Does
    nothing once the question is over. Repeatable."""


class Approver(Protocol):
    """Asks whoever may decide. May take as long as a person takes; cancelling it withdraws the question."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer: ...


def offers_for(tool_name: str, preparation: CallPreparation, *, has_project: bool) -> tuple[Offer, ...]:
    """How an answer about a call may be remembered. What outlives the session is offered for less (AP-21, AP-30)."""
    words = preparation.covered or f"every {tool_name}"
    offers = [Offer("session", words, preparation.remember_pattern)]
    lasting = (words, preparation.remember_pattern)
    key, line = preparation.command_key, _line(preparation)
    if key is not None and line is not None:
        found = suggested(line)
        if found is None:
            return tuple(offers)
        lasting = (found[1], pattern_for(found[0], preparation))
    if has_project:
        offers.append(Offer("project", *lasting))
    offers.append(Offer("global", *lasting))
    return tuple(offers)


def pattern_for(command: str, preparation: CallPreparation) -> str:
    """A pattern over a call's structured input that says of its command what `command` says, and of the rest what the
    tool's own pattern does (AP-30)."""
    assert preparation.command_key is not None
    member = f"{_json(preparation.command_key)}:"
    own = preparation.remember_pattern
    if own is not None and command_glob(own, preparation.command_key) == "*":
        return own.replace(f'{member}"*"', f"{member}{_json(command)}", 1)
    return f"*{member}{_json(command)}*"


def rule_for(
    answer: ApprovalAnswer, tool_name: str, preparation: CallPreparation, offers: tuple[Offer, ...]
) -> RememberedRule | None:
    """The rule an answer asks for; `None` for one that holds once.

    Raises `OperationDenied` for a scope that was not offered, and for a pattern that doesn't cover the very call.
    """
    if answer.scope == "once" or not offers:
        return None
    offer = next((offer for offer in offers if offer.scope == answer.scope), None)
    if offer is None:
        raise OperationDenied(f"an answer can't be kept in scope `{answer.scope}` here")
    scope: RuleScope = "process" if answer.scope == "session" else answer.scope
    pattern = offer.pattern if answer.pattern is None else _meant(answer.pattern, preparation)
    rule = RememberedRule(tool_name, answer.allow, pattern, None if answer.allow else answer.reason, scope)
    if answer.pattern is not None and not _covers(rule, tool_name, preparation):
        raise OperationDenied(
            f"the pattern {answer.pattern!r} does not cover this call",
            hint="each command of the line has to match, and a line with redirections or substitutions never does",
        )
    return rule


def _meant(pattern: str, preparation: CallPreparation) -> str:
    """JSON of an object has quotes: a pattern without any is about the command."""
    is_about_the_command = preparation.command_key is not None and '"' not in pattern
    return pattern_for(pattern, preparation) if is_about_the_command else pattern


def _covers(rule: RememberedRule, tool_name: str, preparation: CallPreparation) -> bool:
    call = call_data(tool_name, preparation.structured_input, preparation.command_key)
    return find(call, [rule]).rule is not None


def _line(preparation: CallPreparation) -> str | None:
    line = preparation.structured_input.get(preparation.command_key) if preparation.command_key is not None else None
    return line if isinstance(line, str) else None


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()
