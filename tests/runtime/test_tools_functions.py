"""Tools as a host writes them: specifications, functions, classes (runtime.md 4.1)."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    ExecutableTool,
    FunctionTool,
    Tool,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSpec,
    default_preparation,
)
from basis_daemon.runtime.tools.functions import tool
from basis_daemon.runtime.tools.registry import InvalidTool, ToolRegistry
from basis_daemon.runtime.tools.spec_checks import MAX_DESCRIPTION_BYTES, MAX_SCHEMA_BYTES
from support.rounds import a_tool, call, empty, noting, run_round
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Json] = {"type": "object", "properties": {"name": {"type": "string"}}}


# --- specifications ---------------------------------------------------------------------------------------------------


def test_a_builder_says_what_keywords_say() -> None:
    """TL-1."""
    built = (
        ToolSpec.builder("greet")
        .with_description("Greets.")
        .with_input_schema(SCHEMA)
        .with_output_schema({"type": "string"})
        .with_strict(True)
        .with_options({"a": 1})
        .with_kind("function")
        .with_defer_loading()
        .with_capabilities("read_only", "custom:greeting")
        .with_side_effect("external")
        .with_durability("replay_safe")
        .with_execution("delegation")
        .with_approval("delegation")
        .with_timeout(2.5)
        .with_terminal()
        .build()
    )
    said = ToolSpec(
        name="greet",
        description="Greets.",
        input_schema=SCHEMA,
        output_schema={"type": "string"},
        strict=True,
        options={"a": 1},
        kind="function",
        loading="deferred",
        capabilities=frozenset({"read_only", "custom:greeting"}),
        side_effect="external",
        durability="replay_safe",
        execution="delegation",
        approval="delegation",
        timeout_s=2.5,
        terminal=True,
    )
    assert built == said
    assert ToolSpec.builder("plain").build() == ToolSpec("plain")
    plain = ToolSpec("x")
    untouched = {field.name for field in fields(ToolSpec) if getattr(said, field.name) == getattr(plain, field.name)}
    assert untouched == {"kind"}, "every field but the one whose default was said again"


def test_what_is_not_said_has_the_careful_default() -> None:
    """TL-1: no parameters, alone in its lane, nothing that would make it run unasked."""
    spec = ToolSpec("x")
    assert spec.input_schema == {"type": "object", "properties": {}}
    assert (spec.execution, spec.side_effect, spec.approval) == ("exclusive_local_mutation", "none", "default")
    assert (spec.kind, spec.loading, spec.durability) == ("function", "immediate", "ephemeral")
    assert ToolSpec("y").input_schema is not spec.input_schema


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (ToolSpec("a b"), "name"),
        (ToolSpec("x", "d" * (MAX_DESCRIPTION_BYTES + 1)), "description"),
        (ToolSpec("x", input_schema={"description": "s" * MAX_SCHEMA_BYTES}), "input schema"),
        (ToolSpec("x", output_schema={"description": "s" * MAX_SCHEMA_BYTES}), "output schema"),
        (ToolSpec("x", input_schema=[1]), "not a JSON object"),  # type: ignore[arg-type]
        (ToolSpec("x", input_schema={"default": object()}), "not JSON"),
        (ToolSpec("x", side_effect="some"), "side_effect"),  # type: ignore[arg-type]
        (ToolSpec("x", execution="whenever"), "execution"),  # type: ignore[arg-type]
        (ToolSpec("x", capabilities=frozenset({"anything"})), "custom:"),
        (ToolSpec("x", timeout_s=0), "time limit"),
        (ToolSpec("x", timeout_s=float("nan")), "time limit"),
    ],
)
def test_a_specification_that_can_not_be_used_is_refused_when_it_is_registered(spec: ToolSpec, complaint: str) -> None:
    """TL-1, TL-40: also what another program wrote; the tool is named."""
    with pytest.raises(InvalidTool) as refusal:
        ToolRegistry().register(FunctionTool(spec, noting([])))
    assert complaint in f"{refusal.value} {refusal.value.hint}"


# --- functions --------------------------------------------------------------------------------------------------------


@tool(ToolSpec("plain", "Takes it all as it is.", SCHEMA))
async def plain(context: ToolContext, input: dict[str, Json]) -> str:
    return f"{context.tool_name} {input['name']}"


@tool(side_effect="external", timeout_s=3)
async def weather(
    city: Annotated[str, msgspec.Meta(description="Where.")],
    context: ToolContext,
    days: int = 1,
    units: Literal["c", "f"] = "c",
    tags: list[str] = [],  # noqa: B006
) -> dict[str, Json]:
    """Tell the weather."""
    tags.append(context.tool_call_id)
    return {"city": city, "days": days, "units": units, "tags": tags}


@tool
async def nothing() -> None:
    """Do nothing."""


async def test_a_function_with_a_specification_is_a_tool(tmp_path: Path) -> None:
    """TL-2."""
    assert plain.spec == ToolSpec("plain", "Takes it all as it is.", SCHEMA)
    assert await Caller(tmp_path).text(plain, name="you") == "plain you"


async def test_a_function_s_parameters_are_the_fields_of_its_input(tmp_path: Path) -> None:
    """TL-2: the schema, the name and the description come from the function; the context is no field."""
    spec = weather.spec
    assert (spec.name, spec.description) == ("weather", "Tell the weather.")
    assert (spec.side_effect, spec.timeout_s) == ("external", 3)
    assert spec.input_schema["type"] == "object" and spec.input_schema["additionalProperties"] is False
    assert spec.input_schema["required"] == ["city"]
    properties: Mapping[str, Any] = spec.input_schema["properties"]
    assert list(properties) == ["city", "days", "units", "tags"]
    assert properties["city"] == {"type": "string", "description": "Where."}
    for _ in range(2):  # a default list is nobody's to keep
        output = await Caller(tmp_path).call(weather, city="Bern", days=2.0)
        assert output.content == {"city": "Bern", "days": 2, "units": "c", "tags": ["call-1"]}
    assert nothing.spec.input_schema == {"type": "object", "properties": {}, "additionalProperties": False} | {
        key: value for key, value in nothing.spec.input_schema.items() if key in ("title", "required")
    }
    ToolRegistry().register(nothing)


async def test_a_specification_may_leave_the_schema_to_the_function(tmp_path: Path) -> None:
    @tool(ToolSpec("named", side_effect="process"), timeout_s=1)
    async def anything(*, count: int) -> int:
        """Counts."""
        return count + 1

    assert (anything.spec.name, anything.spec.description, anything.spec.timeout_s) == ("named", "Counts.", 1)
    assert anything.spec.input_schema["required"] == ["count"]
    assert (await Caller(tmp_path).call(anything, count=1)).content == 2


async def test_input_that_only_the_types_refuse_is_an_error_the_model_reads(tmp_path: Path) -> None:
    """TL-15: what the partial check lets through, nested types for one, is still no call of the function."""

    class Point(msgspec.Struct):
        x: int

    @tool("place")
    async def place(point: Point) -> str:
        return str(point.x)

    assert await Caller(tmp_path).text(place, point={"x": 1}) == "1"
    with pytest.raises(ToolError, match=r"place: .*`\$\.point\.x`"):
        await place.execute(Caller(tmp_path).context(place), {"point": {"x": "one"}})


@pytest.mark.parametrize("form", ["sync", "untyped", "variadic", "odd type", "unknown name"])
def test_a_function_that_is_no_tool_is_refused_where_it_is_written(form: str) -> None:
    def sync(context: ToolContext, input: dict[str, Json]) -> str:
        return ""

    async def untyped(context: ToolContext, a, b) -> str:  # type: ignore[no-untyped-def]
        return ""

    async def variadic(*names: str) -> str:
        return ""

    async def odd_type(a: int, b: Tool) -> str:
        return ""

    async def unknown_name(a: "Nowhere") -> str:  # type: ignore[name-defined] # noqa: F821
        return ""

    written: dict[str, Any] = {
        "sync": sync,
        "untyped": untyped,
        "variadic": variadic,
        "odd type": odd_type,
        "unknown name": unknown_name,
    }
    with pytest.raises(InvalidTool, match=written[form].__name__):
        tool(written[form])


# --- classes ----------------------------------------------------------------------------------------------------------


class Shouts:
    """A tool as a class. `spec` is a host's code: how often it is asked for is counted."""

    def __init__(self) -> None:
        self.described = 0

    @property
    def spec(self) -> ToolSpec:
        self.described += 1
        return ToolSpec("shout", "Shouts.", SCHEMA)

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        return default_preparation(ToolSpec("shout"), input)

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        return ToolOutput(str(input["name"]).upper())


async def test_a_class_is_a_tool_and_one_of_it_may_serve_many_runtimes() -> None:
    """TL-2, TL-6, D-82, 1.1: described once for each registration, whatever is made of it."""
    shared: ExecutableTool = Shouts()
    for _ in range(2):
        done = await run_round(empty().with_tool(shared), call("shout", name="you"), call("shout", name="all"))
        assert [result.content for result in done.results.values()] == ["YOU", "ALL"]
    assert isinstance(shared, Shouts) and shared.described == 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("text", "text"),
        ({"a": [1, None]}, {"a": [1, None]}),
        (None, None),
        (ToolOutput("kept", details={"n": 1}), "kept"),
    ],
)
async def test_a_function_may_give_text_json_or_an_output(given: Any, expected: Json) -> None:
    """TL-2."""
    done = await run_round(empty().with_tool(a_tool("give", noting([], answer=given))), call("give"))
    assert done.only.content == expected and not done.only.is_error


@pytest.mark.parametrize("error", [ToolError("not like this"), ValueError("broken inside")])
async def test_an_exception_is_an_error_result_without_its_traceback(error: Exception) -> None:
    """TL-2."""

    async def fail(context: ToolContext, input: dict[str, Json]) -> str:
        raise error

    done = await run_round(empty().with_tool(a_tool("fail", fail)), call("fail"))
    assert done.only.is_error and str(error) in done.text()
    assert "Traceback" not in done.text() and __file__ not in done.text()


async def test_details_stay_with_the_conversation_and_are_sent_to_nobody() -> None:
    """TL-3: bit for bit, by call id."""
    details = {"nested": [{"é": 1.5}, None, True], "text": "DETAIL"}
    output = ToolOutput("seen", details=details)
    builder = empty().with_tool(a_tool("give", noting([], answer=output))).tool_calls(call("give")).text("done")
    async with builder.build() as mock, mock.spawn() as agent:
        await agent.send("go")
        (exchange,) = [entry for entry in agent.transcript if entry.kind == "tool_exchange"]
        assert exchange.details["tool-1"]["details"] == details
        assert "DETAIL" not in str([message for request in mock.recorded_requests() for message in request.messages])


def test_a_specification_can_be_changed_by_copy() -> None:
    assert replace(ToolSpec("x"), timeout_s=1.0) == ToolSpec("x", timeout_s=1.0)
