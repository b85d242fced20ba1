"""What a power cut may take, and what it may not (ST-8, ST-21, ST-23; architecture.md 5)."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from basis_daemon.runtime.store.base import EntryAdded
from basis_daemon.runtime.store.files import FileStore
from support.store_disks import ForgetfulDisk
from support.stored import said, stored


@dataclass(frozen=True)
class Promise:
    """What `sync` had returned for: `None` ahead of the first."""

    turns: int
    entries: int


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[ForgetfulDisk]:
    (tmp_path / "store").mkdir()
    disk = ForgetfulDisk(tmp_path / "store")
    yield disk
    disk.release()


async def _live_through(store: FileStore, disk: ForgetfulDisk) -> None:
    """A conversation's life with every kind of write in every order, synced now and then."""
    entries, turns = 0, 0
    log = store.create(stored())
    for step in ("append", "sync", "append", "append", "save", "sync", "save", "save", "append", "sync", "append"):
        if step == "append":
            log.append(EntryAdded(said(entries)))
            entries += 1
        elif step == "save":
            turns += 1
            log.save(stored(turns=turns))
        else:
            await log.sync()
            disk.promised = Promise(turns, entries)
    log.close()
    log = store.open("agent-1")[1]
    log.save(stored(turns=turns + 1))
    log.append(EntryAdded(said(entries)))
    await log.sync()
    disk.promised = Promise(turns + 1, entries + 1)
    log.close()


def _laid_out(outcome: dict[str, bytes], old_root: Path, new_root: Path) -> FileStore:
    for path, content in outcome.items():
        place = new_root / Path(path).relative_to(old_root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return FileStore(new_root)


def _check(store: FileStore, promise: Promise | None, where: str) -> None:
    if store.record("agent-1") is None:
        assert promise is None, f"{where}: the conversation is gone"
        assert list(store.list()) == []
        return
    found, log = store.open("agent-1")
    kept = len(found.transcript)
    assert kept >= (promise.entries if promise else 0), f"{where}: entries are missing"
    assert [entry.id for entry in found.transcript] == [f"entry-{number}" for number in range(kept)]
    assert found.record.turns >= (promise.turns if promise else 0), f"{where}: the record is older than promised"
    assert store.list() == [found.record]
    log.append(EntryAdded(said(kept)))  # and it goes on
    log.close()
    assert len(store.peek("agent-1").transcript) == kept + 1
    store.close()


@pytest.mark.slow
def test_no_power_cut_takes_what_was_promised_or_leaves_something_torn(disk: ForgetfulDisk, tmp_path: Path) -> None:
    """At every call to the disk, whatever the disk then kept of what was not synced, the conversation loads."""
    root = tmp_path / "store"
    store = FileStore(root, disk=disk)
    asyncio.run(_live_through(store, disk))
    store.close()

    outcomes = [(moment, outcome) for moment in disk.moments for outcome in moment.outcomes]
    assert len(outcomes) > 200
    for number, (moment, outcome) in enumerate(outcomes):
        assert moment.promised is None or isinstance(moment.promised, Promise)
        left = _laid_out(outcome, root, tmp_path / f"cut-{number}")
        _check(left, moment.promised, f"{moment.call} (state {number})")
