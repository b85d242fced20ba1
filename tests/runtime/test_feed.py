"""Who listens to a conversation: taps, subscriptions, snapshots and waiting (runtime.md 3.9, 6.2)."""

import asyncio

import anyio
import pytest

from basis_daemon.errors import UsageError
from basis_daemon.runtime.feed import Feed, Lagged, PendingCall
from basis_protocol.content import CallPreview
from basis_protocol.events import (
    AnyEvent,
    AssistantDelta,
    AssistantMessage,
    Notice,
    PermissionRequested,
    PermissionResolved,
    Retry,
    RunFinished,
    RunStarted,
    TaskUpdated,
    ToolCompleted,
    ToolQueued,
    ToolStarted,
)

pytestmark = pytest.mark.anyio


def started(turn_id: str = "turn-1") -> RunStarted:
    return RunStarted(
        turn_id=turn_id, schema=2, basis="0", session_id="agent-1", workspace="/w", model="m", provider="p"
    )


def finished(turn_id: str = "turn-1", status: str = "ok", message: str | None = None) -> RunFinished:
    return RunFinished(turn_id=turn_id, status=status, message=message)


def note(number: int) -> Notice:
    return Notice(message=str(number))


async def test_taps_hear_everything_in_order_ahead_of_subscriptions() -> None:
    """AG-32: lossless and synchronous; no event is merged or dropped."""
    feed, heard = Feed(), list[AnyEvent]()
    subscription = feed.subscribe()
    with feed.tap(heard.append):
        for number in range(2_000):
            feed(note(number))
            assert len(heard) == number + 1
    feed(note(-1))

    assert heard == [note(number) for number in range(2_000)]
    assert await anext(subscription) == Lagged(2_001 - 512)


async def test_tap_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """AG-32: its exception is logged and stays with it."""
    feed, heard = Feed(), list[AnyEvent]()
    feed.tap(lambda event: 1 / 0)
    feed.tap(heard.append)
    feed(note(1))

    assert heard == [note(1)]
    assert "a tap failed" in caplog.text


async def test_tap_can_not_be_closed_by_its_own_callback() -> None:
    """AG-32."""
    feed, raised = Feed(), list[Exception]()

    def close(event: AnyEvent) -> None:
        try:
            tap.close()
        except UsageError as error:
            raised.append(error)

    tap = feed.tap(close)
    feed(note(1))
    tap.close()
    feed(note(2))

    assert len(raised) == 1


async def test_slow_reader_loses_the_oldest_and_is_told_how_many() -> None:
    """AG-31, SE-11: it never holds anybody up."""
    feed = Feed()
    with feed.subscribe(capacity=3) as slow, feed.subscribe(capacity=10) as quick:
        for number in range(5):
            feed(note(number))
        assert [await anext(slow) for _ in range(4)] == [Lagged(2), note(2), note(3), note(4)]
        assert [await anext(quick) for _ in range(5)] == [note(number) for number in range(5)]
        feed(note(5))
        assert await anext(slow) == note(5)


async def test_reader_waits_for_the_next_event_and_ends_with_its_subscription() -> None:
    """AG-31, SE-29: nobody listening is no error either."""
    feed = Feed()
    feed(note(0))
    subscription = feed.subscribe()

    async def read() -> list[object]:
        return [event async for event in subscription]

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        await asyncio.sleep(0)
        feed(note(1))
        await asyncio.sleep(0)
        feed.close()
        feed(note(2))

    assert reading.result() == [note(1)]


async def test_snapshot_follows_a_turn() -> None:
    """AG-34, AG-35: what a person would be shown at each moment; the latest wins."""
    feed = Feed()
    seen: list[str] = []

    def step(*events: AnyEvent) -> None:
        for event in events:
            feed(event)
        seen.append(feed.snapshot.status)

    assert feed.snapshot.status == "idle" and feed.snapshot.generation == 0
    step(started())
    step(AssistantDelta(text="I "), AssistantDelta(text="read"))
    assert feed.snapshot.text == "I read"
    feed(Retry(agent_id="agent-1", error="cut", attempt=1, max_attempts=5, next_delay_ms=0))
    assert feed.snapshot.text == ""
    feed(AssistantMessage(text="I read."))
    feed(ToolQueued(tool_call_id="c1", tool_name="write", summary=""))
    feed(
        PermissionRequested(
            request_id="r1", tool_call_id="c1", tool_name="write", description="", preview=CallPreview(input={})
        )
    )
    assert feed.snapshot.pending_permissions == ("r1",) and feed.snapshot.text == "I read."
    feed(PermissionResolved(request_id="r1", tool_call_id="c1", tool_name="write", outcome="allowed"))
    step(ToolStarted(tool_call_id="c1", tool_name="write"))
    assert feed.snapshot.pending_calls == (PendingCall("c1", "write", is_running=True),)
    step(ToolCompleted(tool_call_id="c1", tool_name="write", summary="", is_error=False))
    for status in ("spawned", "finished"):
        feed(TaskUpdated(task_id="t1", kind="subagent", status=status, title="look"))
    step(finished())

    assert seen == ["awaiting_model", "streaming", "executing_tool", "awaiting_model", "finished"]
    assert [task.status for task in feed.snapshot.tasks] == ["finished"]
    assert feed.snapshot.pending_calls == () == feed.snapshot.pending_permissions


@pytest.mark.parametrize(
    ("ended", "status"),
    [("ok", "finished"), ("error", "failed"), ("cancelled", "failed"), ("interrupted", "interrupted")],
)
async def test_snapshot_says_how_the_last_turn_ended(ended: str, status: str) -> None:
    """AG-35."""
    feed = Feed()
    feed(started())
    feed(finished(status=ended, message="why"))

    assert (feed.snapshot.status, feed.snapshot.message, feed.snapshot.is_running) == (status, "why", False)


async def test_waiting_until_idle_means_the_turn_under_way_or_else_the_next() -> None:
    """AG-36."""
    feed = Feed()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(feed.wait_until_idle())
        await asyncio.sleep(0)
        feed(note(1))
        feed(started())
        during = tasks.create_task(feed.wait_until_idle())
        await asyncio.sleep(0)
        assert not waiting.done() and not during.done()
        feed(finished())

    assert waiting.result() == during.result() == feed.snapshot


async def test_waiting_can_be_given_up_and_fails_with_its_condition() -> None:
    """AG-36."""
    feed = Feed()
    with pytest.raises(TimeoutError):
        await feed.wait_for(lambda now: False, timeout_s=0)
    with anyio.move_on_after(0):
        await feed.wait_for(lambda now: False)
    assert (await feed.wait_for(lambda now: now.status == "idle")).status == "idle"

    def broken(now: object) -> bool:
        if feed.snapshot.generation:
            raise ZeroDivisionError
        return False

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed.wait_for(broken))
            await asyncio.sleep(0)
            feed(started())
            feed(finished())
    assert caught.group_contains(ZeroDivisionError)
