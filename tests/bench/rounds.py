"""What the daemon adds to each tool round: from the model's last byte to the next request, a shell command between."""

import itertools
import json
import subprocess
import sys

from bench.surroundings import daemon
from bench.table import Row
from support.model_server import ModelServer, calls, says, tool

BARE_LOOP = """
import asyncio, json, sys
async def main():
    port, rounds = int(sys.argv[1]), int(sys.argv[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    messages = []
    for _ in range(rounds + 1):
        body = json.dumps({"model": "m", "messages": messages, "stream": True}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\\r\\nhost: x\\r\\ncontent-length: %d\\r\\n\\r\\n"
        writer.write(head % len(body) + body)
        await reader.readuntil(b"\\r\\n\\r\\n")
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
        child = await asyncio.create_subprocess_exec("/bin/sh", "-c", "true", stdin=-3, stdout=-1, stderr=-1)
        await child.communicate()
        messages.append({"role": "user", "content": "x"})
asyncio.run(main())
"""


def measure(quick: bool) -> list[Row]:
    rounds = 10 if quick else 200

    def respond(request: object) -> object:
        done = sum(item.get("role") == "tool" for item in request.items)  # type: ignore[attr-defined]
        return says("done") if done >= rounds else calls(tool("spawn", {"input": "!true"}))

    with daemon() as (running, workspace), ModelServer(respond=respond) as server:  # type: ignore[arg-type]
        env = {**running.env, "BASIS_BASE_URL": server.base_url, "BASIS_API_KEY": "k"}
        (workspace / ".basis").mkdir()
        (workspace / ".basis" / "config.json").write_text(json.dumps({"schema": 1, "model": "scripted"}))
        client = running.connect()
        session = client.new_session(workspace, env)
        client.run(session, "go")
        gaps = _gaps_ms(server)
    with ModelServer(respond=lambda request: says("done")) as server:
        port = server.base_url.rstrip("/").rpartition(":")[2]
        subprocess.run([sys.executable, "-c", BARE_LOOP, port, str(rounds)], check=True)
        bare = sorted(_gaps_ms(server))
    return [
        Row(
            f"tool round with a real `true` ({len(gaps)} rounds)",
            "ms",
            gaps,
            bare[len(bare) // 2],
            "bare asyncio loop, same command",
        )
    ]


def _gaps_ms(server: ModelServer) -> list[float]:
    requests = server.requests
    return [
        (after.arrived_at - before.ending.at) * 1000
        for before, after in itertools.pairwise(requests)
        if before.ending is not None
    ]
