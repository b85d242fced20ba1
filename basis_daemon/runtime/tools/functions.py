"""Tools from plain async functions (TL-2).

    @tool(ToolSpec("greet", "Greets.", schema))
    async def greet(context: ToolContext, input: dict[str, Json]) -> str: ...

    @tool(side_effect="external")
    async def weather(context: ToolContext, city: str, days: int = 1) -> str:
        \"\"\"Tell the weather.\"\"\"

The second form takes name, description and schema from the function: its parameters, but for the context, are the
fields of the input. `Annotated[str, msgspec.Meta(description="…")]` describes one.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast, get_origin, get_type_hints, overload

import msgspec

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolError, ToolSpec
from basis_daemon.runtime.tools.schemas import schema_of
from basis_daemon.runtime.tools.spec_checks import InvalidTool

Function = Callable[..., Awaitable[Any]]

NO_SCHEMA: Mapping[str, Json] = ToolSpec("x").input_schema


@overload
def tool(spec: Function, /) -> FunctionTool: ...
@overload
def tool(spec: ToolSpec | str | None = None, /, **fields: Any) -> Callable[[Function], FunctionTool]: ...
def tool(
    spec: ToolSpec | str | Function | None = None, /, **fields: Any
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a tool of the decorated function. `spec` may be a whole specification or a name; `fields` are those of
    `ToolSpec`. What neither says is taken from the function.

    Raises `InvalidTool` for a function that is not async, or whose parameters no schema can be made of.
    """
    if isinstance(spec, ToolSpec):
        given = {**_said(spec), **fields}
    else:
        given = {"name": spec, **fields} if isinstance(spec, str) else fields
    if callable(spec):
        return _tool(spec, {})
    return lambda function: _tool(function, given)


def _tool(function: Function, given: Mapping[str, Any]) -> FunctionTool:
    if not inspect.iscoroutinefunction(function):
        raise InvalidTool(f"{_name(function)} is not an async function", hint="write `async def`")
    said: dict[str, Any] = {"name": _name(function), "description": inspect.getdoc(function) or "", **given}
    fields = _fields(function)
    if fields is None:
        return FunctionTool(ToolSpec(**said), function)
    wanted, context_name = fields
    said.setdefault("input_schema", {"properties": {}, **schema_of(wanted)})
    spec = ToolSpec(**said)

    async def call(context: ToolContext, input: dict[str, Json]) -> Any:
        try:
            value = msgspec.convert(_with_integers(input), wanted)
        except msgspec.ValidationError as error:
            raise ToolError(f"{spec.name}: {error}") from error
        arguments = {name: getattr(value, name) for name in wanted.__struct_fields__}
        return await function(**arguments, **({context_name: context} if context_name else {}))

    return FunctionTool(spec, call)


def _with_integers(value: Json) -> Json:
    """`2.0` as the integer it is for a schema (TL-15). A field that takes any number takes it too."""
    if isinstance(value, dict):
        return {name: _with_integers(each) for name, each in cast(dict[str, Json], value).items()}
    if isinstance(value, list):
        return [_with_integers(each) for each in cast(list[Json], value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _said(spec: ToolSpec) -> dict[str, Any]:
    """What a specification says that is not what it would say by itself."""
    plain = ToolSpec(spec.name)
    names = spec.__dataclass_fields__
    return {"name": spec.name} | {n: getattr(spec, n) for n in names if getattr(spec, n) != getattr(plain, n)}


def _fields(function: Function) -> tuple[type[msgspec.Struct], str | None] | None:
    """The input as a type, and the name of the parameter that takes the context. `None` for a function that takes the
    context and the input as they are."""
    parameters = list(inspect.signature(function).parameters.values())
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise InvalidTool(f"the parameters of {_name(function)} can't be read: {error}") from error
    if _is_plain(parameters, hints):
        return None
    context_name: str | None = None
    fields: list[Any] = []
    for parameter in parameters:
        kind = hints.get(parameter.name)
        if kind is ToolContext:
            context_name = parameter.name
        elif kind is None or parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidTool(
                f"parameter {parameter.name!r} of {_name(function)} can't be a field of an input",
                hint="give it a type, or take `(context: ToolContext, input: dict)`",
            )
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, _default(parameter.default)))
    # Fields without a default come first, as in any signature; keywords may stand in any order.
    fields.sort(key=len)
    try:
        wanted = msgspec.defstruct(_name(function), fields, forbid_unknown_fields=True, kw_only=True)
        schema_of(wanted)
    except TypeError as error:
        raise InvalidTool(f"no schema can be made of the parameters of {_name(function)}: {error}") from error
    return wanted, context_name


def _is_plain(parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> bool:
    if len(parameters) != 2 or hints.get(parameters[0].name, ToolContext) is not ToolContext:
        return False
    second = hints.get(parameters[1].name, dict)
    return second is Json or (get_origin(second) or second) in (dict, Mapping)


def _default(value: Any) -> Any:
    """A default as a struct takes it: a list or an object anew for every call."""
    if isinstance(value, list | dict | set):
        mutable = cast(Any, value)
        return msgspec.field(default_factory=lambda: mutable.copy())
    return value


def _name(function: Function) -> str:
    return getattr(function, "__name__", type(function).__name__)
