"""What is said to a run while it works, and what becomes of it (runtime.md 3.7)."""

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from basis_daemon.errors import EmptyPrompt
from basis_daemon.runtime.limits import ProviderRetry, TurnOptions
from basis_daemon.runtime.messages import user
from basis_daemon.runtime.prompts import new_prompt
from basis_daemon.runtime.providers.errors import InvalidRequest
from basis_daemon.runtime.providers.scripted import ScriptedCall, ScriptedProvider, failure, text, tool_calls
from basis_daemon.runtime.steering import QueueKind, QueueMode, Steering
from basis_daemon.runtime.store.base import TurnEnded
from basis_protocol.events import UserMessage
from support.conversations import Conversation, Counter, new_conversation, roles

pytestmark = pytest.mark.anyio

BUMP = tool_calls(ScriptedCall("bump", {"n": 1}))


async def meanwhile(
    conversation: Conversation, counter: Counter, do: Callable[[], object], run: Callable[[], Awaitable[TurnEnded]]
) -> TurnEnded:
    """Run, and `do` something while its first call is inside its tool."""
    counter.leave.clear()
    ended: list[TurnEnded] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def work() -> None:
                ended.append(await run())

            tasks.start_soon(work)
            await counter.entered.wait()
            do()
            counter.leave.set()
    return ended[0]


def said(conversation: Conversation) -> list[str]:
    return [event.text for event in conversation.seen(UserMessage)]


async def test_steering_goes_before_follow_ups_and_one_at_a_time(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-13, AG-23: steering after the round, follow-ups only where the agent would be done; each waits its turn."""
    for turn in (BUMP, text("a"), text("b"), text("c"), text("d")):
        model.push(turn)
    conversation = new_conversation(model, tmp_path, counter.tool())
    steering = conversation.session.steering

    def speak() -> None:
        steering.follow_up("f1")
        steering.follow_up("f2")
        steering.steer("s1")
        steering.steer("s2")

    outcome = await meanwhile(conversation, counter, speak, lambda: conversation.say("go"))

    assert said(conversation) == ["go", "s1", "s2", "f1", "f2"]
    assert outcome.final_message == "d" and steering.waiting() == []
    assert [request.messages[-1].text() for request in model.recorded_requests()] == ["go", "s1", "s2", "f1", "f2"]


async def test_a_queue_may_be_taken_whole(model: ScriptedProvider, tmp_path: Path, counter: Counter) -> None:
    """AG-23: set for each kind; the other keeps its mode."""
    for turn in (BUMP, text("a"), text("b"), text("c")):
        model.push(turn)
    conversation = new_conversation(model, tmp_path, counter.tool())
    steering = conversation.session.steering
    steering.set_mode("steering", "all")

    def speak() -> None:
        for word in ("s1", "s2"):
            steering.steer(word)
            steering.follow_up(word.replace("s", "f"))

    await meanwhile(conversation, counter, speak, lambda: conversation.say("go"))

    texts = [[message.text() for message in request.messages][1:] for request in model.recorded_requests()]
    assert texts[1][-2:] == ["s1", "s2"]
    assert [last[-1] for last in texts[2:]] == ["f1", "f2"]


async def test_any_thread_may_steer(model: ScriptedProvider, tmp_path: Path, counter: Counter) -> None:
    """AG-23: nothing is lost or said twice."""
    conversation = new_conversation(model, tmp_path, counter.tool())
    steering = conversation.session.steering
    steering.set_mode("steering", "all")
    model.push(BUMP)
    model.push(text("heard"))

    def speak() -> None:
        threads = [threading.Thread(target=lambda at=at: steering.steer(f"{at}")) for at in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    await meanwhile(conversation, counter, speak, lambda: conversation.say("go"))
    assert sorted(said(conversation)[1:], key=int) == [str(at) for at in range(20)]


async def test_what_was_said_to_a_run_that_fails_is_not_lost(
    model: ScriptedProvider, tmp_path: Path, counter: Counter
) -> None:
    """AG-24: what was delivered stays with the round it followed, so carrying on answers it; what was not waits."""
    for turn in (BUMP, failure(InvalidRequest("no")), text("as you say"), text("and that")):
        model.push(turn)
    conversation = new_conversation(model, tmp_path, counter.tool())
    steering = conversation.session.steering

    def speak() -> None:
        steering.steer("rather not")
        steering.steer("or maybe")

    failed = await meanwhile(
        conversation,
        counter,
        speak,
        lambda: conversation.say("go", options=TurnOptions(retry=ProviderRetry(budget=0))),
    )
    assert failed.status == "error"
    assert roles(conversation) == ["user_turn", "assistant_turn", "tool_exchange", "user_turn"]
    assert [prompt.message.text() for prompt in steering.waiting()] == ["or maybe"]

    prompt = conversation.session.agent.resumable
    assert prompt is not None
    outcome = await conversation.run(prompt, resumed=True)

    assert [message.text() for message in model.recorded_requests()[2].messages][-1] == "rather not"
    assert outcome.final_message == "and that" and said(conversation) == ["go", "rather not", "or maybe"]


async def test_what_waits_between_turns_is_said_in_the_next(model: ScriptedProvider, tmp_path: Path) -> None:
    """AG-24."""
    model.push(text("a"))
    model.push(text("b"))
    conversation = new_conversation(model, tmp_path)
    conversation.session.steering.follow_up("later")
    await conversation.say("go")
    assert said(conversation) == ["go", "later"]


async def test_nothing_is_no_steering(model: ScriptedProvider) -> None:
    """AG-3: refused where it is said."""
    with pytest.raises(EmptyPrompt):
        Steering().steer(" \n")
    with pytest.raises(EmptyPrompt):
        Steering().follow_up([])


@pytest.mark.parametrize("kind", ["steering", "follow_up"])
@pytest.mark.parametrize("mode", ["one_at_a_time", "all"])
async def test_what_is_put_back_goes_first(kind: QueueKind, mode: QueueMode) -> None:
    """AG-24."""
    steering = Steering()
    steering.set_mode(kind, mode)
    for word in "abc":
        steering.add(kind, new_prompt(word))
    taken = steering.take(kind)
    steering.put_back(kind, taken)
    assert [prompt.message for prompt in steering.waiting(kind)] == [user(word) for word in "abc"]
    first = steering.take_first()
    assert first is not None and first.message.text() == "a"
