"""Reads the protocol off its message types.

Owns what msgspec and the annotations mean. Knows no output format.
"""

import ast
import inspect
import re
import types
import typing
from functools import cache
from typing import Annotated, Any, Literal

import msgspec

from basis_protocol import asks, base, content, events, ids, lifecycle, sessions, workspaces
from basis_protocol import errors as error_codes
from basis_protocol.methods import METHODS, Direction
from codegen.model import (
    Alias,
    Field,
    ListOf,
    MapOf,
    Primitive,
    Protocol,
    Ref,
    Struct,
    Type,
    Word,
    references,
    union_of,
)

MODULES = (base, ids, content, asks, events, lifecycle, workspaces, sessions, error_codes)
"""Where message types are defined, in the order in which they are written out."""

STATEMENT_ID = re.compile(r"\s*\([A-Z]{1,2}-\d+\)")
"""References to the written specification: useful beside the code, noise in a reference page."""


@cache
def protocol() -> Protocol:
    """Read the whole protocol from its types."""
    structs = tuple(_struct(cls) for cls in struct_classes())
    aliases = tuple(Alias(name, doc, _type(hint, aliased=False)[0]) for name, hint, doc in _aliases())
    methods = tuple(METHODS.values())
    roots = [method.params.__name__ for method in methods if method.direction is Direction.CLIENT_TO_DAEMON]
    roots += [lifecycle.ClientHello.__name__, lifecycle.InitializeParams.__name__, lifecycle.CancelParams.__name__]
    return Protocol(
        aliases=aliases,
        structs=structs,
        methods=methods,
        events=tuple(cls.__name__ for cls in typing.get_args(events.AnyEvent)),
        error_codes={name: value for name, value in vars(error_codes).items() if name.isupper()},
        sent_by_clients=_reachable(roots, structs, aliases),
    )


def struct_classes() -> list[type[base.WireModel]]:
    """Every message type, in the order of definition. Bases that are never sent themselves are left out."""
    return [
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, base.WireModel)
        and value.__module__ == module.__name__
        and value not in (base.WireModel, events.Event)
    ]


def _struct(cls: type[base.WireModel]) -> Struct:
    config = cls.__struct_config__
    return Struct(
        name=cls.__name__,
        doc=_clean(cls.__dict__.get("__doc__")),
        fields=tuple(_field(info) for info in msgspec.structs.fields(cls)),
        tag=config.tag if isinstance(config.tag, str) else None,
        omits_defaults=config.omit_defaults,
    )


def _field(info: msgspec.structs.FieldInfo) -> Field:
    kind, description = _type(info.type)
    default: Any = None
    if info.default is not msgspec.NODEFAULT:
        default = msgspec.to_builtins(info.default)
    elif info.default_factory is not msgspec.NODEFAULT:
        default = msgspec.to_builtins(info.default_factory())
    return Field(info.encode_name, kind, info.required, default, description)


@cache
def _aliases() -> list[tuple[str, Any, str]]:
    """Named annotations and unions: (name, annotation, documentation)."""
    found: list[tuple[str, Any, str]] = []
    for module in MODULES:
        docs = _assignment_docs(module)
        for name in docs:
            value = vars(module)[name]
            if typing.get_origin(value) in (Annotated, Literal, typing.Union, types.UnionType):
                found.append((name, value, _clean(docs[name]) or _own_description(value)))
    return found


def _assignment_docs(module: types.ModuleType) -> dict[str, str]:
    """Public names assigned at the top of a module, with the string literal that follows each, if any."""
    body = ast.parse(inspect.getsource(module)).body
    docs: dict[str, str] = {}
    for statement, following in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("_"):
                docs[name] = ""
                match following:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        docs[name] = text
                    case _:
                        pass
            case _:
                pass
    return docs


def _own_description(hint: Any) -> str:
    return next((meta.description for meta in _metas(hint) if meta.description), "")


def _metas(hint: Any) -> list[msgspec.Meta]:
    return [meta for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]


def _type(hint: Any, *, aliased: bool = True) -> tuple[Type, str]:
    """Translate an annotation. With `aliased`, one that has a name becomes a `Ref`. Returns the type and what the
    annotation says beyond that name."""
    if aliased:
        for name, known, _ in _aliases():
            if hint == known:
                return Ref(name), ""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _annotated(hint, aliased=aliased)
    if origin in (typing.Union, types.UnionType):
        members = [_type(member) for member in typing.get_args(hint)]
        return union_of([kind for kind, _ in members]), next((text for _, text in members if text), "")
    return _plain(hint, origin), ""


def _annotated(hint: Any, *, aliased: bool) -> tuple[Type, str]:
    inner, metas = typing.get_args(hint)[0], list(hint.__metadata__)
    description = "; ".join(text for meta in metas if (text := _describe(meta)))
    words = next((known for meta in metas if (known := _known_values(meta))), None)
    if words is not None:
        kind: Type = Word(words, is_open=True)
        return (kind if inner is str else union_of([kind, Primitive.NULL])), description
    if aliased:
        # A further remark on a named annotation: Annotated[AbsolutePath, Meta(description="canonical")].
        for name, known, _ in _aliases():
            own = _metas(known)
            if own and inner == typing.get_args(known)[0] and metas[: len(own)] == own:
                return Ref(name), "; ".join(text for meta in metas[len(own) :] if (text := _describe(meta)))
    return _type(inner)[0], description


def _known_values(meta: msgspec.Meta) -> tuple[str, ...] | None:
    extra = meta.extra_json_schema or {}
    return tuple(extra["x-known-values"]) if "x-known-values" in extra else None


def _describe(meta: msgspec.Meta) -> str:
    parts = [meta.description] if meta.description else []
    for word, bound in (("at least", meta.ge), ("more than", meta.gt), ("at most", meta.le), ("less than", meta.lt)):
        if bound is not None:
            parts.append(f"{word} {bound}")
    if meta.min_length is not None:
        parts.append("not empty" if meta.min_length == 1 else f"{meta.min_length} or longer")
    if meta.max_length is not None:
        parts.append(f"no longer than {meta.max_length}")
    return ", ".join(parts)


def _plain(hint: Any, origin: Any) -> Type:
    primitives: dict[Any, Primitive] = {
        str: Primitive.STRING,
        int: Primitive.INTEGER,
        float: Primitive.NUMBER,
        bool: Primitive.BOOLEAN,
        type(None): Primitive.NULL,
        Any: Primitive.JSON,
        msgspec.Raw: Primitive.JSON,
    }
    if hint in primitives:
        return primitives[hint]
    arguments = typing.get_args(hint)
    if origin is list:
        return ListOf(_type(arguments[0])[0])
    if origin is dict:
        return MapOf(_type(arguments[1])[0])
    if origin is Literal:
        return Word(arguments, is_open=False)
    if isinstance(hint, type) and issubclass(hint, base.WireModel):
        return Ref(hint.__name__)
    raise TypeError(f"the generators have no word for {hint!r}")


def _reachable(roots: list[str], structs: tuple[Struct, ...], aliases: tuple[Alias, ...]) -> frozenset[str]:
    mentions: dict[str, set[str]] = {
        struct.name: {name for field_ in struct.fields for name in references(field_.type)} for struct in structs
    }
    mentions |= {alias.name: set(references(alias.type)) for alias in aliases}
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(mentions[name])
    return frozenset(seen)


def _clean(text: str | None) -> str:
    return STATEMENT_ID.sub("", inspect.cleandoc(text)) if text else ""
