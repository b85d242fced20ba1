"""One turn: request, stream, run tools, decide whether to go on (runtime.md 3.4).

Owns the order of things within a turn and what is committed when. A round is one model answer and the results of the
calls in it; it is in the log before the next begins, so a killed process loses at most the round in flight. Emits the
wire's events through a plain synchronous `emit` and never waits for who reads them.
"""

import asyncio
import inspect
from collections.abc import Sequence

from basis_daemon.errors import EmptyAssistantResponse, InvalidToolUseInput
from basis_daemon.runtime.messages import Message, Text, ToolResult, ToolUse
from basis_daemon.runtime.model_call import ask_model
from basis_daemon.runtime.prompts import message_from, speaker
from basis_daemon.runtime.steering import QueueKind
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.runtime.strategy import (
    Boundary,
    Continue,
    Inject,
    RoundContext,
    RoundDecision,
    RoundToolResult,
    Stop,
    StrategyFailed,
)
from basis_daemon.runtime.tool_calls import RoundResults
from basis_daemon.runtime.turn import Turn
from basis_daemon.runtime.typed_output import MAX_REJECTIONS, OutputMissing, converted
from basis_protocol.events import UserMessage

MAX_MALFORMED_ROUNDS = 3
"""Rounds of unparsable tool input in a row after which the turn fails (AG-22)."""


async def run_turn(turn: Turn) -> None:
    """Run rounds until the model has no more calls, a soft bound or the host ends the turn, or something raises.

    Raises `RunFailure` kinds. May be cancelled at any await; everything committed until then stays committed.
    """
    if not _begin(turn):
        # A cancel given before this turn began takes effect here, before anything of it runs.
        await asyncio.sleep(0)
        if turn.wanted is not None and turn.provider.limits.tools is not None:
            raise OutputMissing(f"{turn.provider.label} can't give typed answers")
        await _run_rounds(turn)
    if turn.wanted is not None and turn.output is None:
        raise OutputMissing("the turn ended without the answer it was asked to give")


async def _run_rounds(turn: Turn) -> None:
    malformed_rounds = rejections = 0
    while True:
        turn.meter.check_hard_bounds()
        message = turn.agent.transcript.pending_message()
        if message is None:
            if _ends_early(turn):
                return
            turn.meter.begin_round(turn.provider.limits.max_rounds)
            _take_deliveries(turn)
            message = await ask_model(turn)
        calls = message.tool_uses()
        if not calls:
            if not await _goes_on_after_answer(turn, message):
                return
            continue
        is_malformed = any(call.malformed is not None for call in calls)
        malformed_rounds = malformed_rounds + 1 if is_malformed else 0
        if malformed_rounds >= MAX_MALFORMED_ROUNDS:
            raise InvalidToolUseInput(f"the model sent malformed tool input {malformed_rounds} rounds in a row")
        done = RoundResults(turn.calls.refuse_malformed(calls)) if is_malformed else await _run_calls(turn, calls)
        _commit_results(turn, done)
        rejections = rejections + 1 if _was_rejected(turn, calls, done) else 0
        if rejections >= MAX_REJECTIONS:
            raise OutputMissing(f"the answer was not accepted {rejections} times in a row")
        if not await _goes_on_after_results(turn, message, calls, done):
            return


def _begin(turn: Turn) -> bool:
    """Open the turn in the log. Returns whether it is complete already: cut off right behind its answer."""
    agent = turn.agent
    if not turn.resumed:
        entry = agent.begin_turn(turn.prompt)
        turn.baseline = turn.committed = entry.parent_id
        _emit_user_message(turn, turn.prompt)
        return False
    agent.resume_turn(turn.prompt)
    mine = [entry for entry in agent.transcript if entry.turn_id == turn.id]
    turn.baseline = mine[0].parent_id
    turn.committed = mine[-1].id if mine[-1].kind != "user_turn" else turn.baseline
    answers = [entry.message.text() for entry in mine if entry.kind == "assistant_turn" and entry.message.text()]
    turn.final_message = answers[-1] if answers else None
    return mine[-1].kind == "assistant_turn" and not mine[-1].message.tool_uses()


def _ends_early(turn: Turn) -> bool:
    """Whether a soft bound ends the turn at this boundary; then it says so, and nothing is taken for an answer that
    was only said ahead of a call (TO-3)."""
    reason = turn.meter.soft_bound()
    if reason is None:
        return False
    turn.stopped_by = turn.meter.options.ending.note(reason)
    leaf = turn.agent.transcript.leaf
    if leaf is not None and leaf.kind != "assistant_turn":
        turn.final_message = None
    return True


# --- the two boundaries ----------------------------------------------------------------------------------------------


async def _goes_on_after_answer(turn: Turn, message: Message) -> bool:
    """At the end of an answer without calls: steering, else follow-ups, else the strategy, else the end (AG-13)."""
    if message.content:
        turn.complete_round()
    if not turn.meter.allows_another_round(turn.provider.limits.max_rounds):
        if turn.steering.waiting():
            _ends_early(turn)
    elif _absorb(turn, "steering") or _absorb(turn, "follow_up"):
        return True
    else:
        decision = await _decide(turn, "assistant_message_committed", message, ())
        if isinstance(decision, Inject):
            return True
        if isinstance(decision, Stop):
            return False
    if not turn.final_message and turn.wanted is None:
        raise EmptyAssistantResponse("the model's answer was empty")
    return False


async def _goes_on_after_results(turn: Turn, message: Message, calls: Sequence[ToolUse], done: RoundResults) -> bool:
    """At the end of a round with calls: an accepted output or a call may end the turn; else steering, else the strategy
    is heard, and the model is asked again."""
    if done.output is not None and turn.wanted is not None:
        converted(done.output.value, turn.wanted.convert)
        turn.output, turn.final_message = done.output, None
        return False
    if done.terminate or turn.is_idle_requested:
        if not turn.final_message:
            raise EmptyAssistantResponse("a tool ended the turn before the model had said anything")
        return False
    if not turn.meter.allows_another_round(turn.provider.limits.max_rounds) or _absorb(turn, "steering"):
        return True
    decision = await _decide(turn, "tool_results_committed", message, _told(calls, done.results))
    return not isinstance(decision, Stop)


async def _decide(
    turn: Turn, boundary: Boundary, message: Message, results: tuple[RoundToolResult, ...]
) -> RoundDecision:
    """What the host's strategy says, carried out (AG-17, AG-18). Raises `StrategyFailed`."""
    strategy = turn.meter.options.strategy
    if strategy is None:
        return Continue()
    context = RoundContext(
        boundary=boundary,
        assistant_message=message,
        tool_results=results,
        rounds_completed=turn.rounds_completed,
        model_requests=turn.meter.model_requests,
        transport_retries=turn.meter.transport_retries,
    )
    try:
        decision = strategy.on_round(context)
        decision = await decision if inspect.isawaitable(decision) else decision
    except Exception as error:
        raise StrategyFailed(f"the round strategy failed: {error or type(error).__name__}") from error
    if isinstance(decision, Continue | Inject) and decision.adjust is not None:
        turn.effort = decision.adjust.effort
    if isinstance(decision, Inject):
        said = PromptAccepted(turn_id=turn.id, message=message_from(decision.content))
        turn.agent.commit("user_turn", said.message, turn.id)
        _emit_user_message(turn, said)
        turn.keep_what_was_said()
    return decision


def _told(calls: Sequence[ToolUse], results: Sequence[ToolResult]) -> tuple[RoundToolResult, ...]:
    names = {call.id: call.name for call in calls}
    return tuple(RoundToolResult(each.tool_use_id, names[each.tool_use_id], each.is_error) for each in results)


# --- what comes in meanwhile -----------------------------------------------------------------------------------------


def _absorb(turn: Turn, kind: QueueKind) -> bool:
    """Add what was said meanwhile as user messages. Returns whether there was anything.

    It stays with the round it followed: a turn that fails later and is carried on has been told already.
    """
    waiting = turn.steering.take(kind)
    for prompt in waiting:
        turn.agent.absorb_steering(prompt, turn.id)
        _emit_user_message(turn, prompt)
    if waiting:
        turn.keep_what_was_said()
    return bool(waiting)


def _take_deliveries(turn: Turn) -> None:
    """Add what was left for the agent, behind what people said (AG-24)."""
    for inbox in turn.inboxes:
        deliveries = list(inbox.drain(turn.agent.id))
        if deliveries:
            turn.taken.append((inbox, deliveries))
        for delivery in deliveries:
            turn.agent.commit(delivery.kind, delivery.message, turn.id)


def _emit_user_message(turn: Turn, prompt: PromptAccepted) -> None:
    turn.emit(
        UserMessage(
            text=prompt.message.text(),
            image_count=sum(not isinstance(block, Text) for block in prompt.message.content),
            turn_id=turn.id,
            by=speaker(prompt.by),
        )
    )


# --- tools -----------------------------------------------------------------------------------------------------------


async def _run_calls(turn: Turn, calls: list[ToolUse]) -> RoundResults:
    turn.calls.announce(calls)
    return await turn.calls.run(calls)


def _commit_results(turn: Turn, done: RoundResults) -> None:
    """One user message with all results, then what the round's calls noted about work they handed on."""
    turn.agent.commit("tool_exchange", Message("user", list(done.results)), turn.id, details=done.details)
    for note in turn.to_record:
        turn.agent.commit(note.kind, note.message, turn.id, delegation=note.delegation, edge=note.edge)
    turn.to_record.clear()
    turn.complete_round()


def _was_rejected(turn: Turn, calls: Sequence[ToolUse], done: RoundResults) -> bool:
    """Whether this round held an answer that was not accepted."""
    wanted = turn.wanted.tool_name if turn.wanted is not None else None
    return done.output is None and any(call.name == wanted for call in calls)
