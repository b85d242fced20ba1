"""Everything that can happen in a session, in the order it happened.

Owns the event union and the numbered record. The runtime emits these types directly; nothing copies them field by
field. A turn is bracketed by `run_started` and `run_finished` (EV-1). Deltas are for painting; the `assistant_message`
and `tool_completed` that follow are authoritative. Readers ignore event types they don't know.
"""

from typing import Annotated

import msgspec

from basis_protocol.asks import Actor, Ask, Decision, SideEffect
from basis_protocol.base import AbsolutePath, Json, Timestamp, WireModel, open_word
from basis_protocol.content import FileDiff, Preview
from basis_protocol.ids import AskId, EntryId, MessageId, ResultId, Seq, SessionId, ToolCallId, TurnId

EVENT_SCHEMA_VERSION = 2
"""Raised only when an old reader would misread a newer stream."""

Mutability = Annotated[str, open_word("read_only", "mutating", "unknown")]
StoppedBy = Annotated[str, open_word("deadline", "tool_budget", "token_budget", "stop_requested")]
TurnStatus = Annotated[str, open_word("ok", "error", "cancelled", "interrupted")]


class Event(WireModel, tag_field="type"):
    """Base of all events."""


class ContextFile(WireModel):
    """A discovered file and where it stands: `global`, `ancestor:N` or `workspace`."""

    path: AbsolutePath
    scope: str


class SkillSummary(WireModel):
    name: str
    description: str


class TemplateSummary(WireModel):
    name: str
    description: str
    argument_hint: str | None = None


class Usage(WireModel, omit_defaults=False):
    """Tokens as providers reported them. Cache counts are inside `input_tokens`; reasoning is inside `output_tokens`,
    thoughts are outside it.

    `cost_nano_usd` is what those of them cost whose price was known when they were reported, `priced_tokens`: all of
    them when that equals input and output together, none when it is zero.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    reasoning_tokens: int = 0
    thoughts_tokens: int = 0
    cost_nano_usd: Annotated[int, msgspec.Meta(description="billionths of a US dollar")] = 0
    priced_tokens: Annotated[int, msgspec.Meta(description="input and output tokens that are in the cost")] = 0

    @property
    def total_tokens(self) -> int:
        """Input plus output (EV-4)."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_creation_tokens=self.cache_creation_tokens + other.cache_creation_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            thoughts_tokens=self.thoughts_tokens + other.thoughts_tokens,
            cost_nano_usd=self.cost_nano_usd + other.cost_nano_usd,
            priced_tokens=self.priced_tokens + other.priced_tokens,
        )


# --- the run event stream (workspace.md 4.8) -------------------------------------------------------------------------


class RunStarted(Event, tag="run_started"):
    """First event of a turn."""

    turn_id: TurnId
    schema: Annotated[int, msgspec.Meta(description="EVENT_SCHEMA_VERSION of the writer")]
    basis: Annotated[str, msgspec.Meta(description="version of the daemon or SDK")]
    session_id: SessionId
    workspace: AbsolutePath
    model: str
    provider: str
    context_files: list[ContextFile] = []
    skills_dirs: list[AbsolutePath] = []
    skills: list[SkillSummary] = []
    templates_dirs: list[AbsolutePath] = []
    templates: list[TemplateSummary] = []
    mcp_files: list[ContextFile] = []
    mcp_servers: list[str] = []
    resumed: Annotated[bool, msgspec.Meta(description="carries an interrupted turn on instead of starting one")] = False


class UserMessage(Event, tag="user_message"):
    text: str
    image_count: int = 0
    turn_id: TurnId | None = None
    by: Actor | None = None


class AssistantDelta(Event, tag="assistant_delta"):
    text: str
    message_id: MessageId | None = None


class AssistantReasoningDelta(Event, tag="assistant_reasoning_delta"):
    text: str
    message_id: MessageId | None = None


class AssistantMessage(Event, tag="assistant_message"):
    """The whole text of one assistant message; replaces what its deltas painted."""

    text: str
    message_id: MessageId | None = None


class ToolQueued(Event, tag="tool_queued"):
    tool_call_id: ToolCallId
    tool_name: str
    summary: str
    mutability: Mutability = "unknown"
    input: Annotated[Json, msgspec.Meta(description="parsed JSON, else the raw string; cut when over 32 KiB")] = None


class ToolStarted(Event, tag="tool_started"):
    tool_call_id: ToolCallId
    tool_name: str


class ToolProgress(Event, tag="tool_progress"):
    tool_call_id: ToolCallId
    tool_name: str
    progress: str


class ToolCompleted(Event, tag="tool_completed"):
    """The end of one tool call. The stream carries a summary only (EV-2); `result_id` pages the full result."""

    tool_call_id: ToolCallId
    tool_name: str
    summary: str
    is_error: bool
    result_id: ResultId | None = None
    diff: list[FileDiff] = []
    duration_ms: int | None = None


class PermissionRequested(Event, tag="permission_requested"):
    request_id: str
    tool_call_id: ToolCallId
    tool_name: str
    description: str
    preview: Preview
    side_effect_level: SideEffect | None = None


class PermissionResolved(Event, tag="permission_resolved"):
    request_id: str
    tool_call_id: ToolCallId
    tool_name: str
    outcome: Annotated[str, open_word("allowed", "denied")]
    rule_scope: Annotated[str | None, open_word("process", "session", "project", "global")] = None


class TaskUpdated(Event, tag="task_updated"):
    task_id: str
    kind: Annotated[str, open_word("subagent", "background_task", "teammate")]
    status: Annotated[str, open_word("spawned", "running", "finished", "failed")]
    title: str
    detail: str | None = None


class CompactionStarted(Event, tag="compaction_started"):
    agent_id: SessionId


class CompactionCompleted(Event, tag="compaction_completed"):
    agent_id: SessionId
    replaced_items: int
    preserved_items: int
    transcript_len: int
    extracted_facts: int
    summary_preview: str


class RequestToolResultsElided(Event, tag="request_tool_results_elided"):
    agent_id: SessionId
    policy: dict[str, Json]
    canonical_tool_result_content_bytes: int
    projected_tool_result_content_bytes: int
    results: list[dict[str, Json]]


class MemoryUpdated(Event, tag="memory_updated"):
    agent_id: SessionId
    stored_records: int


class UsageReported(Event, tag="usage"):
    """Tokens of one model response."""

    agent_id: SessionId
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_creation_tokens: int
    reasoning_tokens: int | None = None
    thoughts_tokens: int | None = None
    model: Annotated[str | None, msgspec.Meta(description="the model that answered")] = None
    cost_nano_usd: Annotated[
        int | None, msgspec.Meta(description="billionths of a US dollar; unset when the price is not known")
    ] = None


class Notice(Event, tag="notice"):
    severity: Annotated[str, open_word("info", "warning")] = "info"
    message: str


class Retry(Event, tag="retry"):
    """A model request failed and will be sent again. Text already painted for `discarded_message_id` is void."""

    agent_id: SessionId
    error: str
    attempt: int
    max_attempts: int
    next_delay_ms: int
    discarded_message_id: MessageId | None = None


class ErrorEvent(Event, tag="error"):
    message: str
    recoverable: bool = False


class Branched(Event, tag="branched"):
    """The conversation continues from `entry_id` (unset: from its beginning); what came after is off the path."""

    entry_id: EntryId | None = None
    abandoned_entries: int


class RunFinished(Event, tag="run_finished"):
    """Last event of a turn. `message` is set when `status` is not `ok`; a bound shows in `stopped_by`."""

    turn_id: TurnId
    status: TurnStatus
    message: str | None = None
    stopped_by: StoppedBy | None = None
    usage: Usage | None = None


# --- session-level events (protocol.md 4) ----------------------------------------------------------------------------


class TurnQueued(Event, tag="turn_queued"):
    turn_id: TurnId
    position: Annotated[int, msgspec.Meta(description="how many turns run before it")]
    by: Actor | None = None


class AskOpened(Event, tag="ask_opened"):
    ask: Ask


class AskClosed(Event, tag="ask_closed"):
    """An ask was answered, or withdrawn by the daemon (`by.kind` is `daemon`, `reason` says why)."""

    ask_id: AskId
    by: Actor
    decision: Decision
    scope: str = "once"
    reason: str | None = None


class ConfigChanged(Event, tag="config_changed"):
    option: str
    value: str
    by: Actor | None = None


class InfoChanged(Event, tag="info_changed"):
    """Something a session list shows has changed. Only changed fields are set."""

    title: str | None = None
    state: "SessionState | None" = None


class SessionState(WireModel):
    """What a session is doing, told so that every client can show the same thing."""

    kind: Annotated[
        str,
        open_word("idle", "working", "waiting_person", "waiting_provider", "queued", "interrupted", "ended"),
    ]
    since: Timestamp
    detail: str
    ask_id: AskId | None = None
    until: Timestamp | None = None
    cause: str | None = None


class ClientAttached(Event, tag="client_attached"):
    client: Actor


class ClientDetached(Event, tag="client_detached"):
    client: Actor


class LeaseConflict(Event, tag="lease_conflict"):
    holder: str


AnyEvent = (
    RunStarted
    | UserMessage
    | AssistantDelta
    | AssistantReasoningDelta
    | AssistantMessage
    | ToolQueued
    | ToolStarted
    | ToolProgress
    | ToolCompleted
    | PermissionRequested
    | PermissionResolved
    | TaskUpdated
    | CompactionStarted
    | CompactionCompleted
    | RequestToolResultsElided
    | MemoryUpdated
    | UsageReported
    | Notice
    | Retry
    | ErrorEvent
    | Branched
    | RunFinished
    | TurnQueued
    | AskOpened
    | AskClosed
    | ConfigChanged
    | InfoChanged
    | ClientAttached
    | ClientDetached
    | LeaseConflict
)
"""Every event of version 1."""


class SessionEvent(WireModel):
    """`basis/session/event`: one numbered record of a session."""

    session_id: SessionId
    seq: Seq
    time: Timestamp
    event: AnyEvent


class SessionLagged(WireModel):
    """`basis/session/lagged`: this client fell too far behind and is no longer attached; attach again after `seq`."""

    session_id: SessionId
    seq: Seq


_decoder = msgspec.json.Decoder(AnyEvent)


def decode_event(data: bytes) -> AnyEvent | None:
    """Return the typed event, or `None` for a type this build doesn't know or can't read."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None
