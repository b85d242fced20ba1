"""JSON schemas as far as a vendor takes them: keywords it refuses are left out, those it spells otherwise respelt.

Owns the tables of what is taken, and the walk. What is left out still holds: whoever gave the schema checks values
against all of it (`tools/validate.py`, `typed_output.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from basis_daemon.runtime.providers.errors import InvalidRequest

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRules:
    """What one vendor takes."""

    vendor: str
    keywords: frozenset[str]
    formats: frozenset[str]
    only_closed: bool = False
    """Every object must list all of its properties: `additionalProperties` is false, or the schema is refused."""
    min_items: frozenset[int] | None = None
    """The only lower bounds of an array; `None` is any."""
    has_const: bool = True
    """`const` is spelt as an `enum` of one where it isn't known."""


_COMMON = frozenset(
    {"$defs", "$ref", "type", "title", "description", "enum", "properties", "required", "items", "minItems", "anyOf"}
)
_DATES = frozenset({"date-time", "date", "time"})

ANTHROPIC_OUTPUT: Final = SchemaRules(
    vendor="Anthropic",
    keywords=_COMMON | {"const", "allOf", "format", "additionalProperties"},
    formats=_DATES | {"duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
    only_closed=True,
    min_items=frozenset({0, 1}),
)
"""Of answers held to a schema, and of the input of strict tools. Other tools' schemas go out as they are."""

GEMINI: Final = SchemaRules(
    vendor="Gemini",
    keywords=_COMMON
    | {"format", "additionalProperties", "prefixItems", "maxItems", "minimum", "maximum", "propertyOrdering"},
    formats=_DATES | {"float", "double", "int32", "int64"},
    has_const=False,
)

_OF_ONE = ("items", "additionalProperties")
"""Keywords whose value is a schema, or a boolean."""
_OF_MANY = ("anyOf", "allOf", "prefixItems")
_BY_NAME = ("properties", "$defs")


def pruned(schema: Mapping[str, Any], rules: SchemaRules) -> Schema:
    """`schema` with nothing in it that `rules` don't know. Raises `InvalidRequest` if it can't be said at all.

    Names of properties are no keywords: all of them stay.
    """
    given = _respelt(schema, rules)
    if "$ref" in given:
        reference = str(given["$ref"]).replace("#/definitions/", "#/$defs/")
        beside = {"$defs": given["$defs"]} if "$defs" in given else {}
        given = {"$ref": reference, **beside}  # whatever else stands beside a reference is refused
    kept: Schema = {}
    for keyword, value in given.items():
        if keyword in rules.keywords and _is_known(keyword, value, rules):
            kept[keyword] = _value(keyword, value, rules)
    return _closed(given, kept, rules) if rules.only_closed and _is_object(kept) else kept


def _respelt(schema: Mapping[str, Any], rules: SchemaRules) -> Schema:
    """`schema` in the words that the tables are about."""
    given = dict(schema)
    if "definitions" in given:
        given["$defs"] = {**given.pop("definitions"), **given.get("$defs", {})}
    if isinstance(given.get("items"), list):
        given["prefixItems"] = given.pop("items")
    if "oneOf" in given:
        given.setdefault("anyOf", given.pop("oneOf"))
    if "allOf" in given and "allOf" not in rules.keywords:
        given = _merged(given)
    if "const" in given and not rules.has_const:
        given.setdefault("enum", [given.pop("const")])
    return given


def _merged(schema: Schema) -> Schema:
    """`schema` and all that its `allOf` demands, as one object."""
    merged: Schema = {}
    own = {key: value for key, value in schema.items() if key != "allOf"}
    for part in (*map(_as_schema, schema["allOf"]), own):
        for key, value in part.items():
            known: Any = merged.get(key)
            if key in _BY_NAME and isinstance(known, dict):
                merged[key] = {**_as_schema(known), **_as_schema(value)}
            elif key == "required" and isinstance(known, list):
                merged[key] = list(dict.fromkeys([*cast("list[Any]", known), *value]))
            else:
                merged[key] = value
    return merged


def _as_schema(value: Any) -> Schema:
    """`value`, or what takes anything where it is a boolean or broken."""
    return cast(Schema, value) if isinstance(value, dict) else {}


def _is_known(keyword: str, value: Any, rules: SchemaRules) -> bool:
    match keyword:
        case "format":
            return value in rules.formats
        case "minItems":
            return rules.min_items is None or value in rules.min_items
        case _:
            return True


def _value(keyword: str, value: Any, rules: SchemaRules) -> Any:
    if keyword in _OF_ONE and isinstance(value, dict):
        return pruned(_as_schema(value), rules)
    if keyword in _OF_MANY:
        return [pruned(_as_schema(part), rules) for part in value]
    if keyword in _BY_NAME:
        return {name: pruned(_as_schema(part), rules) for name, part in _as_schema(value).items()}
    return value


def _is_object(schema: Schema) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema


def _closed(given: Schema, kept: Schema, rules: SchemaRules) -> Schema:
    """`kept` without room for properties it doesn't list, unless that room is all there is to it."""
    is_free_form = not given.get("properties") and given.get("additionalProperties") not in (None, False)
    if is_free_form or isinstance(given.get("additionalProperties"), dict):
        raise InvalidRequest(
            f"{rules.vendor} can't be held to a schema with an object of any properties",
            hint="list the properties, or take an array of names and values",
        )
    return {**kept, "additionalProperties": False}
