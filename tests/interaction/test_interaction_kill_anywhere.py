"""SIGKILL at many random points of a working conversation: nothing that was told to anybody is lost or done twice."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interaction.behaviours import behaviour
from support.daemon import DaemonProcess
from support.model_server import ModelRequest, ModelServer, Reply, calls, says, tool
from support.raw_client import RawClient

KILLS = 15
ROUNDS = 4
"""Tool rounds of every turn."""


class CarefulModel:
    """Asks for one command a round and refuses a conversation in which any call is without its result (AG-29)."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def respond(self, request: ModelRequest) -> Reply:
        done, open_calls = 0, set[str]()
        number = ""
        for message in request.body["messages"]:
            if message["role"] == "user":
                number = message["content"].rpartition(" ")[2]
                done = 0
            if message["role"] in ("user", "assistant") and open_calls:
                self.problems.append(f"calls without a result: {open_calls}")
            for call in message.get("tool_calls") or []:
                open_calls.add(call["id"])
            if message["role"] == "tool":
                open_calls.discard(message["tool_call_id"])
                done += 1
        if done >= ROUNDS:
            return says("all", " of ", number, " is", " done")
        return says("step ", str(done)) + calls(tool("spawn", {"input": f"!echo {number}.{done} >> ran.txt"}))


class Watcher:
    """What one client ever saw of the session, across all its connections."""

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}

    @property
    def cursor(self) -> int:
        return max(self.seen, default=0)

    def take(self, client: RawClient) -> None:
        for record in client.records:
            seq = record["seq"]
            assert self.seen.setdefault(seq, record["event"]) == record["event"], f"number {seq} was given twice"
        assert sorted(self.seen) == list(range(1, len(self.seen) + 1)), "the numbers have a hole"


@pytest.fixture
def model() -> Iterator[tuple[CarefulModel, ModelServer]]:
    careful = CarefulModel()
    with ModelServer(respond=careful.respond) as server:
        yield careful, server


@behaviour("conversation_on_disk")
@behaviour("nothing_missed")
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killing_it_anywhere_loses_nothing_that_was_told_and_repeats_nothing_that_was_run(
    tmp_path: Path, stopped_daemon: DaemonProcess, model: tuple[CarefulModel, ModelServer], seed: int
) -> None:
    careful, server = model
    chance = random.Random(seed)
    workspace = tmp_path / "repo"
    workspace.mkdir()
    daemon = stopped_daemon
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "BASIS_BASE_URL": server.base_url,
        "BASIS_API_KEY": "k",
    }
    watcher, accepted = Watcher(), []
    session = ""
    for attempt in range(KILLS + 1):
        daemon.start()
        client = daemon.connect(name="patient")
        client.call("basis/workspace/open", {"path": str(workspace), "env": env})
        if not session:
            config = {"mode": "always", "model": "scripted"}
            session = client.call("basis/session/new", {"workspace": str(workspace), "config": config})["sessionId"]
        attached = client.call("basis/session/attach", {"sessionId": session, "afterSeq": watcher.cursor})
        assert not (attached.get("snapshot") or {}).get("reset"), "what was missed could not be replayed"
        client.call("basis/session/setConfig", {"sessionId": session, "option": "mode", "value": "always"})
        if attached["info"]["state"]["kind"] == "interrupted":
            client.call("basis/turn/resume", {"sessionId": session})
        elif not attached.get("turn"):
            prompt = {"sessionId": session, "input": [{"type": "text", "text": f"do number {attempt}"}]}
            accepted.append((client.call("basis/session/prompt", prompt)["turnId"], f"do number {attempt}"))
        if attempt < KILLS:
            see_some(client, chance.randrange(1, 40))
            daemon.kill()
            drain(client)
        else:
            params = {"sessionId": session, "turnId": accepted[-1][0], "timeoutMs": 20_000}
            assert client.call("basis/turn/wait", params)["status"] == "ok"
        watcher.take(client)
        if attempt == KILLS:
            check_history(client, session, accepted)
        client.die()
    daemon.kill()

    assert careful.problems == []
    ran = (workspace / "ran.txt").read_text().split()
    assert len(ran) == len(set(ran)), "a command was run twice"


def see_some(client: RawClient, count: int) -> None:
    """Wait for up to `count` events, or for the turn to end."""
    for _ in range(count):
        if client.next_notification("basis/session/event")["event"]["type"] == "run_finished":
            return


def drain(client: RawClient) -> None:
    """Read what the connection still holds; it was sent before the daemon died."""
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            client.next_notification()


def check_history(client: RawClient, session: str, accepted: list[tuple[str, str]]) -> None:
    """Every accepted prompt is in the conversation, once, in order."""
    items: list[dict[str, Any]] = []
    cursor = None
    while True:
        params = {"sessionId": session, "direction": "after", "limit": 50} | ({"cursor": cursor} if cursor else {})
        page = client.call("basis/session/history", params)
        items += page["items"]
        cursor = page.get("afterCursor")
        if not cursor:
            break
    said = [item["text"] for item in items if item["kind"] == "user"]
    assert said == [text for _, text in accepted]
