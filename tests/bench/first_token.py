"""What the daemon adds to a model's own time until the first token is on a client's screen."""

import json
import subprocess
import sys
import threading
import time

from bench.surroundings import Client, daemon
from bench.table import Row
from support.model_server import Gate, ModelRequest, ModelServer, Turn, says, slow

BARE_CLIENT = """
import asyncio, sys, time, httpx2
async def main():
    async with httpx2.AsyncClient(timeout=60) as client:
        for line in sys.stdin:
            begin = time.monotonic()
            async with client.stream("POST", sys.argv[1], json={"model": "m", "stream": True}) as response:
                async for data in response.aiter_raw():
                    if b"token" in data:
                        print(begin, time.monotonic(), flush=True)
                        break
asyncio.run(main())
"""


class Model:
    """A server whose model takes no time: every answer waits at a gate, and the moment it was let go is kept."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.gates: list[Gate] = []
        self.server = ModelServer(respond=self._respond)

    def _respond(self, request: ModelRequest) -> Turn:
        self.gates.append(Gate())
        self.arrived.release()
        return slow(says("token"), gate=self.gates[-1], before=0)

    def let_go(self) -> tuple[float, float]:
        """When the request had arrived and when its first token was let go, once that has happened."""
        self.arrived.acquire()
        self.gates[-1].wait_arrival()
        let_go_at = time.monotonic()
        self.gates[-1].open()
        return self.server.requests[-1].arrived_at, let_go_at


def measure(quick: bool) -> list[Row]:
    repetitions = 3 if quick else 40
    model = Model()
    with daemon() as (running, workspace), model.server as server:
        (workspace / ".basis").mkdir()
        (workspace / ".basis" / "config.json").write_text(json.dumps({"schema": 1, "model": "scripted"}))
        client = running.connect()
        session = client.new_session(
            workspace, {**running.env, "BASIS_BASE_URL": server.base_url, "BASIS_API_KEY": "k"}
        )
        client.call("basis/session/attach", {"sessionId": session})
        costs = [through_daemon_ms(client, session, model) for _ in range(repetitions + 1)]
        bare = bare_ms(server, model, repetitions + 1)
    what = "prompt to first token, without the model's own time"
    first = Row("the same, first turn of a daemon", "ms", costs[:1])
    return [Row(what, "ms", costs[1:], sorted(bare[1:])[repetitions // 2], "bare httpx2 client"), first]


def through_daemon_ms(client: Client, session: str, model: Model) -> float:
    begin = time.monotonic()
    text = {"type": "text", "text": "go"}
    client.call("basis/session/prompt", {"sessionId": session, "input": [text]})
    arrived, let_go = model.let_go()
    painted = time_of(client, "assistant_delta")
    time_of(client, "run_finished")
    return (arrived - begin + painted - let_go) * 1000


def time_of(client: Client, kind: str) -> float:
    """When the next event of that type is here."""
    while True:
        message = client.events.pop(0) if client.events else client.receive()
        if message.get("params", {}).get("event", {}).get("type") == kind:
            return time.monotonic()


def bare_ms(server: ModelServer, model: Model, repetitions: int) -> list[float]:
    """The same for a client that does nothing but send a request and read its answer."""
    command = [sys.executable, "-c", BARE_CLIENT, server.base_url + "v1/chat/completions"]
    costs: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        for _ in range(repetitions):
            process.stdin.write("go\n")
            process.stdin.flush()
            arrived, let_go = model.let_go()
            begin, painted = map(float, process.stdout.readline().split())
            costs.append((arrived - begin + painted - let_go) * 1000)
        process.stdin.close()
    return costs
