"""What a call's input must look like (TL-15)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import Tool
from basis_daemon.runtime.tools.builtin import split_file_tools
from basis_daemon.runtime.tools.validate import validate_input

SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer"},
        "mode": {"enum": ["a", "b"]},
        "maybe": {"type": ["string", "null"]},
        "items": {
            "type": "array",
            "items": {"type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}},
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "input",
    [
        {"path": "a"},
        {"path": "a", "count": 10.0},
        {"path": "a", "mode": "b", "maybe": None, "items": []},
        {"path": "a", "maybe": "x", "items": [{"x": 1}, {"x": 1.5, "y": True}]},
    ],
)
def test_fitting_input_has_no_problems(input: dict[str, Json]) -> None:
    assert validate_input(SCHEMA, input) == []


def test_every_problem_is_named_with_its_place() -> None:
    """All at once: a model that is told one problem at a time needs a round for each."""
    problems = validate_input(SCHEMA, {"count": "3", "mode": "c", "maybe": 1, "items": [{}, {"x": "1"}, 5], "other": 1})

    assert problems == [
        "path: required, but missing",
        "count: expected integer, got string",
        'mode: expected one of ["a","b"], got "c"',
        "maybe: expected string or null, got integer",
        "items[0].x: required, but missing",
        "items[1].x: expected number, got string",
        "items[2]: expected object, got integer",
        "other: not a field of this tool; it has count, items, maybe, mode, path",
    ]


@pytest.mark.parametrize(("value", "kind"), [(True, "boolean"), (1.5, "number"), ("1", "string"), (None, "null")])
def test_what_is_no_integer_is_told_by_its_type(value: Json, kind: str) -> None:
    schema = {"properties": {"n": {"type": "integer"}}}
    assert validate_input(schema, {"n": value}) == [f"n: expected integer, got {kind}"]


@pytest.mark.parametrize("schema", [{"properties": {}}, {"required": []}, {"type": "object"}])
def test_root_without_a_type_still_wants_an_object(schema: dict[str, Json]) -> None:
    """D-57."""
    assert validate_input(schema, "text") == ["input: expected object, got string"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "color", "properties": {"a": {"$ref": "#/nowhere", "pattern": "(", "format": "uuid"}}},
        {"properties": [], "required": "a", "enum": 5, "items": 3, "type": []},
        {"properties": {"a": True}, "required": None},
    ],
)
def test_unknown_or_broken_schema_never_fails_a_call(schema: dict[str, Json]) -> None:
    """TL-15."""
    assert validate_input(schema, {"a": 1}) == []


def test_problems_are_bounded() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    problems = validate_input(schema, {"a": [1] * 1000})

    assert len(problems) == 21 and problems[-1] == "and more"


def by_name(name: str) -> Tool:
    return next(tool for tool in split_file_tools() if tool.spec.name == name)


@pytest.mark.parametrize(
    ("tool", "input"),
    [
        ("read", {"file_path": "a", "offset": "3", "limit": 5.0}),
        ("read", {"filePath": "a"}),
        ("grep", {"pattern": "x", "ignoreCase": True, "context": "2"}),
        ("write", {"filePath": "a", "contents": "x"}),
        ("edit", {"file_path": "a", "old_string": "x", "new_string": "y", "replaceAll": True}),
        ("edit", {"path": "a", "edits": {"oldText": "x", "newText": "y"}}),
        ("edit", {"path": "a", "edits": '[{"old": "x", "new": "y"}]'}),
    ],
)
def test_other_spellings_are_accepted_without_being_taught(tool: str, input: dict[str, Json]) -> None:
    """4.10: the published schema has one spelling, and it requires what is required."""
    schema = by_name(tool).spec.input_schema

    assert validate_input(schema, input) == []
    assert validate_input(schema, {}) != []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(
    schema=st.dictionaries(
        st.sampled_from(["type", "properties", "required", "enum", "items", "additionalProperties"]), json_values
    ),
    value=json_values,
)
def test_no_schema_and_no_value_raise(schema: dict[str, Json], value: Json) -> None:
    assert all(isinstance(problem, str) for problem in validate_input(schema, value))
