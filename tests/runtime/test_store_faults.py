"""When the disk refuses: what was promised stays, what failed says so and can be tried again (ST-23, ST-28)."""

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from basis_daemon.errors import CorruptStore, StoreError
from basis_daemon.runtime.store.base import ConversationLog, EntryAdded
from basis_daemon.runtime.store.files import FileStore
from support.store_disks import FaultyDisk
from support.stored import said, stored


class Script:
    """A conversation's life as steps that are tried until they succeed, and what has been promised so far."""

    STEPS = (
        "append",
        "sync",
        "append",
        "append",
        "save",
        "sync",
        "append",
        "save",
        "append",
        "sync",
        "reopen",
        "append",
    )

    def __init__(self, store: FileStore) -> None:
        self.store = store
        self.log: ConversationLog | None = None
        self.is_created = False
        self.entries = 0
        self.turns = 0

    def create(self) -> None:
        self.log = self.store.create(stored())
        self.is_created = True

    def step(self, name: str) -> None:
        """Raises `StoreError`; then nothing was promised."""
        assert self.log is not None
        match name:
            case "append":
                self.log.append(EntryAdded(said(self.entries)))
                self.entries += 1
            case "save":
                self.log.save(stored(turns=self.turns + 1))
                self.turns += 1
            case "sync":
                asyncio.run(self.log.sync())
            case _:
                self.log.close()
                self.log = self.store.open("agent-1")[1]

    def run(self, on_failure: Callable[[], None]) -> None:
        for name in ("create", *self.STEPS):
            while True:
                try:
                    self.create() if name == "create" else self.step(name)
                    break
                except StoreError:
                    on_failure()

    def check(self, store: FileStore) -> None:
        """What was promised is there, seen by another store on the same files."""
        record = store.record("agent-1")
        if not self.is_created and record is None:
            return
        assert record is not None
        assert record.turns == self.turns
        assert [entry.id for entry in store.peek("agent-1").transcript] == [f"entry-{n}" for n in range(self.entries)]
        assert store.list() == [record]


def _calls_of_a_life(root: Path) -> int:
    disk = FaultyDisk()
    store = FileStore(root, disk=disk)
    store.prepare()
    script = Script(store)
    script.run(lambda: pytest.fail("nothing fails yet"))
    assert script.log is not None
    script.log.close()
    store.close()
    return len(disk.calls)


def _disk_that_fails_once(number: int, *, half_writes: bool) -> FaultyDisk:
    disk, calls = FaultyDisk(), count()
    disk.half_writes = half_writes

    def fault(name: str, path: str) -> None:
        if next(calls) == number:
            raise OSError(errno.ENOSPC, "no space left")

    disk.fault = fault
    return disk


def _disk_that_dies(number: int, *, half_writes: bool) -> FaultyDisk:
    """From one call on nothing reaches it; the first write to fail may still write half."""
    disk, calls = FaultyDisk(), count()
    disk.half_writes = half_writes

    def fault(name: str, path: str) -> None:
        call = next(calls)
        disk.half_writes &= call <= number
        if call >= number:
            raise OSError(errno.EIO, "gone")

    disk.fault = fault
    return disk


@pytest.mark.slow
@pytest.mark.parametrize("half_writes", [False, True], ids=["nothing written", "half written"])
def test_a_call_that_fails_once_loses_nothing(tmp_path: Path, half_writes: bool) -> None:
    """Whichever call fails, its step raises `StoreError`, the rest still loads, and trying again succeeds."""
    for number in range(_calls_of_a_life(tmp_path / "counted")):
        root = tmp_path / f"store-{number}"
        store = FileStore(root, disk=_disk_that_fails_once(number, half_writes=half_writes))
        script = Script(store)
        failures: list[int] = []

        def check(script: Script = script, root: Path = root, failures: list[int] = failures) -> None:
            failures.append(script.entries)
            assert len(failures) < 3, "a step does not recover"
            script.check(FileStore(root))

        script.run(check)
        script.check(FileStore(root))
        assert script.log is not None
        script.log.close()
        store.close()


class Dead(Exception):
    """The process that wrote is no more."""


@pytest.mark.slow
@pytest.mark.parametrize("half_writes", [False, True], ids=["nothing written", "half written"])
def test_a_life_cut_short_at_any_call_leaves_what_was_promised(tmp_path: Path, half_writes: bool) -> None:
    """As when the process is killed at that call; the next process carries on."""

    def die() -> None:
        raise Dead

    for number in range(_calls_of_a_life(tmp_path / "counted")):
        root = tmp_path / f"store-{number}"
        script = Script(FileStore(root, disk=_disk_that_dies(number, half_writes=half_writes)))
        with contextlib.suppress(Dead):
            script.run(die)
        if script.log is not None:
            script.log.close()

        later = FileStore(root)
        script.check(later)
        if later.record("agent-1") is None:
            later.create(stored()).close()
        carried_on = Script(later)
        carried_on.log, carried_on.is_created = later.open("agent-1")[1], True
        carried_on.entries, carried_on.turns = script.entries, script.turns
        for step in ("append", "save", "sync"):
            carried_on.step(step)
        carried_on.check(FileStore(root))
        carried_on.log.close()
        later.close()


def _faults_on(disk: FaultyDisk, name: str, code: int, *, times: int = 1 << 30) -> list[str]:
    """Have the next `times` calls of that name fail. Returns the paths they were for."""
    failed: list[str] = []

    def fault(called: str, path: str) -> None:
        if called == name and len(failed) < times:
            failed.append(path)
            raise OSError(code, os.strerror(code))

    disk.fault = fault
    return failed


def test_a_full_disk_is_named_and_nothing_is_half_said(tmp_path: Path) -> None:
    """The error names the operation, the file and what to do; the log can be appended to once there is room."""
    disk = FaultyDisk()
    store = FileStore(tmp_path / "store", disk=disk)
    log = store.create(stored())
    log.append(EntryAdded(said(0)))
    disk.half_writes = True
    _faults_on(disk, "write", errno.ENOSPC)

    with pytest.raises(StoreError, match=r"could not append to .*transcript\.jsonl: No space left") as refused:
        log.append(EntryAdded(said(1)))

    assert refused.value.hint is not None and "free some disk space" in refused.value.hint
    assert (tmp_path / "store/agents/agent-1/transcript.jsonl").read_bytes().endswith(b"}\n")
    disk.fault = lambda name, path: None
    log.append(EntryAdded(said(1)))
    assert len(store.peek("agent-1").transcript) == 2
    log.close()
    store.close()


def test_half_a_line_that_cannot_be_cut_off_is_cut_off_by_the_next_append(tmp_path: Path) -> None:
    """Even a disk that refuses the repair leaves a log that readers can read."""
    disk = FaultyDisk()
    store = FileStore(tmp_path / "store", disk=disk)
    log = store.create(stored())
    log.append(EntryAdded(said(0)))
    disk.half_writes = True

    def refuse(name: str, path: str) -> None:
        if name in ("write", "truncate"):
            raise OSError(errno.EIO, "broken")

    disk.fault = refuse
    with pytest.raises(StoreError):
        log.append(EntryAdded(said(1)))
    assert len(store.peek("agent-1").transcript) == 1

    disk.fault = lambda name, path: None
    log.append(EntryAdded(said(1)))
    log.close()
    assert len(FileStore(tmp_path / "store").peek("agent-1").transcript) == 2
    store.close()


def test_a_record_that_cannot_be_saved_leaves_the_old_one(tmp_path: Path) -> None:
    """The old record still stands and no temporary file stays behind (ST-8)."""
    disk = FaultyDisk()
    store = FileStore(tmp_path / "store", disk=disk)
    log = store.create(stored())
    asyncio.run(log.sync())

    for call in ("open", "write", "replace"):
        _faults_on(disk, call, errno.EDQUOT)
        with pytest.raises(StoreError, match="save the record"):
            log.save(stored(name="new"))

    assert store.record("agent-1") == stored()
    assert os.listdir(tmp_path / "store/agents/agent-1") == ["agent.json"]
    log.close()
    store.close()


def test_everybody_who_waits_for_a_sync_hears_that_it_failed(tmp_path: Path) -> None:
    """Each waiter gets an error of its own, and the next sync writes again what may not be on the disk."""
    disk = FaultyDisk()
    store = FileStore(tmp_path / "store", disk=disk)
    log = store.create(stored())
    log.append(EntryAdded(said(0)))

    async def wait_for_all() -> list[BaseException | None]:
        return await asyncio.gather(*(log.sync() for _ in range(5)), return_exceptions=True)

    _faults_on(disk, "sync_data", errno.EIO)
    outcomes = asyncio.run(wait_for_all())
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 5
    assert len({id(outcome) for outcome in outcomes}) == 5

    disk.fault = lambda name, path: None
    disk.calls.clear()
    asyncio.run(log.sync())
    assert disk.count("pwrite") == 1
    assert disk.count("sync_data") == 1
    log.append(EntryAdded(said(1)))
    log.close()
    assert len(store.peek("agent-1").transcript) == 2
    store.close()


def test_a_sync_that_nobody_waited_for_is_made_up_by_the_next(tmp_path: Path) -> None:
    """A failure in the background is not forgotten: it fails whoever asks until the data is safe."""
    disk = FaultyDisk()
    store = FileStore(tmp_path / "store", disk=disk)
    log = store.create(stored())
    asyncio.run(log.sync())
    failed = _faults_on(disk, "sync_data", errno.EIO)
    log.append(EntryAdded(said(0)))
    store.close()
    assert len(failed) == 1

    with pytest.raises(StoreError, match="could not sync"):
        asyncio.run(log.sync())

    disk.fault = lambda name, path: None
    asyncio.run(log.sync())
    log.close()
    store.close()


def test_a_record_saved_during_a_sync_waits_for_its_own(tmp_path: Path) -> None:
    """Only what is on the disk bears the final name (ST-8)."""
    directory = tmp_path / "store/agents/agent-1"
    disk = FaultyDisk()
    store = FileStore(tmp_path / "store", disk=disk)
    log = store.create(stored())
    asyncio.run(log.sync())
    log.save(stored(name="first"))
    seen: list[tuple[str, bytes]] = []

    def look(name: str, path: str) -> None:
        seen.append((f"{name} {os.path.basename(path)}", (directory / "agent.json").read_bytes()))

    def save_once_more(name: str, path: str) -> None:
        if name == "sync" and path.endswith("agent.json.new"):
            disk.fault = look
            log.save(stored(name="second"))

    disk.fault = save_once_more
    asyncio.run(log.sync())
    store.close()

    synced = [call for call, _ in seen].index("sync agent.json.new")
    assert not [final for _, final in seen[: synced + 1] if b"first" in final or b"second" in final]
    assert b"second" in (directory / "agent.json").read_bytes()
    log.close()


def test_a_conversation_closed_during_a_sync_is_left_to_its_next_owner(tmp_path: Path) -> None:
    """After `close` nothing is renamed any more: the files may be somebody else's."""
    disk = FaultyDisk()
    store = FileStore(tmp_path / "store", disk=disk)
    log = store.create(stored())
    other = FileStore(tmp_path / "store")

    def change_hands(name: str, path: str) -> None:
        if name == "sync" and path.endswith("agent.json.new"):
            disk.fault = lambda name, path: None
            log.close()
            loaded, theirs = other.open("agent-1")
            theirs.save(stored(name="theirs"))
            theirs.append(EntryAdded(said(0)))
            theirs.close()
            assert loaded.record == stored()

    disk.fault = change_hands
    store.close()
    assert "replace" not in [name for name, path in disk.calls if path.endswith("/agent.json")]
    assert other.peek("agent-1").record.name == "theirs"
    other.close()


def test_a_conversation_forgotten_right_after_it_was_closed_leaves_no_complaint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The sync that was still to come finds nothing, and that is fine."""
    store = FileStore(tmp_path / "store")
    log = store.create(stored())
    log.append(EntryAdded(said(0)))
    log.close()
    store.forget("agent-1")
    store.close()

    # Another test's store may still be complaining, from its own thread.
    assert [record for record in caplog.records if str(tmp_path) in record.getMessage()] == []


def test_a_log_that_something_else_wrote_to_is_not_written_to(tmp_path: Path) -> None:
    """An editor or a restored backup under an open conversation is noticed ahead of the first write."""
    store = FileStore(tmp_path / "store")
    log = store.create(stored())
    log.append(EntryAdded(said(0)))
    asyncio.run(log.sync())
    path = tmp_path / "store/agents/agent-1/transcript.jsonl"
    with path.open("ab") as file:
        file.write(b"something else")

    with pytest.raises(CorruptStore, match="something else wrote to it"):
        log.append(EntryAdded(said(1)))
    assert path.read_bytes().endswith(b"something else")
    log.close()
    store.close()


def test_the_append_never_waits_for_the_disk(tmp_path: Path) -> None:
    """While a sync hangs, the loop's thread goes on appending and saving (architecture.md 5)."""
    disk = FaultyDisk()
    store = FileStore(tmp_path / "store", disk=disk)
    log = store.create(stored())
    hangs, go_on = threading.Event(), threading.Event()

    def hang(name: str, path: str) -> None:
        if name.startswith("sync"):
            hangs.set()
            assert go_on.wait(10)

    disk.fault = hang
    log.append(EntryAdded(said(0)))
    assert hangs.wait(10)
    for number in range(1, 50):
        log.append(EntryAdded(said(number)))
    log.save(stored(name="new"))
    assert len(store.peek("agent-1").transcript) == 50
    go_on.set()
    log.close()
    store.close()
