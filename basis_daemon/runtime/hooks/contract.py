"""What a hook is asked and may answer (workspace.md 6.1): the contract of everything that judges tool calls.

Owns the values and the forms a hook may have. How answers fold into one is `chain.py`'s matter, who is asked for whom
`table.py`'s.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from basis_daemon.runtime.foreign import in_own_task
from basis_daemon.runtime.messages import Json

INTERCEPTOR_TIMEOUT_S = 30.0
"""Seconds an interceptor may take for one answer (HO-23)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRequest:
    """One call, before it runs or after (HO-1). Each hook gets an object of its own: changing it changes nothing."""

    event: Literal["pre_tool_use", "post_tool_use"]
    workspace: Path
    """The working directory of the call (HO-22)."""
    agent_id: str
    tool_call_id: str
    tool_name: str
    input: dict[str, Json]
    """As it would run; afterwards, as it ran."""
    output: Json = None
    is_error: bool = False

    def to_json(self) -> dict[str, Json]:
        """The request as it is told to another program. `output` and `is_error` are absent before the call."""
        told: dict[str, Json] = {
            "hook_schema": 1,
            "event": self.event,
            "workspace": str(self.workspace),
            "agent_id": self.agent_id,
            "tool_call_id": self.tool_call_id,
            "tool_name": self.tool_name,
            "input": self.input,
        }
        return told if self.event == "pre_tool_use" else told | {"output": self.output, "is_error": self.is_error}


@dataclass(frozen=True, slots=True)
class Allow:
    """Go on; of a result: leave it as it is."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Deny:
    """The call must not run; of a result: the model must not see it, and reads the reason instead."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Modify:
    """Run it with this input: a JSON object, or the text of one. Only ahead of a call."""

    input: Json
    reason: str | None = None
    attribution: str | None = None
    """Who the audit trail names instead of the hook."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Show the model this instead: any JSON value. `is_error` stays as it is unless said. Only behind a call."""

    output: Json
    is_error: bool | None = None
    reason: str | None = None
    attribution: str | None = None


HookOutcome = Allow | Deny | Modify | Replace

PreHook = Callable[[HookRequest], Awaitable[HookOutcome]]
"""Asked ahead of a call: `Allow`, `Deny` or `Modify` (TL-16). An async function, or an object called like one."""

PostHook = Callable[[HookRequest], Awaitable[HookOutcome]]
"""Asked about a call that ran: `Allow` keeps the result, `Deny` withholds it, `Replace` changes it (TL-19)."""


class ExecutionHook(Protocol):
    """Asked on both sides of a call (TL-17)."""

    @property
    def name(self) -> str: ...

    async def before(self, request: HookRequest) -> HookOutcome: ...

    async def after(self, request: HookRequest) -> HookOutcome: ...


class Interceptor(Protocol):
    """A host's guard over every session (HO-19). One that has `intercept_result(request)` is asked about results too
    (HO-20)."""

    @property
    def name(self) -> str: ...

    async def intercept(self, request: HookRequest) -> HookOutcome: ...


class Intercepting:
    """An interceptor as an execution hook: in a task of its own, within a time limit (HO-19, HO-23)."""

    def __init__(self, interceptor: Interceptor, timeout_s: float | None = INTERCEPTOR_TIMEOUT_S) -> None:
        self._interceptor = interceptor
        self._timeout_s = timeout_s
        self.name = interceptor.name
        self.label = f"interceptor '{self.name}'"

    async def before(self, request: HookRequest) -> HookOutcome:
        return await in_own_task(lambda: self._interceptor.intercept(request), timeout_s=self._timeout_s)

    async def after(self, request: HookRequest) -> HookOutcome:
        judge: Callable[[HookRequest], Awaitable[HookOutcome]] | None
        judge = getattr(self._interceptor, "intercept_result", None)
        if judge is None:
            return Allow()
        asked = judge
        return await in_own_task(lambda: asked(request), timeout_s=self._timeout_s)
