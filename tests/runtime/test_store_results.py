"""Full tool results, kept for paging (TL-36, `basis/tool/result`)."""

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.errors import InvalidInput, StoreError
from basis_daemon.runtime.store.results import KEPT, KEPT_S, MEMORY_BYTES, ResultStore
from support.store_disks import FaultyDisk


@pytest.fixture(params=["files", "memory"])
def results(request: pytest.FixtureRequest, tmp_path: Path) -> ResultStore:
    directory = tmp_path if request.param == "files" else None
    return ResultStore(lambda: directory)


def _paged(results: ResultStore, result_id: str, limit: int) -> tuple[str, int]:
    """The whole text, page by page, and how many pages it took."""
    parts: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = results.page(result_id, offset, limit)
        parts.append(page.text)
        assert page.next_offset is None or page.next_offset > offset
        offset = page.next_offset
    return "".join(parts), len(parts)


def test_a_result_is_paged_in_pieces_of_the_size_asked_for(results: ResultStore) -> None:
    """Offsets count bytes; the last page says that it is the last."""
    result_id = results.write("abcdefghij")

    assert results.page(result_id) == ("abcdefghij", None, 10)
    assert results.page(result_id, 0, 4) == ("abcd", 4, 10)
    assert results.page(result_id, 4, 4) == ("efgh", 8, 10)
    assert results.page(result_id, 8, 4) == ("ij", None, 10)
    assert results.page(result_id, 10, 4) == ("", None, 10)
    assert results.page(result_id, 999, 4) == ("", None, 10)


def test_no_character_is_split(results: ResultStore) -> None:
    """A page ends ahead of one that does not fit, and holds at least one; an offset inside one starts at the next."""
    result_id = results.write("aä€😀")

    assert results.page(result_id, 0, 2) == ("a", 1, 10)
    assert results.page(result_id, 1, 1) == ("ä", 3, 10)
    assert results.page(result_id, 6, 3) == ("😀", None, 10)
    assert results.page(result_id, 4, 4) == ("😀", None, 10)


@given(text=st.text(alphabet=st.sampled_from("ab\n\0é€😀\u0301"), max_size=60), limit=st.integers(1, 12))
def test_pages_add_up_to_the_result(text: str, limit: int) -> None:
    """Whatever the page size, nothing is lost or said twice."""
    results = ResultStore(lambda: None)
    found, pages = _paged(results, results.write(text), limit)
    assert found == text
    assert pages <= len(text) + 1


def test_an_empty_result_is_one_empty_page(results: ResultStore) -> None:
    assert results.page(results.write("")) == ("", None, 0)


def test_text_that_is_no_unicode_can_be_kept_and_sent(results: ResultStore) -> None:
    """Odd bytes of a command's output become escapes a person can read."""
    assert results.page(results.write("a\udcffb")).text == "a\\udcffb"


@pytest.mark.parametrize(
    "id",
    ["", "../agent.json", "r-0/../../x", "r-0123456789abcdef-01234567", "/etc/passwd", "r-0123456789abcdef-0123456\n"],
)
def test_an_id_that_was_never_given_out_is_refused(results: ResultStore, id: str, tmp_path: Path) -> None:
    """Clients send ids: none of them reaches another file."""
    (tmp_path / "agent.json").write_text("secret")
    (tmp_path / "agent.json.txt").write_text("secret")
    results.write("x")

    with pytest.raises(InvalidInput, match="no tool result"):
        results.page(id)


def test_the_newest_are_kept(results: ResultStore) -> None:
    """Older ones make room (TL-36)."""
    ids = [results.write(str(number)) for number in range(KEPT + 3)]

    for gone in ids[:3]:
        with pytest.raises(InvalidInput):
            results.page(gone)
    assert [results.page(id).text for id in ids[3:]] == [str(number) for number in range(3, KEPT + 3)]


def test_results_are_private_files_of_the_conversation(tmp_path: Path) -> None:
    """Nothing is there ahead of the first; modes are 0600 and 0700."""
    results = ResultStore(lambda: tmp_path)
    assert os.listdir(tmp_path) == []

    result_id = results.write("x")

    path = tmp_path / "results" / f"{result_id}.txt"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert ResultStore(lambda: tmp_path).page(result_id).text == "x"


def test_a_week_old_result_makes_way_and_other_files_stay(tmp_path: Path) -> None:
    """Age is told by the id, so a copied store prunes the same."""
    results = ResultStore(lambda: tmp_path)
    (tmp_path / "results").mkdir()
    week_ns = time.time_ns() - KEPT_S * 1_000_000_000
    old, young = (f"r-{week_ns + delta_s * 1_000_000_000:016x}-00000000" for delta_s in (-60, 60))
    for name in (f"{old}.txt", f"{young}.txt", "note.txt"):
        (tmp_path / "results" / name).write_text("x")

    result_id = results.write("y")

    assert set(os.listdir(tmp_path / "results")) == {f"{young}.txt", f"{result_id}.txt", "note.txt"}


def test_a_conversation_that_gets_a_directory_keeps_results_there(tmp_path: Path) -> None:
    """The directory is asked for at every call: it comes with the first prompt."""
    directory: list[Path | None] = [None]
    results = ResultStore(lambda: directory[0])
    results.write("in memory")
    directory[0] = tmp_path

    result_id = results.write("on disk")

    assert os.listdir(tmp_path / "results") == [f"{result_id}.txt"]


def test_memory_is_bounded() -> None:
    """The oldest make way, and one that can never fit is refused."""
    results = ResultStore(lambda: None)
    half = "x" * (MEMORY_BYTES // 2)
    first, second, third = (results.write(half) for _ in range(3))

    with pytest.raises(InvalidInput):
        results.page(first)
    assert results.page(second).total_bytes == results.page(third).total_bytes == len(half)
    with pytest.raises(StoreError, match="too large"):
        results.write("x" * (MEMORY_BYTES + 1))


@pytest.mark.parametrize("at", ["mkdir", "open", "write"])
def test_a_result_that_cannot_be_kept_leaves_nothing(tmp_path: Path, at: str) -> None:
    """The caller says so in what the model reads; half a file is not left behind."""
    disk = FaultyDisk()
    disk.half_writes = True

    def fail(name: str, path: str) -> None:
        if name == at:
            raise OSError(28, "No space left on device")

    disk.fault = fail
    results = ResultStore(lambda: tmp_path, disk=disk)
    with pytest.raises(StoreError, match="No space left"):
        results.write("some text")
    assert not list(tmp_path.rglob("*.txt"))


def test_many_threads_may_keep_results_at_once(results: ResultStore) -> None:
    """Tools run side by side; every result gets an id of its own."""
    ids: list[str] = []

    def write() -> None:
        ids.extend(results.write("x") for _ in range(20))

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 160
    assert all(results.page(id).text == "x" for id in ids)
