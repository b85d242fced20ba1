"""Remembered answers that outlive a conversation: `<store>/rules.json`, or memory (runtime.md 6.5, 7.1).

Owns the file: its form, that it is replaced whole under a lock all processes take, and that every read sees what was
written last. A file that can't be read is an error that names it: never an empty set of rules, and never reset (SE-26).
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec

from basis_daemon.errors import CorruptStore, StoreError
from basis_daemon.paths import make_private_directory
from basis_daemon.runtime.rules import (
    OperationDenied,
    PermissionRuleAddress,
    RememberedRule,
    RuleOwner,
    RuleScope,
    checked,
    listing_order,
    require_owner,
)
from basis_daemon.runtime.store.base import SCHEMA
from basis_daemon.runtime.store.disk import Disk, failed, read_whole, sync_path, write_whole

RULES_NAME = "rules.json"
LOCK_NAME = "rules.lock"

LOCK_WAIT_S = 5.0
"""Seconds another process may take to write a rule before this one gives up."""

MAX_FILE_BYTES = 16 << 20
"""Rules are written by people, one at a time."""

_T = TypeVar("_T")
_Signature = tuple[int, int, int]
_temporary = count(1)


class _Key(msgspec.Struct, frozen=True, omit_defaults=True):
    tool_name: str
    pattern: str | None = None


class _Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    key: _Key
    allow: bool
    scope: RuleScope
    reason: str | None = None


class _Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """`session_id` is the conversation's agent id. Older versions wrote it with rules of wider scopes too."""

    rule: _Rule
    session_id: str | None = None
    project_id: str | None = None


class _File(msgspec.Struct, frozen=True):
    schema: int
    rules: list[_Row]


class _Schema(msgspec.Struct, frozen=True):
    schema: int = 0


_Rules = dict[tuple[str | None, PermissionRuleAddress], RememberedRule]
"""By whose rule it is (an agent's, a project's, everybody's) and its address."""


class VolatileRuleStore:
    """Implements `RuleStore` in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: _Rules = {}

    @property
    def file(self) -> str | None:
        return None

    def load(self, owner: RuleOwner) -> tuple[RememberedRule, ...]:
        with self._lock:
            return _applicable(self._rules, owner)

    def upsert(self, owner: RuleOwner, rule: RememberedRule) -> None:
        self._change(lambda rules: _put(rules, owner, [rule]))

    def revoke(self, owner: RuleOwner, address: PermissionRuleAddress) -> bool:
        return self._change(lambda rules: rules.pop((_whose(owner, address.scope), address), None) is not None)

    def clear(self, owner: RuleOwner, scope: RuleScope) -> int:
        return self._change(lambda rules: _clear(rules, owner, scope))

    def save(self, owner: RuleOwner, rules: tuple[RememberedRule, ...]) -> None:
        self._change(lambda kept: _save(kept, owner, rules))

    def reset(self) -> None:
        """Forget everything."""
        self._change(lambda rules: rules.clear())

    def _change(self, change: Callable[[_Rules], _T]) -> _T:
        with self._lock:
            return change(self._rules)


class FileRuleStore:
    """Implements `RuleStore` on disk. Making one touches nothing; the first rule makes the file."""

    def __init__(self, root: str, *, disk: Disk | None = None) -> None:
        self._root = root
        self._path = f"{root}/{RULES_NAME}"
        self._disk = disk or Disk()
        self._lock = threading.Lock()
        self._known: tuple[_Signature, _Rules] | None = None

    @property
    def file(self) -> str | None:
        return self._path

    def load(self, owner: RuleOwner) -> tuple[RememberedRule, ...]:
        with self._lock:
            return _applicable(self._read(), owner)

    def upsert(self, owner: RuleOwner, rule: RememberedRule) -> None:
        require_owner(owner, rule.scope)
        checked(rule)
        self._change(lambda rules: _put(rules, owner, [rule]))

    def revoke(self, owner: RuleOwner, address: PermissionRuleAddress) -> bool:
        whose = (_whose(owner, address.scope), address)
        return self._change(lambda rules: rules.pop(whose, None) is not None)

    def clear(self, owner: RuleOwner, scope: RuleScope) -> int:
        return self._change(lambda rules: _clear(rules, owner, scope))

    def save(self, owner: RuleOwner, rules: tuple[RememberedRule, ...]) -> None:
        self._change(lambda kept: _save(kept, owner, rules))

    # --- reading ---

    def _read(self) -> _Rules:
        """The rules as they are in the file now. A file that is the same as last time is not read again."""
        signature = self._signature()
        if signature is None:
            return {}
        if self._known is None or self._known[0] != signature:
            data = read_whole(self._disk, self._path, MAX_FILE_BYTES)
            if data is None:
                return {}
            self._known = signature, _decoded(data, self._path)
        return self._known[1]

    def _signature(self) -> _Signature | None:
        """What changes with the file: every write makes a new one."""
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise failed("read", self._path, error) from error
        return found.st_ino, found.st_size, found.st_mtime_ns

    # --- writing ---

    def _change(self, change: Callable[[_Rules], _T]) -> _T:
        """Read, change and write under the lock; nothing is written, or locked, where nothing changes."""
        with self._lock:
            before = self._read()
            outcome, changed = _tried(change, before)
            if changed == before:
                return outcome
            try:
                with self._locked():
                    self._known = None  # two changes within the clock's step must not be taken for one
                    before = self._read()
                    outcome, changed = _tried(change, before)
                    if changed != before:
                        self._write(changed)
            except OSError as error:
                raise failed("write", self._path, error) from error
            return outcome

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Keep other processes from writing. The lock file stays: who locked a removed one would own nothing."""
        make_private_directory(Path(self._root))
        path = f"{self._root}/{LOCK_NAME}"
        fd = self._disk.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        try:
            deadline = time.monotonic() + LOCK_WAIT_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise StoreError(
                            f"another process has been writing {self._path} for {LOCK_WAIT_S:g} s",
                            hint="try again; if it stays so, end that process",
                            details={"path": self._path},
                        ) from error
                    time.sleep(0.01)
            yield
        finally:
            self._disk.close(fd)

    def _write(self, rules: _Rules) -> None:
        self._known = None
        temporary = f"{self._root}/.{RULES_NAME}.tmp-{os.getpid()}-{next(_temporary)}"
        try:
            write_whole(self._disk, temporary, _encoded(rules))
            sync_path(self._disk, temporary)
            self._disk.replace(temporary, self._path)
        except OSError:
            with suppress(OSError):
                self._disk.unlink(temporary)
            raise
        sync_path(self._disk, self._root)


def _tried(change: Callable[[_Rules], _T], rules: _Rules) -> tuple[_T, _Rules]:
    changed = dict(rules)
    return change(changed), changed


# --- rules by owner ---


def _whose(owner: RuleOwner, scope: RuleScope) -> str | None:
    """The owner's part of a rule's identity. An empty project id is one like any other (SE-20)."""
    match scope:
        case "session":
            return owner.agent_id
        case "project":
            return owner.project_id
        case _:
            return None


def _applicable(rules: _Rules, owner: RuleOwner) -> tuple[RememberedRule, ...]:
    theirs = (rule for (whose, address), rule in rules.items() if _is_theirs(owner, address.scope, whose))
    return tuple(sorted(theirs, key=listing_order))


def _is_theirs(owner: RuleOwner, scope: RuleScope, whose: str | None) -> bool:
    return whose == _whose(owner, scope) and not (scope == "project" and owner.project_id is None)


def _put(rules: _Rules, owner: RuleOwner, added: Iterable[RememberedRule]) -> None:
    for rule in map(checked, added):
        require_owner(owner, rule.scope)
        rules[_whose(owner, rule.scope), rule.address] = rule


def _clear(rules: _Rules, owner: RuleOwner, scope: RuleScope) -> int:
    theirs = [at for at in rules if at[1].scope == scope and _is_theirs(owner, scope, at[0])]
    for at in theirs:
        del rules[at]
    return len(theirs)


def _save(kept: _Rules, owner: RuleOwner, rules: Sequence[RememberedRule]) -> None:
    _clear(kept, owner, "session")
    _put(kept, owner, (rule for rule in rules if rule.scope != "process"))


# --- the file's form ---


def _decoded(data: bytes, path: str) -> _Rules:
    """Raises `CorruptStore`. Several rules at one address, which only older versions wrote, become one (SE-27)."""
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema > SCHEMA:
            raise CorruptStore(
                f"{path} was written by a newer version (schema {schema}, this one knows {SCHEMA})",
                hint="use that version, or move the file aside",
                details={"path": path},
            )
        rows = msgspec.json.decode(data, type=_File).rules
        found: _Rules = {}
        for row in rows:
            rule = checked(_rule(row))
            owner = RuleOwner(row.session_id or "", row.project_id)
            require_owner(owner, rule.scope)
            at = _whose(owner, rule.scope), rule.address
            found[at] = min((rule, found.get(at, rule)), key=_preference)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OperationDenied) as error:
        raise CorruptStore(
            f"the remembered rules in {path} can't be read: {error}",
            hint="correct the file or move it aside; until then nothing is allowed by a remembered rule",
            details={"path": path},
        ) from error
    return found


def _rule(row: _Row) -> RememberedRule:
    rule = row.rule
    return RememberedRule(rule.key.tool_name, rule.allow, rule.key.pattern, rule.reason, rule.scope)


def _preference(rule: RememberedRule) -> tuple[bool, bool, str]:
    return rule.allow, rule.reason is None, rule.reason or ""


def _encoded(rules: _Rules) -> bytes:
    rows = [_row(whose, rule) for (whose, _), rule in sorted(rules.items(), key=_order)]
    return msgspec.json.format(msgspec.json.encode(_File(SCHEMA, rows)), indent=1) + b"\n"


def _row(whose: str | None, rule: RememberedRule) -> _Row:
    kept = _Rule(_Key(rule.tool_name, rule.pattern), rule.allow, rule.scope, rule.reason)
    return _Row(
        kept,
        session_id=whose if rule.scope == "session" else None,
        project_id=whose if rule.scope == "project" else None,
    )


def _order(item: tuple[tuple[str | None, PermissionRuleAddress], RememberedRule]) -> tuple[str, ...]:
    (whose, _), rule = item
    return rule.scope, whose or "", rule.tool_name, rule.pattern or ""
