"""Requests about the daemon itself, asks, models and credentials: method → (params, result)."""

from basis_protocol import asks, lifecycle
from basis_protocol.base import Empty, WireModel
from codegen.examples import story

EXAMPLES: dict[str, tuple[WireModel, WireModel]] = {
    "basis/daemon/status": (
        Empty(),
        lifecycle.DaemonStatusResult(
            version="0.1.0",
            pid=4242,
            instance_id="i-7f3a",
            started_at=story.NOW,
            uptime_s=4.25,
            counts=lifecycle.Counts(clients=2, workspaces=1, sessions={"waiting_person": 1, "idle": 3}, pending_asks=1),
            memory_bytes=52_428_800,
            data_dir="/home/ada/.local/share/basis",
            socket="/run/user/1000/basis/daemon.sock",
            providers=[
                lifecycle.ProviderState(provider="openai", state="ready"),
                lifecycle.ProviderState(provider="ollama", state="offered", detail="qwen3:8b at 127.0.0.1:11434"),
            ],
        ),
    ),
    "basis/daemon/ping": (Empty(), lifecycle.PingResult(now=story.NOW)),
    "basis/daemon/subscribe": (
        Empty(),
        lifecycle.DaemonSnapshot(
            workspaces=[story.WORKSPACE_SUMMARY], sessions=[story.SESSION_SUMMARY], asks=[story.ASK]
        ),
    ),
    "basis/daemon/processes": (
        lifecycle.ProcessesParams(session_id=story.SESSION),
        lifecycle.ProcessesResult(
            processes=[
                lifecycle.ProcessInfo(
                    pid=4301,
                    what="shell",
                    command="pytest -q tests/test_pump.py",
                    session_id=story.SESSION,
                    age_s=1.5,
                    rss_bytes=31_457_280,
                )
            ]
        ),
    ),
    "basis/daemon/stop": (lifecycle.StopParams(mode="now"), Empty()),
    "basis/daemon/restart": (lifecycle.StopParams(), Empty()),
    "basis/ask/list": (asks.AskListParams(workspace=story.WORKSPACE), asks.AskListResult(asks=[story.ASK])),
    "basis/ask/answer": (
        asks.AskAnswerParams(
            ask_id=story.ASK.ask_id, decision="deny", reason="Only run the one slow test, not the file."
        ),
        asks.AskAnswerResult(outcome="denied"),
    ),
    "basis/model/list": (
        lifecycle.ModelListParams(workspace=story.WORKSPACE),
        lifecycle.ModelListResult(
            models=[
                lifecycle.ModelInfo(
                    id="gpt-5.1-codex", provider="openai", display_name="GPT-5.1 Codex", context_window=400_000
                )
            ],
            degraded=["ollama"],
            problems=[
                lifecycle.ModelListProblem(
                    provider="ollama",
                    message="could not connect to http://127.0.0.1:11434",
                    hint="start Ollama, or check the port",
                )
            ],
        ),
    ),
    "basis/auth/status": (
        Empty(),
        lifecycle.AuthStatusResult(
            providers=[
                lifecycle.AuthState(
                    provider="openai",
                    source="workspace_environment",
                    detail="OPENAI_API_KEY sent by nvim",
                    variable="OPENAI_API_KEY",
                ),
                lifecycle.AuthState(provider="rehearsal", source="not_needed"),
            ]
        ),
    ),
    "basis/auth/set": (
        lifecycle.AuthSetParams(provider="openai", secret="an-example-not-a-key", verify=True),
        lifecycle.AuthSetResult(
            state=lifecycle.AuthState(
                provider="openai",
                source="store",
                detail="the keyring",
                also=["OPENAI_API_KEY sent by nvim"],
                variable="OPENAI_API_KEY",
            ),
            verified=True,
        ),
    ),
    "basis/auth/forget": (lifecycle.AuthForgetParams(provider="openai"), Empty()),
}
