"""One tool call, from the model's wish to what the model reads of it (runtime.md 4.4).

Owns the order: hooks, schema, lane, preview, authorizer, execution, hooks again, limiter, pager. It is one order for
every lane. Whatever goes wrong on the way is an error result; only cancellation leaves this module as an exception.
When which call's turn comes is `tool_calls.py`'s matter.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from basis_daemon.errors import BasisError, PolicyDenied
from basis_daemon.runtime.agent import Agent
from basis_daemon.runtime.call_context import context_of
from basis_daemon.runtime.call_output import settled
from basis_daemon.runtime.call_stages import EndedCall, OngoingCall, PlannedCall
from basis_daemon.runtime.delegation import AgentOperations
from basis_daemon.runtime.foreign import Crashed, called, contained, sound, told
from basis_daemon.runtime.hooks.chain import CallBlocked, Hand, HookChain, Shown, copied
from basis_daemon.runtime.hooks.contract import HookRequest
from basis_daemon.runtime.messages import Json, ToolUse
from basis_daemon.runtime.observers import RuntimeEventKind
from basis_daemon.runtime.permissions import Approver, AuthorizationRequest, Permissions
from basis_daemon.runtime.providers.base import Limits
from basis_daemon.runtime.tool_host import ToolHost
from basis_daemon.runtime.tools.base import (
    PARALLEL,
    CallPreparation,
    ChoosesLane,
    ExecutionCategory,
    ToolContext,
    ToolError,
    ToolOutput,
    lane_of,
)
from basis_daemon.runtime.tools.registry import Registration
from basis_daemon.runtime.tools.spec import ToolSpec
from basis_daemon.runtime.tools.validate import validate_input
from basis_protocol.content import DiffPreview, Preview
from basis_protocol.events import AnyEvent, ToolStarted

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallPipeline:
    """What every call of a round goes through."""

    agent: Agent
    turn_id: str
    host: ToolHost
    limits: Limits
    permissions: Permissions
    approver: Approver
    emit: Callable[[AnyEvent], None]
    operations: Callable[[ToolUse], AgentOperations] | None = None
    """Makes what a call may do to its agent."""

    def plan(self, call: ToolUse) -> PlannedCall:
        """Resolve the call's name and lane, once (step 1)."""
        found = self.host.find(call.name, self.limits)
        if found is None:
            return PlannedCall(call, None, "exclusive_local_mutation")
        try:
            lane: ExecutionCategory = called(lambda: lane_of(found.tool, found.spec, copied(call.input)))
        except Exception:  # its input was not checked yet: said when that is done
            lane = "exclusive_local_mutation"
        return PlannedCall(call, found, lane)

    # --- up to the answer whether it may run -------------------------------------------------------------------------

    async def admit(self, planned: PlannedCall) -> OngoingCall:
        """Steps 2 to 7. A call that is refused has had no effect."""
        chain = self.host.hooks.snapshot(self.host.audience) if planned.found is not None else HookChain()
        ongoing = OngoingCall(planned, chain, planned.call.input)
        try:
            if planned.found is None:
                raise ToolError(self.host.why_not(planned.call.name))
            await self._admit(ongoing, planned.found)
        except CallBlocked as blocked:
            ongoing.hands = blocked.hands or ongoing.hands
            self._refuse(ongoing, str(blocked))
        except _Denied as denied:
            self._refuse(ongoing, str(denied), summary=denied.summary)
        except Crashed as error:
            self._refuse(ongoing, f"{ongoing.name} was not run: what was to check it {error}")
        except BasisError as error:
            self._note_policy(ongoing, error)
            self._refuse(ongoing, str(error))
        except Exception as error:
            logger.exception("tool %s could not be checked", planned.call.name)
            self._refuse(ongoing, f"{ongoing.name} was not run, since it could not be checked: {told(error)}")
        return ongoing

    async def _admit(self, ongoing: OngoingCall, found: Registration) -> None:
        judged = await ongoing.chain.before(self._hook_request(ongoing))
        ongoing.input, ongoing.hands = judged.input, judged.hands
        self._check_schema(ongoing, found)
        lane = self._checked_lane(ongoing, found)
        ongoing.preparation = replace(await self._prepare(ongoing, found), execution=lane)
        self._check_limits(ongoing, ongoing.preparation)
        await self._authorize(ongoing, ongoing.preparation)

    def _hook_request(self, ongoing: OngoingCall) -> HookRequest:
        return HookRequest(
            event="pre_tool_use",
            workspace=self.host.working_directory,
            agent_id=self.agent.id,
            tool_call_id=ongoing.id,
            tool_name=ongoing.name,
            input=ongoing.input,
        )

    def _check_schema(self, ongoing: OngoingCall, found: Registration) -> None:
        if found.spec.kind != "function":
            raise ToolError(f"{ongoing.name} is carried out by the provider itself and can't be called here")
        problems = [] if found.spec.terminal else validate_input(found.spec.input_schema, ongoing.input)
        if problems:
            ongoing.is_bad_rewrite = bool(ongoing.hands)
            raise ToolError(f"{ongoing.name}: " + "; ".join(problems))

    def _checked_lane(self, ongoing: OngoingCall, found: Registration) -> ExecutionCategory:
        """The lane the call really goes in (TL-24). Raises for one that hooks made a mutation among reads (step 6)."""
        lane: ExecutionCategory = called(lambda: lane_of(found.tool, found.spec, copied(ongoing.input)))
        if not ongoing.planned.is_parallel:
            return ongoing.planned.lane if lane == PARALLEL else lane
        if lane != PARALLEL:
            raise ToolError(_NOT_AMONG_READS)
        return lane

    async def _prepare(self, ongoing: OngoingCall, found: Registration) -> CallPreparation:
        context = self._context(ongoing)
        preparation = await contained(lambda: found.tool.prepare(context, copied(ongoing.input)))
        has_one_lane = not isinstance(found.tool, ChoosesLane)
        if ongoing.planned.is_parallel and ongoing.hands and has_one_lane and preparation.execution != PARALLEL:
            raise ToolError(_NOT_AMONG_READS)
        return preparation

    def _check_limits(self, ongoing: OngoingCall, preparation: CallPreparation) -> None:
        if self.limits.new_files_only and _changes_existing(preparation.preview):
            raise ToolError("Not done: only new files may be written here; this one exists.")

    async def _authorize(self, ongoing: OngoingCall, preparation: CallPreparation) -> None:
        self._notify("tool_authorization_started", ongoing, rewritten_by=_listed(ongoing.hands))
        verdict = await contained(
            lambda: self.permissions.decide(
                self._authorization_request(ongoing, preparation),
                approver=self.approver,
                emit=self.emit,
                always_ask=self.limits.always_ask and preparation.side_effect != "none",
            )
        )
        outcome = "allow" if verdict.allow else "deny"
        self._notify("tool_authorization_finished", ongoing, outcome=outcome, rule_scope=verdict.rule_scope)
        if not verdict.allow:
            self._notify("tool_authorization_blocked", ongoing)
            raise _Denied(verdict.reason or "no reason was given")

    def _authorization_request(self, ongoing: OngoingCall, preparation: CallPreparation) -> AuthorizationRequest:
        found = ongoing.planned.found
        return AuthorizationRequest(
            self.agent.id,
            ongoing.id,
            ongoing.name,
            preparation,
            agent_name=self.agent.record.name,
            model=self.agent.record.model,
            history_len=len(self.agent.transcript),
            working_directory=self.host.working_directory,
            raw_input=copied(ongoing.input),
            spec=ToolSpec(ongoing.name) if found is None else found.spec,
        )

    def _refuse(self, ongoing: OngoingCall, text: str, *, summary: str | None = None) -> None:
        self._notify("tool_execution_blocked", ongoing, rewritten_by=_listed(ongoing.hands))
        ongoing.refusal = settled(ToolOutput(_naming(text, ongoing.hands), is_error=True, summary=summary))

    def _note_policy(self, ongoing: OngoingCall, error: BasisError) -> None:
        if isinstance(error, PolicyDenied):
            self._notify("policy_denied", ongoing, reason=sound(str(error)))

    def _notify(self, kind: RuntimeEventKind, ongoing: OngoingCall, **payload: Json) -> None:
        observers = self.host.observers
        observers.notify(kind, self.agent.id, tool=ongoing.name, tool_call_id=ongoing.id, **payload)

    # --- running it --------------------------------------------------------------------------------------------------

    async def finish(self, ongoing: OngoingCall) -> EndedCall:
        """Steps 9 to 11. Results of calls that did not run reach no hook (TL-19), but for refused rewrites (TL-17)."""
        if ongoing.refusal is not None:
            shown = await self._behind(ongoing, ongoing.refusal) if ongoing.is_bad_rewrite else ongoing.refusal
            return EndedCall(ongoing.refusal, shown)
        output = await self._run(ongoing)
        shown = await self._judged(ongoing, output)
        replaced_by = _listed(ongoing.hands_behind)
        self._notify("tool_execution_finished", ongoing, is_error=output.is_error, replaced_by=replaced_by)
        return EndedCall(output, shown, did_run=True)

    async def _run(self, ongoing: OngoingCall) -> ToolOutput:
        found, preparation = ongoing.planned.found, ongoing.preparation
        if found is None or preparation is None:
            raise RuntimeError("only a call that was admitted can be run")
        if ongoing.is_consequential:
            self.agent.call_started(self.turn_id, ongoing.id)
        self.emit(ToolStarted(tool_call_id=ongoing.id, tool_name=ongoing.name))
        self._notify("tool_execution_started", ongoing)
        context, limit_s = replace(self._context(ongoing), prepared=preparation), found.spec.timeout_s
        # What is said behind the limit is not told, although the call may need a moment to give up (TL-33).
        silencing = None if limit_s is None else asyncio.get_running_loop().call_later(limit_s, ongoing.end)
        try:
            output = await contained(lambda: found.tool.execute(context, copied(ongoing.input)), timeout_s=limit_s)
        except Exception as error:
            return settled(self._failure(ongoing, error))
        finally:
            ongoing.end()
            if silencing is not None:
                silencing.cancel()
        output = settled(output)
        if output.terminate and ongoing.planned.is_parallel:
            return ToolOutput(f"{ongoing.name} can't end the turn: it ran side by side with other calls", is_error=True)
        return output

    def _failure(self, ongoing: OngoingCall, error: Exception) -> ToolOutput:
        match error:
            case Crashed():
                text = f"{ongoing.name} {error}"
            case PolicyDenied():
                self._note_policy(ongoing, error)
                text = _naming(str(error), ongoing.hands)
            case BasisError():
                text = str(error)
            case _:
                logger.error("tool %s failed", ongoing.name, exc_info=error)
                text = f"{ongoing.name} failed: {told(error)}"
        return ToolOutput(text, is_error=True)

    def _context(self, ongoing: OngoingCall) -> ToolContext:
        operations = self.operations(ongoing.planned.call) if self.operations is not None else None
        return context_of(ongoing, self.agent, self.host, self.emit, operations)

    # --- what the model sees of it -----------------------------------------------------------------------------------

    async def _judged(self, ongoing: OngoingCall, output: ToolOutput) -> ToolOutput:
        """The output as execution hooks and post hooks leave it (steps 10 and 11)."""
        chain = ongoing.chain
        if not chain.execution and not chain.post:
            return output
        shown = await chain.after(self._result_request(ongoing, output))
        kept = self._replaced(ongoing, output, shown)
        return kept if shown.is_withheld else await self._behind(ongoing, kept)

    async def _behind(self, ongoing: OngoingCall, output: ToolOutput) -> ToolOutput:
        if not ongoing.chain.post:
            return output
        return self._replaced(ongoing, output, await ongoing.chain.behind(self._result_request(ongoing, output)))

    def _result_request(self, ongoing: OngoingCall, output: ToolOutput) -> HookRequest:
        request = self._hook_request(ongoing)
        return replace(request, event="post_tool_use", output=output.content, is_error=output.is_error)

    def _replaced(self, ongoing: OngoingCall, output: ToolOutput, shown: Shown) -> ToolOutput:
        if not shown.hands and not shown.is_withheld:
            return output
        ongoing.hands_behind += shown.hands
        return settled(replace(output, content=shown.content, is_error=shown.is_error, keep_whole=False))


class _Denied(BasisError):
    """The authorizer, a rule or a person refused."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Tool execution denied: {reason}")
        self.summary = f"denied: {reason}"


_NOT_AMONG_READS = "Not run: it was to read only, beside others, and hooks made it a call that changes something."


def _changes_existing(preview: Preview) -> bool:
    return isinstance(preview, DiffPreview) and not all(file.created for file in preview.files)


def _naming(text: str, hands: tuple[Hand, ...]) -> str:
    """A refusal of a call that hooks had rewritten says so: the model did not write what was refused (TL-18)."""
    names = ", ".join(dict.fromkeys(hand.who for hand in hands))
    return f"{text} (its input had been rewritten by {names})" if names else text


def _listed(hands: tuple[Hand, ...]) -> str | None:
    """Every hand in order, with its reason, for the audit trail (HO-11)."""
    return sound("; ".join(map(str, hands))) or None
