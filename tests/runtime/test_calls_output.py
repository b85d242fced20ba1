"""What the model gets of a long result: cut, kept, in pages (runtime.md 4.8, 4.9)."""

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.errors import UsageError
from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.hooks.contract import Replace
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.store.results import ResultStore
from basis_daemon.runtime.tools.base import ToolError, ToolOutput
from basis_daemon.runtime.tools.output import shorten
from basis_daemon.runtime.tools.paging import MAX_KEPT, Pager, ToolResultPaging
from basis_daemon.testing import MockRuntimeBuilder
from basis_protocol.events import ToolCompleted
from support.rounds import Hook, a_tool, call, empty, noting, one_round, run_round

pytestmark = pytest.mark.anyio

LONG = "".join(f"line {number}\n" for number in range(1, 20_001))


def giving(answer: Any) -> MockRuntimeBuilder:
    return empty().with_tool(a_tool("give", noting([], answer=answer)))


# --- kept -------------------------------------------------------------------------------------------------------------


async def test_all_of_a_cut_result_is_kept_and_the_marker_says_where(store: FileStore) -> None:
    """TL-34, TL-36: privately, beside the conversation; a client pages it by the id its event bears."""
    builder = giving(LONG).with_store(store).tool_calls(call("give")).text("done")
    mock = await anyio.to_thread.run_sync(builder.build)
    async with mock:
        done = await one_round(mock)
    (event,) = done.of(ToolCompleted)
    assert event.result_id is not None and f"all of it is kept as {event.result_id}]" in done.text()
    assert done.details["tool-1"]["result_id"] == event.result_id
    agent_id, _, result_id = event.result_id.partition("/")

    def kept() -> tuple[str, int, int]:
        directory = store.directory(agent_id)
        assert directory is not None
        (file,) = (directory / "results").iterdir()
        return file.read_text(), file.stat().st_mode & 0o777, (directory / "results").stat().st_mode & 0o777

    assert await anyio.to_thread.run_sync(kept) == (LONG, 0o600, 0o700)
    page = await anyio.to_thread.run_sync(lambda: ResultStore(lambda: store.directory(agent_id)).page(result_id))
    assert page.total_bytes == len(LONG)


async def test_an_error_is_bounded_too() -> None:
    """TL-34: every result is."""

    async def fail(context: Any, input: Any) -> str:
        raise ToolError(LONG)

    done = await run_round(empty().with_tool(a_tool("fail", fail)), call("fail"))
    assert done.only.is_error and "[truncated: showing 2000 of 20000 lines" in done.text()


async def test_nothing_is_kept_where_the_policy_says_so() -> None:
    """TL-36."""
    policy = RuntimePolicy().with_spilled_tool_output(False)
    done = await run_round(giving(LONG), call("give"), config=AgentConfig(policy=policy))
    assert "the rest was not kept]" in done.text()
    assert [event.result_id for event in done.of(ToolCompleted)] == [None]


async def test_a_disk_that_fails_is_said_in_the_marker_and_the_turn_goes_on(store: FileStore) -> None:
    """TL-36: a spill is never raised."""

    async def give(context: Any, input: Any) -> str:
        directory = store.directory(context.agent_id)
        assert directory is not None
        await anyio.Path(directory / "results").write_text("in the way")
        return LONG

    builder = empty().with_tool(a_tool("give", give)).with_store(store).tool_calls(call("give")).text("done")
    mock = await anyio.to_thread.run_sync(builder.build)
    async with mock:
        done = await one_round(mock)
    assert done.report.status == "ok" and not done.only.is_error
    assert "the rest could not be kept: " in done.text() and "[truncated: showing 2000 of 20000" in done.text()


async def test_what_a_hook_took_out_is_kept_nowhere(store: FileStore, tmp_path: Path) -> None:
    """TL-19: what is kept of a result is what hooks left of it."""
    cleaned = Hook(behind_says=Replace(LONG.replace("line 7\n", "[removed]\n")))
    builder = giving(LONG).with_store(store).with_post_hook(cleaned).tool_calls(call("give")).text("done")
    mock = await anyio.to_thread.run_sync(builder.build)
    async with mock:
        await one_round(mock)

    def everything() -> str:
        files = (path for path in (tmp_path / "store").rglob("*") if path.is_file())
        return "".join(path.read_text() for path in files)

    text = await anyio.to_thread.run_sync(everything)
    assert "[removed]" in text and "line 7\n" not in text and "line 7\\n" not in text


async def test_what_is_bounded_at_its_source_is_given_whole() -> None:
    """TL-38, D-83."""
    done = await run_round(giving(ToolOutput(LONG, keep_whole=True)), call("give"))
    assert done.text() == LONG


@given(
    text=st.text(alphabet="aä😀\n", max_size=3000),
    max_bytes=st.integers(600, 2000),
    note=st.text(alphabet="nä", max_size=100),
)
def test_a_marker_with_its_note_stays_within_the_limit(text: str, max_bytes: int, note: str) -> None:
    """TL-34, TL-36."""
    policy = RuntimePolicy().with_max_tool_result_bytes(max_bytes).with_max_tool_result_lines(50)
    shortened = shorten(text, policy, note=note)
    assert len(shortened.text.encode()) <= max_bytes
    if shortened.is_cut and note:
        assert f"; {note}]" in shortened.text


# --- pages ------------------------------------------------------------------------------------------------------------


PAGING = ToolResultPaging(threshold_bytes=64 * 1024, page_bytes=32 * 1024)


async def paged(answer: Any, *reads: Any, policy: RuntimePolicy | None = None) -> list[str]:
    """The first page of a result, and what is read of it then."""
    builder = giving(answer).tool_calls(call("give", "c1"))
    for read in reads:
        builder = builder.tool_calls(read)
    config = AgentConfig(tool_result_paging=PAGING, policy=policy)
    async with builder.text("done").build() as mock, mock.spawn(config=config) as agent:
        await agent.send("go")
        blocks = [entry.message.content[0] for entry in agent.transcript if entry.kind == "tool_exchange"]
    return [block.as_text() for block in blocks]  # type: ignore[union-attr]


def read(start_line: Any, tool_use_id: str = "c1") -> Any:
    return call("read_tool_result", tool_use_id=tool_use_id, start_line=start_line)


async def test_a_long_result_is_read_to_its_end_page_by_page() -> None:
    """TL-37, TL-38, TL-39, D-64, D-65: pages begin where the trailer says, and together are the result. Numbers for
    people have separators; the one in the call has none."""
    first, *_ = await paged(LONG)
    body, trailer = first.rsplit("\n", 1)
    found = re.fullmatch(
        r"…\[paged: lines 1–([\d,]+) of 20,000 \(([\d,.]+) KB of ([\d,.]+) KB\)\. "
        r'Call read_tool_result\(tool_use_id="c1", start_line=(\d+)\) for the next window\.\]',
        trailer,
    )
    assert found is not None and len(body.encode()) <= PAGING.page_bytes
    assert int(found[1].replace(",", "")) + 1 == int(found[4]) > 1000 and "," in found[1]
    starts = [int(found[4])]
    pages = [body]
    while True:
        *_, page = await paged(LONG, read(starts[-1]))
        body, trailer = page.rsplit("\n", 1)
        pages.append(body)
        if trailer == "…[end of result]":
            break
        starts.append(int(re.search(r"start_line=(\d+)\)", trailer)[1]))  # type: ignore[index]
    assert "\n".join(pages) + "\n" == LONG


async def test_reading_a_page_again_gives_the_same_and_asks_for_what_is_there() -> None:
    """TL-38: past the end, unknown calls, lines that are none, and whole numbers written with a point."""
    _, again, twice, past, foreign, zero, pointed = await paged(
        LONG, read(3000), read(3000), read(99_999), read(1, "c9"), read(0), read(3000.0)
    )
    assert again == twice == pointed and again.startswith("line 3000\n")
    assert past == "…[end of result]"
    assert "no long result of a call 'c9'" in foreign and "at least 1" in zero


async def test_pages_are_neither_paged_nor_cut_again() -> None:
    """TL-38: whatever the limits are set to, which then are not raised (TL-39)."""
    small = RuntimePolicy().with_max_tool_result_bytes(70_000).with_max_tool_result_lines(10_000)
    first, second = await paged(LONG, read(1), policy=small)
    assert first == second and "start_line=" in first
    tight = RuntimePolicy().with_max_tool_result_bytes(1000)
    (first,) = await paged(LONG, policy=tight)
    assert "[truncated: " in first and "paged" not in first


async def test_short_results_and_structured_ones_have_no_pages() -> None:
    """TL-37: text above the threshold has."""
    (short,) = await paged("x" * PAGING.threshold_bytes)
    assert short == "x" * PAGING.threshold_bytes
    (structured,) = await paged({"a": ["x" * 1000] * 100})
    assert structured.startswith('{"a":')


async def test_pages_belong_to_one_agent() -> None:
    """TL-38, appendix C 2: another one's calls are unknown, whatever id it names."""
    builder = giving(LONG).tool_calls(call("give", "c1")).text("done").tool_calls(read(2)).text("done")
    config = AgentConfig(tool_result_paging=PAGING)
    async with builder.build() as mock, mock.spawn(config=config) as first:
        await first.send("go")
        done = await one_round(mock, config=config)
    assert done.only.is_error and "no long result" in done.text()


async def test_a_line_longer_than_a_page_is_shown_in_part_and_the_next_one_follows() -> None:
    """TL-37: the notice gives line, bytes shown and bytes there are."""
    text = "first\n" + "ä" * 40_000 + "\nlast"
    first, second, third = await paged(text, read(2), read(3))
    assert first.startswith("first\n…[paged: lines 1–1 of 3 ")
    assert "…[line 2 is longer than a page: 32,768 of 80,000 bytes shown]" in second and "start_line=3" in second
    assert third == "last\n…[end of result]"


@pytest.mark.parametrize("paging", [{"page_bytes": 0}, {"threshold_bytes": -1}])
def test_paging_that_makes_no_sense_is_refused(paging: dict[str, int]) -> None:
    """TL-37: a page has at least a byte."""
    with pytest.raises(UsageError):
        ToolResultPaging(**paging)


@given(text=st.text(alphabet="aä😀\n", min_size=1, max_size=400), page_bytes=st.integers(1, 60))
def test_pages_always_come_to_an_end_and_hold_whole_lines(text: str, page_bytes: int) -> None:
    """TL-37: for any text and any page; what can't be shown whole is said to be cut."""
    pager = Pager(ToolResultPaging(threshold_bytes=0, page_bytes=page_bytes))
    page = pager.first_page("c1", text)
    lines = text.removesuffix("\n").split("\n")
    seen: list[str] = []
    for _ in range(len(lines) + 1):
        body, trailer = page.rsplit("\n", 1)
        cut = re.search(r"\n…\[line ([\d,]+) is longer than a page", body)
        if cut:
            beginning = body[: cut.start()]
            assert lines[len(seen)].startswith(beginning) and len(beginning.encode()) <= page_bytes
            seen.append(lines[len(seen)])
        else:
            assert len(body.encode()) <= page_bytes
            seen += body.split("\n")
        following = re.search(r"start_line=(\d+)\)", trailer)
        if following is None:
            break
        assert int(following[1]) == len(seen) + 1
        page = pager.page("c1", len(seen) + 1)
    assert seen == lines and trailer == "…[end of result]"


def test_old_results_make_room_for_new_ones() -> None:
    """TL-38: what an agent's pages may take in memory is bounded, and what goes is said."""
    pager = Pager(ToolResultPaging(threshold_bytes=1, page_bytes=10))
    for number in range(MAX_KEPT + 1):
        pager.first_page(f"c{number}", "some text")
    assert pager.page("c1", 1).startswith("some text")
    with pytest.raises(ToolError, match="repeated"):
        pager.page("c0", 1)


def test_a_session_that_takes_anothers_place_has_its_pages() -> None:
    old, new = Pager(ToolResultPaging(threshold_bytes=1)), Pager(ToolResultPaging(threshold_bytes=1))
    old.first_page("c1", "old text")
    new.adopt(old)
    assert new.page("c1", 1).startswith("old text")
