"""One turn: request, stream, run tools, decide whether to go on (runtime.md 3.4).

Owns the order of things within a turn and what is committed when. A round is one model answer and the results of the
calls in it; it is in the log before the next begins, so a killed process loses at most the round in flight. Emits the
wire's events through a plain synchronous `emit` and never waits for who reads them.
"""

import asyncio

from basis_daemon.errors import EmptyAssistantResponse, InvalidToolUseInput
from basis_daemon.runtime.messages import Message, Text, ToolUse
from basis_daemon.runtime.model_call import ask_model
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.runtime.turn import Turn
from basis_protocol.asks import Actor
from basis_protocol.events import UserMessage

MAX_MALFORMED_ROUNDS = 3
"""Rounds of unparsable tool input in a row after which the turn fails (AG-22)."""


async def run_turn(turn: Turn) -> None:
    """Run rounds until the model has no more calls, a soft bound ends the turn, or something raises.

    Raises `RunFailure` kinds. May be cancelled at any await; everything committed until then stays committed.
    """
    if _begin(turn):
        return
    # A cancel given before this turn began takes effect here, before anything of it runs.
    await asyncio.sleep(0)
    malformed_rounds = 0
    while True:
        calls = turn.agent.transcript.pending_calls()
        if not calls:
            turn.stopped_by = turn.meter.soft_bound()
            if turn.stopped_by is not None:
                return
            turn.meter.begin_round(turn.provider.limits.max_rounds)
            message = await ask_model(turn)
            calls = message.tool_uses()
        if not calls:
            if _absorb_steering(turn):
                continue
            if not turn.final_message:
                raise EmptyAssistantResponse("the model's answer was empty")
            return
        malformed = [call for call in calls if call.malformed is not None]
        malformed_rounds = malformed_rounds + 1 if malformed else 0
        if malformed:
            _feed_back_malformed(turn, calls, malformed_rounds)
        else:
            await _run_calls(turn, calls)
        turn.committed = turn.agent.transcript.leaf_id
        _absorb_steering(turn)


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


def _emit_user_message(turn: Turn, prompt: PromptAccepted) -> None:
    by = prompt.by
    turn.emit(
        UserMessage(
            text=prompt.message.text(),
            image_count=sum(not isinstance(block, Text) for block in prompt.message.content),
            turn_id=turn.id,
            by=Actor(client=by["client"], kind=by.get("kind", "sdk"), client_id=by.get("client_id")) if by else None,
        )
    )


def _absorb_steering(turn: Turn) -> bool:
    """Add what was said meanwhile as user messages (AG-13). Returns whether there was anything."""
    waiting, turn.steering = turn.steering, []
    for prompt in waiting:
        turn.agent.absorb_steering(prompt, turn.id)
        _emit_user_message(turn, prompt)
    return bool(waiting)


# --- tools -----------------------------------------------------------------------------------------------------------


async def _run_calls(turn: Turn, calls: list[ToolUse]) -> None:
    turn.calls.announce(calls)
    done = await turn.calls.run(calls)
    turn.agent.commit("tool_exchange", Message("user", list(done.results)), turn.id, details=done.details)


def _feed_back_malformed(turn: Turn, calls: list[ToolUse], rounds: int) -> None:
    """Nothing of the round runs; the model is told what was wrong with its input (AG-20)."""
    if rounds >= MAX_MALFORMED_ROUNDS:
        raise InvalidToolUseInput(f"the model sent malformed tool input {rounds} rounds in a row")
    turn.agent.commit("tool_exchange", Message("user", list(turn.calls.refuse_malformed(calls))), turn.id)
