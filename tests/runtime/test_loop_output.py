"""Turns that end with a value (runtime.md 3.11)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.cancel import StopSignal
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import Json, ToolResult
from basis_daemon.runtime.providers.base import Limits, ToolChoice
from basis_daemon.runtime.providers.errors import InvalidRequest
from basis_daemon.runtime.providers.scripted import (
    ScriptedCall,
    ScriptedProvider,
    ScriptedTurn,
    failure,
    text,
    tool_calls,
)
from basis_daemon.runtime.tools.base import ToolError
from basis_daemon.runtime.typed_output import (
    MAX_REJECTIONS,
    Accept,
    InvalidOutputSpec,
    OutputMismatch,
    OutputMissing,
    OutputSpec,
    OutputWanted,
    Reject,
    TerminalTool,
    converter,
    matching,
)
from basis_protocol.events import AssistantMessage, ErrorEvent, ToolCompleted
from support.conversations import Counter, new_conversation, roles
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio

SPEC = OutputSpec(
    "verdict", "Whether it is right.", {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
)


def wanted(spec: OutputSpec = SPEC, **fields: Any) -> OutputWanted:
    return OutputWanted(spec.reserve(), **fields)


def answer(to: OutputWanted, value: dict[str, Json], *more: ScriptedCall, saying: str = "") -> ScriptedTurn:
    return tool_calls(ScriptedCall(to.tool_name, value, id="answer"), *more, saying=saying)


async def test_a_shaping_turn_holds_one_tool_and_must_call_it(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-44, AG-45, SE-4: the value is the outcome, not an assistant message; the tool is gone afterwards."""
    output = wanted()
    model.push(answer(output, {"ok": True}, saying="it is"))
    model.push(text("hello"))
    conversation = new_conversation(model, tmp_path, counter.tool())

    outcome = await conversation.say("is it right?", output=output)
    await conversation.say("thanks")

    assert (outcome.status, outcome.output, outcome.final_message) == ("ok", {"ok": True}, None)
    typed, plain = model.recorded_requests()
    assert [tool.name for tool in typed.tools] == [output.tool_name]
    assert typed.tools[0].input_schema == SPEC.schema
    assert typed.tool_choice == ToolChoice("tool", output.tool_name)
    assert [tool.name for tool in plain.tools] == ["bump"] and plain.tool_choice == ToolChoice()
    assert [event.text for event in conversation.seen(AssistantMessage)] == ["it is", "hello"]


async def test_a_working_turn_keeps_its_tools_and_is_not_forced(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-45, D-46."""
    output = wanted(SPEC.with_tools())
    model.push(tool_calls(ScriptedCall("bump", {"n": 1})))
    model.push(answer(output, {"ok": False}))
    conversation = new_conversation(model, tmp_path, counter.tool())

    outcome = await conversation.say("work it out", output=output)

    assert outcome.output == {"ok": False} and counter.ran == [{"n": 1}]
    requests = model.recorded_requests()
    assert [tool.name for tool in requests[0].tools] == sorted([output.tool_name, "bump"])
    assert requests[0].tool_choice == ToolChoice()


async def test_the_first_answer_ends_the_round(model: ScriptedProvider, tmp_path: Path, counter: Counter) -> None:
    """AG-46: what comes behind it in the same message is not carried out, and its result says so."""
    output = wanted(SPEC.with_tools())
    again = ScriptedCall(output.tool_name, {"ok": False}, id="second")
    model.push(answer(output, {"ok": True}, ScriptedCall("bump", {"n": 1}, id="late"), again))
    conversation = new_conversation(model, tmp_path, counter.tool())

    outcome = await conversation.say("go", output=output)

    assert outcome.output == {"ok": True} and counter.ran == []
    exchange = conversation.session.agent.transcript[2]
    results = {block.tool_use_id: block for block in exchange.message.content if isinstance(block, ToolResult)}
    assert [results[id].is_error for id in ("answer", "late", "second")] == [False, True, True]
    assert "Not run" in results["late"].as_text()
    assert exchange.details["answer"]["details"] == {"ok": True}


async def test_a_turn_that_never_answers_fails_and_says_so(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-47, D-46: whether it said something else, nothing, or was ended early."""
    for turn in (text("I'd rather not"), text("")):
        model.push(turn)
    conversation = new_conversation(model, tmp_path)
    stop = StopSignal()
    stop.set()

    for options in (TurnOptions(), TurnOptions(), TurnOptions(stop=stop)):
        outcome = await conversation.say("go", output=wanted(), options=options)
        assert outcome.status == "error" and "without the answer" in (outcome.error or "")
        assert isinstance(conversation.session.failure, OutputMissing)


async def test_any_other_failure_is_told_as_what_it_is(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-47: and the tool is gone even so (AG-44)."""
    output = wanted()
    model.push(failure(InvalidRequest("no such model")))
    conversation = new_conversation(model, tmp_path)
    outcome = await conversation.say("go", output=output)
    assert isinstance(conversation.session.failure, InvalidRequest) and outcome.output is None
    assert (
        conversation.runtime.registry.resolve(output.tool_name, audience=None, agent=conversation.session.agent.id)
        is None
    )


class Point(msgspec.Struct):
    x: int
    y: int = 0


async def test_a_value_of_the_wrong_type_fails_the_turn_behind_the_exchange(
    model: ScriptedProvider, tmp_path: Path
) -> None:
    """AG-47, OU-3: what was said stays."""
    output = OutputWanted(OutputSpec.of(Point).reserve(), convert=converter(Point))
    model.push(answer(output, {"x": "far"}))
    conversation = new_conversation(model, tmp_path)
    outcome = await conversation.say("where?", output=output)
    assert outcome.status == "error" and isinstance(conversation.session.failure, OutputMismatch)
    assert roles(conversation) == ["user_turn", "assistant_turn", "tool_exchange"]
    assert conversation.seen(ErrorEvent)


async def test_a_validator_has_the_model_try_again_in_the_same_run(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-48, D-47: a reason for what is refused; what is accepted may be normalised, to any JSON value at all."""

    async def judge(value: Json) -> Accept | Reject:
        await anyio.lowlevel.checkpoint()
        return Accept(None) if value["ok"] else Reject("it must be ok")

    output = wanted(validator=judge)
    model.push(answer(output, {"ok": False}))
    model.push(answer(output, {"ok": True}))
    conversation = new_conversation(model, tmp_path)

    outcome = await conversation.say("go", output=output)

    assert (outcome.status, outcome.output) == ("ok", None)
    refused = model.recorded_requests()[1].messages[-1].content[0]
    assert isinstance(refused, ToolResult) and refused.is_error and "it must be ok" in refused.as_text()
    assert [event.is_error for event in conversation.seen(ToolCompleted)] == [True, False]


async def test_a_model_that_never_satisfies_the_validator_is_not_asked_for_ever(
    model: ScriptedProvider, tmp_path: Path
) -> None:
    """AG-48, D-45: none accepted is an error."""
    output = wanted(validator=matching(SPEC.schema))
    for _ in range(MAX_REJECTIONS):
        model.push(answer(output, {}))
    conversation = new_conversation(model, tmp_path)
    outcome = await conversation.say("go", output=output)
    assert outcome.status == "error" and isinstance(conversation.session.failure, OutputMissing)
    model.assert_exhausted()


async def test_a_validator_that_fails_is_a_refusal(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-48, TL-2: the run goes on."""
    seen: list[Json] = []

    def judge(value: Json) -> Accept | Reject:
        seen.append(value)
        if len(seen) == 1:
            raise LookupError("not yet")
        return Accept(value)

    output = wanted(validator=judge)
    model.push(answer(output, {"ok": True}))
    model.push(answer(output, {"ok": True}))
    conversation = new_conversation(model, tmp_path)
    assert (await conversation.say("go", output=output)).output == {"ok": True}


async def test_nobody_else_can_answer(tmp_path: Path) -> None:
    """AG-48: a call by another agent is refused."""
    with pytest.raises(ToolError, match="another agent"):
        await Caller(tmp_path).call(TerminalTool(wanted(), "agent-other"), ok=True)


async def test_a_provider_with_tools_of_its_own_choosing_says_that_it_cannot(
    model: ScriptedProvider, tmp_path: Path
) -> None:
    """The answering tool would not be offered: a clear failure, not an answer in prose."""
    model.limits = Limits(tools=frozenset({"bump"}))  # type: ignore[misc]
    conversation = new_conversation(model, tmp_path)
    outcome = await conversation.say("go", output=wanted())
    assert outcome.status == "error" and "can't give typed answers" in (outcome.error or "")
    assert model.recorded_requests() == []


@given(st.text(min_size=1).filter(lambda name: bool(name.strip())))
def test_the_tools_name_fits_every_wire(name: str) -> None:
    """AG-44: whatever the output is called, and never the same twice."""
    spec = OutputSpec(name, "x", {"type": "object"})
    first, second = spec.reserve().tool_name, spec.reserve().tool_name
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", first)
    assert re.fullmatch(r"basis_terminal_.{1,14}_[0-9a-f]{16}_[0-9a-f]{16}", first)
    assert first != second
    assert spec.reserve_for("turn-1") == spec.reserve_for("turn-1") != spec.reserve_for("turn-2")


@dataclass
class Step:
    what: str


@dataclass
class Plan:
    """What to do."""

    steps: list[Step]


class Place(TypedDict):
    x: int


class Tree(msgspec.Struct):
    children: list["Tree"]


@pytest.mark.parametrize(
    ("kind", "value", "field"),
    [(Plan, {"steps": [{"what": "a"}]}, "steps"), (Place, {"x": 1}, "x"), (Tree, {"children": []}, "children")],
    ids=["dataclass", "typed dict", "recursive struct"],
)
def test_a_specification_is_made_of_a_type(kind: type, value: dict[str, Json], field: str) -> None:
    """OU-4: the schema's root is an object with its fields in place, as providers want it."""
    spec = OutputSpec.of(kind)
    assert spec.name == kind.__name__ and spec.schema["type"] == "object" and field in spec.schema["properties"]
    assert isinstance(matching(spec.schema)(value), Accept)
    assert msgspec.to_builtins(converter(kind)(value)) == value


@pytest.mark.parametrize("kind", [int, list[int], object])
def test_what_is_no_object_is_refused_at_once(kind: Any) -> None:
    """AG-44: tools take objects."""
    with pytest.raises(InvalidOutputSpec):
        OutputSpec.of(kind, name="n")
    with pytest.raises(InvalidOutputSpec):
        OutputSpec(" ", "x", {})
    with pytest.raises(InvalidOutputSpec, match="longer"):
        OutputSpec("n", "x" * 5000, {})
