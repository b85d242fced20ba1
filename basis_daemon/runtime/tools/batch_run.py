"""The operations of one call of `files`, carried out in order, each seeing what those before it did (BT-4, BT-5).

Owns what rules see of an operation, what is said of it, and when the agent knows what it read. Changes are worked out
and made by the same engine as those of `write` and `edit`: see `changes.py`.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, assert_never

from basis_daemon.errors import PolicyDenied
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools import batch_ops
from basis_daemon.runtime.tools.base import ToolContext, ToolError
from basis_daemon.runtime.tools.batch_ops import (
    Create,
    Delete,
    Insert,
    ListEntries,
    Move,
    Operation,
    Read,
    Replace,
    SearchLines,
    SetText,
    paths_of,
    read_operations,
)
from basis_daemon.runtime.tools.changes import Changed, ChangeSet
from basis_daemon.runtime.tools.edits import Edit, apply_edits
from basis_daemon.runtime.tools.files import NOTE_BYTES, found_text, listed, numbered
from basis_daemon.runtime.tools.inputs import shown
from basis_daemon.runtime.tools.search import grep
from basis_daemon.runtime.tools.threads import Stop, in_thread

T = TypeVar("T")

_NAMES: dict[type[Operation], str] = {
    Read: "read",
    ListEntries: "list",
    SearchLines: "search",
    Create: "create",
    SetText: "set",
    Replace: "replace",
    Insert: "insert",
    Move: "move",
    Delete: "delete",
}


class Batch:
    """One call under way."""

    def __init__(self, context: ToolContext, operations: list[Operation], directory: Path | None) -> None:
        self.context = context
        self.operations = operations
        self.directory = directory
        self.changes = ChangeSet(context)
        self._seen: dict[Path, str] = {}
        """Versions that were read. The agent knows them once the call is over, not before: it has not seen them yet."""

    @classmethod
    async def of(cls, context: ToolContext, input: dict[str, Json]) -> "Batch":
        """Raises `ToolError`, `PolicyDenied`."""
        named = batch_ops.canonical_batch(input).get("workingDirectory")
        directory = await context.resolve_working_directory(named) if isinstance(named, str) else None
        return cls(context, read_operations(input, directory), directory)

    @property
    def is_read_only(self) -> bool:
        return all(isinstance(each, Read | ListEntries | SearchLines) for each in self.operations)

    def summary(self, changed: Iterable[Changed] = ()) -> str:
        counts: dict[str, int] = {}
        for operation in self.operations:
            name = _NAMES[type(operation)]
            counts[name] = counts.get(name, 0) + 1
        done = ", ".join(f"{name} {count}" for name, count in counts.items())
        changed = list(changed)
        if not changed:
            return done
        names = ", ".join(each.name for each in changed[:3]) + (", …" if len(changed) > 3 else "")
        added, removed = (sum(getattr(each.change, part) for each in changed) for part in ("added", "removed"))
        return f"{done} (+{added} −{removed} in {names})"

    # --- before anybody is asked -------------------------------------------------------------------------------------

    def judged(self) -> list[Json]:
        """What rules see of operations that only look; each path is resolved and allowed."""
        return [self._attempt(number, self._judge) for number in range(len(self.operations))]

    def proposed(self) -> list[Json]:
        """The same of all operations, with the changes worked out."""
        return [self._attempt(number, self._propose) for number in range(len(self.operations))]

    def _judge(self, operation: Operation) -> Json:
        policy, base = self.context.policy, self.context.working_directory
        (path,) = paths_of(operation)
        fields: dict[str, Json] = {"op": _NAMES[type(operation)], "resolved_path": str(policy.resolve_read(path, base))}
        match operation:
            case Read():
                return {**fields, "offset": operation.offset, "limit": operation.limit}
            case ListEntries():
                return {**fields, "depth": operation.depth, "limit": operation.limit}
            case SearchLines():
                return {**fields, "pattern": operation.pattern, "limit": operation.limit}
            case _:
                return fields

    def _propose(self, operation: Operation) -> Json:
        if isinstance(operation, Read | ListEntries | SearchLines):
            return self._judge(operation)
        targets = [self.changes.resolve(path) for path in paths_of(operation)]
        _, sizes = self._change(operation, targets)
        places = ("resolved_from", "resolved_to") if isinstance(operation, Move) else ("resolved_path",)
        resolved = dict(zip(places, map(str, targets), strict=True))
        return {"op": _NAMES[type(operation)], **resolved, **sizes}

    # --- carrying out ------------------------------------------------------------------------------------------------

    async def carry_out(self, number: int) -> str:
        """One operation's section of the output (BT-5)."""
        operation = self.operations[number]
        if isinstance(operation, SearchLines):
            return await self._search(number, operation)
        return await in_thread(lambda stop: self._attempt(number, lambda each: self._do(each, stop)))

    def commit(self, stop: Stop) -> list[Changed]:
        changed = list(self.changes.outcomes())
        if not self.is_read_only:
            self.changes.commit(stop)
        ledger = self.context.files
        for target, digest in self._seen.items():
            if ledger is not None:
                ledger.note(target, digest)
        return changed

    def _do(self, operation: Operation, stop: Stop) -> str:
        match operation:
            case Read():
                return self._read(operation)
            case ListEntries():
                return self._list(operation, stop)
            case SearchLines():
                raise RuntimeError("searches are carried out on the loop")
            case _:
                targets = [self.changes.resolve(path) for path in paths_of(operation)]
                return self._change(operation, targets)[0]

    def _read(self, operation: Read) -> str:
        context = self.context
        target = context.policy.resolve_read(operation.path, context.working_directory)
        texts = self.changes.texts()
        notes: tuple[str, ...] = ()
        if target in texts or target in self.changes.presence():
            file = self.changes.text(target)
            if file is None:
                raise ToolError(f"there is no file {target}")
            text = file.text
        else:
            found = found_text(context, target)
            text, notes = found.text, found.notes
            self._seen[target] = found.digest
        name = shown(target, context.working_directory)
        room = context.policy.max_tool_result_bytes - NOTE_BYTES
        lines, rest = numbered(text, operation.offset, operation.limit, name, room)
        return "\n".join([f"read {name}", *(lines or ["(no lines)"]), *notes, *rest])

    def _list(self, operation: ListEntries, stop: Stop) -> str:
        context = self.context
        target = context.policy.resolve_read(operation.path, context.working_directory)
        lines = listed(target, operation.depth, operation.limit, stop, self.changes.presence())
        return "\n".join([f"list {shown(target, context.working_directory)}", *(lines or ["(no entries)"])])

    async def _search(self, number: int, operation: SearchLines) -> str:
        texts = await in_thread(lambda stop: self.changes.texts())
        fields: dict[str, Json] = {
            "path": operation.path,
            "pattern": operation.pattern,
            "limit": operation.limit,
        }
        try:
            output = await grep(self.context, fields, texts)
        except (ToolError, PolicyDenied) as error:
            raise _located(number, operation, error) from error
        return f"search {operation.path}\n{output.content}"

    def _change(self, operation: Operation, targets: list[Path]) -> tuple[str, dict[str, Json]]:
        """Work one change out. Returns what is said of it, and what rules see besides the paths."""
        changes, target = self.changes, targets[-1]
        name = shown(target, self.context.working_directory)
        match operation:
            case Create():
                if changes.has(target):
                    raise ToolError(f"{target} is there already; use set to replace its text")
                size = changes.rewrite(target, operation.content)
                return f"created {name} ({size} bytes)", {"bytes": size}
            case SetText():
                if not changes.has(target):
                    raise ToolError(f"there is no file {target}; use create")
                size = changes.rewrite(target, operation.content)
                return f"set {name} ({size} bytes)", {"bytes": size}
            case Replace():
                count = self._replace(operation, target)
                passages = "1 passage" if count == 1 else f"{count} passages"
                return f"replaced {passages} in {name}", {"replacements": count}
            case Insert():
                before = operation.content if operation.position == "before" else ""
                after = operation.content if operation.position == "after" else ""
                new = before + operation.anchor + after
                self._edit(target, Edit(operation.anchor, new, occurrence=operation.occurrence), "anchor")
                size = len(operation.content.encode(errors="replace"))
                return f"inserted {operation.position} the anchor in {name} ({size} bytes)", {"bytes": size}
            case Move():
                changes.move(targets[0], target)
                return f"moved {shown(targets[0], self.context.working_directory)} to {name}", {}
            case Delete():
                changes.delete(target)
                return f"deleted {name}", {}
            case Read() | ListEntries() | SearchLines():
                raise RuntimeError("this operation changes nothing")
            case _:
                assert_never(operation)

    def _replace(self, operation: Replace, target: Path) -> int:
        edit = Edit(operation.old, operation.new, everywhere=True)
        text, count = self._edited(target, edit, "old")
        if operation.expected is not None and count != operation.expected:
            times = "once" if count == 1 else f"{count} times"
            raise ToolError(
                f"old was found {times} in {target}, not {operation.expected} times; make it longer to make it unique, "
                "or set replaceAll or expectedReplacements"
            )
        self.changes.put(target, text)
        return count

    def _edit(self, target: Path, edit: Edit, name: str) -> None:
        self.changes.put(target, self._edited(target, edit, name)[0])

    def _edited(self, target: Path, edit: Edit, name: str) -> tuple[str, int]:
        file = self.changes.text(target)
        if file is None:
            raise ToolError(f"there is no file {target}; use create")
        return apply_edits(file.text, [edit], name=name, else_set="say which `occurrence`")

    def _attempt(self, number: int, step: Callable[[Operation], T]) -> T:
        """Carry a step out for one operation. Raises what it raises, saying of which."""
        operation = self.operations[number]
        try:
            return step(operation)
        except (ToolError, PolicyDenied) as error:
            raise _located(number, operation, error) from error


def _located(number: int, operation: Operation, error: ToolError | PolicyDenied) -> ToolError | PolicyDenied:
    """The same refusal, saying which operation it is about."""
    where = " to ".join(paths_of(operation))
    text = f"operation {number + 1} ({_NAMES[type(operation)]} {where}): {error}"
    return type(error)(text if "nothing was" in text else f"{text}. Nothing was changed.")
