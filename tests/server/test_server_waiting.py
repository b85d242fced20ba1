"""Sessions that wait for their provider: what clients are shown, and how such a wait is left."""

import json
from pathlib import Path
from typing import Any

from support.daemon import DaemonProcess, OpenSession
from support.model_server import Gate, ModelServer, rate_limits, says, slow
from support.raw_client import RawClient


def prompt(client: RawClient, session_id: str, text: str) -> Any:
    return client.call("basis/session/prompt", {"sessionId": session_id, "input": [{"type": "text", "text": text}]})


def state_of(client: RawClient, session_id: str) -> dict[str, Any]:
    """As lists of sessions show it."""
    sessions = client.call("basis/session/list")["sessions"]
    return next(session["state"] for session in sessions if session["sessionId"] == session_id)


def wait_for_state(client: RawClient, session_id: str, kind: str) -> dict[str, Any]:
    """The next change to a state of that kind."""
    while True:
        params = client.next_notification("basis/session/event")
        state = params["event"].get("state") if params["event"]["type"] == "info_changed" else None
        if params["sessionId"] == session_id and state is not None and state["kind"] == kind:
            return state


def test_session_held_back_by_anothers_rate_limit_says_until_when(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """One governor a process: both sessions wait, both say so in their state, and both go on."""
    model.script(rate_limits(2), says("first"), says("second"))
    client = daemon.connect()
    refused, other = open_session(client), open_session(client)
    prompt(client, refused, "early")
    own = wait_for_state(client, refused, "waiting_provider")
    prompt(client, other, "late")
    held = wait_for_state(client, other, "waiting_provider")

    assert own["cause"] and "429" in own["cause"] and own["detail"].startswith("attempt 1 of 5")
    assert held["cause"] == "rate_limit" and "pause" in held["detail"] and held["until"] > held["since"]
    listed = state_of(client, other)
    assert (listed["kind"], listed["until"]) == ("waiting_provider", held["until"])
    assert len(model.requests) == 1

    assert client.events_until("run_finished", refused)[-1]["event"]["status"] == "ok"
    assert client.events_until("run_finished", other)[-1]["event"]["status"] == "ok"
    assert [request.prompt for request in model.requests] == ["early", "early", "late"]


def test_held_back_session_can_be_cancelled_and_is_forgotten_by_the_queue(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """AG-27: the request that was waiting is never sent."""
    model.script(rate_limits(60))
    client = daemon.connect()
    refused, other = open_session(client), open_session(client)
    prompt(client, refused, "early")
    wait_for_state(client, refused, "waiting_provider")
    turn = prompt(client, other, "late")
    wait_for_state(client, other, "waiting_provider")

    client.call("basis/turn/cancel", {"sessionId": other, "turnId": turn["turnId"]})

    assert client.events_until("run_finished", other)[-1]["event"]["status"] == "cancelled"
    assert wait_for_state(client, other, "idle")
    assert len(model.requests) == 1


def test_session_beyond_a_local_servers_cap_waits_in_sight(
    daemon: DaemonProcess, model: ModelServer, repo: Path, open_session: OpenSession
) -> None:
    """A server of one's own machine takes four at once; the fifth says that it waits, and why."""
    gate = Gate()
    model.script(*[slow(says("a", "b"), gate=gate, before=1)] * 4, says("last"))
    (repo / ".basis").mkdir()
    (repo / ".basis" / "config.json").write_text(json.dumps({"schema": 1, "provider": "ollama", "model": "scripted"}))
    client = daemon.connect()
    sessions = [open_session(client) for _ in range(5)]
    for number, session_id in enumerate(sessions):
        prompt(client, session_id, str(number))

    held = wait_for_state(client, sessions[-1], "waiting_provider")
    assert held["cause"] == "concurrency" and "until" not in held
    gate.open()
    assert client.events_until("run_finished", sessions[-1])[-1]["event"]["status"] == "ok"
