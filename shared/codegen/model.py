"""The protocol as plain data: what the generators need to know of the message types, and nothing of msgspec.

Owns the small type language. Reading it off the message types is `reading.py`; each output format has its own module.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, assert_never

from basis_protocol.methods import Method


class Primitive(StrEnum):
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Word:
    """A string with known values. An open one may grow: readers accept any string."""

    values: tuple[str, ...]
    is_open: bool


@dataclass(frozen=True, slots=True)
class ListOf:
    item: "Type"


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with string keys."""

    value: "Type"


@dataclass(frozen=True, slots=True)
class OneOf:
    members: tuple["Type", ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """A named struct or alias."""

    name: str


Type = Primitive | Word | ListOf | MapOf | OneOf | Ref


@dataclass(frozen=True, slots=True)
class Field:
    """`name` is the name on the wire. `default` is JSON; it stands for the field when that is left out."""

    name: str
    type: Type
    required: bool
    default: Any = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Struct:
    """`tag` is the value of the field `type` that tells members of a union apart."""

    name: str
    doc: str
    fields: tuple[Field, ...]
    tag: str | None
    omits_defaults: bool


@dataclass(frozen=True, slots=True)
class Alias:
    name: str
    doc: str
    type: Type


@dataclass(frozen=True, slots=True)
class Protocol:
    """Everything there is to write down, in a fixed order."""

    aliases: tuple[Alias, ...]
    structs: tuple[Struct, ...]
    methods: tuple[Method, ...]
    events: tuple[str, ...]
    error_codes: dict[str, int]
    sent_by_clients: frozenset[str] = field(default_factory=frozenset[str])
    """Structs a client may have to write; the rest only ever come from the daemon."""

    def struct(self, name: str) -> Struct:
        return next(struct for struct in self.structs if struct.name == name)

    def alias(self, name: str) -> Alias:
        return next(alias for alias in self.aliases if alias.name == name)


def references(kind: Type) -> Iterator[str]:
    """Names of the structs and aliases a type mentions."""
    match kind:
        case Ref(name):
            yield name
        case ListOf(inner) | MapOf(inner):
            yield from references(inner)
        case OneOf(members):
            for member in members:
                yield from references(member)
        case Primitive() | Word():
            return
        case _:
            assert_never(kind)


def union_of(members: list[Type]) -> Type:
    """One type for several, flat."""
    flat: list[Type] = []
    for member in members:
        flat.extend(member.members if isinstance(member, OneOf) else [member])
    return OneOf(tuple(flat)) if len(flat) > 1 else flat[0]


def is_optional(kind: Type) -> bool:
    return isinstance(kind, OneOf) and Primitive.NULL in kind.members


def without_null(kind: Type) -> Type:
    """The type of a value that is there."""
    if not isinstance(kind, OneOf):
        return kind
    return union_of([member for member in kind.members if member is not Primitive.NULL])
