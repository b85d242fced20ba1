"""The remembered answers one live conversation goes by: its own, in memory, and the stored ones that apply to it.

Owns the `process` scope, which is this object and nothing else, and the live view over all four (runtime.md 6.5). Safe
from any thread; what concerns stored rules is synchronous file work: callers on a loop use a thread.
"""

import threading
from dataclasses import replace

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.rule_lookup import CallData, Finding, find
from basis_daemon.runtime.rules import (
    PermissionRuleAddress,
    RememberedRule,
    RuleOwner,
    RuleScope,
    RuleStore,
    checked,
    listing_order,
)
from basis_daemon.runtime.store.rules import VolatileRuleStore
from basis_daemon.runtime.tools.command_lines import mentioned_commands, plain_commands


class SessionAnswers:
    """The rules of one conversation and of the subagents that work for it. `store` is where the durable ones are."""

    def __init__(self, store: RuleStore | None = None, owner: RuleOwner | None = None) -> None:
        self._lock = threading.Lock()
        self._rules: dict[PermissionRuleAddress, RememberedRule] = {}
        self._store: RuleStore = store if store is not None else VolatileRuleStore()
        self._owner = owner or RuleOwner("")

    @property
    def owner(self) -> RuleOwner:
        return self._owner

    @property
    def file(self) -> str | None:
        """The file the durable ones are in, if they are in one."""
        return self._store.file

    @property
    def rules(self) -> tuple[RememberedRule, ...]:
        """Those that live here only (AP-14)."""
        with self._lock:
            return tuple(self._rules.values())

    def remember(self, rule: RememberedRule) -> None:
        """Keep a rule here, whatever its scope says; the same tool and pattern replaces an earlier answer."""
        rule = checked(replace(rule, scope="process"))
        with self._lock:
            self._rules[rule.address] = rule

    def forget(self) -> None:
        """Drop what lives here (AP-32)."""
        with self._lock:
            self._rules.clear()

    # --- all four scopes (SE-25) ---

    def remember_rule(self, rule: RememberedRule) -> None:
        """Keep a rule in the scope it names. Raises `OperationDenied`, `StoreError`; then nothing is kept."""
        if rule.scope == "process":
            self.remember(rule)
        else:
            self._store.upsert(self._owner, checked(rule))

    def revoke_rule(self, address: PermissionRuleAddress) -> bool:
        """Remove one. False when there is none. Raises `StoreError`."""
        if address.scope != "process":
            return self._store.revoke(self._owner, address)
        with self._lock:
            return self._rules.pop(address, None) is not None

    def clear_scope(self, scope: RuleScope) -> int:
        """Remove all of one scope that apply here; returns how many. Raises `StoreError`."""
        if scope != "process":
            return self._store.clear(self._owner, scope)
        with self._lock:
            removed = len(self._rules)
            self._rules.clear()
        return removed

    def remembered_rules(self) -> list[RememberedRule]:
        """All that apply: by scope, the narrowest first, then tool, then patterns before bare. Raises `StoreError`."""
        return sorted((*self.rules, *self._store.load(self._owner)), key=listing_order)

    def find(self, tool_name: str, structured_input: dict[str, Json], *, command_key: str | None = None) -> Finding:
        """What the rules make of a call, as they are now. Stored ones are looked at only where those here leave it open
        (SE-26). Raises `StoreError`."""
        call = call_data(tool_name, structured_input, command_key)
        here = self.rules
        found = find(call, here)
        return found if found.allow is not None else find(call, (*here, *self._store.load(self._owner)))

    def explain(self, tool_name: str, structured_input: dict[str, Json], *, command_key: str | None = None) -> Finding:
        """The same with every rule that loses, stored ones too. Raises `StoreError`."""
        call = call_data(tool_name, structured_input, command_key)
        return find(call, self.remembered_rules(), with_losers=True)


def call_data(tool_name: str, structured_input: dict[str, Json], command_key: str | None) -> CallData:
    """A call as rules read it. Takes time in proportion to the length of a command."""
    line = structured_input.get(command_key) if command_key is not None else None
    if not isinstance(line, str):
        return CallData(tool_name, structured_input)
    return CallData(tool_name, structured_input, command_key, plain_commands(line), mentioned_commands(line))
