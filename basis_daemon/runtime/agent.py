"""One conversation as data: its record, its transcript, the prompts that wait, and the log they are kept in.

Owns what is written and when. A conversation exists on disk from its first accepted prompt on. Decides nothing about
turns: see `loop.py`.
"""

import os
import time
from pathlib import Path
from typing import Any

import msgspec

from basis_daemon.errors import NoSuchTurn
from basis_daemon.runtime.artifacts import DelegationArtifact, DelegationEdge
from basis_daemon.runtime.messages import Message, ToolResult, ToolUse
from basis_daemon.runtime.store.base import (
    AgentRecord,
    AnyLogRecord,
    CallFinished,
    CallStarted,
    ConversationLog,
    EntryAdded,
    LeafMoved,
    LoadedConversation,
    PromptAccepted,
    PromptWithdrawn,
    Store,
    TurnEnded,
    TurnStarted,
)
from basis_daemon.runtime.transcript import Entry, EntryKind, Transcript, new_entry_id

KEPT_OUTCOMES = 64
"""How many turns' outcomes are answerable by `turn/wait`."""


NOT_RUN = "This call was not run: the turn ended before it."
CUT_SHORT = "This call was cut short by a restart and may have run in part. Check what it did before repeating it."


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Agent:
    """A live conversation: at most one in all processes (the log's lease). Not safe for several threads."""

    def __init__(
        self, store: Store, record: AgentRecord, loaded: LoadedConversation | None, log: ConversationLog | None
    ) -> None:
        self._store = store
        self._log = log
        self.record = record
        self.transcript = loaded.transcript if loaded else Transcript()
        self.queued: list[PromptAccepted] = loaded.queued if loaded else []
        self.resumable: PromptAccepted | None = (loaded.interrupted or loaded.failed) if loaded else None
        """The last turn's prompt, if that turn was interrupted or failed and may be carried on (AG-6)."""
        self.started_calls: set[str] = set(loaded.started_calls) if loaded else set()
        self.finished_calls: dict[str, CallFinished] = dict(loaded.finished_calls) if loaded else {}
        self.outcomes: dict[str, TurnEnded] = dict(loaded.outcomes) if loaded else {}
        self._call_ids = {call.id for entry in self.transcript.tree() for call in entry.message.tool_uses()}

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def is_persisted(self) -> bool:
        return self._log is not None

    @property
    def directory(self) -> Path | None:
        """Where its files are, once it has any."""
        return self._log.directory if self._log else None

    @property
    def interrupted(self) -> PromptAccepted | None:
        """The prompt of the turn that started and never ended."""
        prompt = self.resumable
        return prompt if prompt is not None and prompt.turn_id not in self.outcomes else None

    # --- prompts -----------------------------------------------------------------------------------------------------

    def accept(self, prompt: PromptAccepted) -> None:
        """Keep a prompt that is about to be called accepted. The first one creates the conversation on disk."""
        if self._log is None:
            now = now_ms() // 1000
            self.record = msgspec.structs.replace(self.record, created_at=now, updated_at=now)
            self._log = self._store.create(self.record)
        self._append(prompt)
        self.queued.append(prompt)

    def withdraw(self, turn_id: str) -> None:
        """Forget a prompt that waits. Raises `NoSuchTurn` when none of that id does."""
        waiting = [prompt for prompt in self.queued if prompt.turn_id == turn_id]
        if not waiting:
            raise NoSuchTurn(f"no queued turn {turn_id!r}")
        self._append(PromptWithdrawn(turn_id=turn_id))
        self.queued.remove(waiting[0])

    # --- turns -------------------------------------------------------------------------------------------------------

    def begin_turn(self, prompt: PromptAccepted) -> Entry:
        """Write that a turn starts, together with its user message. Returns the message's entry.

        A turn that was still interrupted ends here, and calls of it without a result get one (AG-29).
        """
        self._settle_interrupted()
        entry = self._entry("user_turn", prompt.message, prompt.turn_id, by=prompt.by)
        self._append(TurnStarted(turn_id=prompt.turn_id, at_ms=entry.at_ms), EntryAdded(entry))
        self._start(prompt, entry)
        return entry

    def resume_turn(self, prompt: PromptAccepted) -> None:
        """Write that an interrupted or failed turn is carried on."""
        records: list[AnyLogRecord] = [TurnStarted(turn_id=prompt.turn_id, resumed=True, at_ms=now_ms())]
        entry = None
        if not any(entry.turn_id == prompt.turn_id for entry in self.transcript):
            entry = self._entry("user_turn", prompt.message, prompt.turn_id, by=prompt.by)
            records.append(EntryAdded(entry))
        self._append(*records)
        self._start(prompt, entry)

    def absorb_steering(self, prompt: PromptAccepted, turn_id: str) -> Entry:
        """Make a prompt a further user message of the running turn, whether or not it was accepted as one of its
        own."""
        entry = self._entry("user_turn", prompt.message, turn_id, by=prompt.by)
        if prompt in self.queued:
            self._append(PromptWithdrawn(turn_id=prompt.turn_id), EntryAdded(entry))
            self.queued.remove(prompt)
        else:
            self._append(EntryAdded(entry))
        self.transcript.append(entry)
        return entry

    def commit(
        self,
        kind: EntryKind,
        message: Message,
        turn_id: str,
        *,
        message_id: str | None = None,
        details: dict[str, Any] | None = None,
        delegation: DelegationArtifact | None = None,
        edge: DelegationEdge | None = None,
    ) -> Entry:
        """Append one entry to the conversation. It is in the file when this returns."""
        entry = self._entry(
            kind, message, turn_id, message_id=message_id, details=details or {}, delegation=delegation, edge=edge
        )
        self._append(EntryAdded(entry))
        self.transcript.append(entry)
        if kind == "tool_exchange":
            self.started_calls.clear()
            self.finished_calls.clear()
        return entry

    def with_unique_call_ids(self, message: Message) -> Message:
        """`message` with a fresh id for every call whose id is missing or was used before in this conversation.

        Answers and results are found by call id, so a provider that reuses one must not be able to reuse an answer.
        """
        content = list(message.content)
        for index, block in enumerate(content):
            if isinstance(block, ToolUse):
                if not block.id or block.id in self._call_ids:
                    block = msgspec.structs.replace(block, id=f"call-{time.time_ns():x}-{os.urandom(4).hex()}")
                    content[index] = block
                self._call_ids.add(block.id)
        return Message(message.role, content)

    def call_started(self, turn_id: str, tool_use_id: str) -> None:
        self._append(CallStarted(turn_id=turn_id, tool_use_id=tool_use_id))
        self.started_calls.add(tool_use_id)

    def call_finished(self, outcome: CallFinished) -> None:
        self._append(outcome)
        self.finished_calls[outcome.tool_use_id] = outcome

    def settle_calls(self, turn_id: str) -> None:
        """Give every pending call a result: the known one, else an error saying how far it may have got."""
        pending = self.transcript.pending_calls()
        if pending:
            results = [self.known_result(call.id) or ToolResult(call.id, NOT_RUN, is_error=True) for call in pending]
            self.commit("tool_exchange", Message("user", list(results)), turn_id)

    def known_result(self, tool_use_id: str) -> ToolResult | None:
        """The result of a call of the round in flight, as far as the log tells; `None` when it never began."""
        finished = self.finished_calls.get(tool_use_id)
        if finished is not None:
            return ToolResult(tool_use_id, finished.content, is_error=finished.is_error)
        return ToolResult(tool_use_id, CUT_SHORT, is_error=True) if tool_use_id in self.started_calls else None

    def move_leaf(self, entry_id: str | None) -> int:
        """Make an earlier entry the end of the conversation. Returns how many entries left the path."""
        if entry_id == self.transcript.leaf_id:
            return 0
        abandoned = self.transcript.move_to(entry_id)
        self._append(LeafMoved(entry_id))
        self.started_calls.clear()
        self.finished_calls.clear()
        return abandoned

    def branch_from(self, entry_id: str | None) -> int:
        """Carry on from an earlier entry, or from one that was left before; `None` begins anew. Returns how many
        entries left the path. A turn that was interrupted ends here (AG-39).

        Raises `UnknownEntry`, `BrokenChain`, `NotABranchPoint`; then nothing has changed.
        """
        if entry_id is not None:
            self.transcript.check_branch_point(entry_id)
        if self.interrupted is not None:
            self._settle_interrupted()
            self.resumable = None
        left = self.move_leaf(entry_id)
        self._touch()
        return left

    def end_turn(self, outcome: TurnEnded) -> None:
        """Write how the turn ended, and the record that lists show."""
        self._append(outcome)
        self.outcomes[outcome.turn_id] = outcome
        while len(self.outcomes) > KEPT_OUTCOMES:
            del self.outcomes[next(iter(self.outcomes))]
        if outcome.status != "error":
            self.resumable = None
        # What failed or was taken back is not a turn of the conversation; what it cost was spent all the same (SE-4).
        turns = self.record.turns + (outcome.status == "ok")
        self._touch(turns=turns, usage=self.record.usage + outcome.usage)

    def change(self, **fields: Any) -> None:
        """Replace fields of the record (name, model, effort, …) and save it if the conversation exists on disk."""
        self._touch(**fields)

    async def sync(self) -> None:
        """Return when all of this survives a power cut."""
        if self._log is not None:
            await self._log.sync()

    def close(self) -> None:
        """Let go of the conversation; another process may open it."""
        if self._log is not None:
            self._log.close()

    # -----------------------------------------------------------------------------------------------------------------

    def _start(self, prompt: PromptAccepted, entry: Entry | None) -> None:
        if entry is not None:
            self.transcript.append(entry)
        self.queued = [waiting for waiting in self.queued if waiting.turn_id != prompt.turn_id]
        self.outcomes.pop(prompt.turn_id, None)
        self.resumable = prompt

    def _settle_interrupted(self) -> None:
        prompt = self.interrupted
        if prompt is not None:
            self.settle_calls(prompt.turn_id)
            outcome = TurnEnded(turn_id=prompt.turn_id, status="interrupted", at_ms=now_ms())
            self._append(outcome)
            self.outcomes[prompt.turn_id] = outcome

    def _touch(self, **fields: Any) -> None:
        self.record = msgspec.structs.replace(
            self.record, **{"updated_at": now_ms() // 1000, "messages": self.transcript.spoken, **fields}
        )
        if self._log is not None:
            self._log.save(self.record)

    def _entry(self, kind: EntryKind, message: Message, turn_id: str, **fields: Any) -> Entry:
        return Entry(
            id=new_entry_id(),
            parent_id=self.transcript.leaf_id,
            kind=kind,
            message=message,
            turn_id=turn_id,
            at_ms=now_ms(),
            **fields,
        )

    def _append(self, *records: AnyLogRecord) -> None:
        if self._log is None:
            raise RuntimeError("the conversation does not exist yet: accept a prompt first")
        self._log.append(*records)
