"""Hooks in the pipeline: who is asked about which call, and what becomes of it (runtime.md 4.4, workspace.md 6)."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.hooks.contract import Allow, Deny, HookOutcome, HookRequest, Modify, Replace
from basis_daemon.runtime.hooks.table import HookTable
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.permissions import Authorization, AuthorizationRequest
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    FunctionTool,
    ToolContext,
    ToolOutput,
    ToolSpec,
    default_preparation,
)
from basis_daemon.testing import MockRuntime, MockRuntimeBuilder
from basis_daemon.workspace.approval import ApprovalGate
from basis_protocol.content import CallPreview
from basis_protocol.events import ToolCompleted
from support.conversations import Allow as AllowAll
from support.rounds import Hook, Watching, a_tool, call, empty, noting, one_round, run_round

pytestmark = pytest.mark.anyio

NUMBER: dict[str, Json] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def bump(ran: list[Any], **fields: Any) -> FunctionTool:
    return a_tool("bump", noting(ran), input_schema=NUMBER, **{"side_effect": "local_state", **fields})


LANES = pytest.mark.parametrize("lane", ["exclusive_local_mutation", "read_only_parallel"])
"""Two calls in a message, alone or side by side: it makes no difference."""


def two(ran: list[Any], lane: str) -> MockRuntimeBuilder:
    return empty().with_tool(bump(ran, execution=lane, side_effect="none"))


# --- order ------------------------------------------------------------------------------------------------------------


class Traced:
    """A tool, an authorizer and hooks that write down when they were asked, and with which input."""

    def __init__(self, lane: Any) -> None:
        self.steps: list[str] = []
        self.spec = ToolSpec("traced", input_schema=NUMBER, execution=lane)

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        self.steps.append(f"preview {input['n']}")
        return default_preparation(self.spec, input)

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        self.steps.append(f"run {input['n']}")
        return ToolOutput("x\n" * 3000)

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        self.steps.append(f"authorize {request.preparation.structured_input['n']}")
        return Authorization("allow")

    def hook(self, name: str) -> "TracedHook":
        return TracedHook(name, self.steps)


class TracedHook:
    def __init__(self, name: str, steps: list[str]) -> None:
        self.name = name
        self._steps = steps

    async def __call__(self, request: HookRequest) -> HookOutcome:
        is_ahead = request.event == "pre_tool_use"
        self._steps.append(f"{self.name} {'ahead' if is_ahead else 'behind'} {request.input['n']}")
        return Modify({"n": int(request.input["n"]) + 1}) if is_ahead else Allow()

    before = after = intercept = __call__


@LANES
async def test_every_call_goes_one_way_whatever_its_lane(lane: str) -> None:
    """4.4, TL-16, TL-17, TL-19, D-50, D-53: hooks first, then the schema, the preview, the authorizer, the run, and the
    hooks again; the authorizer judges what will run. What hooks see behind is whole; the limiter is last."""
    traced = Traced(lane)
    builder = (
        empty()
        .with_tool(traced)
        .with_tool_authorizer(traced)
        .with_pre_hook(traced.hook("pre"))
        .with_execution_hook(traced.hook("mixed"))
        .with_post_hook(traced.hook("post1"))
        .with_post_hook(traced.hook("post2"))
    )
    done = await run_round(builder, call("traced", n=1))
    assert traced.steps == [
        "pre ahead 1",
        "mixed ahead 2",
        "preview 3",
        "authorize 3",
        "run 3",
        "mixed behind 3",
        "post2 behind 3",
        "post1 behind 3",
    ]
    assert "[truncated: showing 2000 of 3000 lines" in done.text()


@LANES
async def test_a_refused_call_reaches_nothing_behind_its_refusal(lane: str) -> None:
    """HO-6, TL-16, TL-19: no authorizer, no run, no hook behind; the model reads who refused and why."""
    traced, ran = Traced(lane), list[Any]()
    guard, behind = Hook("guard", Deny("not today")), Hook("behind")
    builder = two(ran, lane).with_tool_authorizer(traced).with_execution_hook(guard).with_post_hook(behind)
    done = await run_round(builder, call("bump", n=1), call("bump", n=2))
    assert ran == traced.steps == behind.asked == []
    assert [result.content for result in done.results.values()] == ["denied by hook 'guard': not today"] * 2
    assert all(result.is_error for result in done.results.values()) and done.report.status == "ok"


@LANES
async def test_a_hook_that_raises_blocks_its_call_and_the_turn_goes_on(lane: str) -> None:
    """TL-20: the same in both lanes."""
    ran: list[Any] = []
    failing = Hook("broken", ValueError("inside"))
    done = await run_round(two(ran, lane).with_pre_hook(failing), call("bump", n=1), call("bump", n=2))
    assert ran == [] and done.report.status == "ok" and len(done.results) == 2
    assert all("pre-execution hook 'broken'" in result.as_text() for result in done.results.values())

    behind = Hook("broken", behind_says=ValueError("inside"))
    done = await run_round(two(ran, lane).with_post_hook(behind), call("bump", n=1), call("bump", n=2))
    assert [each["n"] for each in ran] == [1, 2], "side effects stand"
    assert all(result.is_error and "ran" not in result.as_text() for result in done.results.values())


# --- rewrites ---------------------------------------------------------------------------------------------------------


async def test_what_a_person_is_shown_and_what_runs_is_the_rewritten_input() -> None:
    """AP-3, D-50: the preview, the rules and the answer are about what the hook made of the call."""
    ran: list[Any] = []
    person = AllowAll()
    builder = (
        empty().with_tool(bump(ran)).with_tool_authorizer(ApprovalGate()).with_pre_hook(Hook("h", Modify({"n": 7})))
    )
    done = await run_round(builder, call("bump", n=1), config=AgentConfig(approver=person))
    assert [(asked.input, asked.preview) for asked in person.asked] == [({"n": 7}, CallPreview(input={"n": 7}))]
    assert ran == [{"n": 7}] and done.text() == "ran"


async def test_a_rewritten_call_that_is_refused_says_whose_hand_it_was(tmp_path: Path) -> None:
    """TL-18, D-54: schema, policy while it is checked and while it runs, authorizer. Reasons of rewrites are for the
    audit trail (HO-11)."""
    watching, ran = Watching(), list[Any]()
    rewriting = Hook("rewriter", Modify({"n": "x"}, reason="SECRET REASON"))
    done = await run_round(
        empty().with_tool(bump(ran)).with_execution_hook(rewriting).with_hook(watching), call("bump", n=1)
    )
    by = "(its input had been rewritten by hook 'rewriter')"
    assert done.text() == f"bump: n: expected integer, got string {by}"
    (blocked,) = watching.of("tool_execution_blocked")
    assert blocked.payload["rewritten_by"] == "hook 'rewriter': SECRET REASON" and "SECRET" not in done.text()

    outside = Hook("rewriter", Modify({"path": "/etc/hostname"}))
    files = MockRuntime.builder().with_policy(RuntimePolicy()).with_execution_hook(outside)
    done = await run_round(files, call("read", path="a"), config=AgentConfig(base_dir=tmp_path))
    assert "outside the read roots" in done.text() and by in done.text()

    refuses = _Refuses()
    done = await run_round(
        empty()
        .with_tool(bump(ran))
        .with_execution_hook(Hook("rewriter", Modify({"n": 2})))
        .with_tool_authorizer(refuses),
        call("bump", n=1),
    )
    assert done.text() == f"Tool execution denied: never {by}" and ran == []


async def test_a_refusal_of_an_untouched_call_keeps_its_words() -> None:
    """TL-18."""
    done = await run_round(empty().with_tool(bump([])).with_execution_hook(Hook()), call("bump", n="x"))
    assert done.text() == "bump: n: expected integer, got string"


class _Refuses:
    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        return Authorization("deny", "never")


async def test_a_rewrite_that_the_schema_refuses_reaches_the_post_hooks_alone() -> None:
    """TL-17."""
    mixed, post, ran = Hook("mixed", Modify({})), Hook("post", behind_says=Replace("softer")), list[Any]()
    done = await run_round(
        empty().with_tool(bump(ran)).with_execution_hook(mixed).with_post_hook(post), call("bump", n=1)
    )
    assert [request.event for request in mixed.asked] == ["pre_tool_use"] and ran == []
    assert [(request.input, request.is_error) for request in post.asked] == [({}, True)]
    assert done.text() == "softer"


async def test_a_hook_can_not_make_a_read_a_change() -> None:
    """4.4 step 6, D-52: reads run beside others and unasked. A change stays alone, also if it became a read."""
    ran: list[Any] = []

    class Either:
        spec = ToolSpec("either", execution="exclusive_local_mutation", side_effect="local_state")

        def execution_category(self, input: dict[str, Json]) -> Any:
            return "read_only_parallel" if input["op"] == "read" else "exclusive_local_mutation"

        async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
            return default_preparation(self.spec, input)

        async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
            ran.append(input["op"])
            return ToolOutput("ran")

    sees = _Sees()
    for given, made, allowed in [("read", "write", False), ("write", "read", True), ("read", "read", True)]:
        builder = empty().with_tool(Either()).with_execution_hook(Hook("h", Modify({"op": made})))
        done = await run_round(builder.with_tool_authorizer(sees), call("either", op=given))
        assert done.only.is_error is not allowed
        if not allowed:
            assert "hooks made it a call that changes something" in done.text() and "hook 'h'" in done.text()
    assert ran == ["read", "read"]
    assert sees.lanes == ["exclusive_local_mutation", "read_only_parallel"]


class _Sees:
    def __init__(self) -> None:
        self.lanes: list[str] = []

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        self.lanes.append(request.preparation.execution)
        return Authorization("allow")


# --- results ----------------------------------------------------------------------------------------------------------


async def test_the_stream_keeps_what_the_tool_itself_gave() -> None:
    """AG-33, HO-10, TL-19: a hook changes what the model reads, and the call is still told as it was."""
    for said, read in [
        (Replace("hidden", is_error=True), "hidden"),
        (Deny("private"), "denied by hook 'h': private"),
    ]:
        ran: list[Any] = []
        builder = empty().with_tool(bump(ran)).with_execution_hook(Hook("h", behind_says=said))
        done = await run_round(builder, call("bump", n=1))
        assert ran and done.text() == read and done.only.is_error
        assert [(event.summary, event.is_error) for event in done.of(ToolCompleted)] == [("ran", False)]


async def test_post_hooks_are_not_asked_about_what_an_execution_hook_withheld() -> None:
    """TL-17: an `after` denial ends it."""
    post = Hook("post")
    builder = empty().with_tool(bump([])).with_execution_hook(Hook("h", behind_says=Deny())).with_post_hook(post)
    done = await run_round(builder, call("bump", n=1))
    assert post.asked == [] and done.text() == "denied by hook 'h'"


async def test_hooks_behind_see_the_input_that_ran() -> None:
    """HO-1, TL-19."""
    hook = Hook("h", Modify({"n": 5}))
    await run_round(empty().with_tool(bump([])).with_execution_hook(hook), call("bump", n=1))
    assert [(request.event, request.input["n"]) for request in hook.asked] == [
        ("pre_tool_use", 1),
        ("post_tool_use", 5),
    ]


@pytest.mark.parametrize("output", [None, 5, [1, {"a": None}], "text", {"deep": "x" * 100_000}])
async def test_a_result_may_be_replaced_by_anything(output: Json) -> None:
    """HO-2, HO-8: and the limiter holds for it too."""
    done = await run_round(
        empty().with_tool(bump([])).with_post_hook(Hook(behind_says=Replace(output))), call("bump", n=1)
    )
    if isinstance(output, dict):
        assert "[truncated: structured result" in done.text()
    else:
        assert done.only.content == output


async def test_who_changed_what_is_in_the_audit_trail_and_not_before_the_model() -> None:
    """HO-11."""
    watching = Watching()
    first = Hook("a", Modify({"n": 2}), Replace("changed", reason="too long"))
    second = Hook("b", Modify({"n": 3}, "why"))
    builder = empty().with_tool(bump([])).with_interceptor(first).with_execution_hook(second).with_hook(watching)
    done = await run_round(builder, call("bump", n=1))
    assert watching.of("tool_authorization_started")[0].payload["rewritten_by"] == "interceptor 'a'; hook 'b': why"
    assert watching.of("tool_execution_finished")[0].payload["replaced_by"] == "interceptor 'a': too long"
    assert done.text() == "changed"


# --- who is asked -----------------------------------------------------------------------------------------------------


async def test_the_chain_is_asked_about_calls_that_are_refused_later_and_not_about_names_nobody_has() -> None:
    """HO-9, HO-24, TL-11: being asked is no permission. A hook that waits for a name that no tool has never matches."""
    hook = Hook()
    builder = empty().with_tool(bump([])).with_tool_authorizer(_Refuses()).with_pre_hook(hook)
    await run_round(builder, call("bump", n=1), call("shell", command="true"))
    assert [request.tool_name for request in hook.asked] == ["bump"]


async def test_hooks_of_an_audience_judge_its_agents_alone_behind_everyones() -> None:
    """TL-21, HO-5, D-59, appendix C 2: an agent of another audience, or of none, is not judged by them."""
    permanent, everyones, theirs, others = (Hook(name) for name in ("permanent", "live", "theirs", "others"))
    async with empty().with_tool(bump([])).with_interceptor(permanent).build() as mock:
        for _ in range(2):
            for turn in MockRuntime.builder().tool_calls(call("bump", n=1)).text("done").turns:
                mock.push_turn(turn)
        with (
            mock.runtime.register_execution_hooks(theirs, audience="a"),
            mock.runtime.register_execution_hooks(others, audience="b"),
            mock.runtime.register_execution_hooks(everyones),
        ):
            order = [hook.name for hook in mock.runtime.hooks.snapshot("a").execution]
            assert order == ["permanent", "live", "theirs"]
            await one_round(mock, config=AgentConfig(audience="a"))
            await one_round(mock)
        assert mock.runtime.hooks.snapshot("a") == mock.runtime.hooks.snapshot(None)
    assert (len(theirs.asked), len(others.asked)) == (2, 0)
    assert len(permanent.asked) == len(everyones.asked) == 4


async def test_a_batch_comes_and_goes_as_one_and_a_call_keeps_whom_it_began_with() -> None:
    """TL-17: hooks that are taken back while a call runs still judge its result."""
    entered, leave = asyncio.Event(), asyncio.Event()

    async def work(context: ToolContext, input: dict[str, Json]) -> str:
        entered.set()
        await leave.wait()
        return "ran"

    first, second = Hook("a"), Hook("b", behind_says=Replace("judged"))
    async with empty().with_tool(a_tool("wait", work)).tool_calls(call("wait")).text("done").build() as mock:
        guard = mock.runtime.register_execution_hooks(first, second)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:

                async def run() -> None:
                    done = await one_round(mock)
                    assert done.text() == "judged"

                group.start_soon(run)
                await entered.wait()
                assert guard.unregister() and mock.runtime.hooks.snapshot(None).execution == ()
                leave.set()
    assert [len(hook.asked) for hook in (first, second)] == [2, 2]


def test_a_guard_of_a_hook_takes_back_that_one_alone() -> None:
    """CV-6, TL-21: also if the same hook is there twice; a forgotten guard counts as taken back."""
    table, hook = HookTable(), Hook()
    first, second = table.register_pre_hook(hook), table.register_pre_hook(hook)
    assert first.unregister() and not first.unregister()
    assert table.snapshot(None).pre == (hook,)
    with second:
        pass
    assert table.snapshot(None).pre == ()
    table.register_post_hook(hook)
    gc.collect()
    assert table.snapshot(None).post == ()


async def test_subagents_are_judged_as_the_agent_they_work_for() -> None:
    """TL-21, CO-1: the hooks of its audience and the interceptors of the host."""
    ran: list[Any] = []
    guard, own = Hook("guard"), Hook("own")
    builder = MockRuntime.builder().with_file_tools("none").with_tool(bump(ran)).with_interceptor(guard)
    script = builder.tool_calls(call("task", prompt="count")).tool_calls(call("bump", n=1)).text("sub").text("done")
    async with script.build() as mock:
        with mock.runtime.register_pre_hook(own, audience="a"):
            async with mock.spawn(config=AgentConfig(audience="a")) as agent:
                await agent.send("go")
    assert [request.tool_name for request in own.asked] == ["task", "bump"]
    assert [request.tool_name for request in guard.asked if request.event == "pre_tool_use"] == ["task", "bump"]
    assert len({request.agent_id for request in own.asked}) == 2
