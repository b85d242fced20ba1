"""Who is told of what happens in a runtime, and the audit trail (runtime.md 4.6, 7.4)."""

import json
import logging
import os
import stat
import threading
from pathlib import Path
from typing import Any, get_args

import pytest

from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.observers import (
    AuditHook,
    AuditLogHook,
    AuditStore,
    Observers,
    RuntimeEvent,
    RuntimeEventKind,
)
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.errors import RetryableError
from basis_daemon.runtime.store.audit import FileAudit, MemoryAudit
from basis_daemon.testing import MockRuntime
from support.rounds import Watching, a_tool, call, empty, noting, run_round

pytestmark = pytest.mark.anyio


def test_there_are_as_many_kinds_as_are_written_down() -> None:
    """TL-28."""
    assert len(get_args(RuntimeEventKind)) == len(set(get_args(RuntimeEventKind))) == 22


async def test_a_round_is_told_from_its_request_to_its_results() -> None:
    """TL-28: in order, with ids and names; nothing anybody said (SE-32)."""
    watching = Watching()
    builder = empty().with_tool(a_tool("bump", noting([]))).with_hook(watching)
    await run_round(builder, call("bump", "c1", secret="SECRET"))
    assert watching.kinds() == [
        "recovery_prepared",
        "model_request_started",
        "model_request_finished",
        "model_response_finished",
        "tool_authorization_started",
        "tool_authorization_finished",
        "tool_execution_started",
        "tool_execution_finished",
        "model_request_started",
        "model_request_finished",
        "model_response_finished",
    ]
    (finished,) = watching.of("tool_execution_finished")
    assert finished.payload == {"tool": "bump", "tool_call_id": "c1", "is_error": False}
    assert finished.agent_id == watching.of("model_request_started")[0].agent_id is not None
    assert watching.of("model_response_finished")[0].payload["calls"] == 1
    assert "SECRET" not in str(watching.events)


async def test_refusals_are_told_as_what_they_are(tmp_path: Path) -> None:
    """TL-28, PO-22: the policy's with its reason, before a call and in it; an unknown name; a bad input."""
    watching = Watching()

    async def command(context: Any, input: Any) -> str:
        return (await context.run_command("true")).stdout

    builder = MockRuntime.builder().with_policy(RuntimePolicy()).with_hook(watching)
    builder = builder.with_tool(a_tool("command", command))
    config = AgentConfig(base_dir=tmp_path)
    await run_round(builder, call("write", path="/etc/x", content=""), call("command"), config=config)
    await run_round(builder, call("nowhere"), call("read", path=5), config=config)
    reasons = [event.payload["reason"] for event in watching.of("policy_denied")]
    assert len(reasons) == 2 and "write roots" in reasons[0] and "allow_shell_commands" in reasons[1]
    blocked = [event.payload["tool"] for event in watching.of("tool_execution_blocked")]
    assert blocked == ["write", "nowhere", "read"]


async def test_requests_that_fail_and_turns_that_are_cut_short_are_told() -> None:
    """TL-28: each attempt; how the run ended."""
    watching = Watching()
    script = MockRuntime.builder().with_hook(watching).failure(RetryableError("busy")).text("ok")
    async with script.build() as mock, mock.spawn() as agent:
        await agent.send("go")
    outcomes = [event.payload["outcome"] for event in watching.of("model_request_finished")]
    assert outcomes == ["error", "ok"] and watching.of("run_aborted") == []

    async with MockRuntime.builder().with_hook(watching).pending().build() as mock, mock.spawn() as agent:
        await agent.send("go", options=TurnOptions(deadline_s=0.05))
    (aborted,) = watching.of("run_aborted")
    assert aborted.payload["status"] == "error" and aborted.payload["stopped_by"] == "deadline"


async def test_what_an_observer_does_wrong_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """TL-29: it is logged, the others are told, and the run goes on."""

    class Breaks:
        def on_event(self, audit: AuditStore, event: RuntimeEvent) -> None:
            raise ValueError(f"broken at {event.kind}")

    class Waits:
        async def on_event(self, audit: AuditStore, event: RuntimeEvent) -> None: ...

    watching = Watching()
    builder = empty().with_tool(a_tool("bump", noting([]))).with_hooks([Breaks(), Waits(), watching])  # type: ignore[list-item]
    with caplog.at_level(logging.ERROR):
        done = await run_round(builder, call("bump"))
    assert done.report.status == "ok" and done.text() == "ran" and len(watching.events) == 11
    assert "an observer failed at tool_execution_started" in caplog.text and "must not be async" in caplog.text


def test_events_can_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """TL-29."""
    with caplog.at_level(logging.INFO):
        Observers([AuditLogHook()]).notify("policy_denied", "agent-1", tool="write", nothing=None)
    assert caplog.messages == ["policy_denied agent-1 {'tool': 'write'}"]


def test_the_audit_hook_writes_each_event_under_its_agent() -> None:
    """TL-29, ST: scope, kind, payload."""
    audit = MemoryAudit()
    observers = Observers([AuditHook()], audit)
    observers.notify("recovery_prepared")
    observers.notify("policy_denied", "agent-1", tool="write")
    assert [(event.scope, event.event_type, event.payload) for event in audit.events] == [
        ("runtime", "recovery_prepared", {}),
        ("agent:agent-1", "policy_denied", {"tool": "write"}),
    ]


# --- the file ---------------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_trail_is_one_line_an_event_and_private(tmp_path: Path) -> None:
    """TL-29, appendix C 13: `{schema, at, scope, event_type, payload}`. What no agent did waits for the first that one
    does: a runtime that was only built leaves nothing."""
    audit = FileAudit(tmp_path)
    audit.record_audit_event("runtime", "recovery_prepared", {})
    audit.close()
    assert os.listdir(tmp_path) == []
    audit.record_audit_event("agent:a", "policy_denied", {"tool": "é"})
    audit.close()
    audit.record_audit_event("agent:a", "run_aborted", {})
    audit.close()
    rows = lines(tmp_path / "audit.jsonl")
    assert [row["event_type"] for row in rows] == ["recovery_prepared", "policy_denied", "run_aborted"]
    assert rows[1] | {"at": 0} == {
        "schema": 1,
        "at": 0,
        "scope": "agent:a",
        "event_type": "policy_denied",
        "payload": {"tool": "é"},
    }
    assert rows[1]["at"] > 1_700_000_000 and isinstance(rows[1]["at"], int)
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


def test_a_long_trail_is_set_aside(tmp_path: Path) -> None:
    """7.4: beyond its size a file makes room, and nothing of the newer one is lost."""
    audit = FileAudit(tmp_path, max_file_bytes=2000)
    for number in range(100):
        audit.record_audit_event("agent:a", "policy_denied", {"number": number})
        audit.close()
    kept = lines(tmp_path / "audit.jsonl.1") + lines(tmp_path / "audit.jsonl")
    numbers = [row["payload"]["number"] for row in kept]
    assert numbers == list(range(numbers[0], 100)) and 15 < len(numbers) < 60
    assert sorted(os.listdir(tmp_path)) == ["audit.jsonl", "audit.jsonl.1"]


def test_several_writers_share_a_file(tmp_path: Path) -> None:
    """7.4: whole lines, none of them lost, also while files are set aside."""
    audits = [FileAudit(tmp_path) for _ in range(3)]

    def write(writer: int) -> None:
        for number in range(200):
            audits[writer].record_audit_event("agent:a", "policy_denied", {"writer": writer, "number": number})

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for audit in audits:
        audit.close()
    rows = [row["payload"] for row in lines(tmp_path / "audit.jsonl")]
    for writer in range(3):
        assert [row["number"] for row in rows if row["writer"] == writer] == list(range(200))


def test_a_disk_that_fails_loses_events_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """TL-29: said once, not for every event; what comes when it works again is kept."""
    audit = FileAudit(tmp_path / "missing")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            audit.record_audit_event("agent:a", "policy_denied", {})
            audit.close()
    assert sum("missing in the audit trail" in message for message in caplog.messages) == 1
    (tmp_path / "missing").mkdir()
    audit.record_audit_event("agent:a", "run_aborted", {})
    audit.close()
    assert [row["event_type"] for row in lines(tmp_path / "missing" / "audit.jsonl")] == ["run_aborted"]


def test_a_link_in_the_place_of_the_trail_is_not_followed(tmp_path: Path) -> None:
    """Appendix C 13."""
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    audit = FileAudit(tmp_path)
    audit.record_audit_event("agent:a", "policy_denied", {})
    audit.close()
    assert (tmp_path / "elsewhere").read_text() == "mine"
