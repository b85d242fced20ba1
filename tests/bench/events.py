"""Events a second from a session to one client and to twenty, and what one request costs on the way."""

import subprocess
import sys
import time
from pathlib import Path

from bench.surroundings import Client, daemon
from bench.table import Row

COUNTER = """
import selectors, sys, time
sys.path.insert(0, sys.argv[1])
from bench.surroundings import Client
from pathlib import Path
path, session = Path(sys.argv[2]), sys.argv[3]
count, after, until = (int(word) for word in sys.argv[4:])
attach = {"sessionId": session, "afterSeq": after}
clients = [Client(path) for _ in range(count)]
print("ready", flush=True)
sys.stdin.readline()
begin = time.perf_counter()
last = b'"seq":%d,' % until
selector = selectors.DefaultSelector()
for client in clients:
    client.send({"jsonrpc": "2.0", "id": 99, "method": "basis/session/attach", "params": attach})
    client.tail = b""
    selector.register(client.socket, selectors.EVENT_READ, client)
open_clients = count
while open_clients:
    for key, _ in selector.select(60):
        data = key.data.socket.recv(1 << 20)
        if not data:
            sys.exit("closed")
        seen = key.data.tail + data
        key.data.tail = seen[-64:]
        if last in seen:
            open_clients -= 1
            selector.unregister(key.fileobj)
print(time.perf_counter() - begin, flush=True)
"""


LINES = 1_000
"""Lines a command prints per turn: each is one event."""


def measure(quick: bool) -> list[Row]:
    turns = 2 if quick else 40
    with daemon() as (running, workspace):
        client = running.connect()
        session = client.new_session(workspace, {**running.env})
        for _ in range(turns):
            client.run(session, f"!seq {LINES}")
        last = client.call("basis/session/attach", {"sessionId": session})["seq"]
        rows = [
            Row(
                f"events to {count} client{'s' if count > 1 else ''} (deliveries, {last} events each)",
                "/s",
                [_deliveries_per_s(running.socket, session, count, last) for _ in range(1 if quick else 5)],
            )
            for count in (1, 20)
        ]
        rows.append(_round_trip(running.connect(), 200 if quick else 5000))
    return rows


def _counter(path: Path, session: str, count: int, after: int, until: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            COUNTER,
            str(Path(__file__).resolve().parent.parent),
            str(path),
            session,
            str(count),
            str(after),
            str(until),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def _go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


def _seconds(process: "subprocess.Popen[str]") -> float:
    assert process.stdout
    seconds = float(process.stdout.readline())
    process.wait()
    return seconds


def _deliveries_per_s(path: Path, session: str, count: int, last: int) -> float:
    process = _counter(path, session, count, 0, last)
    _go(process)
    return last * count / _seconds(process)


def _round_trip(client: Client, repetitions: int) -> Row:
    times: list[float] = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        client.call("basis/daemon/ping", {})
        times.append((time.perf_counter() - begin) * 1e6)
    return Row("ping round trip", "us", times)
