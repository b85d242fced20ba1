"""What one streamed text delta costs the daemon, from the provider's socket to one watching client."""

import json
import subprocess
import sys

from bench.surroundings import daemon
from bench.table import Row
from support.model_server import ModelServer, burst, says

BARE_READER = """
import asyncio, resource, sys, httpx2
async def main():
    url, body = sys.argv[1] + "v1/chat/completions", {"model": "m", "stream": True}
    async with httpx2.AsyncClient() as client:
        async with client.stream("POST", url, json=body) as response:
            begin = resource.getrusage(resource.RUSAGE_SELF)
            async for _ in response.aiter_raw():
                pass
            end = resource.getrusage(resource.RUSAGE_SELF)
            print(end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime)
asyncio.run(main())
"""


def measure(quick: bool) -> list[Row]:
    count = 1_000 if quick else 20_000
    turn = burst(says(*["token "] * count))
    with daemon() as (running, workspace), ModelServer(respond=lambda request: turn) as server:
        env = {**running.env, "BASIS_BASE_URL": server.base_url, "BASIS_API_KEY": "k"}
        (workspace / ".basis").mkdir()
        (workspace / ".basis" / "config.json").write_text(json.dumps({"schema": 1, "model": "scripted"}))
        client = running.connect()
        session = client.new_session(workspace, env)
        client.run(session, "warm up")
        client.call("basis/session/attach", {"sessionId": session})
        costs: list[float] = []
        for _ in range(1 if quick else 5):
            before = running.cpu_s()
            client.run(session, "go")
            costs.append((running.cpu_s() - before) * 1e6 / count)
        bare = subprocess.run(
            [sys.executable, "-c", BARE_READER, server.base_url], check=True, capture_output=True, text=True
        )
    return [
        Row(
            f"daemon CPU per text delta ({count} in bursts, one client attached)",
            "us",
            costs,
            max(float(bare.stdout), 1e-6) * 1e6 / count,
            "bare httpx2 reader",
        )
    ]
