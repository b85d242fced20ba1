"""What one streamed text delta costs the daemon, from the provider's socket to one watching client, for every wire.

Beside each figure: a bare `httpx2` reader of the same stream, and the vendor's own SDK where one is installed for
`BASIS_BENCH_SDK_PYTHON` (an interpreter; by default this one). The SDKs are no dependency of this project.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from typing import Any

from bench.surroundings import Client, Daemon, daemon
from bench.table import Row
from support.model_server import ModelServer, Turn, burst, says, slow

PACE = 400
"""Deltas a second of a fast model."""

TURNS: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
WIRES: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "responses": ("v1/responses", "ollama", {"model": "m", "stream": True, "input": "go"}),
    "chat_completions": ("v1/chat/completions", None, {"model": "m", "stream": True, "messages": TURNS}),
    "anthropic_messages": (
        "v1/messages",
        "anthropic",
        {"model": "m", "stream": True, "max_tokens": 9, "messages": TURNS},
    ),
    "gemini_generate_content": (
        "v1beta/models/scripted:streamGenerateContent?alt=sse",
        "gemini",
        {"contents": [{"role": "user", "parts": [{"text": "go"}]}]},
    ),
}
"""By wire: where it posts, the provider a workspace names to be spoken to in it, and the least one can ask."""

BARE_READER = """
import asyncio, resource, sys, httpx2
async def main():
    url, body = sys.argv[1:]
    headers = {"content-type": "application/json", **({"anthropic-version": "2023-06-01"} if "messages" in url else {})}
    async with httpx2.AsyncClient(timeout=300) as client:
        async with client.stream("POST", url, content=body, headers=headers) as response:
            if response.status_code != 200:
                sys.exit((await response.aread()).decode())
            begin = resource.getrusage(resource.RUSAGE_SELF)
            async for _ in response.aiter_raw():
                pass
            end = resource.getrusage(resource.RUSAGE_SELF)
            print(end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime)
asyncio.run(main())
"""

SDK_READER = """
import asyncio, importlib.util, resource, sys
url, wire = sys.argv[1:]
package = {"anthropic_messages": "anthropic", "responses": "openai", "chat_completions": "openai"}.get(wire)
if package is None or importlib.util.find_spec(package) is None:
    sys.exit("none")
async def answer():
    words = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    if package == "anthropic":
        import anthropic
        client = anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)
        return await client.messages.create(model="m", max_tokens=9, messages=words, stream=True)
    import openai
    client = openai.AsyncOpenAI(base_url=url + "v1", api_key="k", max_retries=0)
    if wire == "responses":
        return await client.responses.create(model="m", input="go", stream=True)
    return await client.chat.completions.create(model="m", messages=words, stream=True)
async def main():
    stream = await answer()
    begin = resource.getrusage(resource.RUSAGE_SELF)
    async for _ in stream:
        pass
    end = resource.getrusage(resource.RUSAGE_SELF)
    print(end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime)
asyncio.run(main())
"""


def measure(quick: bool) -> list[Row]:
    rows: list[Row] = []
    for wire in spoken_wires():
        count = 1_000 if quick else 20_000
        words = says(*["token "] * count)
        rows += measure_wire(wire, "burst", burst(words), count, repetitions=1 if quick else 5)
        count = 200 if quick else 4_000
        paced = slow(says(*["token "] * count), delay_s=max(0.0, 1 / PACE - oversleep_s()))
        rows += measure_wire(wire, f"paced at {PACE}/s", paced, count, repetitions=1)
    return rows


def oversleep_s() -> float:
    """Seconds that a sleep takes longer here than it was asked to: the scripted model would be that much slower."""

    async def slept() -> float:
        begin = time.perf_counter()
        for _ in range(200):
            await asyncio.sleep(0.001)
        return (time.perf_counter() - begin) / 200 - 0.001

    return asyncio.run(slept())


def spoken_wires() -> list[str]:
    """The wires that the daemon and the scripted model both speak."""
    from basis_daemon.runtime.providers.remote import WIRES as ours
    from support.model_server import ALL_WIRES

    return [wire for wire in WIRES if wire in ours and wire in ALL_WIRES]


def measure_wire(wire: str, how: str, turn: Turn, count: int, *, repetitions: int) -> list[Row]:
    path, provider, asked = WIRES[wire]
    with daemon() as (running, workspace), ModelServer(says("warm"), respond=lambda request: turn) as server:
        config = {"schema": 1, "model": "scripted", **({"provider": provider} if provider else {})}
        (workspace / ".basis").mkdir()
        (workspace / ".basis" / "config.json").write_text(json.dumps(config))
        client = running.connect()
        session = client.new_session(
            workspace, {**running.env, "BASIS_BASE_URL": server.base_url, "BASIS_API_KEY": "k"}
        )
        client.call("basis/session/attach", {"sessionId": session})
        client.run(session, "warm up")
        costs = [cost_us(running, client, session, count) for _ in range(repetitions)]
        bare = reader_us(sys.executable, BARE_READER, count, server.base_url + path, json.dumps(asked))
        sdk = reader_us(
            os.environ.get("BASIS_BENCH_SDK_PYTHON", sys.executable), SDK_READER, count, server.base_url, wire
        )
    what = f"daemon CPU per text delta, {wire}, {count} {how}"
    rows = [Row(what, "us", costs, bare, "bare httpx2 reader")]
    if sdk is None:
        print(f"  (no SDK for {wire}: set BASIS_BENCH_SDK_PYTHON to an interpreter that has it)")
        return rows
    return [*rows, Row("  the vendor's own SDK, reading alone", "us", [sdk], bare, "bare httpx2 reader")]


def cost_us(running: Daemon, client: Client, session: str, count: int) -> float:
    """Microseconds of the daemon's CPU time for each delta of one turn."""
    before = running.cpu_s()
    client.run(session, "go")
    return (running.cpu_s() - before) * 1e6 / count


def reader_us(python: str, program: str, count: int, *arguments: str) -> float | None:
    """Microseconds a delta takes another reader; `None` if it can't read this wire."""
    result = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True)
    if result.returncode and result.stderr.strip() == "none":
        return None
    if result.returncode:
        raise RuntimeError(f"the reader failed: {result.stderr[-500:]}")
    return max(float(result.stdout), 1e-6) * 1e6 / count
