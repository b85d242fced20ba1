"""The store in memory: for runs that leave nothing behind, and for tests (ST-24).

Behaves as `files.py` does, which one contract suite checks: conversations are kept encoded, so that what is read back
is a copy and only what can be stored is accepted. May be shared by several runtimes of a process.
"""

import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from basis_daemon.errors import LeaseUnavailable, NoSuchSession, StoreError
from basis_daemon.runtime.rules import RuleOwner, RuleStore
from basis_daemon.runtime.store.agent_file import listing
from basis_daemon.runtime.store.base import AgentRecord, AnyLogRecord, ConversationLog, LoadedConversation
from basis_daemon.runtime.store.codec import AgentFile, decode_agent, decode_lines, encode_agent, encode_append
from basis_daemon.runtime.store.recovery import Replay
from basis_daemon.runtime.store.rules import VolatileRuleStore


class _Conversation:
    """The two files, in memory. `writer` refers to the open log, if any; a forgotten one counts as closed (AG-7)."""

    def __init__(self, record: bytes) -> None:
        self.record = record
        self.lines = bytearray()
        self.writer: weakref.ref[VolatileLog] | None = None

    @property
    def is_open(self) -> bool:
        return self.writer is not None and self.writer() is not None


class VolatileStore:
    """Implements `Store`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._conversations: dict[str, _Conversation] = {}
        self._rules = VolatileRuleStore()

    @property
    def root(self) -> Path | None:
        return None

    @property
    def rules(self) -> RuleStore:
        return self._rules

    def prepare(self) -> None:
        """Memory is always there."""

    def create(self, record: AgentRecord) -> ConversationLog:
        with self._lock:
            if record.id in self._conversations:
                raise StoreError(f"session {record.id} exists already", details={"sessionId": record.id})
            conversation = _Conversation(encode_agent(record, time.time_ns()))
            self._conversations[record.id] = conversation
            return self._lease(record.id, conversation)

    def open(self, agent_id: str) -> tuple[LoadedConversation, ConversationLog]:
        with self._lock:
            conversation = self._require(agent_id)
            log = self._lease(agent_id, conversation)
            return _load(agent_id, conversation), log

    def peek(self, agent_id: str) -> LoadedConversation:
        with self._lock:
            return _load(agent_id, self._require(agent_id))

    def record(self, agent_id: str) -> AgentRecord | None:
        with self._lock:
            conversation = self._conversations.get(agent_id)
            return _record(agent_id, conversation).record if conversation is not None else None

    def list(self, runtime_identifier: str | None = None) -> Sequence[AgentRecord]:
        with self._lock:
            files = [_record(agent_id, kept) for agent_id, kept in self._conversations.items()]
        return listing(files, runtime_identifier)

    def forget(self, agent_id: str) -> None:
        with self._lock:
            conversation = self._conversations.get(agent_id)
            if conversation is not None:
                _require_closed(agent_id, conversation)
                del self._conversations[agent_id]
        self._rules.clear(RuleOwner(agent_id), "session")

    def directory(self, agent_id: str) -> Path | None:
        return None

    def close(self) -> None:
        """Nothing is pending, ever."""

    def reset(self) -> None:
        """Forget everything. Open logs go on into nowhere."""
        with self._lock:
            self._conversations.clear()
        self._rules.reset()

    def _require(self, agent_id: str) -> _Conversation:
        conversation = self._conversations.get(agent_id)
        if conversation is None:
            raise NoSuchSession(agent_id)
        return conversation

    def _lease(self, agent_id: str, conversation: _Conversation) -> "VolatileLog":
        _require_closed(agent_id, conversation)
        log = VolatileLog(agent_id, conversation, self._lock)
        conversation.writer = weakref.ref(log)
        return log


class VolatileLog:
    """Implements `ConversationLog`."""

    def __init__(self, agent_id: str, conversation: _Conversation, lock: threading.Lock) -> None:
        self._agent_id = agent_id
        self._conversation = conversation
        self._lock = lock
        self._is_closed = False

    @property
    def directory(self) -> Path | None:
        return None

    def append(self, *records: AnyLogRecord) -> None:
        if not records:
            return
        line = encode_append(records)
        with self._lock:
            self._require_open()
            self._conversation.lines += line

    def save(self, record: AgentRecord) -> None:
        data = encode_agent(record, time.time_ns())
        with self._lock:
            self._require_open()
            self._conversation.record = data

    async def sync(self) -> None:
        """Memory survives no power cut, and nobody was told otherwise."""

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._conversation.writer = None

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"session {self._agent_id} is closed")


def _record(agent_id: str, conversation: _Conversation) -> AgentFile:
    return decode_agent(conversation.record, agent_id)


def _load(agent_id: str, conversation: _Conversation) -> LoadedConversation:
    replay = Replay()
    replay.feed_lines(decode_lines(bytes(conversation.lines), agent_id, 1))
    return replay.finish(_record(agent_id, conversation).record, agent_id)


def _require_closed(agent_id: str, conversation: _Conversation) -> None:
    if conversation.is_open:
        raise LeaseUnavailable(f"session {agent_id} is open in this process already", hint="close it there first")
