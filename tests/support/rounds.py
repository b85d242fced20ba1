"""One round of tool calls through a whole runtime: what each call came to, and what was told of it.

Owns the running and the looking at it. The model is scripted; tools, hooks and the rest are what the test names.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio

from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.hooks.contract import Allow, HookOutcome, HookRequest
from basis_daemon.runtime.messages import Json, ToolResult
from basis_daemon.runtime.observers import AuditStore, RuntimeEvent
from basis_daemon.runtime.reports import RunReport
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolSpec
from basis_daemon.testing import MockRuntime, MockRuntimeBuilder, ScriptedCall
from basis_protocol.events import AnyEvent

E = TypeVar("E", bound=AnyEvent)

Work = Callable[[ToolContext, dict[str, Json]], Awaitable[Any]]


@dataclass
class Round:
    """What became of the calls: their results by id, as the model reads them, and the events of the turn."""

    report: RunReport
    results: dict[str, ToolResult]
    events: list[AnyEvent]
    details: dict[str, Any]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def text(self, call_id: str = "tool-1") -> str:
        return self.results[call_id].as_text()

    @property
    def only(self) -> ToolResult:
        (result,) = self.results.values()
        return result


async def run_round(
    builder: MockRuntimeBuilder,
    *calls: ScriptedCall,
    config: AgentConfig | None = None,
    meanwhile: Callable[[MockRuntime], None] = lambda mock: None,
) -> Round:
    """Have the model make `calls`, and then end the turn."""
    async with builder.tool_calls(*calls).text("done").build() as mock:
        meanwhile(mock)
        return await one_round(mock, config=config)


async def one_round(mock: MockRuntime, *, config: AgentConfig | None = None) -> Round:
    """The same on a runtime that is there already: its next two answers are the calls and the end."""
    before = len(mock.recorded_requests())
    events: list[AnyEvent] = []
    with anyio.fail_after(20):
        async with mock.spawn("tested", config) as agent:
            with agent.events.tap(events.append):
                report = await agent.send("go")
            exchanges = [entry for entry in agent.transcript if entry.kind == "tool_exchange"]
    requests = mock.recorded_requests()
    blocks = requests[before + 1].messages[-1].content if len(requests) > before + 1 else []
    results = {block.tool_use_id: block for block in blocks if isinstance(block, ToolResult)}
    return Round(report, results, events, exchanges[-1].details if exchanges else {})


def call(name: str, id: str | None = None, /, **input: Json) -> ScriptedCall:
    """A call of `name`; without an `id` it is `tool-1`, `tool-2`, … in its message."""
    return ScriptedCall(name, input, id=id)


def noting(ran: list[Any], *, answer: Any = "ran") -> Work:
    """The work of a tool that writes down what it was called with."""

    async def work(context: ToolContext, input: dict[str, Json]) -> Any:
        ran.append(input)
        return answer

    return work


def a_tool(name: str, work: Work, **fields: Any) -> FunctionTool:
    return FunctionTool(ToolSpec(name, **fields), work)


@dataclass
class Hook:
    """A hook of every form: says `before` ahead of a call and `behind` behind it, and notes what it was asked."""

    name: str = "hook"
    before_says: HookOutcome | Exception = field(default_factory=Allow)
    behind_says: HookOutcome | Exception = field(default_factory=Allow)
    asked: list[HookRequest] = field(default_factory=list[HookRequest])

    async def __call__(self, request: HookRequest) -> HookOutcome:
        return await (self.before(request) if request.event == "pre_tool_use" else self.after(request))

    async def before(self, request: HookRequest) -> HookOutcome:
        self.asked.append(request)
        return _said(self.before_says)

    async def after(self, request: HookRequest) -> HookOutcome:
        self.asked.append(request)
        return _said(self.behind_says)

    async def intercept(self, request: HookRequest) -> HookOutcome:
        return await self.before(request)

    async def intercept_result(self, request: HookRequest) -> HookOutcome:
        return await self.after(request)


def _said(outcome: HookOutcome | Exception) -> HookOutcome:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@dataclass
class Watching:
    """An observer that keeps what it is told."""

    events: list[RuntimeEvent] = field(default_factory=list[RuntimeEvent])

    def on_event(self, audit: AuditStore, event: RuntimeEvent) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def of(self, kind: str) -> list[RuntimeEvent]:
        return [event for event in self.events if event.kind == kind]


def empty() -> MockRuntimeBuilder:
    """A runtime without any tool of its own."""
    return MockRuntimeBuilder(has_builtins=False, file_profile="none")
