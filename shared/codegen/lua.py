"""Lua: LuaCATS annotations for every message, and a table of method names, event types and error codes."""

from collections.abc import Iterator
from typing import assert_never

from basis_protocol import PROTOCOL_VERSION
from codegen.model import (
    Alias,
    ListOf,
    MapOf,
    OneOf,
    Primitive,
    Protocol,
    Ref,
    Struct,
    Type,
    Word,
    is_optional,
    without_null,
)

HEADER = """\
-- Generated from basis_protocol; do not edit. `make gen` writes it again.
--
-- A newer daemon may send fields, words and event types that are not listed here: ignore them.
"""

PRIMITIVES = {
    Primitive.STRING: "string",
    Primitive.INTEGER: "integer",
    Primitive.NUMBER: "number",
    Primitive.BOOLEAN: "boolean",
    Primitive.NULL: "nil",
    Primitive.JSON: "any",
}


def render(protocol: Protocol) -> str:
    parts = [HEADER]
    parts += [_alias(alias) for alias in protocol.aliases]
    parts += [_class(struct) for struct in protocol.structs]
    parts.append(_table(protocol))
    return "\n".join(parts)


def _alias(alias: Alias) -> str:
    return "".join(_comment(alias.doc)) + f"---@alias basis.{alias.name} {spell(alias.type)}\n"


def _class(struct: Struct) -> str:
    lines = [*_comment(struct.doc), f"---@class basis.{struct.name}\n"]
    if struct.tag is not None:
        lines.append(f'---@field type "{struct.tag}"\n')
    for field in struct.fields:
        mark = "" if field.required else "?"
        kind = without_null(field.type) if mark else field.type
        remark = " ".join(field.description.split())
        if mark and not is_optional(field.type):
            remark = f"{remark} (default {_literal(field.default)})".strip()
        lines.append(f"---@field {field.name}{mark} {spell(kind)} {remark}".rstrip() + "\n")
    return "".join(lines)


def _table(protocol: Protocol) -> str:
    methods = "".join(f'    {constant(method.name)} = "{method.name}",\n' for method in protocol.methods)
    events = "".join(f"    {protocol.struct(name).tag} = true,\n" for name in protocol.events)
    codes = "".join(f"    {name} = {value},\n" for name, value in protocol.error_codes.items())
    return (
        "return {\n"
        f"  PROTOCOL_VERSION = {PROTOCOL_VERSION},\n"
        f"  methods = {{\n{methods}  }},\n"
        f"  event_types = {{\n{events}  }},\n"
        f"  error_codes = {{\n{codes}  }},\n"
        "}\n"
    )


def constant(method: str) -> str:
    """`basis/session/setConfig` → `session_set_config`."""
    words = method.removeprefix("basis/").replace("/", "_")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words)


def _comment(text: str) -> Iterator[str]:
    yield from (f"--- {line}".rstrip() + "\n" for line in text.splitlines())


def _literal(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case int() | float():
            return str(value)
        case _:
            return "{}" if not value else "…"


def spell(kind: Type) -> str:
    """Write a type as a LuaCATS annotation."""
    match kind:
        case Primitive():
            return PRIMITIVES[kind]
        case Ref(name):
            return f"basis.{name}"
        case Word(values, is_open):
            # An open word is any string; its known values are kept for completion.
            return "|".join([*(f'"{value}"' for value in values), *(["string"] if is_open else [])])
        case ListOf(item):
            inner = spell(item)
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case MapOf(value):
            return f"table<string, {spell(value)}>"
        case OneOf(members):
            return "|".join(spell(member) for member in members)
        case _:
            assert_never(kind)
