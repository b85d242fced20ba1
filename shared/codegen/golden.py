"""Golden messages: one JSON file for every message, made from the hand-written examples.

Owns the file names. Tests of every language read the files; none of them reads the examples.
"""

import json

import msgspec

from basis_protocol import events
from basis_protocol.base import WireModel
from codegen.examples import notifications, requests_daemon, requests_sessions, requests_workspaces


def messages() -> dict[str, WireModel]:
    """File name → the message in it."""
    found: dict[str, WireModel] = {}
    for module in (requests_daemon, requests_workspaces, requests_sessions):
        for method, (params, result) in module.EXAMPLES.items():
            found[f"{stem(method)}.params.json"] = params
            found[f"{stem(method)}.result.json"] = result
    for method, params in notifications.NOTIFICATIONS.items():
        found[f"{stem(method)}.params.json"] = params
    for event in notifications.EVENTS:
        found[f"event.{tag(type(event))}.json"] = event
    for name, message in notifications.OTHERS.items():
        found[f"{name}.json"] = message
    return found


def stem(method: str) -> str:
    """`basis/session/new` → `session.new`."""
    return method.removeprefix("basis/").replace("/", ".")


def tag(event: type[events.Event]) -> str:
    return str(event.__struct_config__.tag)


def render() -> dict[str, str]:
    """File name → text."""
    return {
        name: json.dumps(msgspec.to_builtins(message), indent=2, ensure_ascii=False) + "\n"
        for name, message in sorted(messages().items())
    }
