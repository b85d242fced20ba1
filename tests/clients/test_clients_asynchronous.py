"""The asyncio client: typed calls, streams with a cursor, reconnecting."""

import asyncio
import os
from pathlib import Path

import anyio
import pytest

from basis_client import session as session_module
from basis_client.asynchronous import Client, open_client
from basis_client.errors import ClientError
from basis_client.handshake import Hello
from basis_client.session import Reset, SessionStream
from basis_protocol.asks import AskListParams, AskListResult
from basis_protocol.base import Empty
from basis_protocol.content import TextBlock
from basis_protocol.events import AssistantMessage, RunFinished, SessionEvent
from basis_protocol.lifecycle import DaemonStatusResult
from basis_protocol.sessions import SessionInfo, SessionNewParams, SessionPromptParams, SessionPromptResult
from support.fake_daemon import FakeDaemon, FakeSession, Json, NoAnswer, Refusal, begin

pytestmark = pytest.mark.anyio

HELLO = Hello("test", kind="acp", can_approve=True)


@pytest.fixture
def stored(fake_daemon: FakeDaemon, workspace: Path) -> FakeSession:
    one = FakeSession(fake_daemon, "s-1", str(workspace))
    fake_daemon.sessions[one.id] = one
    return one


async def _until_finished(stream: SessionStream) -> list[SessionEvent | Reset]:
    items: list[SessionEvent | Reset] = []
    async for item in stream:
        items.append(item)
        if isinstance(item, SessionEvent) and isinstance(item.event, RunFinished):
            break
    return items


def _numbers(items: list[SessionEvent | Reset]) -> list[int]:
    return [item.seq for item in items if isinstance(item, SessionEvent)]


async def test_prompt_is_sent_and_its_events_are_typed(fake_daemon: FakeDaemon, workspace: Path) -> None:
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client:
            info = await client.open_workspace(str(workspace), env={"PATH": "/bin"})
            created = await client.call("basis/session/new", SessionNewParams(workspace=info.path), SessionInfo)
            async with client.watch(created.session_id, after_seq=0) as stream:
                prompt = SessionPromptParams(session_id=created.session_id, input=[TextBlock(text="hello")])
                accepted = await client.call("basis/session/prompt", prompt, SessionPromptResult)
                items = await _until_finished(stream)
            outcome = await client.outcome(created.session_id, accepted.turn_id)

    texts = [
        item.event.text for item in items if isinstance(item, SessionEvent) and isinstance(item.event, AssistantMessage)
    ]
    assert texts == ["the answer is 42"]
    assert _numbers(items) == list(range(1, len(items) + 1))
    assert outcome.status == "ok"
    assert client.daemon is not None and client.daemon.instance_id == "fake"


async def test_call_that_does_not_fit_the_method_table_is_a_mistake(fake_daemon: FakeDaemon) -> None:
    """The table says which params and which result belong to a method."""
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client:
            with pytest.raises(TypeError, match="takes Empty and returns DaemonStatusResult"):
                await client.call("basis/daemon/status", AskListParams(), DaemonStatusResult)
            with pytest.raises(TypeError, match="returns DaemonStatusResult"):
                await client.call("basis/daemon/status", Empty(), AskListResult)


async def test_refusal_keeps_its_kind_hint_and_details(fake_daemon: FakeDaemon) -> None:
    def refuse(*_: object) -> None:
        raise Refusal("busy", "a turn is running", hint="wait", details={"runningTurnId": "t"})

    fake_daemon.handlers["basis/ask/list"] = refuse
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client:
            with pytest.raises(ClientError) as caught:
                await client.call("basis/ask/list", AskListParams(), AskListResult)

    error = caught.value
    assert (str(error), error.kind, error.hint, error.code) == ("a turn is running", "busy", "wait", -32803)
    assert error.details == {"runningTurnId": "t"} and not error.is_unreachable


async def test_stream_goes_on_where_it_was_when_the_daemon_comes_back(
    fake_daemon: FakeDaemon, stored: FakeSession, workspace: Path
) -> None:
    """Nothing lost, nothing twice; the workspace is opened again with its environment first."""
    with anyio.fail_after(20):
        async with open_client(HELLO, start=False) as client:
            await client.open_workspace(str(workspace), env={"A": "1"})
            async with client.watch(stored.id, after_seq=0) as stream:
                begin(stored, "t")
                for number in range(5):
                    stored.say(f"part {number}", f"m-{number}")
                    await anext(stream)
                    fake_daemon.die()
                    stored.say(f"unseen {number}", f"u-{number}")
                    fake_daemon.start()
                    await client.wait_connected()
                stored.finish("t")
                items = await _until_finished(stream)

    assert _numbers(items) == list(range(6, len(stored.journal) + 1))
    calls = [method for method, _ in fake_daemon.requests if method in ("basis/workspace/open", "basis/session/attach")]
    assert calls[:4] == ["basis/workspace/open", "basis/session/attach"] * 2
    assert all(params["env"] == {"A": "1"} for params in fake_daemon.asked("basis/workspace/open"))


async def test_events_sent_twice_and_unknown_ones_are_left_out(fake_daemon: FakeDaemon, stored: FakeSession) -> None:
    """protocol.md 2: unknown event types are ignored; they still have their number."""
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client, client.watch(stored.id, after_seq=0) as stream:
            begin(stored, "t")
            stored.emit("weather_changed", degrees=21)
            stored.resend(1)
            stored.finish("t")
            items = await _until_finished(stream)

    assert _numbers(items) == [1, 3]
    assert stream.seq == 3


async def test_stream_without_a_cursor_begins_with_a_snapshot(fake_daemon: FakeDaemon, stored: FakeSession) -> None:
    stored.say("before")
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client, client.watch(stored.id) as stream:
            assert stream.attached is not None and stream.attached.snapshot is not None
            stored.finish("t")
            items = await _until_finished(stream)

    assert _numbers(items) == [len(stored.journal)]


async def test_gap_too_old_to_replay_is_told_as_a_reset(fake_daemon: FakeDaemon, stored: FakeSession) -> None:
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client, client.watch(stored.id, after_seq=0) as stream:
            begin(stored, "t")
            await anext(stream)
            fake_daemon.die()
            stored.say("gone for good")
            stored.kept_from = len(stored.journal) + 1
            fake_daemon.start()
            reset = await anext(stream)
            stored.finish("t")
            rest = await _until_finished(stream)

    assert isinstance(reset, Reset) and reset.attached.snapshot is not None and reset.attached.snapshot.reset
    assert _numbers(rest) == [len(stored.journal)]


async def test_reader_that_does_not_come_costs_bounded_memory_and_misses_nothing(
    fake_daemon: FakeDaemon, stored: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What doesn't fit is asked for again when the reader comes."""
    monkeypatch.setattr(session_module, "MAX_BUFFERED_EVENTS", 10)
    with anyio.fail_after(20):
        async with open_client(HELLO, start=False) as client, client.watch(stored.id, after_seq=0) as stream:
            begin(stored, "t")
            for number in range(40):
                stored.emit("notice", message=str(number))
            stored.finish("t")
            # A request's answer comes after the events that were sent before it.
            await client.call("basis/ask/list", AskListParams(), AskListResult)
            items = await _until_finished(stream)

    assert _numbers(items) == list(range(1, 43))
    assert stream.attach_count > 1


async def test_lagging_reader_attaches_again(fake_daemon: FakeDaemon, stored: FakeSession) -> None:
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client, client.watch(stored.id, after_seq=0) as stream:
            begin(stored, "t")
            stored.lag(1)
            stored.say("after the lag")
            stored.finish("t")
            items = await _until_finished(stream)

    assert _numbers(items) == list(range(1, len(stored.journal) + 1))


async def test_watching_what_does_not_exist_is_refused(fake_daemon: FakeDaemon) -> None:
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client:
            with pytest.raises(ClientError) as caught:
                async with client.watch("nothing"):
                    pass

    assert caught.value.kind == "no_such_session"


async def test_session_that_was_deleted_meanwhile_ends_its_stream_only(
    fake_daemon: FakeDaemon, stored: FakeSession, workspace: Path
) -> None:
    other = FakeSession(fake_daemon, "s-2", str(workspace))
    fake_daemon.sessions[other.id] = other
    with anyio.fail_after(10):
        async with (
            open_client(HELLO, start=False) as client,
            client.watch(stored.id, after_seq=0) as gone,
            client.watch(other.id, after_seq=0) as kept,
        ):
            fake_daemon.die()
            del fake_daemon.sessions[stored.id]
            fake_daemon.start()
            with pytest.raises(ClientError, match="no session 's-1'"):
                await anext(gone)
            other.finish("t")
            assert len(await _until_finished(kept)) == 1


async def test_request_under_way_when_the_daemon_dies_fails_and_says_so(fake_daemon: FakeDaemon) -> None:
    """Whether it took effect is not known: the caller decides whether to ask again."""

    def die(*_: object) -> None:
        fake_daemon.die()
        raise NoAnswer

    fake_daemon.handlers["basis/ask/list"] = die
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client:
            with pytest.raises(ClientError) as caught:
                await client.call("basis/ask/list", AskListParams(), AskListResult)

    assert caught.value.kind == "connection_lost" and caught.value.is_unreachable


async def test_call_made_while_there_is_no_daemon_waits_for_one(fake_daemon: FakeDaemon) -> None:
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client:
            fake_daemon.die()
            while client.is_connected:  # noqa: ASYNC110 - the loss shows in nothing else
                await asyncio.sleep(0)
            async with asyncio.TaskGroup() as group:
                call = group.create_task(client.call("basis/ask/list", AskListParams(), AskListResult))
                await asyncio.sleep(0)
                fake_daemon.start()
            assert call.result() == AskListResult(asks=[])


async def test_call_that_takes_too_long_is_given_up_and_withdrawn(fake_daemon: FakeDaemon) -> None:
    def silence(*_: object) -> None:
        raise NoAnswer

    fake_daemon.handlers["basis/ask/list"] = silence
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client:
            with pytest.raises(ClientError) as caught:
                await client.call("basis/ask/list", AskListParams(), AskListResult, timeout_s=0.05)
            assert client.is_connected

    assert caught.value.kind == "timed_out"


async def test_no_daemon_fails_at_once_when_none_may_be_started() -> None:
    with anyio.fail_after(10), pytest.raises(ClientError) as caught:
        async with open_client(HELLO, start=False):
            pass

    assert caught.value.kind == "not_running"


async def test_daemon_that_can_not_be_reached_any_more_is_told_to_everyone(
    fake_daemon: FakeDaemon, stored: FakeSession
) -> None:
    """A version that changed while we were connected is final: streams and calls end with that error."""

    def refuse(*_: object) -> None:
        raise Refusal("protocol_version", "another version")

    with anyio.fail_after(10):
        async with open_client(HELLO, start=False) as client, client.watch(stored.id, after_seq=0) as stream:
            fake_daemon.handlers["initialize"] = refuse
            fake_daemon.die()
            fake_daemon.start()
            with pytest.raises(ClientError, match="another version"):
                await anext(stream)
            with pytest.raises(ClientError, match="another version"):
                await client.call("basis/ask/list", AskListParams(), AskListResult)


async def test_what_the_block_raises_comes_out_as_it_is(fake_daemon: FakeDaemon) -> None:
    """No exception group: who uses the client need not know that it has tasks."""
    with anyio.fail_after(10), pytest.raises(LookupError, match="mine"):
        async with open_client(HELLO, start=False):
            raise LookupError("mine")


async def test_cancelling_the_block_leaves_nothing_behind(fake_daemon: FakeDaemon, stored: FakeSession) -> None:
    before = asyncio.all_tasks()
    with anyio.move_on_after(0.2) as scope:
        async with open_client(HELLO, start=False) as client, client.watch(stored.id, after_seq=0) as stream:
            await anext(stream)

    assert scope.cancelled_caught
    assert asyncio.all_tasks() == before


async def test_notifications_of_other_kinds_are_handed_on(fake_daemon: FakeDaemon) -> None:
    seen: list[tuple[str, bytes]] = []

    def subscribe(connection: object, params: Json) -> Json:
        connection.send({"method": "basis/daemon/event", "params": {"kind": "stopping"}})  # type: ignore[attr-defined]
        connection.send({"id": 99, "method": "window/showMessageRequest", "params": {}})  # type: ignore[attr-defined]
        return {"asks": []}

    fake_daemon.handlers["basis/ask/list"] = subscribe
    with anyio.fail_after(10):
        async with open_client(HELLO, start=False, on_notification=lambda *got: seen.append(got)) as client:
            await client.call("basis/ask/list", AskListParams(), AskListResult)
            assert isinstance(client, Client)

    assert seen == [("basis/daemon/event", b'{"kind": "stopping"}')]


async def test_connecting_does_not_need_the_loop_to_wait(fake_daemon: FakeDaemon) -> None:
    """Twenty clients in one process at once, all of them served."""
    async with asyncio.TaskGroup() as group:
        done = [group.create_task(_one_call(os.environ.copy())) for _ in range(20)]
    assert all(task.result() == AskListResult(asks=[]) for task in done)


async def _one_call(environ: dict[str, str]) -> AskListResult:
    with anyio.fail_after(10):
        async with open_client(HELLO, environ, start=False) as client:
            return await client.call("basis/ask/list", AskListParams(), AskListResult)
