"""The journal: numbers without holes, the same for everybody, never shown before they are in the file (ADR 0002)."""

import asyncio
import json
import os
import socket
from pathlib import Path

import anyio
import pytest

from basis_daemon.server.channel import Channel
from basis_daemon.server.journal import Batch, Journal, JournalTrimmed
from basis_daemon.server.journal_file import JournalFile
from basis_daemon.server.pump import EventPump, Watch
from basis_protocol.events import AnyEvent, AssistantDelta, AssistantReasoningDelta, Notice

pytestmark = pytest.mark.anyio


def notice(text: str) -> AnyEvent:
    return Notice(message=text)


class Watcher:
    """Notes what the file held whenever it was woken."""

    def __init__(self, journal: Journal, directory: Path | None = None) -> None:
        self.journal = journal
        self.directory = directory
        self.seen: list[tuple[int, int]] = []
        self.woken = anyio.Event()
        journal.watch(self)

    def wake(self) -> None:
        last = file_numbers(self.directory)[-1] if self.directory else 0
        self.seen.append((self.journal.shown_seq, last))
        self.woken.set()


def file_numbers(directory: Path) -> list[int]:
    numbers: list[int] = []
    for name in ("events.previous.jsonl", "events.jsonl"):
        path = directory / name
        if path.exists():
            numbers += [json.loads(line)["seq"] for line in path.read_bytes().splitlines()]
    return numbers


def decode(batch: Batch | None) -> list[dict[str, object]]:
    """The params of a batch's frames."""
    assert batch is not None
    events: list[dict[str, object]] = []
    rest = batch.frames
    while rest:
        header, rest = rest.split(b"\r\n\r\n", 1)
        length = int(header.split(b":")[1])
        body, rest = rest[:length], rest[length:]
        message = json.loads(body)
        assert message["method"] == "basis/session/event"
        events.append(message["params"])
    return events


async def read_all(journal: Journal, after_seq: int, max_bytes: int = 4096) -> list[dict[str, object]]:
    events: list[dict[str, object]] = []
    while after_seq < journal.shown_seq:
        batch = journal.recent(after_seq, max_bytes) or await journal.replay(after_seq, max_bytes)
        events += decode(batch)
        after_seq = batch.last_seq
    return events


async def test_events_are_numbered_from_one_without_holes() -> None:
    """protocol.md 4."""
    journal = Journal("s")

    assert [journal.append(notice(str(n))) for n in range(5)] == [1, 2, 3, 4, 5]
    journal.flush()

    events = decode(journal.recent(0, 1 << 20))
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5]
    assert {event["sessionId"] for event in events} == {"s"}
    assert [event["event"]["message"] for event in events] == ["0", "1", "2", "3", "4"]  # type: ignore[index]


async def test_watchers_are_shown_nothing_the_file_lacks(tmp_path: Path) -> None:
    """A client never knows a number that is gone after SIGKILL (ADR 0002)."""
    journal = Journal.recover("s", tmp_path)
    watcher = Watcher(journal, tmp_path)

    for n in range(10):
        journal.append(notice(str(n)))
    assert journal.shown_seq == 0
    assert decode(journal.recent(0, 1 << 20)) == []
    with anyio.fail_after(5):
        await watcher.woken.wait()

    assert watcher.seen == [(10, 10)]


async def test_one_turn_of_the_loop_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.recover("s", tmp_path)
    watcher = Watcher(journal)
    writes: list[int] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: writes.append(len(data)) or real(fd, data))

    for n in range(50):
        journal.append(notice(str(n)))
    with anyio.fail_after(5):
        await watcher.woken.wait()

    assert len(writes) == 1
    assert file_numbers(tmp_path) == list(range(1, 51))


async def test_deltas_of_one_turn_of_the_loop_are_one_event() -> None:
    journal = Journal("s")
    for text in ("a", "b", "c"):
        journal.append(AssistantDelta(text=text, message_id="m1"))
    journal.append(AssistantReasoningDelta(text="r", message_id="m1"))
    journal.append(AssistantDelta(text="d", message_id="m1"))
    journal.append(AssistantDelta(text="e", message_id="m2"))
    journal.flush()

    events = [event["event"] for event in decode(journal.recent(0, 1 << 20))]

    assert [(event["type"], event["text"], event["messageId"]) for event in events] == [  # type: ignore[index]
        ("assistant_delta", "abc", "m1"),
        ("assistant_reasoning_delta", "r", "m1"),
        ("assistant_delta", "d", "m1"),
        ("assistant_delta", "e", "m2"),
    ]
    assert journal.last_seq == 4


async def test_an_event_while_a_delta_is_open_keeps_the_order() -> None:
    journal = Journal("s")

    assert journal.append(AssistantDelta(text="a")) == 1
    assert journal.append(notice("n")) == 2
    journal.flush()

    assert [event["seq"] for event in decode(journal.recent(0, 1 << 20))] == [1, 2]


async def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    first = Journal.recover("s", tmp_path)
    for n in range(3):
        first.append(notice(str(n)))
    first.flush()

    second = Journal.recover("s", tmp_path)

    assert second.append(notice("next")) == 4
    second.flush()
    assert [event["seq"] for event in await read_all(second, 0)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "torn", [b'{"seq":4,"time":"2026-01-0', b"\x00" * 300, b'{"seq":4}', b"\n", b'{"seq":4,"a":{}']
)
async def test_a_torn_last_line_is_dropped(tmp_path: Path, torn: bytes) -> None:
    first = Journal.recover("s", tmp_path)
    for n in range(3):
        first.append(notice(str(n)))
    first.flush()
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(torn)

    second = Journal.recover("s", tmp_path)

    assert second.last_seq == 3
    second.append(notice("next"))
    second.flush()
    assert file_numbers(tmp_path) == [1, 2, 3, 4]


async def test_what_is_out_of_memory_is_read_back_from_the_file(tmp_path: Path) -> None:
    """Idle sessions keep nothing in memory."""
    journal = Journal.recover("s", tmp_path)
    for n in range(500):
        journal.append(notice(f"event {n}"))
    journal.release()

    assert journal.recent(0, 4096) is None
    assert [event["seq"] for event in await read_all(journal, 123)] == list(range(124, 501))


async def test_memory_stays_bounded_while_nothing_is_lost(tmp_path: Path) -> None:
    journal = Journal.recover("s", tmp_path)
    for n in range(3000):
        journal.append(notice(f"{n} " + "x" * 500))
        if n % 100 == 0:
            journal.flush()
    journal.flush()

    assert journal.memory_bytes <= 1024 * 1024
    assert [event["seq"] for event in await read_all(journal, 0, 64 * 1024)] == list(range(1, 3001))


async def test_a_full_file_is_rotated_and_the_newest_part_kept(tmp_path: Path) -> None:
    file = JournalFile(tmp_path, segment_bytes=2000)
    journal = Journal("s", file=file)
    for n in range(100):
        journal.append(notice(f"event number {n}"))
        journal.flush()

    kept = file_numbers(tmp_path)
    assert kept == list(range(kept[0], 101))
    assert kept[0] > 1
    journal.release()
    assert not journal.can_replay(kept[0] - 2)
    assert journal.can_replay(kept[0] - 1)
    with pytest.raises(JournalTrimmed):
        journal.recent(0, 4096)
    assert [event["seq"] for event in await read_all(journal, kept[0] - 1)] == kept
    assert Journal.recover("s", tmp_path).can_replay(kept[0] - 1)


async def test_numbers_never_given_can_not_be_replayed() -> None:
    journal = Journal("s")
    journal.append(notice("one"))
    journal.flush()

    assert journal.can_replay(0)
    assert journal.can_replay(1)
    assert not journal.can_replay(2)


async def test_events_from_before_there_was_a_place_are_kept_when_there_is_one(tmp_path: Path) -> None:
    journal = Journal("s")
    journal.append(notice("before"))
    journal.flush()

    await journal.bind(tmp_path)
    journal.append(notice("after"))
    journal.flush()

    assert file_numbers(tmp_path) == [1, 2]


async def test_a_full_disk_shows_events_all_the_same_and_catches_up(tmp_path: Path) -> None:
    """A turn's end is still seen; what could not be written is written once there is room."""
    journal = Journal.recover("s", tmp_path)
    journal.append(notice("one"))
    journal.flush()
    journal.release()
    (tmp_path / "events.jsonl").rename(tmp_path / "aside")
    (tmp_path / "events.jsonl").mkdir()
    journal.append(notice("two"))
    journal.flush()
    assert [event["seq"] for event in decode(journal.recent(1, 4096))] == [2]

    (tmp_path / "events.jsonl").rmdir()
    (tmp_path / "aside").rename(tmp_path / "events.jsonl")
    journal.append(notice("three"))
    journal.flush()

    assert file_numbers(tmp_path) == [1, 2, 3]


async def test_any_number_is_found_in_a_file_of_long_and_short_lines(tmp_path: Path) -> None:
    journal = Journal.recover("s", tmp_path)
    for n in range(300):
        journal.append(notice("y" * (9000 if n % 7 == 0 else n % 5)))
    journal.release()

    for after_seq in range(0, 300, 13):
        batch = await journal.replay(after_seq, 1)
        assert [event["seq"] for event in decode(batch)] == [after_seq + 1]


@pytest.mark.parametrize("damage", [b"\xff\x00 garbage", b"", b"{}", b'{"seq":3,"time":"t","event":[}', b"[" * 100_000])
async def test_a_damaged_line_is_never_shown_and_who_lacks_it_gets_a_snapshot(tmp_path: Path, damage: bytes) -> None:
    """protocol.md 4: no holes; a gap that can't be replayed is a snapshot."""
    first = Journal.recover("s", tmp_path)
    for n in range(6):
        first.append(notice(str(n)))
    first.flush()
    path = tmp_path / "events.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[2] = damage
    path.write_bytes(b"\n".join(lines))

    journal = Journal.recover("s", tmp_path)

    assert [event["seq"] for event in decode(await journal.replay(0, 4096))] == [1, 2]
    with pytest.raises(JournalTrimmed):
        await journal.replay(2, 4096)
    assert not journal.can_replay(2)


async def test_a_number_is_not_given_twice_when_the_beginning_of_the_file_is_damaged(tmp_path: Path) -> None:
    first = Journal.recover("s", tmp_path)
    for n in range(3):
        first.append(notice(str(n)))
    first.flush()
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"{}" + path.read_bytes())

    second = await anyio.to_thread.run_sync(Journal.recover, "s", tmp_path)

    assert second.append(notice("next")) == 4
    second.flush()
    assert not second.can_replay(1)
    assert [event["seq"] for event in await read_all(second, 3)] == [4]


async def test_client_of_a_session_that_ends_gets_all_it_is_owed_wherever_others_stood() -> None:
    """Another client was given the first event alone; this one, slower, still gets both and is not called too slow."""
    journal = Journal("s")
    ours, theirs = socket.socketpair()
    with theirs:
        _, channel = await asyncio.get_running_loop().create_connection(
            lambda: Channel(lambda body: None, lambda problem: None), sock=ours
        )
        watch = Watch(journal, 0, EventPump(channel), on_lagged=lambda: None)
        journal.append(notice("one"))
        journal.flush()
        journal.recent(0, 1024)
        journal.append(notice("two"))
        journal.flush()

        watch.finish()

        theirs.setblocking(False)
        frames = b""
        with anyio.fail_after(5):
            while b"two" not in frames:
                frames += await asyncio.get_running_loop().sock_recv(theirs, 4096)
        channel.abort("the test is over")
    assert [params["event"]["message"] for params in decode(Batch(frames, 2))] == ["one", "two"]  # type: ignore[index]
