"""A turn that ends with a value instead of prose: the tool the model answers through (runtime.md 3.11).

Owns the specification, the tool's reserved name, and whether a value is accepted. When the turn ends is the loop's
matter.
"""

import hashlib
import inspect
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from basis_daemon.errors import RunFailure, UsageError
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSpec,
    default_preparation,
)
from basis_daemon.runtime.tools.registry import MAX_DESCRIPTION_BYTES
from basis_daemon.runtime.tools.schemas import schema_of
from basis_daemon.runtime.tools.validate import validate_input

MAX_REJECTIONS = 3
"""Values refused in a row after which the turn fails: a forced call would else be made for ever."""


_HOW = " Call this once, as the last thing you do, to give your answer."


class InvalidOutputSpec(UsageError):
    kind = "invalid_output_spec"


class OutputMissing(RunFailure):
    """AG-47: the turn ended without an accepted value."""

    kind = "output_missing"


class OutputMismatch(RunFailure):
    """AG-47: the value is not what the caller's type takes. The exchange is kept."""

    kind = "output_mismatch"


@dataclass(frozen=True, slots=True)
class Accept:
    """Take this value: the one that was given, or a normalised one."""

    value: Json


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuse it; the model reads the reason and tries again in the same run (AG-48)."""

    reason: str


Validator = Callable[[Json], Accept | Reject | Awaitable[Accept | Reject]]


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """What is asked for: a name, a sentence on what it is, and the JSON schema of an object (AG-44, OU-1).

    A *shaping* turn holds nothing but the answering tool and forces it; with `keeps_tools` the agent *works* first
    (AG-45).
    """

    name: str
    description: str
    schema: dict[str, Json]
    keeps_tools: bool = False

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise InvalidOutputSpec("a typed output needs a name")
        if len(self.description.encode()) > MAX_DESCRIPTION_BYTES - len(_HOW.encode()):
            raise InvalidOutputSpec(f"the description of {self.name!r} is longer than {MAX_DESCRIPTION_BYTES} bytes")
        if self.schema.get("type", "object") != "object":
            raise InvalidOutputSpec(
                f"the schema of {self.name!r} does not describe an object", hint="put the value into a field of one"
            )

    @classmethod
    def of(cls, wanted: type[Any], *, name: str | None = None, description: str | None = None) -> "OutputSpec":
        """The specification of a dataclass, a TypedDict or a msgspec struct. Raises `InvalidOutputSpec`."""
        try:
            schema = schema_of(wanted)
        except TypeError as error:
            raise InvalidOutputSpec(f"no schema can be made of {wanted!r}: {error}") from error
        name = name or wanted.__name__
        own = vars(wanted).get("__doc__")  # what it inherits is about something else
        text = description or (inspect.cleandoc(own) if own else f"The {name} asked for.")
        return cls(name, text, schema)

    def with_tools(self) -> "OutputSpec":
        """The same, from an agent that keeps its tools."""
        return replace(self, keeps_tools=True)

    def reserve(self) -> "Reservation":
        """Fix the tool's name ahead of the turn (AG-48)."""
        return Reservation(self, _tool_name(self.name, os.urandom(16).hex()))

    def reserve_for(self, turn_id: str) -> "Reservation":
        """The same name each time this turn is carried on: a call made before a restart still finds its tool."""
        return Reservation(self, _tool_name(self.name, hashlib.sha256(turn_id.encode()).hexdigest()))


@dataclass(frozen=True, slots=True)
class Reservation:
    """A specification and the name its tool will have."""

    spec: OutputSpec
    tool_name: str


@dataclass(frozen=True, slots=True)
class OutputWanted:
    """What a turn is to end with. A `validator` judges while the model can still answer; `convert` raises `ValueError`
    or `TypeError` for a value the caller's type does not take, after it was accepted."""

    reservation: Reservation
    validator: Validator | None = None
    convert: Callable[[Json], object] | None = None

    @property
    def tool_name(self) -> str:
        return self.reservation.tool_name

    @property
    def keeps_tools(self) -> bool:
        return self.reservation.spec.keeps_tools


@dataclass(slots=True)
class TerminalTool:
    """The tool of one turn of one agent. An accepted call of it is the turn's output."""

    wanted: OutputWanted
    agent_id: str
    spec: ToolSpec = field(init=False)

    def __post_init__(self) -> None:
        asked = self.wanted.reservation.spec
        self.spec = ToolSpec(
            name=self.wanted.tool_name,
            description=asked.description + _HOW,
            input_schema=asked.schema,
            terminal=True,
        )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        return default_preparation(self.spec, input)

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        """Raises `ToolError` for an agent it was not made for (AG-48)."""
        if context.agent_id != self.agent_id:
            raise ToolError("this answer is expected from another agent")
        verdict = await self._judge(input)
        if isinstance(verdict, Reject):
            return ToolOutput(f"Not accepted: {verdict.reason}", is_error=True)
        return ToolOutput("Accepted.", details=verdict.value, terminate=True)

    async def _judge(self, value: dict[str, Json]) -> Accept | Reject:
        if self.wanted.validator is None:
            return Accept(value)
        verdict = self.wanted.validator(value)
        return await verdict if isinstance(verdict, Awaitable) else verdict


def matching(schema: dict[str, Json]) -> Validator:
    """A validator that holds values against `schema`, as far as `validate_input` knows its keywords."""

    def judge(value: Json) -> Accept | Reject:
        problems = validate_input(schema, value)
        return Reject("; ".join(problems)) if problems else Accept(value)

    return judge


def converted(value: Json, wanted: Callable[[Json], object] | None) -> object:
    """`value` as the caller's type. Raises `OutputMismatch`."""
    if wanted is None:
        return value
    try:
        return wanted(value)
    except (ValueError, TypeError) as error:
        raise OutputMismatch(f"the answer is not what was asked for: {error}") from error


def converter(wanted: type[Any]) -> Callable[[Json], object]:
    """The conversion into a type msgspec knows."""
    return lambda value: msgspec.convert(value, wanted)


def _tool_name(name: str, digest: str) -> str:
    """At most 64 characters of `[A-Za-z0-9_-]` (AG-44)."""
    short = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:14]
    return f"basis_terminal_{short}_{digest[:16]}_{digest[16:32]}"
