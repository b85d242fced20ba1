"""From nothing to the first accepted connection, and to the first reply."""

import subprocess
import sys
import time

from bench.surroundings import Daemon, place, python_floor_ms, wait_for_socket
from bench.table import Row

BARE_SERVER = """
import asyncio, json, sys
async def serve(reader, writer):
    while not reader.at_eof():
        try:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
        except asyncio.IncompleteReadError:
            return
        body = json.loads(await reader.readexactly(int(head.split(b":")[1])))
        out = json.dumps({"jsonrpc": "2.0", "id": body.get("id"), "result": {}}).encode()
        writer.write(b"Content-Length: %d\\r\\n\\r\\n%b" % (len(out), out))
async def main():
    await (await asyncio.start_unix_server(serve, sys.argv[1])).serve_forever()
asyncio.run(main())
"""


def measure(quick: bool) -> list[Row]:
    repetitions = 2 if quick else 9
    connects: list[float] = []
    replies: list[float] = []
    bare: list[float] = []
    for _ in range(repetitions):
        with place() as directory:
            running = Daemon(directory)
            try:
                wait_for_socket(running.socket)
                connects.append((time.perf_counter() - running.started_at) * 1000)
                running.connect().call("basis/daemon/ping", {})
                replies.append((time.perf_counter() - running.started_at) * 1000)
            finally:
                running.end()
            bare.append(_bare_ms(str(directory / "b")))
    floor = python_floor_ms(repetitions)
    return [
        Row("cold daemon, until a connection is accepted", "ms", connects, floor, "python -c pass"),
        Row("cold daemon, until the first reply", "ms", replies, min(bare), "bare asyncio socket server"),
    ]


def _bare_ms(path: str) -> float:
    from pathlib import Path

    from bench.surroundings import Client

    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", BARE_SERVER, path])
    try:
        wait_for_socket(Path(path))
        Client(Path(path)).call("ping", {})
        return (time.perf_counter() - begin) * 1000
    finally:
        process.kill()
        process.wait()
