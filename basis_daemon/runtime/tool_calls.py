"""The tool calls of one round: which of them run, in which order, and what they come to together (runtime.md 4.7).

Owns the scheduling: consecutive read-only calls side by side, everything else alone and in order, so that what a person
is shown is what the call before it left behind. What happens within a call is `call_pipeline.py`'s. Only bounds and
cancellation leave this module as exceptions.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.call_output import presented
from basis_daemon.runtime.call_pipeline import CallPipeline
from basis_daemon.runtime.call_stages import EndedCall, OngoingCall, PlannedCall
from basis_daemon.runtime.delegation import AgentOperations
from basis_daemon.runtime.limits import Meter
from basis_daemon.runtime.messages import Json, ToolResult, ToolUse
from basis_daemon.runtime.permissions import Approver, Permissions
from basis_daemon.runtime.providers.base import Limits
from basis_daemon.runtime.store.base import CallFinished
from basis_daemon.runtime.summaries import cut, event_input, first_line, summarise_call
from basis_daemon.runtime.tool_host import ToolHost
from basis_daemon.runtime.tools.base import ToolOutput
from basis_protocol.events import AnyEvent, ToolCompleted, ToolQueued

MAX_PARALLEL_CALLS = 8
"""Read-only calls that run side by side (TL-30)."""

MAX_SUMMARY_BYTES = 200
"""Length of the one-line summary of a result (6.2)."""


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

        The first call of a terminal tool is the last one carried out (AG-46). Raises `ToolBudgetExceeded`, and then
        none of them has run (TL-31).
        """
        fresh = [call for call in calls if self.agent.known_result(call.id) is None]
        self.meter.admit_calls(len(fresh))
        calls, refused = self._within_limit(calls)
        pipeline = self._pipeline()
        planned = [pipeline.plan(call) for call in calls]
        outcomes: list[CallResult] = []
        for group in _groups(planned):
            outcomes += await self._run_group(pipeline, group, last=group[-1] is planned[-1])
            if group[-1].is_terminal:
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
            found = self.host.find(call.name, self.limits)
            mutability = "unknown" if found is None else "read_only" if found.spec.side_effect == "none" else "mutating"
            self.emit(
                ToolQueued(
                    tool_call_id=call.id,
                    tool_name=call.name,
                    summary=summarise_call(call.name, call.input),
                    mutability=mutability,
                    input=event_input(call.input),
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
        self._completed(call, ToolOutput(text, is_error=True), started_at=None)
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

    def _pipeline(self) -> CallPipeline:
        return CallPipeline(
            agent=self.agent,
            turn_id=self.turn_id,
            host=self.host,
            limits=self.limits,
            permissions=self.permissions,
            approver=self.approver,
            emit=self.emit,
            operations=self.operations,
        )

    async def _run_group(self, pipeline: CallPipeline, group: Sequence[PlannedCall], *, last: bool) -> list[CallResult]:
        """Calls side by side, or one alone. What may run is settled in call order, one after the other, also for calls
        that then run together (TL-25)."""
        slots = asyncio.Semaphore(MAX_PARALLEL_CALLS)

        async def finish(started_at: float, ongoing: OngoingCall) -> CallResult:
            async with slots:
                return await self._finish(pipeline, ongoing, started_at, keep=False)

        if len(group) == 1:
            known = self._known(group[0].call)
            if known is not None:
                return [known]
            started_at = time.monotonic()
            return [await self._finish(pipeline, await pipeline.admit(group[0]), started_at, keep=not last)]
        outcomes: list[CallResult | asyncio.Task[CallResult]] = []
        async with asyncio.TaskGroup() as tasks:
            for planned in group:
                known = self._known(planned.call)
                if known is None:
                    started_at = time.monotonic()
                    outcomes.append(tasks.create_task(finish(started_at, await pipeline.admit(planned))))
                else:
                    outcomes.append(known)
        return [outcome if isinstance(outcome, CallResult) else outcome.result() for outcome in outcomes]

    def _known(self, call: ToolUse) -> CallResult | None:
        """The call's part of the round as it was before a restart, if it had come to one."""
        known = self.agent.known_result(call.id)
        if known is None:
            return None
        self._completed(call, ToolOutput(known.content, is_error=known.is_error), started_at=None)
        return CallResult(known)

    async def _finish(
        self, pipeline: CallPipeline, ongoing: OngoingCall, started_at: float, *, keep: bool
    ) -> CallResult:
        """Run an admitted call, and tell of it. `keep` logs its outcome at once, for a round that goes on."""
        call = ongoing.planned.call
        ended = await pipeline.finish(ongoing)
        result, result_id = await presented(self.host, self.agent.id, call.id, ended.shown)
        if keep and ended.did_run and ongoing.is_consequential:
            self.agent.call_finished(
                CallFinished(
                    turn_id=self.turn_id,
                    tool_use_id=call.id,
                    content=result.content,
                    is_error=result.is_error,
                    details=ended.shown.details,
                )
            )
        self._completed(call, ended.original, started_at=started_at, result_id=result_id)
        return _call_result(ongoing.planned, ended, result, result_id)

    def _completed(
        self, call: ToolUse, output: ToolOutput, *, started_at: float | None, result_id: str | None = None
    ) -> None:
        """Tell what the tool itself gave, whatever hooks made of it (AG-33)."""
        text = ToolResult(call.id, output.content).as_text()
        self.emit(
            ToolCompleted(
                tool_call_id=call.id,
                tool_name=call.name,
                summary=cut(output.summary or first_line(text), MAX_SUMMARY_BYTES),
                is_error=output.is_error,
                result_id=result_id,
                diff=list(output.diff),
                duration_ms=None if started_at is None else round((time.monotonic() - started_at) * 1000),
            )
        )


def _call_result(planned: PlannedCall, ended: EndedCall, result: ToolResult, result_id: str | None) -> CallResult:
    shown = ended.shown
    is_accepted = planned.is_terminal and ended.did_run and not shown.is_error
    return CallResult(
        result,
        _details(shown, result_id),
        terminate=shown.terminate and not shown.is_error,
        output=TurnOutput(shown.details) if is_accepted else None,
    )


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


def _groups(calls: Sequence[PlannedCall]) -> list[list[PlannedCall]]:
    """Maximal runs of parallel calls; every other call alone."""

    def add(groups: list[list[PlannedCall]], call: PlannedCall) -> list[list[PlannedCall]]:
        if groups and call.is_parallel and groups[-1][-1].is_parallel:
            groups[-1].append(call)
        else:
            groups.append([call])
        return groups

    return functools.reduce(add, calls, [])
