"""A host's code that fails in ways that are no `Exception`, keeps a cancellation to itself, or is only half there: its
call ends, with one result, and nothing else does (runtime.md 4.4, 4.7)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.foreign import Crashed, called, contained
from basis_daemon.runtime.hooks.contract import Allow, Deny, HookOutcome, HookRequest, Modify, Replace
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.permissions import Authorization, AuthorizationRequest
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.base import CallPreparation, FunctionTool, ToolContext, ToolSpec
from basis_daemon.runtime.tools.validate import validate_input
from basis_daemon.testing import MockRuntimeBuilder
from support.rounds import Hook, Watching, a_tool, call, empty, noting, run_round

pytestmark = pytest.mark.anyio

LANES = pytest.mark.parametrize("lane", ["exclusive_local_mutation", "read_only_parallel"])


class Panic(BaseException):
    """What libraries raise that are not Python's inside."""


def raising(error: BaseException) -> Callable[..., Awaitable[Any]]:
    async def fail(*asked: object) -> Any:
        raise error

    return fail


def nested(levels: int) -> Json:
    value: Json = "x"
    for _ in range(levels):
        value = [value]
    return value


class Side:
    """A hook with the sides it is given, and no others."""

    def __init__(self, name: str, **sides: Callable[..., Any]) -> None:
        self.name = name
        self.__dict__ |= sides


# --- failures that are no exceptions ----------------------------------------------------------------------------------


def breaking(where: str, fail: Callable[..., Any], lane: Any) -> MockRuntimeBuilder:
    """A runtime with the tool `bump`, of which one part fails."""
    builder = empty()
    match where:
        case "tool":
            return builder.with_tool(a_tool("bump", fail, execution=lane))
        case "preview":

            class Unseen(FunctionTool):
                async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
                    return await fail()

            return builder.with_tool(Unseen(ToolSpec("bump", execution=lane), noting([])))
        case _:
            builder = builder.with_tool(a_tool("bump", noting([]), execution=lane))
    match where:
        case "authorizer":
            return builder.with_tool_authorizer(Side("a", authorize=fail))  # type: ignore[arg-type]
        case "pre hook":
            return builder.with_pre_hook(fail)
        case "post hook":
            return builder.with_post_hook(fail)
        case "before":
            return builder.with_execution_hook(Side("h", before=fail))  # type: ignore[arg-type]
        case "after":
            return builder.with_execution_hook(Side("h", before=Hook().before, after=fail))  # type: ignore[arg-type]
        case "interceptor":
            return builder.with_interceptor(Side("i", intercept=fail))  # type: ignore[arg-type]
        case _:
            hook = Side("i", intercept=Hook().intercept, intercept_result=fail)
            return builder.with_interceptor(hook)  # type: ignore[arg-type]


@LANES
@pytest.mark.parametrize(
    "where",
    ["tool", "preview", "authorizer", "pre hook", "post hook", "before", "after", "interceptor", "its result"],
)
@pytest.mark.parametrize(
    "error", [Panic("thread panicked"), BaseExceptionGroup("group", [asyncio.CancelledError(), Panic()])], ids=type
)
async def test_a_panic_ends_its_call_and_nothing_else(where: str, lane: str, error: BaseException) -> None:
    """TL-2, TL-20, TL-23, HO-19: one error result a call, in both lanes; the turn goes on."""
    done = await run_round(breaking(where, raising(error), lane), call("bump"), call("bump"))
    assert done.report.status == "ok" and len(done.results) == 2
    assert all(result.is_error for result in done.results.values())


@pytest.mark.parametrize("error", [SystemExit(1), Panic(), asyncio.CancelledError()], ids=type)
@pytest.mark.parametrize("where", ["pre hook", "post hook", "before", "after", "interceptor", "lane"])
async def test_code_that_is_not_async_can_not_end_the_process_either(where: str, error: BaseException) -> None:
    """TL-20, D-51: a hook that fails before it could be waited for; a tool that is asked for its lane."""

    def fail(*asked: object) -> Any:
        raise error

    class Laneless(FunctionTool):
        def execution_category(self, input: dict[str, Json]) -> Any:
            fail()

    ran: list[Any] = []
    builder = breaking(where, fail, "read_only_parallel")
    if where == "lane":
        builder = empty().with_tool(Laneless(ToolSpec("bump"), noting(ran)))
    done = await run_round(builder, call("bump"))
    assert done.report.status == "ok" and done.only.is_error and ran == []


@pytest.mark.parametrize("lane", [None, 5, [], {}, "nonsense"])
async def test_a_lane_that_is_none_is_the_lane_of_those_that_run_alone(lane: Any) -> None:
    """TL-30: what is not known to be harmless beside others runs alone."""

    class Odd(FunctionTool):
        def execution_category(self, input: dict[str, Json]) -> Any:
            return lane

    running, most = 0, 0

    async def work(context: ToolContext, input: dict[str, Json]) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "ran"

    done = await run_round(empty().with_tool(Odd(ToolSpec("odd"), work)), call("odd"), call("odd"))
    assert [result.content for result in done.results.values()] == ["ran", "ran"] and most == 1


# --- hooks that are half there ----------------------------------------------------------------------------------------


async def test_a_hook_without_one_of_its_sides_fails_on_that_side() -> None:
    """TL-20: closed, with its name; it used to end the turn where the result was to be judged."""
    ran: list[Any] = []
    builder = empty().with_tool(a_tool("bump", noting(ran)))
    half = Side("half", before=Hook().before)
    done = await run_round(builder.with_execution_hook(half), call("bump"))  # type: ignore[arg-type]
    assert done.report.status == "ok" and done.only.is_error and len(ran) == 1
    assert done.text().startswith("denied by hook 'half': it could not judge the result")

    other = Side("other", after=Hook().after)
    done = await run_round(builder.with_execution_hook(other), call("bump"))  # type: ignore[arg-type]
    assert done.text().startswith("denied by hook 'other': it could not judge the call") and len(ran) == 1


@LANES
@pytest.mark.parametrize("levels", [70, 300, 600, 5000])
async def test_a_replacement_without_end_is_refused_as_its_hooks_failure(lane: str, levels: int) -> None:
    """HO-8, TL-20: also where another hook would have looked at it next."""
    for seam in ("with_execution_hook", "with_post_hook"):
        last = Hook("other")
        hooks = [Hook("deep", behind_says=Replace(nested(levels))), last]
        builder = empty().with_tool(a_tool("bump", noting([]), execution=lane))
        for hook in hooks if seam == "with_execution_hook" else reversed(hooks):
            builder = getattr(builder, seam)(hook)
        done = await run_round(builder, call("bump"), call("bump"))
        assert done.report.status == "ok"
        if levels < 100:
            assert done.results["tool-1"].content == nested(levels)
        else:
            assert done.results["tool-1"].is_error and "hook 'deep'" in done.text()


async def test_words_that_can_not_be_written_leave_no_hole_in_the_audit_trail() -> None:
    """TL-29, HO-11: half a surrogate pair in a hook's name or reason is written as what it is."""
    watching = Watching()
    odd = Hook("h\ud800", Modify({"n": 1}, "why \udfff"), Replace("x", reason="\ud800"))
    await run_round(
        empty().with_tool(a_tool("bump", noting([]))).with_execution_hook(odd).with_hook(watching), call("bump")
    )
    told = [msgspec.json.encode(event.payload) for event in watching.events]
    assert any(rb"hook 'h\\ud800': why \\udfff" in each for each in told)
    assert any(rb"hook 'h\\ud800': \\ud800" in each for each in told)


async def test_built_in_guards_judge_calls_and_no_results() -> None:
    """HO-12: a result may speak of what no call may do, whoever wrote it."""
    watching = Watching()
    text = "rm -rf / && echo x > .git/hooks/pre-commit"
    policy = RuntimePolicy(allow_shell=True, shell_validation="enforce")
    for hook in (Hook(), Hook(behind_says=Replace(text))):
        builder = empty().with_tool(a_tool("give", noting([], answer=text))).with_policy(policy).with_hook(watching)
        done = await run_round(builder.with_post_hook(hook), call("give"))
        assert done.text() == text and not done.only.is_error
    assert watching.of("policy_denied") == []


# --- cancellation that somebody keeps to himself ----------------------------------------------------------------------

KEEPING = pytest.mark.parametrize("how", ["returns", "raises", "groups"])


def keeping(how: str, entered: Callable[[], object], answer: Any) -> Callable[..., Awaitable[Any]]:
    """Waits for ever, and makes something else of its cancellation."""

    async def keep(*asked: object) -> Any:
        entered()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as error:
            if how == "raises":
                raise ValueError("interrupted") from error
            if how == "groups":
                raise BaseExceptionGroup("several", [error]) from error
        return answer

    return keep


@LANES
@KEEPING
@pytest.mark.parametrize("where", ["tool", "preview", "authorizer", "pre hook", "before", "after", "interceptor"])
async def test_nothing_more_runs_of_a_cancelled_turn_whatever_its_code_makes_of_it(
    where: str, lane: str, how: str
) -> None:
    """TL-32, AG-27: not the call whose hook was waiting, and not the call behind it."""
    cancel, ran = CancelSignal(), list[Any]()
    answer = {"tool": "done", "authorizer": Authorization("allow")}.get(where, Allow())
    builder = breaking(where, keeping(how, cancel.set, answer), lane).with_tool(a_tool("next", noting(ran)))
    builder = builder.tool_calls(call("bump"), call("next")).text("went on")
    async with builder.build() as mock, mock.spawn() as agent:
        with anyio.fail_after(5):
            report = await agent.send("go", options=TurnOptions(cancel=cancel))
        assert report.status == "cancelled" and ran == [] and agent.history == []


@KEEPING
async def test_the_deadline_holds_for_tools_that_keep_it_to_themselves(how: str) -> None:
    """BD-1, TL-32."""
    ran: list[Any] = []
    builder = breaking("tool", keeping(how, lambda: None, "done"), "exclusive_local_mutation")
    builder = builder.with_tool(a_tool("next", noting(ran))).tool_calls(call("bump"), call("next")).text("went on")
    async with builder.build() as mock, mock.spawn() as agent:
        with anyio.fail_after(5):
            report = await agent.send("go", options=TurnOptions(deadline_s=0.05))
    assert (report.status, report.stopped_by) == ("error", "deadline") and ran == []


@KEEPING
async def test_a_host_that_cancels_its_own_task_is_heard(how: str) -> None:
    """AG-27: asyncio's own cancellation, told apart from the runtime's."""
    entered, ran = asyncio.Event(), list[Any]()
    builder = breaking("tool", keeping(how, entered.set, "done"), "exclusive_local_mutation")
    builder = builder.with_tool(a_tool("next", noting(ran))).tool_calls(call("bump"), call("next")).text("went on")
    async with builder.build() as mock, mock.spawn() as agent:
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(agent.send("go"))
            with anyio.fail_after(5):
                await entered.wait()
                sending.cancel()
                await asyncio.wait([sending])
        assert sending.cancelled() and ran == []


async def test_a_call_does_not_begin_when_the_one_before_it_cancelled_the_turn() -> None:
    """TL-32: though nothing had to be waited for between the two."""
    cancel, ran = CancelSignal(), list[Any]()

    async def end(context: ToolContext, input: dict[str, Json]) -> str:
        cancel.set()
        return "ended"

    builder = empty().with_tool(a_tool("end", end)).with_tool(a_tool("next", noting(ran)))
    async with builder.tool_calls(call("end"), call("next")).build() as mock, mock.spawn() as agent:
        report = await agent.send("go", options=TurnOptions(cancel=cancel))
    assert report.status == "cancelled" and ran == []


async def test_a_task_that_was_cancelled_once_and_went_on_can_still_work() -> None:
    """AG-27: only what comes while the work lasts is its cancellation."""
    async with empty().with_tool(a_tool("bump", noting([]))).tool_calls(call("bump")).text("done").build() as mock:

        async def go_on() -> str | None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                async with mock.spawn() as agent:
                    return (await agent.send("go")).final_message
            return None

        async with asyncio.TaskGroup() as tasks:
            going = tasks.create_task(go_on())
        assert going.result() == "done"


async def test_code_of_a_host_is_contained_in_one_way_async_or_not() -> None:
    """TL-20."""
    for error, said in [
        (SystemExit(), "tried to end the process"),
        (asyncio.CancelledError(), "cancelled itself"),
        (Panic("p"), "broke down (Panic: p)"),
    ]:

        def fail(error: BaseException = error) -> Any:
            raise error

        with pytest.raises(Crashed) as plain:
            called(fail)
        with pytest.raises(Crashed) as waited:
            await contained(raising(error))
        assert str(plain.value) == str(waited.value) == said
    for ends in (KeyboardInterrupt, ValueError):
        with pytest.raises(ends):
            await contained(raising(ends()))


# --- anything ---------------------------------------------------------------------------------------------------------

words = st.sampled_from(["", "why", "half \ud800"])
values = st.sampled_from(
    [{"n": 1}, {}, "{", '{"n": 2}', 5, None, nested(90), nested(700), object(), {"n": float("nan")}]
)
answers: st.SearchStrategy[Any] = st.one_of(
    st.just(Allow()),
    st.builds(Deny, words),
    st.builds(Modify, values, words, words),
    st.builds(Replace, values, st.none() | st.booleans() | st.just("x"), words, words),  # type: ignore[arg-type]
    st.sampled_from([None, "allow", ValueError(), Panic(), SystemExit(), asyncio.CancelledError(), RecursionError()]),
)
SEAMS = ["with_pre_hook", "with_post_hook", "with_execution_hook", "with_interceptor"]


class Anything(Hook):
    async def before(self, request: HookRequest) -> HookOutcome:
        return answered(self.before_says)

    async def after(self, request: HookRequest) -> HookOutcome:
        return answered(self.behind_says)


def answered(said: Any) -> HookOutcome:
    if isinstance(said, BaseException):
        raise said
    return said


class Anyhow:
    def __init__(self, said: Any) -> None:
        self.said = said

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    lane=st.sampled_from(["exclusive_local_mutation", "read_only_parallel"]),
    hooks=st.lists(st.tuples(st.sampled_from(SEAMS), answers, answers), max_size=4),
    verdict=st.sampled_from([Authorization("allow"), Authorization("allow"), Authorization("deny"), None, Panic()]),
    gives=st.sampled_from(["text", {"n": 1}, nested(700), object(), "\ud800", None]) | answers,
    count=st.integers(1, 3),
)
async def test_whatever_a_hosts_code_does_each_call_has_one_result_and_the_turn_goes_on(
    lane: str, hooks: list[tuple[str, Any, Any]], verdict: Any, gives: Any, count: int
) -> None:
    """TL-2, TL-20, TL-23, HO-3, AG-29: nothing escapes; a call that anybody refused ahead of it did not run; what is
    told of it can be written down."""
    ran: list[Any] = []

    async def work(context: ToolContext, input: dict[str, Json]) -> Any:
        ran.append(input)
        return answered(gives)

    watching = Watching()
    builder = empty().with_tool(a_tool("bump", work, execution=lane)).with_tool_authorizer(Anyhow(verdict))
    for seam, ahead, behind in hooks:
        builder = getattr(builder, seam)(Anything("any", ahead, behind))
    logging.disable(logging.CRITICAL)
    try:
        done = await run_round(builder.with_hook(watching), *(call("bump", n=0) for _ in range(count)))
    finally:
        logging.disable(logging.NOTSET)
    assert done.report.status == "ok" and len(done.results) == count
    is_let = verdict == Authorization("allow") and all(
        isinstance(ahead, Allow | Modify) for seam, ahead, _ in hooks if seam != "with_post_hook"
    )
    assert len(ran) in ((0, count) if is_let else (0,))
    for event in watching.events:
        msgspec.json.encode(event.payload)


schemas = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["object", "array", "string", "integer", "n", "-"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "required", "properties", "enum", "items", "additionalProperties", "n"]), inner
        )
    ),
    max_leaves=20,
)


@given(schema=st.dictionaries(st.sampled_from(["type", "required", "properties", "enum", "n"]), schemas), input=schemas)
def test_a_schema_that_makes_no_sense_breaks_nothing(schema: dict[str, Any], input: Any) -> None:
    """TL-15, TL-40: problems are said in words, each of them a line."""
    problems = validate_input(schema, input)
    assert all(isinstance(problem, str) and problem for problem in problems) and len(problems) <= 21
