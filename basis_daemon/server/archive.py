"""Conversations on disk, read without being opened: no lease, no workspace, no provider (ST-28).

Owns that this file work is done in threads. What is live is the hub's.
"""

import asyncio

from basis_daemon.runtime.store.base import AgentRecord, LoadedConversation
from basis_daemon.runtime.store.results import Page, ResultStore
from basis_daemon.server.runtime_source import RuntimeSource


class Archive:
    """The store, as far as lists, readers and removal need it. Every method raises `StoreError` kinds."""

    def __init__(self, runtime: RuntimeSource) -> None:
        self._runtime = runtime

    async def record(self, session_id: str) -> AgentRecord | None:
        """`None` when there is no such conversation."""
        return await asyncio.to_thread(lambda: self._runtime.get().store.record(session_id))

    async def records(self, identifier: str | None) -> list[AgentRecord]:
        """The conversations of one workspace, or of all; subagents and teammates are left out (ST-26)."""
        listed = await asyncio.to_thread(lambda: self._runtime.get().store.list(identifier))
        return [record for record in listed if record.kind == "conversation"]

    async def conversation(self, session_id: str) -> LoadedConversation:
        """All of one conversation. Raises `NoSuchSession`."""
        return await asyncio.to_thread(lambda: self._runtime.get().store.peek(session_id))

    async def tool_result(self, result_id: str, offset: int, limit: int) -> Page:
        """A page of a tool result kept in full; its id names its session. Raises `InvalidInput` for an unknown one."""
        session_id, _, inner = result_id.rpartition("/")

        def read() -> Page:
            store = self._runtime.get().store
            return ResultStore(lambda: store.directory(session_id)).page(inner, offset, limit)

        return await asyncio.to_thread(read)

    async def forget(self, session_id: str) -> None:
        """Remove a conversation for good; an absent one is fine. Raises `LeaseUnavailable`."""
        await asyncio.to_thread(lambda: self._runtime.get().store.forget(session_id))
