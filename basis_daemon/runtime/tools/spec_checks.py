"""Whether a specification can be used, checked when a tool is registered (TL-1, TL-40).

Names, descriptions and schemas may come from a manifest or another program: they are text of bounded length, read by
models and by the partial validator, and interpreted by nothing else.
"""

import re
from collections.abc import Mapping
from typing import cast, get_args

import msgspec

from basis_daemon.errors import UsageError
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.spec import (
    ApprovalCategory,
    Durability,
    ExecutionCategory,
    SideEffectLevel,
    ToolKind,
    ToolSpec,
)

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

MAX_DESCRIPTION_BYTES = 4 * 1024
MAX_SCHEMA_BYTES = 64 * 1024

CAPABILITIES = frozenset(
    {
        "read_only",
        "filesystem_read",
        "filesystem_write",
        "process_exec",
        "background_exec",
        "task_mutation",
        "team_coordination",
        "delegation",
        "context_compaction",
        "skill_load",
    }
)

_WORDS: Mapping[str, tuple[str, ...]] = {
    "side_effect": get_args(SideEffectLevel),
    "execution": get_args(ExecutionCategory),
    "approval": get_args(ApprovalCategory),
    "kind": get_args(ToolKind),
    "loading": ("immediate", "deferred"),
    "durability": get_args(Durability),
}


class InvalidTool(UsageError):
    """A tool that can't be used as it is described."""

    kind = "invalid_tool"


def check_spec(spec: ToolSpec) -> None:
    """Raises `InvalidTool` saying what is wrong with which tool."""
    name: object = spec.name
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise InvalidTool(f"{name!r} can't be a tool's name", hint="use 1 to 64 letters, digits, `_` and `-`")
    if len(spec.description.encode("utf-8", "replace")) > MAX_DESCRIPTION_BYTES:
        raise InvalidTool(f"the description of {name!r} is longer than {MAX_DESCRIPTION_BYTES} bytes")
    _check_schema(name, "input", spec.input_schema)
    if spec.output_schema is not None:
        _check_schema(name, "output", spec.output_schema)
    for field, words in _WORDS.items():
        if getattr(spec, field) not in words:
            raise InvalidTool(f"{field} of {name!r} is {getattr(spec, field)!r}; it is one of {', '.join(words)}")
    unknown = sorted(each for each in spec.capabilities if each not in CAPABILITIES and not each.startswith("custom:"))
    if unknown:
        raise InvalidTool(f"{name!r} has unknown capabilities: {', '.join(unknown)}", hint="a host's: `custom:name`")
    if spec.timeout_s is not None and not spec.timeout_s > 0:
        raise InvalidTool(f"the time limit of {name!r} has to be more than 0 s, or None")


def _check_schema(name: str, which: str, schema: object) -> None:
    if not isinstance(schema, dict):
        raise InvalidTool(f"the {which} schema of {name!r} is not a JSON object")
    try:
        size = len(msgspec.json.encode(cast(dict[str, Json], schema)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTool(f"the {which} schema of {name!r} is not JSON: {error}") from error
    if size > MAX_SCHEMA_BYTES:
        raise InvalidTool(f"the {which} schema of {name!r} is larger than {MAX_SCHEMA_BYTES} bytes")
