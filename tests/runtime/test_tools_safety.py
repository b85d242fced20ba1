"""File tools against somebody who changes the file system under them (runtime.md appendix C, 3 and 4)."""

import asyncio
import itertools
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from basis_daemon.errors import BasisError, PolicyDenied
from basis_daemon.runtime.tools import file_writes, text_files
from basis_daemon.runtime.tools.base import ToolError
from basis_daemon.runtime.tools.edit import EditTool, WriteTool
from basis_daemon.runtime.tools.file_writes import StaleFile
from basis_daemon.runtime.tools.files import LsTool, ReadTool
from basis_daemon.runtime.tools.ledger import ReadLedger
from basis_daemon.runtime.tools.nofollow import open_directory
from basis_daemon.runtime.tools.search import GrepTool
from basis_daemon.runtime.tools.threads import Stop, in_thread
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio

read, ls, grep, write, edit = ReadTool(), LsTool(), GrepTool(), WriteTool(), EditTool()


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    """A repository, and outside of it what must neither be read nor written."""
    root = tmp_path.resolve() / "repo"
    (root / "dir").mkdir(parents=True)
    (root / "dir" / "file").write_text("inside")
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("SECRET")
    return Caller(root, ledger=None)


@contextmanager
def swapping(place: Path, target: Path) -> Generator[None]:
    """While this lasts `place` is, turn by turn, itself and a link to `target`."""
    done = threading.Event()
    aside = place.with_name("aside")

    made = itertools.count()

    def swap() -> None:
        while not done.is_set():
            place.rename(aside)
            with suppress(FileExistsError):
                place.symlink_to(target)
                place.unlink()
            while aside.exists():
                try:
                    aside.rename(place)
                except OSError:  # made anew by a write, in the moment there was none
                    place.rename(place.with_name(f"made{next(made)}"))

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


async def test_directory_swapped_for_a_link_leads_nowhere(caller: Caller) -> None:
    """PO-7: what is opened is what was authorised, however often it changes in between."""
    outside = caller.root.parent / "outside"
    seen: set[str] = set()
    with swapping(caller.root / "dir", outside):
        for number in range(150):
            with suppress(BasisError):
                seen.add(await caller.text(read, path="dir/file"))
            with suppress(BasisError):
                seen.add(await caller.text(grep, pattern="SECRET"))
            with suppress(BasisError):
                seen.add(await caller.text(ls, path="dir"))
            with suppress(BasisError):
                await caller.call(write, path="dir/file", content=f"written {number}")
            with suppress(BasisError):
                await caller.call(write, path=f"dir/new{number}/x", content="x")

    assert not any("SECRET" in text for text in seen)
    assert os.listdir(outside) == ["file"]
    assert (outside / "file").read_text() == "SECRET"


async def test_file_swapped_for_a_link_is_not_written_through(caller: Caller) -> None:
    """PO-7."""
    secret = caller.root.parent / "outside" / "file"
    with swapping(caller.root / "dir" / "file", secret):
        for number in range(150):
            with suppress(BasisError):
                assert "SECRET" not in await caller.text(read, path="dir/file")
            with suppress(BasisError):
                await caller.call(write, path="dir/file", content=f"written {number}")

    assert secret.read_text() == "SECRET"


def test_no_component_may_be_a_link(caller: Caller) -> None:
    (caller.root / "link").symlink_to(caller.root.parent / "outside")
    for path in ("link", "link/below"):
        with pytest.raises(NotADirectoryError):
            os.close(open_directory(str(caller.root / path)))


async def test_two_agents_never_lose_each_others_change(caller: Caller) -> None:
    """Both read the same version; one change wins, the other is refused or comes on top."""
    file = caller.root / "dir" / "file"
    for _ in range(30):
        file.write_text("one\ntwo\n")
        agents = [Caller(caller.root, ledger=ReadLedger()) for _ in range(2)]
        for agent in agents:
            await agent.call(read, path="dir/file")
        outcomes: list[str] = []

        async def change(agent: Caller, word: str, outcomes: list[str] = outcomes) -> None:
            try:
                await agent.execute(edit, path="dir/file", edits=[{"old_string": word, "new_string": word.upper()}])
                outcomes.append(word)
            except StaleFile:
                outcomes.append("refused")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(change(agents[0], "one"))
            tasks.create_task(change(agents[1], "two"))

        expected = "one\ntwo\n"
        for word in outcomes:
            expected = expected.replace(word, word.upper())
        assert file.read_text() == expected
        assert sorted(outcomes) != ["refused", "refused"]


def test_file_written_between_reading_and_replacing_is_kept(caller: Caller) -> None:
    """The last look before the rename."""
    path = caller.root / "dir" / "file"
    stored = text_files.read(path)
    path.write_text("person")
    with pytest.raises(StaleFile):
        file_writes.replace(path, b"agent", expected=stored)
    with pytest.raises((StaleFile, ToolError)):
        file_writes.replace(path, b"agent", expected=None)

    assert path.read_text() == "person"
    assert os.listdir(path.parent) == ["file"]


async def test_cancelled_write_does_not_happen_later(caller: Caller) -> None:
    """A call that is over changes nothing any more."""
    cancelled = threading.Event()
    loop, scope = asyncio.get_running_loop(), anyio.CancelScope()

    def work(stop: Stop) -> None:
        loop.call_soon_threadsafe(scope.cancel)
        loop.call_soon_threadsafe(lambda: loop.call_later(0.05, cancelled.set))
        assert cancelled.wait(5)
        stop.check()
        (caller.root / "late").touch()

    with scope:
        await in_thread(work)
    assert scope.cancelled_caught and cancelled.is_set()
    assert not (caller.root / "late").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
async def test_places_without_permission_are_refused_with_the_reason(caller: Caller) -> None:
    (caller.root / "dir" / "file").chmod(0)
    with pytest.raises(ToolError, match="permission denied"):
        await caller.call(read, path="dir/file")


@pytest.mark.parametrize("name", ["a" * 256, "x/" * 3000 + "y"])
async def test_overlong_names_are_refused(caller: Caller, name: str) -> None:
    for tool, more in ((read, {}), (write, {"content": "x"}), (ls, {}), (grep, {"pattern": "x"})):
        with pytest.raises((ToolError, PolicyDenied)):
            await caller.call(tool, path=name, **more)
