"""Checks a call's input against the tool's schema (TL-15).

Deliberately partial: types, required fields, fixed words, nested objects and lists. A keyword it doesn't know never
fails a call, so a schema from elsewhere can't make its tool unusable. Written out rather than taken from a library:
importing one costs more than a hundred milliseconds at the first call of a process.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import InputSchema

MAX_PROBLEMS = 20
"""Problems reported of one input; a list of a thousand wrong items needs no thousand lines."""

MAX_DEPTH = 32
"""Levels of nesting that are looked into."""

_IS_TYPE: dict[str, Callable[[Json], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}


def validate_input(schema: Mapping[str, Json], input: Json) -> list[str]:
    """Every problem, each naming field path, expectation and what was there; none if the input is fine."""
    if isinstance(schema, InputSchema) and isinstance(input, dict):
        input = schema.canonical(cast(dict[str, Json], input))
    if "type" not in schema and ("properties" in schema or "required" in schema):
        schema = {**schema, "type": "object"}
    problems: list[str] = []
    for problem in _problems(schema, input, "", 0):
        if len(problems) == MAX_PROBLEMS:
            problems.append("and more")
            break
        problems.append(problem)
    return problems


def _problems(schema: Json, value: Json, path: str, depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return
    rules = cast(Mapping[str, Json], schema)
    if not _has_type(value, rules.get("type")):
        yield f"{path or 'input'}: expected {_expected(rules['type'])}, got {_type_name(value)}"
        return
    words = rules.get("enum")
    if isinstance(words, list) and value not in words:
        yield f"{path or 'input'}: expected one of {_shown(words)}, got {_shown(value)}"
    if isinstance(value, dict):
        yield from _object_problems(rules, cast(dict[str, Json], value), path, depth)
    elif isinstance(value, list):
        for index, item in enumerate(cast(list[Json], value)):
            yield from _problems(rules.get("items"), item, f"{path}[{index}]", depth + 1)


def _object_problems(rules: Mapping[str, Json], value: dict[str, Json], path: str, depth: int) -> Iterator[str]:
    properties = _mapping(rules.get("properties"))
    required = rules.get("required")
    if isinstance(required, list):
        for name in cast(list[Any], required):
            if isinstance(name, str) and name not in value:
                yield f"{_below(path, name)}: required, but missing"
    for name, item in value.items():
        if name in properties:
            yield from _problems(properties[name], item, _below(path, name), depth + 1)
        elif rules.get("additionalProperties") is False:
            yield f"{_below(path, name)}: not a field of this tool; it has {', '.join(sorted(properties)) or 'none'}"


def _has_type(value: Json, expected: Json) -> bool:
    if isinstance(expected, str):
        return _IS_TYPE.get(expected, lambda _: True)(value)
    if isinstance(expected, list) and expected:
        return any(_has_type(value, one) for one in cast(list[Json], expected))
    return True


def _expected(expected: Json) -> str:
    return expected if isinstance(expected, str) else " or ".join(map(str, expected))


def _type_name(value: Json) -> str:
    return next((name for name in (*_IS_TYPE,) if name != "number" and _IS_TYPE[name](value)), "number")


def _mapping(value: Json) -> Mapping[str, Json]:
    return cast(Mapping[str, Json], value) if isinstance(value, Mapping) else {}


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: Json) -> str:
    encoded = msgspec.json.encode(value).decode()
    return encoded if len(encoded) <= 120 else encoded[:117] + "..."
