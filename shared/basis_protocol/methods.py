"""The one method table: every method of the protocol with its direction, params, result and one sentence.

Handlers, client stubs, schema, TypeScript, Lua and the reference page are all made from it. A method that is listed
here but has no handler yet answers `method not found`.
"""

from dataclasses import dataclass
from enum import StrEnum

from basis_protocol import asks, events, lifecycle, sessions, workspaces
from basis_protocol.base import Empty, WireModel


class Direction(StrEnum):
    CLIENT_TO_DAEMON = "client → daemon"
    DAEMON_TO_CLIENT = "daemon → client"


@dataclass(frozen=True, slots=True)
class Method:
    """One method. `result` is `None` for a notification."""

    name: str
    direction: Direction
    params: type[WireModel]
    result: type[WireModel] | None
    summary: str

    @property
    def is_notification(self) -> bool:
        return self.result is None


def _request(name: str, params: type[WireModel], result: type[WireModel], summary: str) -> Method:
    return Method(name, Direction.CLIENT_TO_DAEMON, params, result, summary)


def _notification(name: str, params: type[WireModel], summary: str) -> Method:
    return Method(name, Direction.DAEMON_TO_CLIENT, params, None, summary)


_TABLE: tuple[Method, ...] = (
    _request("basis/daemon/status", Empty, lifecycle.DaemonStatusResult, "Version, uptime, counts, memory, places."),
    _request("basis/daemon/ping", Empty, lifecycle.PingResult, "Answered at once, never behind a turn."),
    _request("basis/daemon/subscribe", Empty, lifecycle.DaemonSnapshot, "What is live now, and every change to it."),
    _request(
        "basis/daemon/processes", lifecycle.ProcessesParams, lifecycle.ProcessesResult, "Every child process and why."
    ),
    _request("basis/daemon/stop", lifecycle.StopParams, Empty, "End the daemon; drain waits for round boundaries."),
    _request("basis/daemon/restart", lifecycle.StopParams, Empty, "Hand the listening socket to a new process."),
    _request("basis/workspace/open", workspaces.WorkspaceOpenParams, workspaces.WorkspaceInfo, "Open a directory."),
    _request("basis/workspace/list", Empty, workspaces.WorkspaceListResult, "Open workspaces."),
    _request("basis/workspace/close", workspaces.WorkspacePathParams, Empty, "Let go of a workspace."),
    _request(
        "basis/workspace/reload", workspaces.WorkspacePathParams, workspaces.WorkspaceInfo, "Read its files again."
    ),
    _request(
        "basis/workspace/describe",
        workspaces.WorkspacePathParams,
        workspaces.WorkspaceDescription,
        "Everything discovered, and from which file.",
    ),
    _request(
        "basis/workspace/fingerprint",
        workspaces.WorkspacePathParams,
        workspaces.FingerprintResult,
        "A digest of the visible content.",
    ),
    _request("basis/workspace/trust", workspaces.TrustParams, workspaces.Trust, "Grant or take back trust by digest."),
    _request(
        "basis/session/new", sessions.SessionNewParams, sessions.SessionInfo, "A conversation; nothing written yet."
    ),
    _request("basis/session/list", sessions.SessionListParams, sessions.SessionListResult, "Most recently used first."),
    _request(
        "basis/session/attach",
        sessions.SessionAttachParams,
        sessions.SessionAttachResult,
        "Watch a session; missed events follow exactly once, in order.",
    ),
    _request("basis/session/detach", sessions.SessionIdParams, Empty, "Stop watching."),
    _request(
        "basis/session/draft", sessions.SessionDraftParams, sessions.SessionDraftResult, "The shared unsent prompt."
    ),
    _request("basis/session/undo", sessions.SessionUndoParams, sessions.SessionUndoResult, "Take file changes back."),
    _request("basis/session/close", sessions.SessionIdParams, Empty, "Unload a session; it stays resumable."),
    _request("basis/session/rename", sessions.SessionRenameParams, sessions.SessionInfo, "Give it another title."),
    _request("basis/session/delete", sessions.SessionIdParams, Empty, "Remove it for good; absent is fine."),
    _request("basis/session/fork", sessions.SessionForkParams, sessions.SessionInfo, "Copy it up to an entry."),
    _request("basis/session/compact", sessions.SessionIdParams, Empty, "Shorten the transcript now."),
    _request("basis/session/export", sessions.SessionIdParams, sessions.SessionExportResult, "The whole record."),
    _request(
        "basis/session/history",
        sessions.SessionHistoryParams,
        sessions.SessionHistoryResult,
        "Page through the conversation in both directions.",
    ),
    _request(
        "basis/session/setConfig", sessions.SessionSetConfigParams, sessions.SessionInfo, "Set one of its options."
    ),
    _request("basis/session/prompt", sessions.SessionPromptParams, sessions.SessionPromptResult, "Accepted at once."),
    _request("basis/turn/wait", sessions.TurnWaitParams, sessions.TurnOutcome, "How a turn ended; repeatable."),
    _request(
        "basis/turn/steer", sessions.TurnSteerParams, sessions.SessionPromptResult, "Add input to a running turn."
    ),
    _request("basis/turn/resume", sessions.SessionIdParams, sessions.TurnResumeResult, "Carry an interrupted turn on."),
    _request("basis/turn/cancel", sessions.TurnParams, Empty, "Abandon a turn and roll it back."),
    _request("basis/turn/stop", sessions.TurnParams, Empty, "End it at the next round boundary, keep the work."),
    _request("basis/ask/list", asks.AskListParams, asks.AskListResult, "Every pending ask."),
    _request("basis/ask/answer", asks.AskAnswerParams, asks.AskAnswerResult, "First answer wins."),
    _request("basis/model/list", lifecycle.ModelListParams, lifecycle.ModelListResult, "Models of all providers."),
    _request(
        "basis/auth/status", lifecycle.AuthStatusParams, lifecycle.AuthStatusResult, "Where each credential comes from."
    ),
    _request("basis/auth/set", lifecycle.AuthSetParams, lifecycle.AuthSetResult, "Store a credential."),
    _request("basis/auth/forget", lifecycle.AuthForgetParams, Empty, "Remove a stored credential."),
    _request("basis/mcp/list", workspaces.McpListParams, workspaces.McpListResult, "MCP servers and their state."),
    _request("basis/mcp/restart", workspaces.McpRestartParams, Empty, "Connect one again."),
    _request("basis/task/list", sessions.TaskListParams, sessions.TaskListResult, "Background tasks and subagents."),
    _request("basis/task/output", sessions.TaskIdParams, sessions.TaskOutputResult, "What a task printed."),
    _request("basis/task/kill", sessions.TaskIdParams, Empty, "End a task."),
    _request("basis/memory/list", workspaces.MemoryParams, workspaces.MemoryListResult, "Memory files in force."),
    _request("basis/memory/read", workspaces.MemoryParams, workspaces.MemoryReadResult, "One memory's text."),
    _request("basis/memory/forget", workspaces.MemoryParams, Empty, "Remove a memory."),
    _request("basis/rule/list", workspaces.RuleListParams, workspaces.RuleListResult, "Remembered answers."),
    _request("basis/rule/remove", workspaces.RuleRemoveParams, Empty, "Forget one."),
    _request(
        "basis/rule/explain", workspaces.RuleExplainParams, workspaces.RuleExplainResult, "Which rule would decide."
    ),
    _request("basis/template/list", workspaces.TemplateListParams, workspaces.TemplateListResult, "For `/` commands."),
    _request("basis/file/search", workspaces.FileSearchParams, workspaces.FileSearchResult, "For `@` mentions."),
    _request("basis/tool/result", sessions.ToolResultParams, sessions.ToolResultPage, "Page a large tool result."),
    _notification("basis/session/event", events.SessionEvent, "One numbered event of an attached session."),
    _notification("basis/session/lagged", events.SessionLagged, "Too far behind: attach again after `seq`."),
    _notification("basis/daemon/event", lifecycle.DaemonEvent, "A change to what `daemon/subscribe` showed."),
)

METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
"""Every method by name, in the order of the reference page."""
