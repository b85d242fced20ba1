"""Conversations: creating, finding, watching and prompting them, and the turns that run in them."""

from typing import Annotated, Literal

import msgspec

from basis_protocol.asks import Actor, Ask
from basis_protocol.base import AbsolutePath, Json, Timestamp, WireModel, open_word
from basis_protocol.content import FileDiff, InputBlock
from basis_protocol.events import SessionState, StoppedBy, TurnStatus, Usage
from basis_protocol.ids import EntryId, MessageId, ResultId, Seq, SessionId, ToolCallId, TurnId


class ConfigChoice(WireModel):
    value: str
    label: str


class ConfigOption(WireModel):
    """One thing about a session a person may set."""

    option: str
    category: Annotated[str, open_word("mode", "model", "effort")]
    label: str
    value: str
    choices: list[ConfigChoice]


class SessionInfo(WireModel):
    session_id: SessionId
    workspace: AbsolutePath
    title: str
    state: SessionState
    created_at: Timestamp
    updated_at: Timestamp
    turns: int
    messages: int
    provider: str | None = None
    model: str | None = None
    config: list[ConfigOption]
    usage: Usage
    pending_asks: int
    parent: SessionId | None = None
    ephemeral: bool = False


class SessionNewParams(WireModel):
    """Nothing is written before the first prompt. `session_id` may be chosen by the client: 1 to 128 of
    `[A-Za-z0-9._-]`, not starting with a dot or `x-`."""

    workspace: AbsolutePath
    session_id: SessionId | None = None
    title: str | None = None
    config: dict[str, str] = {}
    mcp_servers: list[Json] = []
    ephemeral: bool = False


class SessionListParams(WireModel):
    workspace: AbsolutePath | None = None
    query: str | None = None
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


class SessionListResult(WireModel):
    """Most recently used first."""

    sessions: list[SessionInfo]
    next_cursor: str | None = None


class SessionIdParams(WireModel):
    session_id: SessionId


class SessionAttachParams(WireModel):
    """With `after_seq`, every later event follows exactly once. Without it, a snapshot stands for the past."""

    session_id: SessionId
    after_seq: Seq | None = None


class HistoryItem(WireModel):
    """One entry of the conversation, oldest first. `kind` decides which fields are set."""

    entry_id: EntryId
    kind: Annotated[
        str,
        open_word("user", "assistant", "tool", "context", "delegation", "summary"),
    ]
    text: str = ""
    reasoning: str | None = None
    turn_id: TurnId | None = None
    message_id: MessageId | None = None
    tool_call_id: ToolCallId | None = None
    tool_name: str | None = None
    summary: str | None = None
    input: Json | None = None
    is_error: bool = False
    result_id: ResultId | None = None
    diff: list[FileDiff] = []
    image_count: int = 0
    at: Timestamp | None = None
    by: Annotated[Actor | None, msgspec.Meta(description="who said it, of a `user` entry")] = None


class PartialMessage(WireModel):
    """Text of the assistant message that is being streamed right now."""

    message_id: MessageId
    text: str = ""
    reasoning: str = ""


class SessionSnapshot(WireModel):
    """The conversation up to the attach's `seq`. With `reset`, whatever the client had painted is void."""

    items: list[HistoryItem]
    previous_cursor: Annotated[str | None, msgspec.Meta(description="basis/session/history pages back from here")] = (
        None
    )
    partial: PartialMessage | None = None
    reset: bool = False


class TurnInfo(WireModel):
    turn_id: TurnId
    state: Annotated[str, open_word("running", "queued", "interrupted")]
    started_at: Timestamp | None = None
    by: Actor | None = None


class SessionAttachResult(WireModel):
    info: SessionInfo
    seq: Seq
    snapshot: SessionSnapshot | None = None
    turn: TurnInfo | None = None
    queued: list[TurnInfo] = []
    asks: list[Ask]
    clients: list[Actor] = []


class SessionDraftParams(WireModel):
    """Without `text`, reads the draft; with it, replaces it (empty clears)."""

    session_id: SessionId
    text: str | None = None


class SessionDraftResult(WireModel):
    text: str
    by: Actor | None = None
    at: Timestamp | None = None


class SessionUndoParams(WireModel):
    session_id: SessionId
    to_turn: TurnId
    preview: bool = False


class UndoFile(WireModel):
    path: str
    change: Annotated[str, open_word("restored", "removed", "recreated")]
    conflict: str | None = None


class SessionUndoResult(WireModel):
    files: list[UndoFile]
    cannot_undo: list[str]


class SessionRenameParams(WireModel):
    session_id: SessionId
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class SessionForkParams(WireModel):
    session_id: SessionId
    at_entry: EntryId | None = None


class SessionExportResult(WireModel):
    jsonl: str


class SessionHistoryParams(WireModel):
    """Pages in both directions. No cursor starts at the newest end (`before`) or the oldest (`after`)."""

    session_id: SessionId
    cursor: str | None = None
    direction: Literal["before", "after"] = "before"
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class SessionHistoryResult(WireModel):
    """Items are oldest first whatever the direction."""

    items: list[HistoryItem]
    before_cursor: str | None = None
    after_cursor: str | None = None


class SessionSetConfigParams(WireModel):
    session_id: SessionId
    option: str
    value: str


class Bounds(WireModel):
    """Limits of one turn. A tripped bound is named in `stoppedBy`."""

    deadline_ms: Annotated[int, msgspec.Meta(gt=0)] | None = None
    tool_budget: Annotated[int, msgspec.Meta(ge=0)] | None = None
    token_budget: Annotated[int, msgspec.Meta(gt=0)] | None = None


class OutputRequest(WireModel):
    """Ask for a typed answer of this JSON Schema instead of prose."""

    name: str
    description: str
    schema: dict[str, Json]
    keeps_tools: bool = False


class Unattended(WireModel):
    """What happens to an ask nobody is there to answer: `wait`, or `deny` with this reason."""

    policy: Literal["wait", "deny"] = "wait"
    reason: str | None = None


class SessionPromptParams(WireModel):
    session_id: SessionId
    input: Annotated[list[InputBlock], msgspec.Meta(min_length=1)]
    bounds: Bounds | None = None
    output: OutputRequest | None = None
    when_busy: Literal["reject", "queue", "steer"] = "queue"
    unattended: Unattended | None = None


class SessionPromptResult(WireModel):
    """Acceptance only. The end of the turn is the event `run_finished`."""

    turn_id: TurnId
    state: Annotated[str, open_word("running", "queued", "steering")]


class TurnParams(WireModel):
    session_id: SessionId
    turn_id: TurnId | None = None


class TurnWaitParams(WireModel):
    session_id: SessionId
    turn_id: TurnId
    timeout_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None


class TurnOutcome(WireModel):
    """How a turn ended: the result of `basis/turn/wait`. When its `timeoutMs` is up first the answer is an error of
    kind `timeout`; wait again. An interrupted turn is answered at once with `interrupted`; it may be resumed."""

    status: TurnStatus
    stopped_by: StoppedBy | None = None
    final_message: str | None = None
    output: Json | None = None
    usage: Usage
    error: str | None = None


class TurnSteerParams(WireModel):
    session_id: SessionId
    expected_turn_id: TurnId
    input: Annotated[list[InputBlock], msgspec.Meta(min_length=1)]


class TurnResumeResult(WireModel):
    turn_id: TurnId


class TaskListParams(WireModel):
    session_id: SessionId | None = None


class TaskInfo(WireModel):
    task_id: str
    session_id: SessionId
    kind: str
    status: str
    title: str


class TaskListResult(WireModel):
    tasks: list[TaskInfo]


class TaskIdParams(WireModel):
    task_id: str


class TaskOutputResult(WireModel):
    text: str


class ToolResultParams(WireModel):
    """Offsets and limits count bytes of UTF-8; pages are cut at character boundaries."""

    result_id: ResultId
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 65536


class ToolResultPage(WireModel):
    text: str
    next_offset: int | None = None
    total_bytes: int
