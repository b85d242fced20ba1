"""The frame of a turn: what comes before its header, what a host is told whatever happens (workspace.md 4.3, 4.5)."""

import os
from pathlib import Path

import anyio
import pytest

from basis_daemon.errors import BasisError, BudgetExhausted, Busy, EmptyPrompt
from basis_daemon.runtime.limits import ProviderRetry, TurnOptions
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.runtime.turn_end import describe
from basis_daemon.workspace.budget import BudgetPool
from basis_protocol.events import AnyEvent, RunFinished, RunStarted, Usage, UsageReported
from support.model_server import calls, fails, hangs, says, tool
from support.sdk import Person, say, scene

pytestmark = pytest.mark.anyio

WRITE = calls(tool("write", {"path": "new.txt", "content": "x"}))
AT_ONCE = ProviderRetry(base_delay_s=0, max_delay_s=0)


async def test_a_refused_turn_leaves_no_trace(tmp_path: Path) -> None:
    """TN-1, TN-2: a spent pool, and then a blank prompt, are found before the header."""
    pool = BudgetPool(1)
    pool.record(Usage(input_tokens=1))
    events: list[AnyEvent] = []
    async with scene(tmp_path) as on:
        run = on.workspace.prepare()
        with pytest.raises(BudgetExhausted):
            await run.send("go", emit=events.append, approver=Person(), options=pool.bounds())
        with pytest.raises(EmptyPrompt):
            await run.send("\n", emit=events.append, approver=Person())
        run.close()
        assert on.server.requests == []
    assert events == [] and len(run.transcript) == 0


async def test_a_sink_that_fails_does_not_stop_the_turn(tmp_path: Path) -> None:
    """TN-5, TN-8: it is not called again; questions are still answered, tokens counted, and the report says so."""
    heard: list[AnyEvent] = []
    person = Person()

    def breaks(event: AnyEvent) -> None:
        heard.append(event)
        raise OSError("broken pipe")

    async with scene(tmp_path, WRITE, says("done")) as on:
        run = on.workspace.prepare()
        report = await run.send("go", emit=breaks, approver=person)
        run.close()
        assert (on.repo / "new.txt").exists()
    assert len(heard) == 1 and isinstance(heard[0], RunStarted)
    assert report.succeeded and report.usage.total_tokens > 0 and len(person.asked) == 1
    assert isinstance(report.sink_error, OSError)


def test_a_failure_is_told_with_its_causes_once() -> None:
    """TN-4: joined, and without saying anything twice."""
    try:
        try:
            try:
                raise BasisError("the disk is full")
            except BasisError as error:
                raise BasisError("can't write the log") from error
        except BasisError as error:
            raise BasisError("not kept: can't write the log", hint="make room") from error
    except BasisError as error:
        told = describe(error)
    assert told == "not kept: can't write the log: the disk is full (make room)"


async def test_usage_is_what_providers_reported(tmp_path: Path) -> None:
    """BD-4, EV-4: the sum of the turn's usage events, and what `run_finished` says."""
    async with scene(tmp_path, WRITE, says("done")) as on:
        run = on.workspace.prepare()
        told = await say(run, "go")
        run.close()
    reported = told.of(UsageReported)
    total = sum(event.input_tokens + event.output_tokens for event in reported)
    assert len(reported) == 2 and told.report.usage.total_tokens == total > 0
    assert told.one(RunFinished).usage == told.report.usage


async def test_retries_are_no_bound_but_a_deadline_bounds_them(tmp_path: Path) -> None:
    """BD-5."""
    async with scene(tmp_path, fails(503), fails(503), says("done"), hangs()) as on:
        run = on.workspace.prepare()
        tight = TurnOptions(tool_budget=0, token_budget=1_000_000, retry=AT_ONCE)
        assert (await say(run, "go", options=tight)).report.final_message == "done"
        with anyio.fail_after(10):
            late = await say(run, "go", options=TurnOptions(deadline_s=0.2))
        run.close()
    assert (late.report.status, late.report.stopped_by) == ("error", "deadline")


async def test_a_second_turn_at_the_same_time_is_refused(tmp_path: Path) -> None:
    """PU-1, AG-4."""
    asked, answered = anyio.Event(), anyio.Event()

    class Slow(Person):
        async def approve(self, request):  # type: ignore[no-untyped-def]
            asked.set()
            await answered.wait()
            return await super().approve(request)

    async with scene(tmp_path, WRITE, says("done")) as on:
        run = on.workspace.prepare()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(say, run, "one", Slow())
            await asked.wait()
            with pytest.raises(Busy):
                await say(run, "two")
            answered.set()
        run.close()


def test_a_store_that_was_replaced_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-49, RT-6: the default one leaves nothing on disk."""
    monkeypatch.setenv("BASIS_DATA_DIR", str(tmp_path / "default"))
    built = Runtime.builder().with_store_dir(tmp_path / "mine").build()
    anyio.run(built.aclose)
    assert os.listdir(tmp_path) == ["mine"]
