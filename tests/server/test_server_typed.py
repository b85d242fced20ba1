"""Typed answers over the wire: `output` of `basis/session/prompt` (runtime.md 3.11, workspace.md 4.7)."""

from typing import Any

import pytest

from support.daemon import DaemonProcess, OpenSession
from support.model_server import ModelServer, calls, says, tool
from support.raw_client import RawClient, Refused

SCHEMA = {
    "type": "object",
    "title": "Bugs found",
    "properties": {"bugs": {"type": "array", "items": {"type": "string"}}},
    "required": ["bugs"],
}


def gives(value: dict[str, Any]) -> Any:
    """A turn that answers through whichever answering tool is offered."""
    return lambda request: calls(
        *[tool(name, value) for name in request.tool_names if name.startswith("basis_terminal_")]
    )


def ask(client: RawClient, session_id: str, **fields: Any) -> str:
    output = {"name": "bugs", "description": "All bugs.", "schema": SCHEMA, **fields}
    params = {"sessionId": session_id, "input": [{"type": "text", "text": "which bugs?"}], "output": output}
    return client.call("basis/session/prompt", params)["turnId"]


def test_a_prompt_can_ask_for_a_value(daemon: DaemonProcess, model: ModelServer, open_session: OpenSession) -> None:
    """AG-45, OU-2, D-47: one that doesn't match the schema is tried again; whoever waits gets the value."""
    model.script(gives({"bugs": "none"}), gives({"bugs": ["off by one"]}))
    client = daemon.connect()
    session_id = open_session(client)

    turn_id = ask(client, session_id)
    outcome = client.call("basis/turn/wait", {"sessionId": session_id, "turnId": turn_id})

    assert (outcome["status"], outcome["output"]) == ("ok", {"bugs": ["off by one"]})
    assert outcome.get("finalMessage") is None
    assert len(model.requests[0].tool_names) == 1
    assert "expected array" in next(iter(model.requests[1].tool_results.values()))


def test_a_turn_without_its_value_fails(daemon: DaemonProcess, model: ModelServer, open_session: OpenSession) -> None:
    """AG-47, OU-3."""
    model.script(says("no idea"))
    client = daemon.connect()
    session_id = open_session(client)
    outcome = client.call(
        "basis/turn/wait", {"sessionId": session_id, "turnId": ask(client, session_id, keepsTools=True)}
    )
    assert outcome["status"] == "error" and "without the answer" in outcome["error"]
    assert "spawn" in model.requests[0].tool_names


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"schema": {"type": "array"}}, "object"), ({"name": " "}, "name"), ({"description": "x" * 5000}, "longer")],
)
def test_what_can_not_be_asked_for_is_refused_ahead_of_everything(
    daemon: DaemonProcess, open_session: OpenSession, fields: dict[str, Any], word: str
) -> None:
    """The field is named, and nothing is accepted."""
    client = daemon.connect()
    session_id = open_session(client)
    with pytest.raises(Refused, match=word):
        ask(client, session_id, **fields)
