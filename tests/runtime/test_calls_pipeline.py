"""A round of calls: lanes, order, limits, contexts, and results of every shape (runtime.md 4.1, 4.4, 4.7)."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.errors import BasisError
from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.permissions import Authorization, AuthorizationRequest
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    FunctionTool,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSpec,
    default_preparation,
)
from basis_daemon.runtime.tools.threads import Stop, in_thread
from basis_daemon.testing import MockRuntime
from basis_protocol.content import FileDiff
from basis_protocol.events import ToolCompleted, ToolProgress, ToolQueued, ToolStarted
from support.rounds import Hook, Watching, a_tool, call, empty, noting, run_round

pytestmark = pytest.mark.anyio

PARALLEL = "read_only_parallel"


class Judges:
    """An authorizer that notes what it is asked and answers as it is told to, by the call's number."""

    def __init__(self, *denied: int) -> None:
        self.requests: list[AuthorizationRequest] = []
        self.denied = denied
        self.at_work = 0
        self.most_at_work = 0

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        self.requests.append(request)
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        await asyncio.sleep(0)
        self.at_work -= 1
        return Authorization("deny" if request.raw_input.get("n") in self.denied else "allow")


# --- scheduling -------------------------------------------------------------------------------------------------------


async def test_reads_run_side_by_side_eight_at_most_and_everything_else_alone() -> None:
    """TL-30: results are in call order whatever finished first."""
    running, most, alone = 0, 0, list[int]()
    full = asyncio.Event()

    async def read(context: ToolContext, input: dict[str, Json]) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 8:
            full.set()
        await full.wait()
        await asyncio.sleep(0.001 * (12 - int(input["n"])))
        running -= 1
        return f"read {input['n']}"

    async def change(context: ToolContext, input: dict[str, Json]) -> str:
        alone.append(running)
        return f"changed {input['n']}"

    builder = empty().with_tool(a_tool("read", read, execution=PARALLEL)).with_tool(a_tool("change", change))
    calls = [call("read", n=n) for n in range(10)] + [call("change", n=10), call("read", n=11), call("change", n=12)]
    done = await run_round(builder, *calls)
    assert most == 8 and alone == [0, 0]
    expected = [f"{'changed' if n in (10, 12) else 'read'} {n}" for n in (*range(11), 11, 12)]
    assert [result.content for result in done.results.values()] == expected


async def test_what_may_run_is_settled_in_call_order_also_for_calls_that_run_together() -> None:
    """TL-25: one question at a time, while calls that were allowed run already."""
    ran: list[Any] = []
    judges = Judges(2)
    builder = empty().with_tool(a_tool("read", noting(ran), execution=PARALLEL)).with_tool_authorizer(judges)
    done = await run_round(builder, *(call("read", n=n) for n in range(5)))
    assert [request.raw_input["n"] for request in judges.requests] == [0, 1, 2, 3, 4] and judges.most_at_work == 1
    assert sorted(each["n"] for each in ran) == [0, 1, 3, 4]
    assert [result.is_error for result in done.results.values()] == [False, False, True, False, False]


async def test_a_call_that_was_allowed_runs_while_the_next_one_is_judged() -> None:
    started = asyncio.Event()

    async def read(context: ToolContext, input: dict[str, Json]) -> str:
        started.set()
        return "read"

    class Waits:
        asked = 0

        async def authorize(self, request: AuthorizationRequest) -> Authorization:
            self.asked += 1
            if self.asked == 2:
                with anyio.fail_after(5):
                    await started.wait()
            return Authorization("allow")

    builder = empty().with_tool(a_tool("read", read, execution=PARALLEL)).with_tool_authorizer(Waits())
    done = await run_round(builder, call("read", n=1), call("read", n=2))
    assert [result.content for result in done.results.values()] == ["read", "read"]


async def test_a_call_that_fails_takes_no_other_with_it() -> None:
    """TL-32: however it fails."""
    ways: list[Callable[[], Any]] = [
        lambda: _raise(ValueError("v")),
        lambda: _raise(ToolError("t")),
        lambda: _raise(SystemExit(1)),
        lambda: _raise(asyncio.CancelledError()),
        lambda: _raise(TimeoutError("its own")),
        lambda: _raise(ExceptionGroup("g", [ValueError("x")])),
        lambda: "fine",
    ]
    entered = 0
    everyone = asyncio.Event()

    async def read(context: ToolContext, input: dict[str, Json]) -> Any:
        nonlocal entered
        entered += 1
        if entered == len(ways):
            everyone.set()
        await everyone.wait()
        return ways[int(input["n"])]()

    builder = empty().with_tool(a_tool("read", read, execution=PARALLEL, timeout_s=10))
    done = await run_round(builder, *(call("read", n=n) for n in range(len(ways))))
    assert [result.is_error for result in done.results.values()] == [True] * 6 + [False]
    assert done.report.status == "ok" and "its own" in done.text("tool-5") and "limit" not in done.text("tool-5")
    assert done.text("tool-4") == "read cancelled itself"


def _raise(error: BaseException) -> Any:
    raise error


async def test_cancelling_the_turn_cancels_every_call_of_it() -> None:
    """TL-32, AG-27: and the conversation is as it was before the prompt."""
    left: list[int] = []
    cancel = CancelSignal()

    async def read(context: ToolContext, input: dict[str, Json]) -> str:
        try:
            if input["n"] == 2:
                cancel.set()
            await asyncio.get_running_loop().create_future()
        finally:
            left.append(int(input["n"]))
        return ""

    builder = empty().with_tool(a_tool("read", read, execution=PARALLEL))
    async with builder.tool_calls(*(call("read", n=n) for n in range(3))).build() as mock, mock.spawn() as agent:
        with anyio.fail_after(5):
            report = await agent.send("go", options=TurnOptions(cancel=cancel))
        assert report.status == "cancelled" and sorted(left) == [0, 1, 2] and agent.history == []


async def test_a_batch_beyond_the_budget_does_not_begin() -> None:
    """TL-31: not even as far as the budget would go; hooks are not asked either."""
    ran, hook = list[Any](), Hook()
    builder = empty().with_tool(a_tool("read", noting(ran), execution=PARALLEL)).with_pre_hook(hook)
    async with builder.tool_calls(*(call("read", n=n) for n in range(3))).build() as mock, mock.spawn() as agent:
        report = await agent.send("go", options=TurnOptions(tool_budget=2))
    assert (report.status, report.stopped_by) == ("error", "tool_budget") and ran == hook.asked == []


@pytest.mark.parametrize(("lane", "ends"), [("exclusive_local_mutation", True), (PARALLEL, False)])
async def test_only_a_call_that_runs_alone_may_end_the_turn(lane: str, ends: bool) -> None:
    """TL-32, AG-14."""
    stops = a_tool("stop", noting([], answer=ToolOutput("stopped", terminate=True)), execution=lane)
    async with empty().with_tool(stops).tool_calls(call("stop")).text("went on").build() as mock, mock.spawn() as agent:
        report = await agent.send("go")
        results = [entry for entry in agent.transcript if entry.kind == "tool_exchange"]
    (block,) = results[0].message.content
    assert (report.final_message == "went on") is not ends
    assert block.is_error is not ends and ends == ("stopped" in block.as_text())  # type: ignore[union-attr]


async def test_a_tool_that_ends_the_turn_never_runs_beside_others() -> None:
    """TL-32, TL-24: it is coerced, and the authorizer is told the lane it really has."""
    judges = Judges()
    ending = a_tool("end", noting([], answer=ToolOutput("ok", details=1)), execution=PARALLEL, terminal=True)
    read = a_tool("read", noting([]), execution=PARALLEL)
    builder = empty().with_tool(ending).with_tool(read).with_tool_authorizer(judges)
    await run_round(builder, call("read", n=1), call("end"), call("read", n=2))
    lanes = [(request.tool_name, request.preparation.execution) for request in judges.requests]
    assert lanes == [("read", PARALLEL), ("end", "exclusive_local_mutation")]


async def test_the_preview_names_the_lane_of_this_input() -> None:
    """TL-24, D-55: not what the tool says of itself, nor what its preview says."""
    judges = Judges()

    class Either:
        spec = ToolSpec("either", execution="exclusive_local_mutation")

        def execution_category(self, input: dict[str, Json]) -> Any:
            return PARALLEL if input["n"] else "exclusive_persistent_mutation"

        async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
            return default_preparation(self.spec, input)

        async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
            return ToolOutput("ran")

    await run_round(empty().with_tool(Either()).with_tool_authorizer(judges), call("either", n=1), call("either", n=0))
    lanes = [request.preparation.execution for request in judges.requests]
    assert lanes == [PARALLEL, "exclusive_persistent_mutation"]


async def test_a_lane_that_can_not_be_told_refuses_the_call() -> None:
    class Broken:
        spec = ToolSpec("broken")
        ran = False

        def execution_category(self, input: dict[str, Json]) -> Any:
            raise KeyError("op")

        async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
            return default_preparation(self.spec, input)

        async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
            self.ran = True
            return ToolOutput("ran")

    broken = Broken()
    done = await run_round(empty().with_tool(broken), call("broken"))
    assert not broken.ran and "could not be checked" in done.text()


async def test_a_call_runs_what_its_name_meant_when_its_round_began() -> None:
    """TL-10: handler and description together, also if the first call of the round has both replaced."""
    swapped: list[Any] = []
    running: list[MockRuntime] = []

    async def swap(context: ToolContext, input: dict[str, Json]) -> str:
        running[0].runtime.register_tool(a_tool("work", noting(swapped, answer="new"), input_schema=strict))
        running[0].runtime.unregister_tool("gone")
        return "swapped"

    strict: dict[str, Json] = {"type": "object", "required": ["never given"]}
    builder = empty().with_tool(a_tool("swap", swap))
    for name in ("work", "gone"):
        builder = builder.with_tool(a_tool(name, noting([], answer="old")))
    done = await run_round(builder, call("swap"), call("work"), call("gone"), meanwhile=running.append)
    assert [result.content for result in done.results.values()] == ["swapped", "old", "old"] and swapped == []


# --- time -------------------------------------------------------------------------------------------------------------


async def test_a_call_beyond_its_time_is_ended_and_its_thread_told() -> None:
    """TL-33: the result names tool and limit; what a thread still says is not told."""
    stopped, late = threading.Event(), threading.Event()
    said: list[Callable[[str], None]] = []

    async def slow(context: ToolContext, input: dict[str, Json]) -> str:
        said.append(context.progress)
        context.progress("in time")

        def work(stop: Stop) -> str:
            while not stop.is_set:
                late.wait(0.001)
            stopped.set()
            context.progress("too late")
            return "never seen"

        return await in_thread(work)

    builder = empty().with_tool(a_tool("slow", slow, timeout_s=0.05)).tool_calls(call("slow")).text("done")
    events: list[Any] = []
    async with builder.build() as mock, mock.spawn() as agent:
        with agent.events.tap(events.append), anyio.fail_after(5):
            await agent.send("go")
        assert stopped.is_set()
        said[0]("later still")
        await asyncio.sleep(0)
        (exchange,) = [entry for entry in agent.transcript if entry.kind == "tool_exchange"]
    assert exchange.message.content[0].as_text() == "slow took longer than its limit of 0.05 s"  # type: ignore[union-attr]
    assert [event.progress for event in events if isinstance(event, ToolProgress)] == ["in time"]


# --- events and contexts ----------------------------------------------------------------------------------------------


async def test_events_of_a_round_name_their_call_and_come_in_order() -> None:
    """D-84, AG-33, 6.2: the name is there in every one of them."""
    done = await run_round(empty().with_tool(a_tool("bump", noting([]))), call("bump", "c1", n=1), call("bump", "c2"))
    told = [event for event in done.events if isinstance(event, ToolQueued | ToolStarted | ToolCompleted)]
    assert [(type(event).__name__, event.tool_call_id, event.tool_name) for event in told] == [
        ("ToolQueued", "c1", "bump"),
        ("ToolQueued", "c2", "bump"),
        ("ToolStarted", "c1", "bump"),
        ("ToolCompleted", "c1", "bump"),
        ("ToolStarted", "c2", "bump"),
        ("ToolCompleted", "c2", "bump"),
    ]


async def test_progress_may_come_from_any_thread_and_be_anything() -> None:
    """TL-5."""

    async def work(context: ToolContext, input: dict[str, Json]) -> str:
        context.progress("loop")
        await asyncio.to_thread(context.progress, "thread")
        context.progress("half \ud800 a pair")
        context.progress(5)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        return "done"

    done = await run_round(empty().with_tool(a_tool("work", work)), call("work"))
    assert [event.progress for event in done.of(ToolProgress)] == ["loop", "thread", "half \\ud800 a pair", "5"]


class Settings:
    colour = "blue"


class More(Settings):
    pass


async def test_a_context_says_where_a_call_is_and_what_it_may_use(tmp_path: Path) -> None:
    """TL-4, RT-11: agent, directory, the host's objects, files and commands under the policy."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file.txt").write_bytes("text é\n".encode())
    seen: dict[str, Any] = {}

    async def look(context: ToolContext, input: dict[str, Json]) -> str:
        seen["who"] = (context.agent_id, context.agent_name, context.tool_name, context.tool_call_id)
        seen["where"] = context.working_directory
        seen["below"] = await context.resolve_working_directory("below")
        seen["plain"] = await context.resolve_working_directory()
        seen["text"] = await context.read_file("below/file.txt")
        seen["intent"] = (await context.shell_validation("rm -rf build")).intent
        seen["command"] = (await context.run_command("pwd", cwd=seen["below"])).stdout
        seen["context"] = context.app_context(Settings).colour
        seen["agent"] = context.agent is not None and (context.agent.id, context.agent.depth)
        seen["bounds"] = context.agent is not None and context.agent.child_run_options().is_child
        for name, path in (("outside", "/etc/hostname"), ("missing", "below/none")):
            with pytest.raises(BasisError) as refusal:
                await context.read_file(path)
            seen[name] = str(refusal.value)
        return "looked"

    policy = RuntimePolicy(allow_shell=True)
    builder = empty().with_tool(a_tool("look", look)).with_context(Settings())
    done = await run_round(builder, call("look", "c1"), config=AgentConfig(base_dir=tmp_path, policy=policy))
    assert done.text("c1") == "looked"
    agent_id = seen["who"][0]
    assert seen["who"] == (agent_id, "tested", "look", "c1") and agent_id.startswith("agent-")
    assert seen["where"] == seen["plain"] == tmp_path and seen["below"] == tmp_path / "below"
    assert seen["text"] == "text é\n" and seen["command"] == f"{tmp_path / 'below'}\n"
    assert (seen["intent"], seen["context"]) == ("destructive", "blue")
    assert seen["agent"] == (agent_id, 0) and seen["bounds"] is True
    assert "outside the read roots" in seen["outside"] and "no file" in seen["missing"]


async def test_app_context_is_by_exact_type(tmp_path: Path) -> None:
    """RT-11: the later of two of one type; no subclass stands for its base, and the error names what is missing."""
    texts: list[str] = []

    async def look(context: ToolContext, input: dict[str, Json]) -> str:
        texts.append(context.app_context(Settings).colour)
        return context.app_context(More).colour

    later = Settings()
    later.colour = "green"
    builder = empty().with_tool(a_tool("look", look)).with_context(Settings()).with_context(later)
    done = await run_round(builder, call("look"))
    assert texts == ["green"] and done.only.is_error and "More" in done.text()


# --- results of every shape -------------------------------------------------------------------------------------------


def deep(levels: int) -> Json:
    value: Json = "x"
    for _ in range(levels):
        value = [value]
    return value


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("half \ud800 a pair", "half \\ud800 a pair"),
        (float("nan"), "null"),
        ({"a": (1, 2)}, '{"a":[1,2]}'),
        (object(), "no JSON"),
        ({1: object()}, "no JSON"),
        (deep(500), "nested too deeply"),
        (ToolOutput("x", details={"a": object()}), "no JSON"),
        (ToolOutput("x", diff=(object(),)), "no JSON"),  # type: ignore[arg-type]
        (ToolOutput("x", summary=object()), "no JSON"),  # type: ignore[arg-type]
        (ValueError(Hostile()), "ValueError"),
        (ToolError("x \ud800 y"), "x \\ud800 y"),
        (b"bytes", "Ynl0ZXM="),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:12],
)
async def test_whatever_a_tool_gives_is_a_result_that_can_be_kept_and_sent(given: Any, said: str) -> None:
    """TL-2, AG-29: the turn goes on, the transcript is written and read back."""

    async def give(context: ToolContext, input: dict[str, Json]) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    builder = empty().with_tool(a_tool("give", give)).tool_calls(call("give")).text("done")
    async with builder.build() as mock, mock.spawn() as agent:
        report = await agent.send("go")
        (exchange,) = [entry for entry in agent.transcript if entry.kind == "tool_exchange"]
        assert report.final_message == "done"
        assert said in exchange.message.content[0].as_text()  # type: ignore[union-attr]
        loaded = mock.runtime.store.peek(agent.id)
    assert loaded.transcript.results().keys() == {"tool-1"}


async def test_a_tool_that_returns_no_output_at_all_is_an_error() -> None:
    class Nothing(FunctionTool):
        async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
            return "text"  # type: ignore[return-value]

    done = await run_round(empty().with_tool(Nothing(ToolSpec("nothing"), noting([]))), call("nothing"))
    assert done.only.is_error and "no result a tool can give" in done.text()


async def test_what_a_tool_keeps_of_its_input_or_output_changes_nothing_later() -> None:
    """AP-3: preview, authorizer and run each have an input of their own."""
    ran: list[Any] = []
    judges = Judges()

    class Meddles:
        spec = ToolSpec("meddles")

        async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
            preparation = default_preparation(self.spec, dict(input))
            input["n"] = "changed"
            return preparation

        async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
            ran.append(input["n"])
            self.kept: dict[str, Json] = {"a": [1]}
            return ToolOutput(self.kept)

    meddles = Meddles()
    done = await run_round(empty().with_tool(meddles).with_tool_authorizer(judges), call("meddles", n=1))
    meddles.kept["a"].append(2)
    assert ran == [1] and judges.requests[0].raw_input == {"n": 1} and done.only.content == {"a": [1]}


async def test_a_preview_that_fails_blocks_the_call(caplog: pytest.LogCaptureFixture) -> None:
    """Appendix C 1, TL-23: and so does one that ends itself, or is none."""
    ran: list[Any] = []

    class Broken(FunctionTool):
        async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
            return _raise(errors[int(input["n"])])

    errors = [ValueError("v"), ToolError("not this"), SystemExit(1), asyncio.CancelledError()]
    broken = Broken(ToolSpec("broken", execution="read_only_parallel"), noting(ran))
    with caplog.at_level(logging.CRITICAL):
        done = await run_round(empty().with_tool(broken), *(call("broken", n=n) for n in range(len(errors))))
    assert ran == [] and all(result.is_error for result in done.results.values())
    assert done.report.status == "ok" and done.text("tool-2") == "not this"


@pytest.mark.parametrize("ends", [ValueError("v"), SystemExit(1), asyncio.CancelledError(), None, "allow"])
async def test_an_authorizer_that_has_no_answer_blocks_the_call(ends: Any) -> None:
    """Appendix C 1, TL-23: also one that takes its own task down with it."""
    ran: list[Any] = []

    class Ends:
        async def authorize(self, request: AuthorizationRequest) -> Authorization:
            if isinstance(ends, BaseException):
                raise ends
            return ends

    for lane in ("exclusive_local_mutation", PARALLEL):
        builder = empty().with_tool(a_tool("bump", noting(ran), execution=lane)).with_tool_authorizer(Ends())
        done = await run_round(builder, call("bump"), call("bump"))
        assert all(result.is_error for result in done.results.values()) and len(done.results) == 2
        assert done.report.status == "ok"
    assert ran == []


async def test_reads_are_judged_like_everything_else() -> None:
    """Appendix C 1: a host's authorizer may refuse what has no side effect, too."""
    ran: list[Any] = []
    judges, watching = Judges(1), Watching()
    builder = empty().with_tool(a_tool("read", noting(ran), execution=PARALLEL)).with_tool_authorizer(judges)
    done = await run_round(builder.with_hook(watching), call("read", n=1))
    assert ran == [] and done.text().startswith("Tool execution denied")
    assert watching.kinds().count("tool_authorization_blocked") == 1


async def test_a_diff_is_told_and_a_summary_is_one_line() -> None:
    output = ToolOutput("long\ntext", summary="did it", diff=(FileDiff(path="/a", patch="+x"),))
    done = await run_round(empty().with_tool(a_tool("edit", noting([], answer=output))), call("edit"))
    (event,) = done.of(ToolCompleted)
    assert event.summary == "did it" and event.diff[0].path == "/a"
