"""Requests about conversations, their turns, tasks and tool results: method → (params, result)."""

from basis_protocol import content, sessions
from basis_protocol.base import Empty, WireModel
from codegen.examples import story

_ID = sessions.SessionIdParams(session_id=story.SESSION)
_TURN = sessions.TurnParams(session_id=story.SESSION, turn_id=story.TURN)
_URI = f"file://{story.WORKSPACE}/engine/pump.py"

_HISTORY = [
    sessions.HistoryItem(
        entry_id="e-1", kind="user", text="Why is it slow?", turn_id=story.TURN, at=story.NOW, by=story.NVIM
    ),
    sessions.HistoryItem(
        entry_id="e-2",
        kind="tool",
        turn_id=story.TURN,
        tool_call_id=story.CALL,
        tool_name="edit",
        summary="engine/pump.py",
        input={"path": "engine/pump.py", "old": "2", "new": "0.2"},
        result_id=story.RESULT,
        diff=[story.DIFF],
        at=story.LATER,
    ),
]

_BLOCKS: list[content.InputBlock] = [
    content.TextBlock(text="Why is this test slow?"),
    content.ImageBlock(mime_type="image/png", data="iVBORw0KGgo="),
    content.ResourceBlock(uri=_URI, text="DELAY_S = 2\n", range=story.RANGE, mime_type="text/x-python"),
    content.MentionBlock(path="tests/test_pump.py"),
    content.SelectionBlock(uri=_URI, range=story.RANGE, text="time.sleep(DELAY_S)"),
    content.DiagnosticsBlock(
        uri=_URI,
        diagnostics=[
            content.Diagnostic(
                range=story.RANGE, message="unused import", severity="warning", source="ruff", code="F401"
            )
        ],
    ),
    content.TemplateBlock(name="review", arguments="main"),
]

EXAMPLES: dict[str, tuple[WireModel, WireModel]] = {
    "basis/session/new": (
        sessions.SessionNewParams(workspace=story.WORKSPACE, title="Slow test", config={"mode": "prompt"}),
        story.INFO,
    ),
    "basis/session/list": (
        sessions.SessionListParams(workspace=story.WORKSPACE, query="pump", limit=1),
        sessions.SessionListResult(sessions=[story.INFO], next_cursor="c-2"),
    ),
    "basis/session/attach": (
        sessions.SessionAttachParams(session_id=story.SESSION, after_seq=12),
        sessions.SessionAttachResult(
            info=story.INFO,
            seq=40,
            snapshot=sessions.SessionSnapshot(
                items=_HISTORY,
                previous_cursor="e-1",
                partial=sessions.PartialMessage(message_id=story.MESSAGE, text="The test wai"),
                reset=True,
            ),
            turn=sessions.TurnInfo(turn_id=story.TURN, state="running", started_at=story.NOW, by=story.NVIM),
            queued=[sessions.TurnInfo(turn_id="t-0003", state="queued", by=story.CLI)],
            asks=[story.ASK],
            clients=[story.NVIM, story.CLI],
        ),
    ),
    "basis/session/detach": (_ID, Empty()),
    "basis/session/draft": (
        sessions.SessionDraftParams(session_id=story.SESSION, text="and the other"),
        sessions.SessionDraftResult(text="and the other", by=story.NVIM, at=story.NOW),
    ),
    "basis/session/undo": (
        sessions.SessionUndoParams(session_id=story.SESSION, to_turn="t-0001", preview=True),
        sessions.SessionUndoResult(
            files=[sessions.UndoFile(path="engine/pump.py", change="restored", conflict="changed since")],
            cannot_undo=["rm -r build"],
        ),
    ),
    "basis/session/close": (_ID, Empty()),
    "basis/session/rename": (
        sessions.SessionRenameParams(session_id=story.SESSION, title="Pump clock"),
        story.INFO,
    ),
    "basis/session/delete": (_ID, Empty()),
    "basis/session/fork": (sessions.SessionForkParams(session_id=story.SESSION, at_entry="e-2"), story.INFO),
    "basis/session/compact": (_ID, Empty()),
    "basis/session/export": (_ID, sessions.SessionExportResult(jsonl='{"format":1}\n')),
    "basis/session/history": (
        sessions.SessionHistoryParams(session_id=story.SESSION, cursor="e-3", direction="before", limit=2),
        sessions.SessionHistoryResult(items=_HISTORY, after_cursor="e-2"),
    ),
    "basis/session/setConfig": (
        sessions.SessionSetConfigParams(session_id=story.SESSION, option="mode", value="never"),
        story.INFO,
    ),
    "basis/session/prompt": (
        sessions.SessionPromptParams(
            session_id=story.SESSION,
            input=_BLOCKS,
            bounds=sessions.Bounds(deadline_ms=60_000, tool_budget=20, token_budget=50_000),
            output=sessions.OutputRequest(
                name="verdict",
                description="Why it is slow",
                schema={"type": "object", "properties": {"cause": {"type": "string"}}, "required": ["cause"]},
            ),
            when_busy="reject",
            unattended=sessions.Unattended(policy="deny", reason="nobody is watching this run"),
        ),
        sessions.SessionPromptResult(turn_id=story.TURN, state="running"),
    ),
    "basis/turn/wait": (
        sessions.TurnWaitParams(session_id=story.SESSION, turn_id=story.TURN, timeout_ms=5000),
        sessions.TurnOutcome(
            status="ok",
            stopped_by="tool_budget",
            final_message="It waited two seconds for nothing.",
            output={"cause": "a delay"},
            usage=story.USAGE,
        ),
    ),
    "basis/turn/steer": (
        sessions.TurnSteerParams(
            session_id=story.SESSION, expected_turn_id=story.TURN, input=[content.TextBlock(text="Use 0.2")]
        ),
        sessions.SessionPromptResult(turn_id=story.TURN, state="steering"),
    ),
    "basis/turn/resume": (_ID, sessions.TurnResumeResult(turn_id=story.TURN)),
    "basis/turn/cancel": (_TURN, Empty()),
    "basis/turn/stop": (_TURN, Empty()),
    "basis/task/list": (
        sessions.TaskListParams(session_id=story.SESSION),
        sessions.TaskListResult(
            tasks=[
                sessions.TaskInfo(
                    task_id="k-1",
                    session_id=story.SESSION,
                    kind="background_task",
                    status="running",
                    title="watch the tests",
                )
            ]
        ),
    ),
    "basis/task/output": (sessions.TaskIdParams(task_id="k-1"), sessions.TaskOutputResult(text="3 passed\n")),
    "basis/task/kill": (sessions.TaskIdParams(task_id="k-1"), Empty()),
    "basis/tool/result": (
        sessions.ToolResultParams(result_id=story.RESULT, offset=0, limit=16),
        sessions.ToolResultPage(text="DELAY_S = 0.2\n…", next_offset=16, total_bytes=2048),
    ),
}
