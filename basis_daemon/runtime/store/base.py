"""What a store keeps and the seam it is reached through (runtime.md 7, architecture.md 5).

A conversation is one small record, replaced whole, and one append-only log. What is appended is in the file when
`append` returns, so a killed process loses nothing it was told is kept; `sync` makes it survive a power cut.
`files.py` is the store on disk, `volatile.py` the one in memory; one contract suite runs over both.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from basis_daemon.runtime.messages import Message
from basis_daemon.runtime.rules import RuleStore
from basis_daemon.runtime.transcript import Entry, Transcript
from basis_protocol.events import Usage

SCHEMA = 1
"""Version every file of the store carries. A newer one is refused, naming the file and both numbers (ST-6)."""

TurnStatus = Literal["ok", "error", "cancelled", "interrupted"]


class AgentRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`agent.json`: what a list shows and a resume needs. Small, whatever the conversation's age. No credential."""

    id: str
    runtime_identifier: str
    """`basis:<canonical root>` (ST-5). Compared, never made into a path."""
    name: str
    base_dir: str
    provider: str
    model: str
    effort: str | None = None
    kind: Literal["conversation", "subagent", "teammate"] = "conversation"
    parent: str | None = None
    created_at: int = 0
    """Seconds since the epoch, as all times in this record."""
    updated_at: int = 0
    turns: int = 0
    messages: int = 0
    usage: Usage = Usage()
    config: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    """Fields of the file that this version doesn't know; written back as they were (AG-1)."""


# --- records of the log ----------------------------------------------------------------------------------------------


class LogRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="record"):
    """Base of the lines of `transcript.jsonl`."""


class EntryAdded(LogRecord, frozen=True, gc=False, tag="entry"):
    """A transcript entry. It is the new leaf."""

    entry: Entry


class LeafMoved(LogRecord, frozen=True, gc=False, tag="leaf"):
    """The active path ends here now: a rollback or a branch. `None` is an empty conversation."""

    entry_id: str | None


class PromptAccepted(LogRecord, frozen=True, gc=False, tag="prompt", kw_only=True):
    """A prompt somebody was told is accepted. It waits until a `turn` record with its id starts it."""

    turn_id: str
    message: Message
    by: dict[str, Any] = {}
    options: dict[str, Any] = {}
    at_ms: int = 0


class PromptWithdrawn(LogRecord, frozen=True, gc=False, tag="withdrawn", kw_only=True):
    """A prompt that was accepted but will not run."""

    turn_id: str


class TurnStarted(LogRecord, frozen=True, gc=False, tag="turn", kw_only=True):
    """`resumed` carries an interrupted turn of the same id on."""

    turn_id: str
    resumed: bool = False
    at_ms: int = 0


class CallStarted(LogRecord, frozen=True, gc=False, tag="call", kw_only=True):
    """A consequential tool call is about to run. With no `result` after it, nobody knows how far it got."""

    turn_id: str
    tool_use_id: str


class CallFinished(LogRecord, frozen=True, gc=False, tag="result", kw_only=True):
    """The outcome of one call of the round in flight, kept until the round's `tool_exchange` entry stands."""

    turn_id: str
    tool_use_id: str
    content: Any
    is_error: bool = False
    details: Any = None


class TurnEnded(LogRecord, frozen=True, gc=False, tag="end", kw_only=True):
    """How a turn ended. A `turn` record without one is an interrupted turn."""

    turn_id: str
    status: TurnStatus
    stopped_by: str | None = None
    final_message: str | None = None
    error: str | None = None
    output: Any = None
    usage: Usage = Usage()
    at_ms: int = 0


AnyLogRecord = (
    EntryAdded | LeafMoved | PromptAccepted | PromptWithdrawn | TurnStarted | CallStarted | CallFinished | TurnEnded
)


class LoadedConversation(msgspec.Struct, kw_only=True):
    """A conversation read back. `interrupted` is the turn that started and never ended, `started_calls` those calls of
    it that began, `finished_calls` those whose outcome is known."""

    record: AgentRecord
    transcript: Transcript
    queued: list[PromptAccepted]
    """Accepted, never started, oldest first."""
    interrupted: PromptAccepted | None = None
    failed: PromptAccepted | None = None
    """The last turn's prompt, if that turn ended with an error: it may be carried on (AG-6)."""
    started_calls: frozenset[str] = frozenset()
    finished_calls: dict[str, CallFinished] = {}
    outcomes: dict[str, TurnEnded] = {}
    """By turn id; at least the newest 64."""


class ConversationLog(Protocol):
    """The open, leased, append-only log of one conversation. One writer."""

    @property
    def directory(self) -> Path | None:
        """Where the conversation's files are; the server keeps its journal beside them. `None` for one in memory."""
        ...

    def append(self, *records: AnyLogRecord) -> None:
        """Write records, all or none. They survive `kill -9` when this returns. Raises `StoreError`."""
        ...

    def save(self, record: AgentRecord) -> None:
        """Replace `agent.json` atomically. Raises `StoreError`; the old record then still stands."""
        ...

    async def sync(self) -> None:
        """Return when everything appended or saved so far would survive a power cut. Calls made together share one
        disk sync (group commit)."""
        ...

    def close(self) -> None:
        """Release the lease. Idempotent. Whatever was appended stays."""
        ...


class Store(Protocol):
    """Where conversations live. Methods are synchronous file work: callers on a loop use a thread (ST-32)."""

    @property
    def root(self) -> Path | None: ...

    @property
    def rules(self) -> RuleStore:
        """Remembered answers that outlive a conversation."""
        ...

    def prepare(self) -> None:
        """Check that the place can be used. Raises `LegacyStore`, `StoreError`. Creates nothing but the root."""
        ...

    def create(self, record: AgentRecord) -> ConversationLog:
        """Start a conversation: lease, directory, record. Raises `LeaseUnavailable`, `StoreError` (also when it
        exists)."""
        ...

    def open(self, agent_id: str) -> tuple[LoadedConversation, ConversationLog]:
        """Lease and read one. Raises `NoSuchSession`, `LeaseUnavailable`, `CorruptStore`."""
        ...

    def peek(self, agent_id: str) -> LoadedConversation:
        """Read one without a lease. Raises `NoSuchSession`, `CorruptStore`."""
        ...

    def record(self, agent_id: str) -> AgentRecord | None:
        """Only the record; `None` when there is no such conversation."""
        ...

    def list(self, runtime_identifier: str | None = None) -> Sequence[AgentRecord]:
        """Records of one identifier, or of all, most recently used first (ST-25). An unreadable one is skipped with a
        warning (ST-29). Reads no transcript."""
        ...

    def forget(self, agent_id: str) -> None:
        """Remove for good; an absent one is fine. Raises `LeaseUnavailable` when it is open in another process."""
        ...

    def directory(self, agent_id: str) -> Path | None:
        """Where the files of a conversation are or would be, open or not. `None` for a store in memory."""
        ...

    def close(self) -> None:
        """Sync what is not synced yet and end the store's thread. Blocks meanwhile; later use is fine."""
        ...
