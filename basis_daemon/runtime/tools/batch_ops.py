"""What a call of `files` asks for: its operations, read from the many shapes models send (runtime.md 4.10).

Owns the schema and the parsing. Carries nothing out: see `batch.py`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.files import MAX_DEPTH, MAX_ENTRIES, MAX_READ_LINES
from basis_daemon.runtime.tools.inputs import PATH_ALIASES, flag, integer, spelled, string
from basis_daemon.runtime.tools.search import MAX_RESULTS
from basis_daemon.runtime.tools.spec import InputSchema
from basis_daemon.runtime.tools.tool_error import ToolError

MAX_OPERATIONS = 200

READ_ONLY = ("read", "list", "search")
CHANGING = ("create", "set", "replace", "insert", "move", "delete")


@dataclass(frozen=True, slots=True)
class Read:
    path: str
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class ListEntries:
    path: str
    depth: int
    limit: int


@dataclass(frozen=True, slots=True)
class SearchLines:
    path: str
    pattern: str
    limit: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class SetText:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Replace:
    """`expected` passages and no other number; `None` is any number but none."""

    path: str
    old: str
    new: str
    expected: int | None


@dataclass(frozen=True, slots=True)
class Insert:
    path: str
    anchor: str
    position: Literal["before", "after"]
    content: str
    occurrence: int | None


@dataclass(frozen=True, slots=True)
class Move:
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Delete:
    path: str


Looking = Read | ListEntries | SearchLines
Changing = Create | SetText | Replace | Insert | Move | Delete
Operation = Looking | Changing


def paths_of(operation: Operation) -> tuple[str, ...]:
    return (operation.source, operation.target) if isinstance(operation, Move) else (operation.path,)


def read_operations(input: dict[str, Json], directory: Path | None) -> list[Operation]:
    """The operations of a call; relative paths are taken from `directory` where one is named. Raises `ToolError`."""
    fields = canonical_batch(input)
    entries = fields.get("operations")
    if not isinstance(entries, list) or not entries:
        raise ToolError("operations: expected a list of at least one operation")
    if len(cast(list[Any], entries)) > MAX_OPERATIONS:
        raise ToolError(f"operations: more than {MAX_OPERATIONS} at once")
    operations: list[Operation] = []
    for number, entry in enumerate(cast(list[Json], entries)):
        try:
            operations.append(_operation(entry, directory))
        except ToolError as error:
            raise ToolError(f"operations[{number}].{error}") from error
    return operations


def is_read_only(input: dict[str, Json]) -> bool:
    """Whether every operation only looks. A call that can't be read is none of those."""
    entries = canonical_batch(input).get("operations")
    return isinstance(entries, list) and all(
        isinstance(entry, dict) and cast(dict[str, Json], entry).get("op") in READ_ONLY
        for entry in cast(list[Json], entries)
    )


def _operation(entry: Json, directory: Path | None) -> Operation:
    if not isinstance(entry, dict):
        raise ToolError("op: expected an object with op and path")
    fields = cast(dict[str, Json], entry)

    def path(name: str = "path") -> str:
        given = string(fields, name)
        return given if directory is None else os.path.join(directory, given)

    match fields.get("op"):
        case "read":
            limit = integer(fields, "limit", MAX_READ_LINES, at_most=10**6)
            return Read(path(), integer(fields, "offset", 1, at_most=10**9), limit)
        case "list":
            limit = integer(fields, "limit", 200, at_most=MAX_ENTRIES)
            return ListEntries(path(), integer(fields, "depth", 1, at_most=MAX_DEPTH), limit)
        case "search":
            return SearchLines(path(), string(fields, "pattern"), integer(fields, "limit", 200, at_most=MAX_RESULTS))
        case "create":
            return Create(path(), string(fields, "content"))
        case "set":
            return SetText(path(), string(fields, "content"))
        case "replace":
            return Replace(path(), _some(fields, "old"), string(fields, "new"), _expected(fields))
        case "insert":
            return _insert(fields, path())
        case "move":
            return Move(path("from"), path("to"))
        case "delete":
            return Delete(path())
        case other:
            raise ToolError(f"op: expected one of {', '.join((*READ_ONLY, *CHANGING))}, got {other!r}")


def _insert(fields: Mapping[str, Json], path: str) -> Insert:
    position = fields.get("position")
    if position not in ("before", "after"):
        raise ToolError("position: expected before or after")
    occurrence = None if fields.get("occurrence") is None else integer(fields, "occurrence", 1)
    return Insert(
        path,
        _some(fields, "anchor"),
        position,
        _some(fields, "content"),
        occurrence,
    )


def _some(fields: Mapping[str, Json], name: str) -> str:
    text = string(fields, name)
    if not text:
        raise ToolError(f"{name}: must not be empty")
    return text


def _expected(fields: Mapping[str, Json]) -> int | None:
    if flag(fields, "replaceAll") and fields.get("expectedReplacements") is None:
        return None
    return integer(fields, "expectedReplacements", 1)


_spell_call = spelled({"working_directory": "workingDirectory", "ops": "operations"})
_spell_operation = spelled(
    {
        **PATH_ALIASES,
        "replace_all": "replaceAll",
        "expected_replacements": "expectedReplacements",
        "old_string": "old",
        "new_string": "new",
        "contents": "content",
    },
    integers=frozenset({"offset", "limit", "depth", "occurrence", "expectedReplacements"}),
)


def canonical_batch(input: dict[str, Json]) -> dict[str, Json]:
    """The call with its operations as a list of objects, whether they came so, as one object, or as JSON text."""
    fields = _spell_call(input)
    operations = fields.get("operations")
    if isinstance(operations, str):
        try:
            operations = msgspec.json.decode(operations)
        except (msgspec.DecodeError, RecursionError):
            return fields
    if isinstance(operations, dict):
        operations = cast(Json, [operations])
    if not isinstance(operations, list):
        return fields
    entries = cast(list[Any], operations)
    spelled_out = [
        _spell_operation(cast(dict[str, Json], each)) if isinstance(each, dict) else each for each in entries
    ]
    return {**fields, "operations": spelled_out}


SCHEMA = InputSchema(
    {
        "type": "object",
        "properties": {
            "workingDirectory": {
                "type": "string",
                "description": "Directory relative paths start at. Default: the working directory.",
            },
            "operations": {
                "type": "array",
                "minItems": 1,
                "description": "What to do, in order. Each operation sees what those before it did.",
                "items": {
                    "type": "object",
                    "properties": {
                        "op": {"type": "string", "enum": [*READ_ONLY, *CHANGING]},
                        "path": {"type": "string", "description": "For every op but move."},
                        "offset": {"type": "integer", "description": "read: first line to show, from 1. Default 1."},
                        "limit": {
                            "type": "integer",
                            "description": f"read: lines, default {MAX_READ_LINES}. Else results, default 200.",
                        },
                        "depth": {"type": "integer", "description": "list: levels to descend. Default 1."},
                        "pattern": {"type": "string", "description": "search: a Python regular expression."},
                        "content": {
                            "type": "string",
                            "description": "create, for a new file, and set, for one that is there: the whole text. "
                            "insert: what comes beside the anchor.",
                        },
                        "old": {"type": "string", "description": "replace: the passage as it is in the file."},
                        "new": {"type": "string", "description": "replace: what to put in its place."},
                        "replaceAll": {"type": "boolean", "description": "replace: every occurrence. Default false."},
                        "expectedReplacements": {
                            "type": "integer",
                            "description": "replace: how many occurrences there must be. Default 1.",
                        },
                        "anchor": {"type": "string", "description": "insert: the passage to insert at."},
                        "position": {"type": "string", "enum": ["before", "after"], "description": "insert: its side."},
                        "occurrence": {"type": "integer", "description": "insert: which anchor of several, from 1."},
                        "from": {"type": "string", "description": "move: the file."},
                        "to": {"type": "string", "description": "move: where to; nothing may be there."},
                    },
                    "required": ["op"],
                },
            },
        },
        "required": ["operations"],
    },
    canonical_batch,
)
