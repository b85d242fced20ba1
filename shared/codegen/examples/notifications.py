"""Every event of a session, every notification, and the messages outside the method table."""

from basis_protocol import asks, content, errors, events, lifecycle
from basis_protocol.base import WireModel
from codegen.examples import story

_CALL = {"tool_call_id": story.CALL, "tool_name": "spawn"}
_PREVIEW = story.ASK.preview

EVENTS: tuple[events.AnyEvent, ...] = (
    events.RunStarted(
        turn_id=story.TURN,
        schema=events.EVENT_SCHEMA_VERSION,
        basis="0.1.0",
        session_id=story.SESSION,
        workspace=story.WORKSPACE,
        model="gpt-5.1-codex",
        provider="openai",
        context_files=[events.ContextFile(path=f"{story.WORKSPACE}/AGENTS.md", scope="workspace")],
        skills=[events.SkillSummary(name="release", description="How a release is made")],
        templates=[events.TemplateSummary(name="review", description="Review a change", argument_hint="[branch]")],
        mcp_servers=["tracker"],
    ),
    events.UserMessage(text="Why is this test slow?", image_count=1, turn_id=story.TURN, by=story.NVIM),
    events.AssistantDelta(text="The test ", message_id=story.MESSAGE),
    events.AssistantReasoningDelta(text="Look at the clock.", message_id=story.MESSAGE),
    events.AssistantMessage(text="The test waits two seconds.", message_id=story.MESSAGE),
    events.ToolQueued(
        **_CALL, summary="pytest -q tests/test_pump.py", mutability="unknown", input={"prompt": "!pytest -q"}
    ),
    events.ToolStarted(**_CALL),
    events.ToolProgress(**_CALL, progress="stdout: 1 passed"),
    events.ToolCompleted(
        tool_call_id=story.CALL,
        tool_name="edit",
        summary="engine/pump.py: 1 line changed",
        is_error=False,
        result_id=story.RESULT,
        diff=[story.DIFF],
        duration_ms=7,
    ),
    events.PermissionRequested(
        **_CALL,
        request_id="p-1",
        description="pytest -q tests/test_pump.py",
        preview=_PREVIEW,
        side_effect_level="process",
    ),
    events.PermissionResolved(**_CALL, request_id="p-1", outcome="allowed", rule_scope="session"),
    events.TaskUpdated(task_id="k-1", kind="subagent", status="running", title="Read the pump's history"),
    events.CompactionStarted(agent_id=story.SESSION),
    events.CompactionCompleted(
        agent_id=story.SESSION,
        replaced_items=30,
        preserved_items=6,
        transcript_len=7,
        extracted_facts=2,
        summary_preview="A slow test was looked into.",
    ),
    events.RequestToolResultsElided(
        agent_id=story.SESSION,
        policy={"kind": "keep_recent", "configuredKeepRecentToolResults": 5},
        canonical_tool_result_content_bytes=90_000,
        projected_tool_result_content_bytes=12_000,
        results=[{"toolCallId": story.CALL, "isError": False, "action": "marker"}],
    ),
    events.MemoryUpdated(agent_id=story.SESSION, stored_records=2),
    events.UsageReported(
        agent_id=story.SESSION,
        input_tokens=1830,
        output_tokens=212,
        cache_read_tokens=1024,
        cache_creation_tokens=0,
        reasoning_tokens=64,
    ),
    events.Notice(severity="warning", message="No AGENTS.md was found."),
    events.Retry(
        agent_id=story.SESSION,
        error="the provider is overloaded",
        attempt=1,
        max_attempts=4,
        next_delay_ms=500,
        discarded_message_id=story.MESSAGE,
    ),
    events.ErrorEvent(message="the provider refused the request", recoverable=True),
    events.Branched(entry_id="e-2", abandoned_entries=3),
    events.RunFinished(
        turn_id=story.TURN,
        status="error",
        message="the provider refused the request",
        stopped_by="deadline",
        usage=story.USAGE,
    ),
    events.TurnQueued(turn_id="t-0003", position=1, by=story.CLI),
    events.AskOpened(ask=story.ASK),
    events.AskClosed(ask_id=story.ASK.ask_id, by=story.CLI, decision="deny", reason="Only the one slow test."),
    events.ConfigChanged(option="mode", value="never", by=story.CLI),
    events.InfoChanged(title="Pump clock", state=story.STATE),
    events.ClientAttached(client=story.CLI),
    events.ClientDetached(client=story.CLI),
    events.LeaseConflict(holder="another basis-daemon, pid 4100"),
)

NOTIFICATIONS: dict[str, WireModel] = {
    "basis/session/event": events.SessionEvent(session_id=story.SESSION, seq=41, time=story.LATER, event=EVENTS[2]),
    "basis/session/lagged": events.SessionLagged(session_id=story.SESSION, seq=41),
    "basis/daemon/event": lifecycle.DaemonEvent(kind="session_changed", session=story.SESSION_SUMMARY),
}

OTHERS: dict[str, WireModel] = {
    "initialize.clientHello": lifecycle.ClientHello(
        protocol_versions=[1],
        client=lifecycle.ClientInfo(name="nvim", version="0.11.4", kind="nvim"),
        client_id="nvim-4711",
        can=lifecycle.ClientCan(approve=True, open_diff=True),
    ),
    "initialize.serverHello": lifecycle.ServerHello(
        protocol_version=1,
        daemon=lifecycle.DaemonInfo(version="0.1.0", pid=4242, instance_id="i-7f3a", started_at=story.NOW),
        limits=lifecycle.Limits(max_frame_bytes=67_108_864, max_prompt_bytes=1_048_576),
        features=["attach"],
    ),
    "cancelRequest": lifecycle.CancelParams(id=7),
    "error.data": errors.ErrorData(
        kind="no_such_session", message="there is no session 'x'", hint="list sessions to see the ids that exist"
    ),
    "error.askDecided": asks.AskDecided(by=story.NVIM, decision="allow", scope="once", at=story.LATER),
    "preview.diff": content.DiffPreview(files=[story.DIFF]),
    "preview.command": content.CommandPreview(command="ls", cwd=story.WORKSPACE),
    "preview.call": content.CallPreview(input={"query": "pump"}),
}
