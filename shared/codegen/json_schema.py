"""JSON Schema of every message, and the method table in it as `x-methods`."""

import json
from typing import Any

import msgspec

from basis_protocol import PROTOCOL_VERSION, content, events
from codegen.model import Protocol
from codegen.reading import STATEMENT_ID, struct_classes

NAMED_UNIONS: dict[str, Any] = {
    "InputBlock": content.InputBlock,
    "Preview": content.Preview,
    "AnyEvent": events.AnyEvent,
}


def render(protocol: Protocol) -> str:
    """Draft 2020-12. `x-known-values` lists the known words of a string that may grow."""
    classes = struct_classes()
    schemas, components = msgspec.json.schema_components(
        [*classes, *NAMED_UNIONS.values()], ref_template="#/$defs/{name}"
    )
    definitions: dict[str, Any] = dict(sorted(components.items()))
    definitions |= dict(zip(NAMED_UNIONS, schemas[len(classes) :], strict=True))
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:basis:protocol:{PROTOCOL_VERSION}",
        "title": "basis protocol",
        "description": "Generated from basis_protocol; do not edit. Unknown fields are ignored by both sides.",
        "x-protocol-version": PROTOCOL_VERSION,
        "x-methods": {
            method.name: _method(method.params, method.result, method.direction.name.lower(), method.summary)
            for method in protocol.methods
        },
        "$defs": definitions,
    }
    return STATEMENT_ID.sub("", json.dumps(document, indent=1, ensure_ascii=False)) + "\n"


def _method(params: type, result: type | None, direction: str, summary: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"direction": direction, "summary": summary, "params": _ref(params)}
    return entry if result is None else entry | {"result": _ref(result)}


def _ref(cls: type) -> dict[str, str]:
    return {"$ref": f"#/$defs/{cls.__name__}"}
