"""The base of every wire type, and the few annotations they share.

Owns the field-naming rule (snake_case in Python, camelCase on the wire) and the leniency rule: unknown fields are
ignored on both sides, always; optional fields are left out when unset. A word that a peer may extend later is an
`OpenWord`: readers must accept any string, the known ones are listed for documentation and code generation.
"""

from typing import Annotated, Any, dataclass_transform

import msgspec

Json = Any
"""Any JSON value."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class _KeywordOnly(msgspec.StructMeta):
    """msgspec applies `kw_only` to one class only; here every subclass has it, so fields stand in reading order."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> Any:
        config.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, namespace, **config)


class WireModel(msgspec.Struct, metaclass=_KeywordOnly, rename="camel", omit_defaults=True, frozen=True):
    """A message or a part of one. Frozen; compared by value."""


class Empty(WireModel):
    """A message with no fields: `{}`."""


def open_word(*known: str) -> Any:
    """Annotation for a string whose known values are `known` and which may grow: `Annotated[str, open_word("a")]`."""
    return msgspec.Meta(extra_json_schema={"x-known-values": list(known)})


Timestamp = Annotated[str, msgspec.Meta(description="RFC 3339, UTC, milliseconds: 2026-01-31T12:00:00.000Z")]
AbsolutePath = Annotated[str, msgspec.Meta(description="absolute path in the daemon's file system")]
