"""Which remembered rule decides a call, and why the others don't (SE-21, AP-20, ADR 10).

Owns the order of rules and what a pattern means for a line of shell commands. Pure: reads no file and asks nobody.

A line of commands is as many calls as it has commands. Each is looked up by itself; one denial denies the line, and
the line is allowed when every command of it is. An allowing pattern with a wildcard in its command never reads the line
as a whole: there `git status; rm -rf ~` would be a way to write `git status*`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.rules import SCOPES, RememberedRule, canonical_data, is_exact, matches_data

_ANY = re.compile(r"\*+")
_STRING_END = re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL)


@dataclass(frozen=True)
class CallData:
    """A call as rules read it. For a call that runs a line of shell, `command_key` is where in `structured_input` the
    line is, `plain` its commands if it consists of nothing else, and `mentioned` all that can be made out in it."""

    tool_name: str
    structured_input: dict[str, Json]
    command_key: str | None = None
    plain: tuple[str, ...] | None = None
    mentioned: tuple[str, ...] = ()

    @cached_property
    def _spelled(self) -> dict[str, tuple[str, ...]]:
        return {}

    @cached_property
    def whole(self) -> str:
        return canonical_data(self.structured_input)

    def spelled(self, command: str) -> tuple[str, ...]:
        """The data as it would be of a call that runs `command` only. With a blank at its end too, so that
        `git status *` covers `git status`."""
        assert self.command_key is not None
        known = self._spelled.get(command)
        if known is None:
            both = ({**self.structured_input, self.command_key: text} for text in (command, f"{command} "))
            known = self._spelled[command] = tuple(map(canonical_data, both))
        return known


@dataclass(frozen=True, slots=True)
class Loser:
    """A rule for the same tool that does not decide, and why not."""

    rule: RememberedRule
    why: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What rules make of a call: `allow` is `None` when they leave it open."""

    allow: bool | None = None
    rule: RememberedRule | None = None
    """The rule that decides. Of a line whose commands are allowed by several, the one that ranks last."""
    losers: tuple[Loser, ...] = ()
    uncovered: tuple[str, ...] = field(default=())
    """Commands of the line that no rule covers."""


def find(call: CallData, rules: Sequence[RememberedRule], *, with_losers: bool = False) -> Finding:
    """What `rules` make of `call`, whatever order they come in. Why the others lose is worked out on demand."""
    own = sorted((rule for rule in rules if rule.tool_name == call.tool_name), key=rank)
    winners = {unit: _winner(call, unit, own) for unit in call.plain or (None,)}
    denied = sorted((rule for rule in winners.values() if rule is not None and not rule.allow), key=rank)
    uncovered = tuple(unit for unit, rule in winners.items() if rule is None and unit is not None)
    if denied:
        decisive, allow = denied[0], False
    elif None in winners.values():
        decisive, allow = None, None
    else:
        decisive, allow = max((rule for rule in winners.values() if rule is not None), key=rank), True
    losers = _losers(call, own, winners, decisive) if with_losers else ()
    return Finding(allow, decisive, losers, uncovered)


def rank(rule: RememberedRule) -> tuple[int, bool, bool, str]:
    """Rules in the order in which the first that matches decides: narrower scope, pattern before bare, denial before
    allow, then by pattern (SE-21)."""
    return SCOPES.index(rule.scope), rule.pattern is None, rule.allow, rule.pattern or ""


def command_glob(pattern: str, key: str) -> str | None:
    """What `pattern` says of the command in field `key`, as JSON writes it; `None` where the pattern leaves open where
    that field begins or ends."""
    start = f'{msgspec.json.encode(key).decode()}:"'
    _, found, rest = pattern.partition(start)
    if not found:
        return None
    text = _STRING_END.match(rest)
    end = text.end() if text else 0
    return rest[:end] if rest[end : end + 1] == '"' else None


def _winner(call: CallData, unit: str | None, rules: Sequence[RememberedRule]) -> RememberedRule | None:
    return next((rule for rule in rules if _covers(call, unit, rule)), None)


def _covers(call: CallData, unit: str | None, rule: RememberedRule) -> bool:
    """Whether a rule covers one command of a line (`unit`), or a call that is not taken apart."""
    pattern, key = rule.pattern, call.command_key
    if pattern is None:
        return True
    if key is None:
        return matches_data(pattern, call.whole)
    if not rule.allow:
        return _denies(call, unit, pattern)
    wanted = command_glob(pattern, key)
    is_about_the_line = wanted is not None and (is_exact(wanted) or _ANY.fullmatch(wanted) is not None)
    if is_about_the_line and matches_data(pattern, call.whole):
        return True
    return unit is not None and any(matches_data(pattern, data) for data in call.spelled(unit))


def _denies(call: CallData, unit: str | None, pattern: str) -> bool:
    """A denial reads generously: the line, the command, and whatever else can be made out in the line."""
    texts = (unit, *call.mentioned) if unit is not None else call.mentioned
    return matches_data(pattern, call.whole) or any(
        matches_data(pattern, data) for text in texts for data in call.spelled(text)
    )


def _losers(
    call: CallData,
    rules: Sequence[RememberedRule],
    winners: dict[str | None, RememberedRule | None],
    decisive: RememberedRule | None,
) -> tuple[Loser, ...]:
    used = {id(rule) for rule in winners.values()}
    return tuple(
        Loser(rule, _why(call, rule, winners, decisive, is_part=id(rule) in used))
        for rule in rules
        if rule is not decisive
    )


def _why(
    call: CallData,
    rule: RememberedRule,
    winners: dict[str | None, RememberedRule | None],
    decisive: RememberedRule | None,
    *,
    is_part: bool,
) -> str:
    covered = [unit for unit in winners if _covers(call, unit, rule)]
    if not covered:
        if rule.allow and call.command_key is not None and call.plain is None:
            return "a pattern allows no line with redirections, substitutions or other syntax of the shell's"
        return "its pattern does not match"
    if is_part:
        return f"it covers a part of the line only: {', '.join(str(unit) for unit in covered)}"
    winner = next((winners[unit] for unit in covered if winners[unit] is not None), decisive)
    return "another rule decides" if winner is None else _outranked(rule, winner)


def _outranked(rule: RememberedRule, winner: RememberedRule) -> str:
    if rule.scope != winner.scope:
        return f"`{winner.scope}` comes before `{rule.scope}`"
    if rule.pattern is None and winner.pattern is not None:
        return "a pattern comes before the whole tool"
    if rule.allow and not winner.allow:
        return "a denial comes before an allow"
    return "the other's pattern comes first in the alphabet"
