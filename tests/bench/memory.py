"""Resident memory: a daemon that has only started, and what one open session adds."""

import json

from bench.surroundings import daemon
from bench.table import Row
from support.model_server import ModelServer, says


def measure(quick: bool) -> list[Row]:
    sessions = 10 if quick else 100
    with daemon() as (running, workspace), ModelServer(respond=lambda request: says("done")) as server:
        client = running.connect()
        client.call("basis/daemon/ping", {})
        idle = running.rss_mb()
        env = {**running.env, "BASIS_BASE_URL": server.base_url, "BASIS_API_KEY": "k"}
        (workspace / ".basis").mkdir()
        (workspace / ".basis" / "config.json").write_text(json.dumps({"schema": 1, "model": "scripted"}))
        for _ in range(5):
            client.run(client.new_session(workspace, env), "hello")
        warm = running.rss_mb()
        for _ in range(sessions):
            session = client.new_session(workspace, env)
            client.run(session, "hello")
            client.call("basis/session/attach", {"sessionId": session})
        full = running.rss_mb()
    return [
        Row("idle daemon, no provider loaded", "MB", [idle]),
        Row("after the first turns (HTTP client loaded)", "MB", [warm]),
        Row(
            f"per open, attached session ({sessions} sessions, one turn each)", "kB", [(full - warm) * 1024 / sessions]
        ),
    ]
