"""Remembered answers as data: what a rule is, what it is known by, and how its pattern reads a call (runtime.md 6.5).

Owns the four scopes, the one spelling of a call that patterns are matched against, and the matcher. Which of several
rules decides is `rule_lookup.py`'s matter, where they are kept `store/rules.py`'s.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Protocol, cast

import msgspec

from basis_daemon.errors import UsageError
from basis_daemon.runtime.messages import Json

RuleScope = Literal["process", "session", "project", "global"]
SCOPES: tuple[RuleScope, ...] = ("process", "session", "project", "global")
"""The narrowest first: the order in which they are asked (SE-21)."""

MAX_PATTERN_CHARS = 8192
MAX_REASON_CHARS = 4000


class OperationDenied(UsageError):
    """A rule or an answer that can't be what it says it is; nothing was written (SE-16, SE-20)."""

    kind = "operation_denied"


@dataclass(frozen=True, slots=True)
class RuleKey:
    """What a rule covers: a tool, or what a pattern makes of it."""

    tool_name: str
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class PermissionRuleAddress:
    """A rule's identity: there is one rule at an address, and the last one written is it (SE-19)."""

    scope: RuleScope
    key: RuleKey


@dataclass(frozen=True, slots=True)
class RememberedRule:
    """An answer that holds for later calls. `reason` is a denial's (SE-19)."""

    tool_name: str
    allow: bool
    pattern: str | None = None
    reason: str | None = None
    scope: RuleScope = "process"

    @property
    def address(self) -> PermissionRuleAddress:
        return PermissionRuleAddress(self.scope, RuleKey(self.tool_name, self.pattern))

    def matches(self, tool_name: str, data: str) -> bool:
        """Whether the rule covers a call; `data` is the call's input as `canonical_data` writes it."""
        return self.tool_name == tool_name and (self.pattern is None or matches_data(self.pattern, data))


@dataclass(frozen=True, slots=True)
class RuleOwner:
    """Whose durable rules are meant: a conversation's own, and those of the project it belongs to, if it does."""

    agent_id: str
    project_id: str | None = None


class RuleStore(Protocol):
    """Where durable rules are kept. Synchronous file work, safe from any thread; everything raises `StoreError`."""

    @property
    def file(self) -> str | None:
        """The file they are in, for whoever has to look; `None` in memory."""
        ...

    def load(self, owner: RuleOwner) -> tuple[RememberedRule, ...]:
        """The owner's rules as they are now, whoever wrote them last: session's, project's, global (SE-25)."""
        ...

    def upsert(self, owner: RuleOwner, rule: RememberedRule) -> None:
        """Keep a rule instead of the one at its address. Raises `OperationDenied` for scope `process`, and for
        `project` without a project (SE-20)."""
        ...

    def revoke(self, owner: RuleOwner, address: PermissionRuleAddress) -> bool:
        """Remove the rule at an address. False when there is none."""
        ...

    def clear(self, owner: RuleOwner, scope: RuleScope) -> int:
        """Remove every rule of one scope that is this owner's. Returns how many there were."""
        ...

    def save(self, owner: RuleOwner, rules: tuple[RememberedRule, ...]) -> None:
        """Make `rules` the owner's session rules, and keep those of wider scopes among them (ST-2)."""
        ...


def checked(rule: RememberedRule) -> RememberedRule:
    """The rule as it is kept: no reason on an allow. Raises `OperationDenied` for one that can't be kept."""
    if not rule.tool_name:
        raise OperationDenied("a rule needs the name of a tool")
    if rule.scope not in SCOPES:
        raise OperationDenied(f"there is no scope {rule.scope!r}, only {', '.join(SCOPES)}")
    if rule.pattern is not None and len(rule.pattern) > MAX_PATTERN_CHARS:
        raise OperationDenied(f"the rule's pattern is longer than {MAX_PATTERN_CHARS} characters")
    reason = None if rule.allow or not rule.reason else rule.reason[:MAX_REASON_CHARS]
    return rule if reason == rule.reason else replace(rule, reason=reason)


def require_owner(owner: RuleOwner, scope: RuleScope) -> None:
    """Raises `OperationDenied` when a store can't keep a rule of that scope for that owner (SE-20)."""
    if scope == "process":
        raise OperationDenied("rules of scope `process` live in a conversation's memory and are never stored")
    if scope == "project" and owner.project_id is None:
        raise OperationDenied("this conversation belongs to no project, so no rule can be kept for one")


def canonical_data(structured_input: Json) -> str:
    """The one spelling of a structured input that patterns are matched against: compact JSON, sorted keys, text as it
    is and not in escapes (SE-22). Half of a surrogate pair, which is no text, reads as U+FFFD."""
    try:
        return msgspec.json.encode(structured_input, order="sorted").decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_as_text(structured_input), order="sorted").decode()


def matches_data(pattern: str, data: str) -> bool:
    """The data glob: `*` and `**` are any run of characters, `?` is one, everything else is itself (SE-22)."""
    return _translated(pattern).fullmatch(data) is not None


def listing_order(rule: RememberedRule) -> tuple[int, str, bool, str]:
    """Rules as they are listed: by scope, the narrowest first, then tool, then patterns before bare (SE-25)."""
    return SCOPES.index(rule.scope), rule.tool_name, rule.pattern is None, rule.pattern or ""


def is_exact(pattern: str) -> bool:
    """Whether a pattern is one text and no other."""
    return "*" not in pattern and "?" not in pattern


@lru_cache(maxsize=4096)
def _translated(pattern: str) -> re.Pattern[str]:
    parts = [_literal(part) for part in re.split(r"\*+", pattern)]
    # Atomic groups keep the match linear: a pattern must never be able to stall the loop.
    middle = "".join(f"(?>.*?{part})" for part in parts[1:-1] if part)
    return re.compile(parts[0] if len(parts) == 1 else f"{parts[0]}{middle}.*{parts[-1]}", re.DOTALL)


def _literal(text: str) -> str:
    return ".".join(re.escape(part) for part in text.split("?"))


def _as_text(value: Json) -> Json:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            members = cast(dict[str, Json], value)
            return {_as_text(key): _as_text(member) for key, member in members.items()}
        case list():
            return [_as_text(item) for item in cast(list[Json], value)]
        case _:
            return value
