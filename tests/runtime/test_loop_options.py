"""What bounds a run, and what its subagents share of that (runtime.md 3.3, 3.4)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.errors import Busy, Cancelled, DeadlineExceeded
from basis_daemon.runtime.cancel import CancelSignal, StopSignal
from basis_daemon.runtime.limits import Meter, ProviderRetry, TurnOptions
from basis_daemon.runtime.messages import user
from basis_daemon.runtime.providers.base import TokenUsage
from basis_daemon.runtime.providers.errors import TransportError
from basis_daemon.runtime.providers.scripted import ScriptedCall, ScriptedProvider, failure, text, tool_calls
from basis_daemon.runtime.turn import Delivery
from basis_daemon.workspace.budget import BudgetPool
from basis_protocol.events import Notice, Usage, UserMessage
from support.conversations import Counter, new_conversation, roles

pytestmark = pytest.mark.anyio

BUMP = tool_calls(ScriptedCall("bump", {"n": 1}))


def spending(tokens: int) -> TokenUsage:
    return TokenUsage(input_tokens=tokens, output_tokens=0)


async def test_copies_of_the_options_share_what_was_counted_and_how_it_ended(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-8, D-39: whoever kept the options can ask them; the run says so too, and why it has no answer (TO-3)."""
    model.push(replace(BUMP, usage=spending(70)))
    conversation = new_conversation(model, tmp_path, counter.tool())
    options = TurnOptions(token_budget=50)

    outcome = await conversation.say("go", options=replace(options, max_rounds=9))

    assert (options.reported_tokens, options.ended_early) == (70, "token_budget")
    assert (outcome.status, outcome.stopped_by, outcome.final_message) == ("ok", "token_budget", None)
    assert "ended before its answer" in conversation.seen(Notice)[-1].message
    options.ending.note("stop_requested")
    assert options.ended_early == "token_budget"


async def test_a_stop_wins_over_a_spent_budget(model: ScriptedProvider, tmp_path: Path, counter: Counter) -> None:
    """AG-8."""
    stop = StopSignal()
    model.push(replace(BUMP, usage=spending(70)))
    conversation = new_conversation(model, tmp_path, counter.tool())
    counter.leave.clear()
    async with anyio.create_task_group() as tasks:

        async def later() -> None:
            await counter.entered.wait()
            stop.set()
            counter.leave.set()

        tasks.start_soon(later)
        outcome = await conversation.say("go", options=TurnOptions(token_budget=1, stop=stop))
    assert outcome.stopped_by == "stop_requested"


async def test_a_child_shares_the_deadline_and_the_tokens_and_has_budgets_of_its_own() -> None:
    """AG-9, D-40: what a child spends ends its parent too; the clock does not begin again."""
    pool, cancel, stop = BudgetPool(1000), CancelSignal(), StopSignal()
    options = TurnOptions(
        cancel=cancel,
        stop=stop,
        deadline_s=60,
        token_budget=100,
        tool_budget=1,
        model_budget=1,
        max_rounds=1,
        budget=pool,
    )
    parent = Meter(options)
    options.ending.note("token_budget")
    child_options = options.child()
    child = Meter(child_options)

    assert child_options.cancel is cancel and child_options.stop is stop and child_options.retry == options.retry
    assert (child_options.tool_budget, child_options.model_budget, child_options.max_rounds) == (None, None, None)
    assert child_options.ended_early is None
    assert child.deadline_at == parent.deadline_at
    child.count(Usage(input_tokens=99))
    assert parent.soft_bound() is None
    child.count(Usage(output_tokens=1))
    assert parent.soft_bound() == child.soft_bound() == "token_budget"
    assert pool.spent == 100 and parent.usage.total_tokens == 0
    parent.count_delegated(child.usage)
    assert parent.usage.total_tokens == 100 and options.reported_tokens == 100


async def test_a_child_made_ahead_of_its_parents_turn_has_the_same_bounds() -> None:
    """AG-9: there is nothing to go on from yet, so they count from its own start."""
    child = Meter(TurnOptions(deadline_s=60, token_budget=10).child())
    assert child.deadline_at is not None and child.token_limit == 10


async def test_a_turn_under_options_used_before_begins_to_count_anew() -> None:
    """BD-2, BD-3: bounds are of one turn, whatever an earlier one took."""
    options = TurnOptions(token_budget=10)
    Meter(options).count(Usage(input_tokens=10))
    assert Meter(options).soft_bound() is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=20), st.integers(1, 100))
async def test_a_family_of_runs_never_begins_a_round_past_its_tokens(
    reports: list[tuple[bool, int]], budget: int
) -> None:
    """AG-9, AG-11: whoever reports, all of them know."""
    options = TurnOptions(token_budget=budget)
    parent = Meter(options)
    child = Meter(options.child())
    grandchild = Meter(child.options.child())
    spent = 0
    for is_deep, tokens in reports:
        (grandchild if is_deep else child).count(Usage(input_tokens=tokens))
        spent += tokens
        expected = "token_budget" if spent >= budget else None
        assert {parent.soft_bound(), child.soft_bound(), grandchild.soft_bound()} == {expected}


async def test_hard_bounds_are_looked_at_before_anything_else() -> None:
    """3.4, steps 1-5: a cancel, then the deadline."""
    cancel = CancelSignal()
    meter = Meter(TurnOptions(cancel=cancel, deadline_s=0))
    with pytest.raises(DeadlineExceeded):
        meter.check_hard_bounds()
    cancel.set("enough")
    with pytest.raises(Cancelled, match="enough"):
        meter.check_hard_bounds()


@pytest.mark.parametrize(
    ("options", "word"),
    [(TurnOptions(max_rounds=1), "rounds"), (TurnOptions(model_budget=1), "model requests")],
    ids=["rounds", "requests"],
)
async def test_a_spent_budget_fails_the_turn_and_keeps_what_was_done(
    model: ScriptedProvider, tmp_path: Path, counter: Counter, options: TurnOptions, word: str
) -> None:
    """AG-10, 3.12: checked before the next request; the last complete round stays."""
    model.push(BUMP)
    conversation = new_conversation(model, tmp_path, counter.tool())
    outcome = await conversation.say("go", options=options)
    assert outcome.status == "error" and word in (outcome.error or "")
    assert roles(conversation) == ["user_turn", "assistant_turn", "tool_exchange"]
    assert conversation.session.agent.resumable is not None


async def test_retries_count_as_requests(model: ScriptedProvider, tmp_path: Path) -> None:
    """PV-53: the budget is of attempts, so the second one is refused."""
    model.push(failure(TransportError("down")))
    conversation = new_conversation(model, tmp_path)
    outcome = await conversation.say("go", options=TurnOptions(model_budget=1, retry=ProviderRetry(base_delay_s=0)))
    assert outcome.status == "error" and "model requests" in (outcome.error or "")


async def test_a_failed_run_can_be_taken_back_whole(model: ScriptedProvider, tmp_path: Path, counter: Counter) -> None:
    """AG-25, D-36: a matter of choice; what stays otherwise is shown in `test_loop_failures`."""
    model.push(BUMP)
    conversation = new_conversation(model, tmp_path, counter.tool())
    outcome = await conversation.say("go", options=TurnOptions(max_rounds=1, rollback="run"))
    assert outcome.status == "error" and roles(conversation) == []
    assert conversation.session.agent.resumable is not None


class Letters:
    """An inbox with what it was told about its deliveries."""

    def __init__(self, *texts: str) -> None:
        self.waiting = [Delivery("canonical_context", user(text), text) for text in texts]
        self.acknowledged: list[str] = []

    def drain(self, agent_id: str) -> list[Delivery]:
        taken, self.waiting = self.waiting, []
        return taken

    def acknowledge(self, agent_id: str, deliveries: Sequence[Delivery]) -> None:
        self.acknowledged += [each.key for each in deliveries]

    def put_back(self, agent_id: str, deliveries: Sequence[Delivery]) -> None:
        self.waiting = [*deliveries, *self.waiting]


async def test_what_was_left_for_the_agent_comes_behind_what_people_said_and_is_kept_with_success(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-15, AG-24."""
    letters = Letters("done: 1", "done: 2")
    model.push(text("thanks"))
    conversation = new_conversation(model, tmp_path, counter.tool())
    conversation.runtime.inboxes.append(letters)

    await conversation.say("go")

    assert [message.text() for message in model.recorded_requests()[0].messages] == ["go", "done: 1", "done: 2"]
    assert letters.acknowledged == ["done: 1", "done: 2"] and letters.waiting == []


async def test_what_was_left_for_the_agent_waits_again_when_its_round_fails(
    model: ScriptedProvider, tmp_path: Path
) -> None:
    """AG-15, AG-25: it is neither lost nor said twice."""
    letters = Letters("done: 1")
    model.push(failure(TransportError("down")))
    model.push(text("thanks"))
    conversation = new_conversation(model, tmp_path)
    conversation.runtime.inboxes.append(letters)

    failed = await conversation.say("go", options=TurnOptions(retry=ProviderRetry(budget=0)))
    assert failed.status == "error" and [each.key for each in letters.waiting] == ["done: 1"]
    await conversation.say("again")

    said = [message.text() for message in model.recorded_requests()[1].messages]
    assert said == ["again", "done: 1"] and letters.acknowledged == ["done: 1"]


async def test_a_cancelled_run_leaves_everything_that_waits_undelivered(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-12: the cancel comes while a call runs; neither steering nor deliveries are touched."""
    letters, cancel = Letters("late"), CancelSignal()
    counter.leave.clear()
    model.push(BUMP)
    conversation = new_conversation(model, tmp_path, counter.tool())

    async with anyio.create_task_group() as tasks:

        async def cancels() -> None:
            await counter.entered.wait()
            conversation.runtime.inboxes.append(letters)
            conversation.session.steering.steer("and this")
            cancel.set()

        tasks.start_soon(cancels)
        outcome = await conversation.say("go", options=TurnOptions(cancel=cancel))

    assert outcome.status == "cancelled" and len(letters.waiting) == 1
    assert [prompt.message.text() for prompt in conversation.session.steering.waiting()] == ["and this"]
    assert [event.text for event in conversation.seen(UserMessage)] == ["go"]


async def test_nothing_more_is_said_to_a_run_that_may_not_ask_again(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-13: it finishes, and the item stays queued."""
    model.push(text("done"))
    conversation = new_conversation(model, tmp_path)
    conversation.session.steering.follow_up("and then?")
    outcome = await conversation.say("go", options=TurnOptions(max_rounds=1))
    assert (outcome.status, outcome.final_message) == ("ok", "done")
    assert len(conversation.session.steering.waiting("follow_up")) == 1


async def test_one_run_at_a_time(model: ScriptedProvider, tmp_path: Path, counter: Counter) -> None:
    """AG-4, D-48: the second is refused at once and the first goes on."""
    counter.leave.clear()
    model.push(BUMP)
    model.push(text("hi"))
    conversation = new_conversation(model, tmp_path, counter.tool())
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(conversation.say("one"))
        await counter.entered.wait()
        with pytest.raises(Busy):
            await conversation.say("two")
        counter.leave.set()
    assert first.result().final_message == "hi"
