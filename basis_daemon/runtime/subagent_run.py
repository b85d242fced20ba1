"""One piece of work handed on to a subagent, from its announcement to its end (runtime.md 10.1).

Owns the subagent's life: told of on its parent's stream, bounded, asking there, ended with whoever started it, and
removed when it is done. How a session for it is made is `subagents.py`'s matter.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import anyio

from basis_daemon.errors import BasisError
from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.delegation import SubagentOutcome, SubagentTemplate, SubagentTemplateMismatch
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.permissions import Approver
from basis_daemon.runtime.prompts import new_prompt, require_content
from basis_daemon.runtime.store.base import PromptAccepted, TurnEnded
from basis_daemon.runtime.summaries import cut, first_line
from basis_daemon.runtime.tools.base import ToolError
from basis_protocol.events import (
    AnyEvent,
    Notice,
    PermissionRequested,
    PermissionResolved,
    Retry,
    TaskUpdated,
    ToolQueued,
    Usage,
    UsageReported,
)

SUBAGENT_ROUNDS = 30
"""Rounds a subagent may take (AG-10)."""

MAX_DETAIL_BYTES = 200
"""Of the line that tells how a subagent is doing."""

CLEANUP_S = 10.0
"""Seconds for letting go of a subagent's files when its turn is being cancelled."""

_RELAYED = (PermissionRequested, PermissionResolved, Notice, TaskUpdated)
"""Events of a subagent that its parent's watchers see as they are."""


class ChildSession(Protocol):
    """A subagent's live session."""

    @property
    def agent(self) -> Agent: ...

    async def run(
        self, prompt: PromptAccepted, *, emit: Callable[[AnyEvent], None], approver: Approver, options: TurnOptions
    ) -> TurnEnded: ...

    def close(self) -> None: ...


class Nursery(Protocol):
    """Makes and removes the sessions of one agent's subagents."""

    @property
    def depth(self) -> int:
        """Delegations above the agent that spawns."""
        ...

    @property
    def max_depth(self) -> int: ...

    @property
    def keeps_subagents(self) -> bool: ...

    def make(self, template: SubagentTemplate | None, name: str) -> ChildSession:
        """Raises `ProviderNotFound`. Writes nothing."""
        ...

    def remove(self, agent_id: str) -> None:
        """Forget a closed one. Synchronous file work."""
        ...


class Subagent:
    """One piece of work handed on, from its announcement to its end. Whatever happens, watchers see it end (SE-10)."""

    def __init__(
        self,
        nursery: Nursery,
        parent_id: str,
        name: str,
        task: str,
        template: SubagentTemplate | None,
        *,
        emit: Callable[[AnyEvent], None],
    ) -> None:
        """Raises `EmptyPrompt`, `ToolError` when too deep, `SubagentTemplateMismatch`, `ProviderNotFound`."""
        self._prompt = new_prompt(task)
        require_content(self._prompt.message)
        check_depth(nursery)
        if template is not None and template.agent_id != parent_id:
            raise SubagentTemplateMismatch("this template was made for another agent")
        self.name = name
        self.task = task
        self._nursery = nursery
        self._session = nursery.make(template, name)
        self._emit = emit
        self._usage = Usage()
        self._title = _told(task) or name
        self._update("spawned")

    @property
    def id(self) -> str:
        return self._session.agent.id

    @property
    def model(self) -> str:
        return self._session.agent.record.model

    async def run(self, *, approver: Approver, options: TurnOptions) -> SubagentOutcome:
        """Do the work. A failure is an outcome; only the cancellation of the calling task is raised."""
        status, detail = "failed", "cancelled"
        try:
            outcome = await self._run(approver, options)
            status = "finished" if outcome.succeeded else "failed"
            detail = _told(outcome.text if outcome.succeeded else outcome.error)
            return outcome
        except BasisError as error:
            detail = _told(str(error))
            return SubagentOutcome(agent_id=self.id, name=self.name, status="error", error=str(error), usage=Usage())
        finally:
            self._update(status, detail)
            await self._let_go()

    async def _run(self, approver: Approver, options: TurnOptions) -> SubagentOutcome:
        # The first accepted prompt makes the subagent's files.
        await asyncio.to_thread(self._session.agent.accept, self._prompt)
        self._update("running")
        bounded = with_rounds(options, SUBAGENT_ROUNDS)
        ended = await self._session.run(self._prompt, emit=self._overhear, approver=approver, options=bounded)
        # Ended by a bound before it had anything to say: whoever waits for its answer has none.
        is_cut_off = ended.status == "ok" and ended.stopped_by is not None and not ended.final_message
        return SubagentOutcome(
            agent_id=self.id,
            name=self.name,
            status="error" if is_cut_off else ended.status,
            text=ended.final_message,
            error=f"it was ended before it could answer ({ended.stopped_by})" if is_cut_off else ended.error,
            usage=self._usage,
        )

    def _overhear(self, event: AnyEvent) -> None:
        """Pass on what the parent's watchers should see of the subagent's own stream."""
        if isinstance(event, UsageReported):
            self._usage += usage_of(event)
            self._emit(event)
        elif isinstance(event, _RELAYED):
            self._emit(event)
        elif isinstance(event, ToolQueued):
            self._update("running", event.summary)
        elif isinstance(event, Retry):
            self._update("running", f"the provider is asked again: {_told(event.error)}")

    def _update(self, status: str, detail: str | None = None) -> None:
        self._emit(TaskUpdated(task_id=self.id, kind="subagent", status=status, title=self._title, detail=detail))

    async def _let_go(self) -> None:
        """Close the subagent, and remove it unless subagents are kept (CO-5)."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLEANUP_S), contextlib.suppress(BasisError):
            await asyncio.to_thread(self._session.close)
            if not self._nursery.keeps_subagents:
                await asyncio.to_thread(self._nursery.remove, self.id)


class SubagentHandle:
    """A subagent that works beside its parent (SE-28)."""

    def __init__(self, subagent: Subagent, work: asyncio.Task[SubagentOutcome]) -> None:
        self.agent_id = subagent.id
        self.name = subagent.name
        self._work = work

    @property
    def task_id(self) -> str:
        """What its `task_updated` events bear."""
        return self.agent_id

    async def wait(self) -> SubagentOutcome:
        """How it ended. Repeatable, and cancelling it changes nothing."""
        return await asyncio.shield(self._work)

    def cancel(self) -> None:
        self._work.cancel()


def check_depth(nursery: Nursery) -> None:
    """Raises `ToolError` when a further delegation would be too deep (CO-7, SP-19)."""
    if nursery.depth >= nursery.max_depth:
        raise ToolError("tasks can't be handed on from here: do this work yourself, with the other tools")


def with_rounds(options: TurnOptions, most: int) -> TurnOptions:
    """`options` with at most that many rounds."""
    return replace(options, max_rounds=most if options.max_rounds is None else min(most, options.max_rounds))


def usage_of(event: UsageReported) -> Usage:
    """The tokens an event reports."""
    return Usage(
        input_tokens=event.input_tokens,
        output_tokens=event.output_tokens,
        cache_read_tokens=event.cache_read_tokens,
        cache_creation_tokens=event.cache_creation_tokens,
        reasoning_tokens=event.reasoning_tokens or 0,
        thoughts_tokens=event.thoughts_tokens or 0,
    )


def _told(text: str | None) -> str | None:
    """What is told of it in a line."""
    return cut(first_line(text or ""), MAX_DETAIL_BYTES) or None
