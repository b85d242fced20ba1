"""`basisctl run` from start to exit, against a warm daemon and a model that answers at once."""

import shutil
import sys
from pathlib import Path

from bench.surroundings import daemon, python_floor_ms, wall_ms
from bench.table import Row
from support.model_server import ModelServer, says

BARE_REQUEST = """
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("POST", "/v1/chat/completions", json.dumps({"model": "m", "messages": [], "stream": True}))
connection.getresponse().read()
"""

BARE_SOCKET = """
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}).encode()
connection.sendall(b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body))
connection.recv(65536)
"""


def measure(quick: bool) -> list[Row]:
    repetitions = 3 if quick else 25
    basisctl = shutil.which("basisctl", path=str(Path(sys.executable).parent)) or "basisctl"
    with daemon() as (running, workspace), ModelServer(respond=lambda request: says("done")) as server:
        env = {
            **running.env,
            "BASIS_BASE_URL": server.base_url,
            "BASIS_API_KEY": "k",
        }
        command = [basisctl, "run", "-C", str(workspace), "--model", "scripted", "hi"]
        port = server.base_url.rstrip("/").rpartition(":")[2]
        running.connect().close()
        for _ in range(2):
            wall_ms(command, env)
        rows = [[], [], []]
        for _ in range(repetitions):
            rows[0].append(wall_ms(command, env))
            rows[1].append(wall_ms([sys.executable, "-c", BARE_REQUEST, port]))
            rows[2].append(wall_ms([sys.executable, "-c", BARE_SOCKET, str(running.socket)]))
        floor = python_floor_ms(repetitions)
    return [
        Row("basisctl run, warm daemon, instant model", "ms", rows[0], floor, "python -c pass"),
        Row("  bare HTTP request to the same model from Python", "ms", rows[1], floor, "python -c pass"),
        Row("  bare handshake with the daemon from Python", "ms", rows[2], floor, "python -c pass"),
    ]
