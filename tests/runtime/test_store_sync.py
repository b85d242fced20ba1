"""Group commit: who waits for which sync, and for how long (architecture.md 5)."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import anyio
import pytest

from basis_daemon.runtime.store.sync import GroupCommit

pytestmark = pytest.mark.anyio


class Target:
    """Counts its syncs. One lasts until `go_on` is set, and fails with `error`, if any."""

    def __init__(self, *, held: bool = False, calls: int = 1) -> None:
        self.flushes = 0
        self.times: list[float] = []
        self.began = threading.Event()
        self.go_on = threading.Event()
        self.error: Exception | None = None
        self._calls = calls
        if not held:
            self.go_on.set()

    def begin_flush(self) -> list[Callable[[], None]]:
        return [self._sync] * self._calls

    def end_flush(self, error: Exception | None) -> Exception | None:
        self.flushes += 1
        return error

    def _sync(self) -> None:
        self.times.append(time.monotonic())
        self.began.set()
        assert self.go_on.wait(10)
        if self.error is not None:
            raise self.error

    async def has_begun(self) -> None:
        await asyncio.to_thread(self.began.wait, 5)


@pytest.fixture
def commits() -> Iterator[GroupCommit]:
    commits = GroupCommit(idle_s=0.05)
    yield commits
    commits.close()


async def test_callers_that_come_together_share_one_sync(commits: GroupCommit) -> None:
    """Those that come while one is under way share the next: it alone began after their writes."""
    target = Target(held=True)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commits.commit, target)
            await target.has_begun()
            for _ in range(20):
                tasks.start_soon(commits.commit, target)
            await asyncio.sleep(0)
            target.go_on.set()

    assert target.flushes == 2


async def test_what_nobody_asks_for_is_synced_within_the_delay(commits: GroupCommit) -> None:
    """A power cut takes at most a tenth of a second, however long the next boundary is off."""
    target = Target()
    marked = time.monotonic()
    commits.mark(target)
    commits.mark(target)
    await target.has_begun()

    assert 0.05 < target.times[0] - marked < 1.0
    await asyncio.to_thread(commits.close)
    assert target.flushes == 1


async def test_asking_does_not_wait_for_the_delay(commits: GroupCommit) -> None:
    """A person waits for this one."""
    slow = GroupCommit(delay_s=60)
    target = Target()
    slow.mark(target)
    with anyio.fail_after(5):
        await slow.commit(target)
        await asyncio.to_thread(slow.close)

    assert target.flushes == 1


async def test_the_calls_of_one_round_run_side_by_side(commits: GroupCommit) -> None:
    """One commit of the file system's journal serves them all: neither waits for the other to end."""
    one, other = Target(held=True), Target(held=True)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commits.commit, one)
            tasks.start_soon(commits.commit, other)
            await one.has_begun()
            one.go_on.set()
            await other.has_begun()
            other.go_on.set()


async def test_a_target_with_nothing_to_sync_is_told_at_once(commits: GroupCommit) -> None:
    target = Target(calls=0)
    with anyio.fail_after(5):
        await commits.commit(target)
    assert (target.flushes, target.times) == (1, [])


async def test_more_calls_than_threads_are_all_made(commits: GroupCommit) -> None:
    """Twenty sessions that end a turn together."""
    targets = [Target(calls=3) for _ in range(20)]
    with anyio.fail_after(5):
        await asyncio.gather(*(commits.commit(target) for target in targets))
    assert [(target.flushes, len(target.times)) for target in targets] == [(1, 3)] * 20


async def test_nobody_waits_for_a_slower_one_of_the_same_round(commits: GroupCommit) -> None:
    """Each is told as soon as its own calls are done."""
    before, slow, quick = Target(held=True), Target(held=True), Target()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commits.commit, before)
            await before.has_begun()
            tasks.start_soon(commits.commit, slow)
            await asyncio.sleep(0)
            before.go_on.set()
            await commits.commit(quick)
            assert slow.flushes == 0
            slow.go_on.set()


async def test_a_failure_reaches_those_who_wait_for_it_and_nobody_else(
    commits: GroupCommit, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread goes on; an unexpected error is told like an expected one."""
    broken, sound = Target(), Target()
    for error in (OSError(5, "broken"), RuntimeError("a bug")):
        broken.error = error
        with anyio.fail_after(5):
            told, fine = await asyncio.gather(commits.commit(broken), commits.commit(sound), return_exceptions=True)
        assert (told, fine) == (error, None)
    assert len(caplog.records) == 3  # the bug with its traceback


async def test_a_waiter_that_gives_up_disturbs_nobody(commits: GroupCommit) -> None:
    """Cancelled while the disk works; the others still hear."""
    target = Target(held=True)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commits.commit, target)
            await target.has_begun()
            with anyio.move_on_after(0.01):
                await commits.commit(target)
            target.go_on.set()
        await commits.commit(target)
    assert target.flushes >= 2


def test_a_loop_that_is_gone_disturbs_nobody(commits: GroupCommit) -> None:
    """Its process may go on with another loop and the same store."""
    target = Target(held=True)

    async def give_up() -> None:
        with anyio.move_on_after(0.01):
            await commits.commit(target)

    asyncio.run(give_up())
    target.go_on.set()
    asyncio.run(commits.commit(target))
    assert target.flushes >= 1


def test_the_thread_ends_when_idle_and_starts_again() -> None:
    """An idle store costs no thread; a closed one may be used again."""
    others = set(threading.enumerate())
    commits = GroupCommit(delay_s=0, idle_s=0.01)
    target = Target()
    asyncio.run(commits.commit(target))
    for thread in set(threading.enumerate()) - others:
        thread.join(5)
        assert not thread.is_alive()
    commits.close()
    asyncio.run(commits.commit(target))
    commits.mark(target)
    commits.close()
    commits.close()

    assert target.flushes == 3
    assert set(threading.enumerate()) <= others


def test_an_idle_thread_keeps_nothing_alive() -> None:
    """A conversation that was closed and synced can be collected."""
    patient = GroupCommit()
    target = Target()
    asyncio.run(patient.commit(target))
    gone = weakref.ref(target)
    del target
    gc.collect()
    asyncio.run(patient.commit(Target()))  # by now the thread has put the first one down

    assert gone() is None
    patient.close()
