"""PV-47, 2.4: what is left of a JSON schema for vendors that take less than all of it."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_daemon.runtime.providers.errors import InvalidRequest
from basis_daemon.runtime.providers.schemas import ANTHROPIC_OUTPUT, GEMINI, SchemaRules, pruned

CLOSED = {"additionalProperties": False}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "string", "pattern": "^a", "maxLength": 3}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "string", "format": "email"}, {"type": "string"}),
        ({"type": "integer", "minimum": 1, "exclusiveMaximum": 9}, {"type": "integer", "minimum": 1}),
        ({"const": "a"}, {"enum": ["a"]}),
        ({"oneOf": [{"type": "string"}, {"const": 1}]}, {"anyOf": [{"type": "string"}, {"enum": [1]}]}),
        ({"type": ["string", "null"], "default": None}, {"type": ["string", "null"]}),
        ({"items": [{"type": "string"}, {"type": "null"}]}, {"prefixItems": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "array", "items": True, "uniqueItems": True}, {"type": "array", "items": True}),
        (
            {"type": "object", "additionalProperties": {"const": 1}},
            {"type": "object", "additionalProperties": {"enum": [1]}},
        ),
        ({"type": "object", "patternProperties": {"^a": {}}}, {"type": "object"}),
    ],
)
def test_gemini_is_sent_the_keywords_it_knows_in_its_own_words(given: Any, expected: Any) -> None:
    """PV-47"""
    assert pruned(given, GEMINI) == expected


def test_names_of_properties_are_no_keywords() -> None:
    """PV-47: a parameter may be called `pattern`, or `const`."""
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("pattern", "const", "oneOf", "$ref")},
    }
    assert pruned(schema, GEMINI) == schema


def test_references_stand_alone_and_find_their_definitions() -> None:
    """PV-47: old spellings of where definitions are kept included."""
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/A", "description": "Beside it."}, "b": {"$ref": "#/$defs/B"}},
        "definitions": {"A": {"type": "string", "pattern": "x"}},
        "$defs": {"B": {"$ref": "#/definitions/A"}},
    }
    assert pruned(schema, GEMINI) == {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/B"}},
        "$defs": {"A": {"type": "string"}, "B": {"$ref": "#/$defs/A"}},
    }
    root = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {}}}}
    assert pruned(root, GEMINI) == root


def test_what_all_of_several_schemas_demand_is_one() -> None:
    schema = {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"const": 1}}, "required": ["b", "a"]},
        ],
        "description": "Both.",
    }
    assert pruned(schema, GEMINI) == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"enum": [1]}},
        "required": ["a", "b"],
        "description": "Both.",
    }


def test_anthropic_is_held_to_closed_objects_at_every_level() -> None:
    """2.4"""
    inner = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}}
    schema = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": inner, "minItems": 2},
            "one": {"anyOf": [inner, {"type": "null"}]},
        },
    }
    closed = {"type": "object", "properties": {"n": {"type": "integer"}}, **CLOSED}
    assert pruned(schema, ANTHROPIC_OUTPUT) == {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": closed},
            "one": {"anyOf": [closed, {"type": "null"}]},
        },
        **CLOSED,
    }
    assert pruned({"type": "array", "minItems": 1}, ANTHROPIC_OUTPUT)["minItems"] == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": True},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "string"}},
    ],
)
def test_object_of_any_properties_is_refused_where_none_can_be_given(schema: Any) -> None:
    """PV-3: closing it would leave the model nothing to say."""
    with pytest.raises(InvalidRequest, match="any properties"):
        pruned({"type": "object", "properties": {"map": schema}}, ANTHROPIC_OUTPUT)
    assert pruned(schema, GEMINI)["additionalProperties"] == schema["additionalProperties"]


# --- any schema ------------------------------------------------------------------------------------------------------

_VALUES = st.one_of(st.none(), st.booleans(), st.integers(-3, 9), st.text("ab", max_size=3))


def _schemas() -> st.SearchStrategy[Any]:
    leaves = st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "boolean", "null"])},
        optional={
            "minimum": st.integers(-3, 9),
            "minLength": st.integers(0, 2),
            "pattern": st.just("^a"),
            "const": _VALUES,
            "enum": st.lists(_VALUES, min_size=1, max_size=3),
            "format": st.sampled_from(["date", "email", "int32"]),
            "description": st.just("d"),
        },
    )

    def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        names = st.sampled_from(["a", "pattern", "$ref", "type"])
        objects = st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(names, inner, max_size=3)},
            optional={"required": st.lists(names, unique=True, max_size=2), "minProperties": st.just(1)},
        )
        arrays = st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"minItems": st.integers(0, 2), "uniqueItems": st.just(True)},
        )
        unions = st.builds(
            lambda key, parts: {key: parts},
            st.sampled_from(["anyOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        return st.one_of(objects, arrays, unions)

    return st.recursive(leaves, deeper, max_leaves=6)


_INSTANCES = st.recursive(
    _VALUES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "pattern", "$ref", "type"]), inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=300)
@given(schema=_schemas(), value=_INSTANCES)
def test_whatever_fits_a_schema_fits_what_is_left_of_it_for_gemini(schema: Any, value: Any) -> None:
    """PV-47: leaving out only ever allows more, so that no call the tool takes is forbidden."""
    if jsonschema.Draft202012Validator(schema).is_valid(value):
        assert jsonschema.Draft202012Validator(pruned(schema, GEMINI)).is_valid(value)


@settings(deadline=None, max_examples=300)
@given(schema=_schemas(), rules=st.sampled_from([GEMINI, ANTHROPIC_OUTPUT]))
def test_nothing_is_left_that_a_vendor_does_not_know(schema: Any, rules: SchemaRules) -> None:
    """PV-47: and what is left has nothing more to leave out."""
    left = pruned(schema, rules)
    assert set(_keywords(left)) <= rules.keywords | {"additionalProperties"}
    assert pruned(left, rules) == left


def _keywords(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return []
    found = list(schema)
    for keyword, value in schema.items():
        if keyword == "properties":
            found += [word for part in value.values() for word in _keywords(part)]
        elif keyword == "anyOf":
            found += [word for part in value for word in _keywords(part)]
        elif keyword == "items":
            found += _keywords(value)
    return found
