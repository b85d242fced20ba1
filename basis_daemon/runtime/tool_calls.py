"""One round of tool calls: resolve, check, ask, run, shorten (runtime.md 4.4, 4.7).

Owns the pipeline and the scheduling: consecutive read-only calls side by side, everything else alone and in order, so
that what a person is shown is what the call before it left behind. A call that fails is an error result; only bounds
and cancellation leave this module as exceptions.
"""

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from basis_daemon.errors import BasisError
from basis_daemon.processes import Executor
from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.delegation import AgentOperations
from basis_daemon.runtime.limits import Meter
from basis_daemon.runtime.messages import Json, ToolResult, ToolUse
from basis_daemon.runtime.permissions import Approver, AuthorizationRequest, Permissions
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.base import Limits, ToolDefinition
from basis_daemon.runtime.store.base import CallFinished
from basis_daemon.runtime.store.results import ResultStore
from basis_daemon.runtime.tools.base import FileLedger, Tool, ToolContext, ToolError, ToolOutput
from basis_daemon.runtime.tools.output import shorten
from basis_daemon.runtime.tools.registry import ToolRegistry
from basis_daemon.runtime.tools.validate import validate_input
from basis_protocol.content import DiffPreview, Preview
from basis_protocol.events import AnyEvent, ToolCompleted, ToolProgress, ToolQueued, ToolStarted

logger = logging.getLogger(__name__)

MAX_PARALLEL_CALLS = 8
"""Read-only calls that run side by side (TL-30)."""

MAX_EVENT_INPUT_BYTES = 32 * 1024
"""A call's input above this stands shortened in the event stream; the call itself gets all of it."""

MAX_SUMMARY_BYTES = 200
"""Length of the one-line summary of a result (6.2)."""


@dataclass(frozen=True, slots=True)
class ToolHost:
    """What a session's calls run in and are limited by."""

    registry: ToolRegistry
    audience: str | None
    roster: Callable[[str], bool]
    working_directory: Path
    policy: RuntimePolicy
    executor: Executor
    environment: Mapping[str, str]
    overlay: Callable[[Path], str | None]
    files: FileLedger
    results: ResultStore
    agent_id: str | None = None
    """Whose own tools are offered as well."""

    def resolve(self, name: str, limits: Limits) -> Tool | None:
        """The tool of that name, if this session is offered it (TL-11, TR-4)."""
        if not self._offered(name, limits):
            return None
        return self.registry.resolve(name, audience=self.audience, agent=self.agent_id)

    def definitions(self, limits: Limits) -> list[ToolDefinition]:
        """The tools the model is offered, sorted by name (CV-8)."""
        return [
            ToolDefinition(tool.spec.name, tool.spec.description, tool.spec.input_schema)
            for tool in self.registry.tools(self.audience, self.agent_id)
            if self._offered(tool.spec.name, limits)
        ]

    def _offered(self, name: str, limits: Limits) -> bool:
        return self.roster(name) and (limits.tools is None or name in limits.tools)


@dataclass(frozen=True, slots=True)
class TurnOutput:
    """A turn's typed output (3.11): any JSON value, so that none is told from `null`."""

    value: Json


@dataclass(frozen=True, slots=True)
class RoundResults:
    """What one round of calls came to: `results` in call order, their `details` by call id."""

    results: list[ToolResult]
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    terminate: bool = False
    """Whether the turn ends once these are committed (AG-14)."""
    output: TurnOutput | None = None
    """What an accepted call of a terminal tool gave (AG-46)."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """One call's part of a round."""

    result: ToolResult
    details: dict[str, Any] | None = None
    terminate: bool = False
    output: TurnOutput | None = None


@dataclass(frozen=True, slots=True)
class CallRound:
    """The calls of one assistant message and everything needed to carry them out."""

    agent: Agent
    turn_id: str
    host: ToolHost
    limits: Limits
    permissions: Permissions
    approver: Approver
    meter: Meter
    emit: Callable[[AnyEvent], None]
    operations: Callable[[ToolUse], AgentOperations] | None = None
    """Makes what a call may do to its agent."""

    async def run(self, calls: Sequence[ToolUse]) -> RoundResults:
        """Carry out `calls`. Results already known from before a restart are not produced again.

        The first call of a terminal tool is the last one carried out (AG-46). Raises `ToolBudgetExceeded`.
        """
        fresh = [call for call in calls if self.agent.known_result(call.id) is None]
        self.meter.admit_calls(len(fresh))
        calls, refused = self._within_limit(calls)
        outcomes: list[CallResult] = []
        for group in _groups(calls, self._is_parallel):
            outcomes += await self._run_group(group, last=group[-1] is calls[-1])
            if self._is_terminal(group[-1]):
                break
        text = "Not run: the call before it ended the message's work."
        refused = [*(self._refuse(call, text) for call in calls[len(outcomes) :]), *refused]
        return RoundResults(
            results=[*(outcome.result for outcome in outcomes), *refused],
            details={outcome.result.tool_use_id: outcome.details for outcome in outcomes if outcome.details},
            terminate=any(outcome.terminate for outcome in outcomes),
            output=next((outcome.output for outcome in outcomes if outcome.output), None),
        )

    def announce(self, calls: Sequence[ToolUse]) -> None:
        """Emit `tool_queued` for every call."""
        for call in calls:
            tool = self.host.resolve(call.name, self.limits)
            mutability = "unknown" if tool is None else "read_only" if tool.spec.side_effect == "none" else "mutating"
            self.emit(
                ToolQueued(
                    tool_call_id=call.id,
                    tool_name=call.name,
                    summary=summarise_call(call.name, call.input),
                    mutability=mutability,
                    input=_event_input(call.input),
                )
            )

    def _within_limit(self, calls: Sequence[ToolUse]) -> tuple[Sequence[ToolUse], list[ToolResult]]:
        """The calls this provider may make in one message, and refusals for the rest."""
        limit = self.limits.max_tool_calls_per_round
        if limit is None or len(calls) <= limit:
            return calls, []
        text = f"Not run: only {limit} call(s) are carried out per message."
        return calls[:limit], [self._refuse(call, text) for call in calls[limit:]]

    def _refuse(self, call: ToolUse, text: str) -> ToolResult:
        result = ToolResult(call.id, text, is_error=True)
        self._completed(call, result, ToolOutput(text, is_error=True), started_at=None)
        return result

    def refuse_malformed(self, calls: Sequence[ToolUse]) -> list[ToolResult]:
        """Results for a round in which some call's input was no JSON object: nothing of it runs (AG-20)."""
        self.announce(calls)
        results: list[ToolResult] = []
        for call in calls:
            text = (
                "Not run: another call of this message had malformed input."
                if call.malformed is None
                else f"The input of {call.name} ({call.id}) is not a JSON object; it starts: {call.malformed[:240]}"
            )
            results.append(self._refuse(call, text))
        return results

    def _is_parallel(self, call: ToolUse) -> bool:
        tool = self.host.resolve(call.name, self.limits)
        return tool is not None and tool.spec.execution == "read_only_parallel" and not tool.spec.terminal

    def _is_terminal(self, call: ToolUse) -> bool:
        tool = self.host.resolve(call.name, self.limits)
        return tool is not None and tool.spec.terminal

    async def _run_group(self, group: Sequence[ToolUse], *, last: bool) -> list[CallResult]:
        if len(group) == 1:
            return [await self._run_call(group[0], keep=not last)]
        slots = asyncio.Semaphore(MAX_PARALLEL_CALLS)

        async def bounded(call: ToolUse) -> CallResult:
            async with slots:
                return await self._run_call(call, keep=False)

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(bounded(call)) for call in group]
        return [task.result() for task in running]

    async def _run_call(self, call: ToolUse, *, keep: bool) -> CallResult:
        """One call through the whole pipeline. `keep` logs its outcome at once, for a round that goes on."""
        known = self.agent.known_result(call.id)
        if known is not None:
            self._completed(call, known, ToolOutput(known.content, is_error=known.is_error), started_at=None)
            return CallResult(known)
        started_at = time.monotonic()
        try:
            output, durable = await self._attempt(call)
        except BasisError as error:
            output, durable = ToolOutput(str(error), is_error=True), False
        except Exception as error:
            logger.exception("tool %s failed", call.name)
            output, durable = ToolOutput(f"{call.name} failed: {error}", is_error=True), False
        result, result_id = await self._result(call, output)
        if durable and keep:
            self.agent.call_finished(
                CallFinished(
                    turn_id=self.turn_id,
                    tool_use_id=call.id,
                    content=result.content,
                    is_error=result.is_error,
                    details=output.details,
                )
            )
        self._completed(call, result, output, started_at=started_at, result_id=result_id)
        return CallResult(
            result,
            _details(output, result_id),
            terminate=output.terminate and not output.is_error,
            output=TurnOutput(output.details) if self._is_terminal(call) and not output.is_error else None,
        )

    async def _attempt(self, call: ToolUse) -> tuple[ToolOutput, bool]:
        """The call's output, and whether it was consequential and did run."""
        tool = self.host.resolve(call.name, self.limits)
        if tool is None:
            return ToolOutput(f"There is no tool {call.name!r} here.", is_error=True), False
        problems = [] if tool.spec.terminal else validate_input(tool.spec.input_schema, call.input)
        if problems:
            return ToolOutput(f"{call.name}: " + "; ".join(problems), is_error=True), False
        context = self._context(call)
        preparation = await tool.prepare(context, call.input)
        consequential = preparation.side_effect != "none"
        if self.limits.new_files_only and _changes_existing(preparation.preview):
            return ToolOutput("Not done: only new files may be written here; this one exists.", is_error=True), False
        if consequential:
            verdict = await self.permissions.decide(
                AuthorizationRequest(self.agent.id, call.id, call.name, preparation),
                approver=self.approver,
                emit=self.emit,
                always_ask=self.limits.always_ask,
            )
            if not verdict.allow:
                reason = verdict.reason or "no reason was given"
                return ToolOutput(f"Tool execution denied: {reason}", is_error=True, summary=f"denied: {reason}"), False
            self.agent.call_started(self.turn_id, call.id)
        self.emit(ToolStarted(tool_call_id=call.id, tool_name=call.name))
        return await _execute(tool, replace(context, prepared=preparation), call.input), consequential

    def _context(self, call: ToolUse) -> ToolContext:
        host = self.host
        loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()

        def progress(text: str) -> None:
            event = ToolProgress(tool_call_id=call.id, tool_name=call.name, progress=text)
            if threading.get_ident() == loop_thread:
                self.emit(event)
            else:
                loop.call_soon_threadsafe(self.emit, event)

        return ToolContext(
            agent_id=self.agent.id,
            tool_call_id=call.id,
            tool_name=call.name,
            working_directory=host.working_directory,
            policy=host.policy,
            executor=host.executor,
            environment=host.environment,
            progress=progress,
            overlay=host.overlay,
            files=host.files,
            agent=self.operations(call) if self.operations is not None else None,
        )

    async def _result(self, call: ToolUse, output: ToolOutput) -> tuple[ToolResult, str | None]:
        """The block the model gets, and the id the full text is kept under if that is only a part of it (TL-36)."""
        whole = ToolResult(call.id, output.content, is_error=output.is_error)
        shortened = shorten(output.content, self.host.policy)
        if not shortened.is_cut:
            return whole, None
        result_id = await asyncio.to_thread(self.host.results.write, whole.as_text())
        return ToolResult(call.id, shortened.text, is_error=output.is_error), f"{self.agent.id}/{result_id}"

    def _completed(
        self,
        call: ToolUse,
        result: ToolResult,
        output: ToolOutput,
        *,
        started_at: float | None,
        result_id: str | None = None,
    ) -> None:
        self.emit(
            ToolCompleted(
                tool_call_id=call.id,
                tool_name=call.name,
                summary=cut(output.summary or first_line(result.as_text()), MAX_SUMMARY_BYTES),
                is_error=result.is_error,
                result_id=result_id,
                diff=list(output.diff),
                duration_ms=None if started_at is None else round((time.monotonic() - started_at) * 1000),
            )
        )


def _changes_existing(preview: Preview) -> bool:
    return isinstance(preview, DiffPreview) and not all(file.created for file in preview.files)


async def _execute(tool: Tool, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
    if tool.spec.timeout_s is None:
        return await tool.execute(context, input)
    try:
        async with asyncio.timeout(tool.spec.timeout_s):
            return await tool.execute(context, input)
    except TimeoutError as error:
        raise ToolError(f"{tool.spec.name} took longer than its limit of {tool.spec.timeout_s:g} s") from error


def _details(output: ToolOutput, result_id: str | None) -> dict[str, Any] | None:
    details: dict[str, Any] = {}
    if output.details is not None:
        details["details"] = output.details
    if output.summary is not None:
        details["summary"] = output.summary
    if output.diff:
        details["diff"] = msgspec.to_builtins(output.diff)
    if result_id is not None:
        details["result_id"] = result_id
    return details or None


def _groups(calls: Sequence[ToolUse], is_parallel: Callable[[ToolUse], bool]) -> list[list[ToolUse]]:
    """Maximal runs of parallel calls; every other call alone."""

    def add(groups: list[list[ToolUse]], call: ToolUse) -> list[list[ToolUse]]:
        if groups and is_parallel(call) and is_parallel(groups[-1][-1]):
            groups[-1].append(call)
        else:
            groups.append([call])
        return groups

    return functools.reduce(add, calls, [])


def _event_input(input: dict[str, Json]) -> Json:
    encoded = msgspec.json.encode(input)
    return input if len(encoded) <= MAX_EVENT_INPUT_BYTES else cut(encoded.decode(), MAX_EVENT_INPUT_BYTES)


def summarise_call(name: str, input: Mapping[str, Json]) -> str:
    """`tool: <what it is about>`, else `tool(<its input>)`, both cut (SE-8)."""
    for key in ("command", "path", "file_path", "filePath", "pattern", "input"):
        value = input.get(key)
        if isinstance(value, str):
            return f"{name}: {cut(first_line(value), 100)}"
    return f"{name}({cut(msgspec.json.encode(input).decode(), 60)})"


def first_line(text: str) -> str:
    """The first non-blank line, stripped."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def cut(text: str, limit: int) -> str:
    """`text` cut to `limit` bytes of UTF-8 at a character boundary, with `...` where it was cut."""
    data = text.encode()
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "..."
