"""Strict TypeScript types: aliases, interfaces, the event union, and maps from method name to params and result."""

import json
from collections.abc import Iterator
from typing import assert_never

from basis_protocol import PROTOCOL_VERSION
from basis_protocol.methods import Direction
from codegen.model import (
    Alias,
    Field,
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
// Generated from basis_protocol; do not edit. `make gen` writes it again.
//
// A field that is left out has its @defaultValue. A newer daemon may send fields, words and event types that are not
// listed here: ignore them.
"""

MAX_LINE = 90
"""Columns of a union before it is written one member a line."""

PRIMITIVES = {
    Primitive.STRING: "string",
    Primitive.INTEGER: "number",
    Primitive.NUMBER: "number",
    Primitive.BOOLEAN: "boolean",
    Primitive.NULL: "null",
    Primitive.JSON: "unknown",
}


def render(protocol: Protocol) -> str:
    parts = [HEADER, f"export const PROTOCOL_VERSION = {PROTOCOL_VERSION};\n"]
    parts += [_alias(alias) for alias in protocol.aliases]
    parts += [_struct(struct, protocol) for struct in protocol.structs]
    parts += _method_maps(protocol)
    parts.append(_event_types(protocol))
    parts.append(_error_codes(protocol))
    return "\n".join(parts)


def _alias(alias: Alias) -> str:
    spelled = spell(alias.type)
    if len(spelled) > MAX_LINE:
        spelled = "".join(f"\n  | {member}" for member in spelled.split(" | "))
    return "".join(_comment(alias.doc)) + f"export type {alias.name} = {spelled};\n".replace("= \n", "=\n")


def _struct(struct: Struct, protocol: Protocol) -> str:
    lines = list(_comment(struct.doc))
    if not struct.fields and struct.tag is None:
        return "".join(lines) + f"export type {struct.name} = Readonly<Record<string, never>>;\n"
    # A struct that always writes its defaults can be read without a fallback, unless a client has to write it.
    always = not struct.omits_defaults and struct.name not in protocol.sent_by_clients
    lines.append(f"export interface {struct.name} {{\n")
    if struct.tag is not None:
        lines.append(f'  readonly type: "{struct.tag}";\n')
    for field in struct.fields:
        lines += _field(field, always)
    return "".join(lines) + "}\n"


def _field(field: Field, always: bool) -> Iterator[str]:
    has_default = not field.required and not is_optional(field.type)
    remark = field.description
    if has_default and not always:
        remark = f"{remark}\n" if remark else ""
        remark += f"@defaultValue `{json.dumps(field.default)}`"
    yield from _comment(remark, indent="  ")
    mark = "" if field.required or (always and has_default) else "?"
    yield f"  readonly {field.name}{mark}: {spell(without_null(field.type) if mark else field.type)};\n"


def _method_maps(protocol: Protocol) -> Iterator[str]:
    yield _map("Requests", "What a client may ask: method, params, result.", Direction.CLIENT_TO_DAEMON, protocol)
    yield _map(
        "Notifications", "What the daemon tells by itself: method, params.", Direction.DAEMON_TO_CLIENT, protocol
    )


def _map(name: str, doc: str, direction: Direction, protocol: Protocol) -> str:
    lines = [*_comment(doc), f"export interface {name} {{\n"]
    for method in protocol.methods:
        if method.direction is direction:
            result = f"; result: {method.result.__name__}" if method.result else ""
            lines += _comment(method.summary, indent="  ")
            lines.append(f'  "{method.name}": {{ params: {method.params.__name__}{result} }};\n')
    return "".join(lines) + "}\n"


def _event_types(protocol: Protocol) -> str:
    tags = [protocol.struct(name).tag for name in protocol.events]
    return (
        "/** Event types this file knows; skip the others. */\n"
        'export const EVENT_TYPES: readonly AnyEvent["type"][] = [\n'
        + "".join(f'  "{tag}",\n' for tag in tags)
        + "];\n"
    )


def _error_codes(protocol: Protocol) -> str:
    codes = "".join(f"  {name}: {value},\n" for name, value in protocol.error_codes.items())
    return f"export const ErrorCode = {{\n{codes}}} as const;\n"


def _comment(text: str, indent: str = "") -> Iterator[str]:
    lines = text.replace("*/", "*\\/").splitlines()
    if len(lines) == 1:
        yield f"{indent}/** {lines[0]} */\n"
    elif lines:
        yield f"{indent}/**\n"
        yield from (f"{indent} * {line}".rstrip() + "\n" for line in lines)
        yield f"{indent} */\n"


def spell(kind: Type) -> str:
    """Write a type as TypeScript."""
    match kind:
        case Primitive():
            return PRIMITIVES[kind]
        case Ref(name):
            return name
        case Word(values, is_open):
            # `string & {}` admits any string and keeps the known words for completion.
            return " | ".join([*(f'"{value}"' for value in values), *(["(string & {})"] if is_open else [])])
        case ListOf(item):
            inner = spell(item)
            return f"readonly ({inner})[]" if " " in inner else f"readonly {inner}[]"
        case MapOf(value):
            return f"Readonly<Record<string, {spell(value)}>>"
        case OneOf(members):
            return " | ".join(spell(member) for member in members)
        case _:
            assert_never(kind)
