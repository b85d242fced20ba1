"""JSON schemas made from Python types."""

from typing import Any, cast

import msgspec

from basis_daemon.runtime.messages import Json


def schema_of(wanted: type[Any]) -> dict[str, Json]:
    """The schema of a dataclass, a TypedDict or a msgspec struct, an object at its root. Raises `TypeError`."""
    return _with_root(msgspec.json.schema(wanted))


def _with_root(schema: dict[str, Json]) -> dict[str, Json]:
    """`schema` with what its root refers to put in place: providers want to see an object there."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definitions = cast(dict[str, Json], schema["$defs"])
    root = cast(dict[str, Json], definitions[reference.rpartition("/")[2]])
    rest = {name: each for name, each in definitions.items() if each is not root}
    if _refers(definitions, reference):
        return {**root, "$defs": definitions}
    return root | ({"$defs": rest} if rest else {})


def _refers(value: Json, reference: str) -> bool:
    if isinstance(value, dict):
        found = cast(dict[str, Json], value)
        return found.get("$ref") == reference or any(_refers(each, reference) for each in found.values())
    return isinstance(value, list) and any(_refers(each, reference) for each in cast(list[Json], value))
