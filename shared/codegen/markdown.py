"""The reference page: every method, event, type and error of the protocol, readable from top to bottom."""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import assert_never

from basis_protocol import PROTOCOL_VERSION
from basis_protocol.framing import MAX_FRAME_BYTES
from basis_protocol.methods import Direction, Method
from codegen.model import (
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
    references,
    without_null,
)
from codegen.reading import STATEMENT_ID

INTRODUCTION = f"""\
# Protocol reference

<!-- Generated from basis_protocol; do not edit. `make gen` writes it again. -->

Version {PROTOCOL_VERSION}. JSON-RPC 2.0 in UTF-8, framed as in LSP (`Content-Length` header, at most
{MAX_FRAME_BYTES // (1024 * 1024)} MiB a frame), over the daemon's unix socket. A client first sends `initialize` with a
[ClientHello](#clienthello) under `capabilities.experimental.basis`; the result carries a [ServerHello](#serverhello) in
the same place. Then it sends `initialized` and may call everything below.

* Both sides ignore fields, event types and words they don't know.
* A field that is marked optional may be left out; one that has a default stands for that default then.
* Times are RFC 3339 in UTC. Paths are absolute in the daemon's file system.
"""


def render(protocol: Protocol, kinds: dict[str, str]) -> str:
    inline = _shown_inline(protocol)
    parts = [
        INTRODUCTION,
        *_methods(protocol, inline),
        *_events(protocol),
        *_types(protocol, inline),
        *_errors(protocol, kinds),
    ]
    return "\n".join(parts)


def _shown_inline(protocol: Protocol) -> frozenset[str]:
    """Structs that belong to one method only: their fields stand beside it, and nothing else links to them."""
    uses = [cls.__name__ for method in protocol.methods for cls in (method.params, method.result) if cls]
    mentioned = {name for struct in protocol.structs for field in struct.fields for name in references(field.type)}
    return frozenset(name for name in uses if uses.count(name) == 1 and name not in mentioned)


def _methods(protocol: Protocol, inline: frozenset[str]) -> Iterator[str]:
    requests = [method for method in protocol.methods if method.direction is Direction.CLIENT_TO_DAEMON]
    yield "## Requests (client → daemon)\n"
    for group, methods in groupby(requests, key=lambda method: method.name.split("/")[1]):
        yield f"### {group}\n"
        for method in methods:
            yield from _method(method, protocol, inline)
    yield "## Notifications (daemon → client)\n"
    for method in protocol.methods:
        if method.direction is Direction.DAEMON_TO_CLIENT:
            yield from _method(method, protocol, inline)


def _method(method: Method, protocol: Protocol, inline: frozenset[str]) -> Iterator[str]:
    yield f"#### `{method.name}`\n"
    yield f"{method.summary} Direction: {method.direction.value}.\n"
    yield from _part("Params", protocol.struct(method.params.__name__), inline)
    if method.result is not None:
        yield from _part("Result", protocol.struct(method.result.__name__), inline)


def _part(title: str, struct: Struct, inline: frozenset[str]) -> Iterator[str]:
    if not struct.fields:
        yield f"{title}: `{{}}`\n"
    elif struct.name not in inline:
        yield f"{title}: {_link(struct.name)}\n"
    else:
        yield f"{title}: {' '.join(struct.doc.split())}".strip() + "\n"
        yield _fields(struct)


def _events(protocol: Protocol) -> Iterator[str]:
    yield "## Events\n"
    yield "The `event` of [`basis/session/event`](#basissessionevent), told apart by its `type`.\n"
    for name in protocol.events:
        struct = protocol.struct(name)
        yield f'#### `{struct.tag}`\n\n<a id="{name.lower()}"></a>\n'
        if struct.doc:
            yield f"{' '.join(struct.doc.split())}\n"
        yield _fields(struct)


def _types(protocol: Protocol, inline: frozenset[str]) -> Iterator[str]:
    yield "## Types\n"
    yield "| name | is | meaning |\n| --- | --- | --- |"
    for alias in protocol.aliases:
        spelled = "one of the [events](#events)" if alias.name == "AnyEvent" else spell(alias.type)
        yield f'| <a id="{alias.name.lower()}"></a>{alias.name} | {spelled} | {_cell(alias.doc)} |'
    yield ""
    for struct in protocol.structs:
        if struct.name in inline or struct.name in protocol.events or not struct.fields:
            continue
        yield f"#### {struct.name}\n"
        if struct.doc:
            yield f"{' '.join(struct.doc.split())}\n"
        yield _fields(struct)


def _fields(struct: Struct) -> str:
    lines = ["| field | type | presence | meaning |", "| --- | --- | --- | --- |"]
    if struct.tag is not None:
        lines.append(f'| `type` | `"{struct.tag}"` | required | |')
    lines += [
        f"| `{field.name}` | {spell(without_null(field.type))} | {_presence(field)} | {_cell(field.description)} |"
        for field in struct.fields
    ]
    return "\n".join(lines) + "\n"


def _presence(field: Field) -> str:
    if field.required:
        return "required"
    return "optional" if is_optional(field.type) else f"default `{json.dumps(field.default)}`"


def _errors(protocol: Protocol, kinds: dict[str, str]) -> Iterator[str]:
    yield "## Errors\n"
    yield "A JSON-RPC error whose `data` is an [ErrorData](#errordata). Its `kind` is what a client should decide by.\n"
    yield "| code | name |\n| --- | --- |"
    yield from (f"| {value} | {name.lower()} |" for name, value in protocol.error_codes.items())
    yield ""
    yield "### Kinds\n"
    yield "| kind | meaning |\n| --- | --- |"
    yield from (f"| `{kind}` | {_cell(meaning)} |" for kind, meaning in kinds.items())
    yield ""


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _cell(text: str) -> str:
    return " ".join(STATEMENT_ID.sub("", text).split()).replace("|", "\\|")


def spell(kind: Type) -> str:
    """Write a type for a reader, with links."""
    match kind:
        case Primitive():
            return "any JSON" if kind is Primitive.JSON else kind.value
        case Ref(name):
            return _link(name)
        case Word(values, is_open):
            return ", ".join(f"`{value}`" for value in values) + (", …" if is_open else "")
        case ListOf(item):
            return f"list of {spell(item)}"
        case MapOf(value):
            return f"map of string to {spell(value)}"
        case OneOf(members):
            return " or ".join(spell(member) for member in members)
        case _:
            assert_never(kind)
