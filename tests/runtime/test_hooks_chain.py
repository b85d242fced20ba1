"""What hooks are asked, and how their answers fold into one (workspace.md 6.1, 6.2)."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_daemon.runtime.hooks.chain import CallBlocked, HookChain
from basis_daemon.runtime.hooks.contract import (
    INTERCEPTOR_TIMEOUT_S,
    Allow,
    Deny,
    HookOutcome,
    HookRequest,
    Intercepting,
    Modify,
    Replace,
)
from basis_daemon.runtime.messages import Json
from support.rounds import Hook

pytestmark = pytest.mark.anyio

REQUEST = HookRequest(
    event="pre_tool_use",
    workspace=Path("/repo"),
    agent_id="agent-1",
    tool_call_id="call-1",
    tool_name="edit",
    input={"n": 1},
)
RESULT = replace(REQUEST, event="post_tool_use", output="OUT")


def before(*hooks: Hook) -> HookChain:
    return HookChain(execution=hooks)


async def blocked(chain: HookChain, request: HookRequest = REQUEST) -> CallBlocked:
    with pytest.raises(CallBlocked) as refusal:
        await chain.before(request)
    return refusal.value


# --- the request ------------------------------------------------------------------------------------------------------


def test_a_request_is_told_with_what_there_is_to_tell() -> None:
    """HO-1, HO-22: output and error are absent, not null, ahead of the call; the workspace is the call's directory."""
    told = {
        "hook_schema": 1,
        "event": "pre_tool_use",
        "workspace": "/repo",
        "agent_id": "agent-1",
        "tool_call_id": "call-1",
        "tool_name": "edit",
        "input": {"n": 1},
    }
    assert REQUEST.to_json() == told
    behind = replace(RESULT, output={"a": 1}, is_error=True)
    assert behind.to_json() == told | {"event": "post_tool_use", "output": {"a": 1}, "is_error": True}
    assert replace(RESULT, output=None).to_json()["output"] is None


async def test_changing_a_request_changes_nothing() -> None:
    """HO-7, AP-3: neither for the call nor for the hook behind; to change something is to say so."""

    @dataclass
    class Meddles(Hook):
        async def before(self, request: HookRequest) -> HookOutcome:
            request.input["n"] = 666
            request.input["path"] = "/etc/passwd"
            return Allow()

        async def after(self, request: HookRequest) -> HookOutcome:
            request.output.append("more")
            return Allow()

    behind = Hook()
    call: dict[str, Json] = {"n": 1, "nested": {"list": [1]}}
    judged = await before(Meddles(), behind).before(replace(REQUEST, input=call))
    assert judged.input == behind.asked[0].input == {"n": 1, "nested": {"list": [1]}} and judged.hands == ()

    output: list[Json] = ["said"]
    shown = await before(Meddles(), behind).after(replace(RESULT, output=output))
    assert shown.content == behind.asked[1].output == ["said"]


# --- ahead of a call --------------------------------------------------------------------------------------------------


async def test_rewrites_compose_and_a_later_hook_can_still_refuse() -> None:
    """HO-7, TL-16, D-51: each sees what the ones before left; a second hook doesn't replace the first."""
    first, second = Hook("a", Modify({"n": 2})), Hook("b", Modify({"n": 3}, reason="odd is better"))
    last = Hook("c")
    judged = await before(first, second, last).before(REQUEST)
    assert [hook.asked[0].input for hook in (first, second, last)] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert judged.input == {"n": 3}
    assert "; ".join(map(str, judged.hands)) == "hook 'a'; hook 'b': odd is better"

    refusal = await blocked(before(first, second, Hook("c", Deny("not odd"))))
    assert str(refusal) == "denied by hook 'c': not odd"
    assert [hand.who for hand in refusal.hands] == ["hook 'a'", "hook 'b'"]


async def test_the_first_refusal_ends_the_chain() -> None:
    """HO-6, HO-10: nobody behind it is asked; with or without a reason it has a name."""
    never = Hook("c")
    assert str(await blocked(before(Hook("a"), Hook("b", Deny()), never))) == "denied by hook 'b'"
    assert never.asked == []


async def test_pre_hooks_are_asked_ahead_of_execution_hooks() -> None:
    """4.4, steps 3 and 4; TL-16: a pre hook's refusal says that one blocked the call."""
    pre, never = Hook("p", Deny("no")), Hook("e")
    refusal = await blocked(HookChain(pre=(pre,), execution=(never,)))
    assert str(refusal) == "blocked by pre-execution hook 'p': no" and never.asked == []


@pytest.mark.parametrize(
    "said",
    [
        Modify([1]),
        Modify("[1]"),
        Modify("{"),
        Modify(""),
        Modify("null"),
        Modify(None),
        Modify({"n": object()}),
        Modify({"n": 1}, reason=5),  # type: ignore[arg-type]
        Modify({}, attribution=b"x"),  # type: ignore[arg-type]
        Deny(object()),  # type: ignore[arg-type]
        Replace("x"),
        None,
        True,
        "allow",
        {"decision": "allow"},
        Allow,
        ValueError("broken"),
        SystemExit(1),
        asyncio.CancelledError(),
    ],
    ids=repr,
)
async def test_a_hook_that_fails_or_says_what_nobody_knows_blocks_the_call(said: Any) -> None:
    """HO-2, HO-3, HO-8, TL-16, TL-20: never an allow; the refusal names the hook."""

    @dataclass
    class Odd(Hook):
        async def before(self, request: HookRequest) -> HookOutcome:
            if isinstance(said, BaseException):
                raise said
            return said

    refusal = await blocked(before(Hook("first", Modify({"n": 2})), Odd("odd")))
    assert str(refusal).startswith("denied by hook 'odd'") and refusal.hands


async def test_a_hook_that_is_not_async_blocks_the_call() -> None:
    """D-51: it would have held up everything else."""
    refusal = await blocked(HookChain(pre=(lambda request: Allow(),)))  # type: ignore[arg-type,return-value]
    assert "not an async function" in str(refusal)


async def test_a_rewrite_may_be_the_text_of_an_object_and_belongs_to_nobody_afterwards() -> None:
    """TL-16, AP-3: an object that a hook keeps can't change under the call later."""
    kept: dict[str, Json] = {"n": [1]}
    judged = await before(Hook("a", Modify('{"m": 1.0}')), Hook("b", Modify(kept))).before(REQUEST)
    kept["n"].append(2)
    assert judged.input == {"n": [1]}
    assert (await before(Hook("a", Modify('{"m": 1}'))).before(REQUEST)).input == {"m": 1}


async def test_an_attribution_stands_for_a_hook_that_speaks_for_others() -> None:
    """TL-17, HO-11."""
    judged = await before(Hook("a", Modify({}, reason="r", attribution="policy 7"))).before(REQUEST)
    assert list(map(str, judged.hands)) == ["policy 7: r"]


# --- behind a call ----------------------------------------------------------------------------------------------------


async def test_results_are_replaced_one_hand_after_the_other() -> None:
    """HO-2, TL-17, D-53: a missing `is_error` keeps what there was; any JSON is a result."""
    first, second = Hook("a", behind_says=Replace({"k": 1})), Hook("b", behind_says=Replace("text", is_error=True))
    shown = await before(first, second, Hook("c")).after(RESULT)
    assert [hook.asked[0].output for hook in (first, second)] == ["OUT", {"k": 1}]
    assert [hook.asked[0].is_error for hook in (first, second)] == [False, False]
    assert (shown.content, shown.is_error, shown.is_withheld) == ("text", True, False)


async def test_post_hooks_are_asked_from_the_last_to_the_first() -> None:
    """TL-19, 4.4 step 11."""
    first, second = Hook("a", behind_says=Replace("by a")), Hook("b", behind_says=Replace("by b"))
    shown = await HookChain(post=(first, second)).behind(RESULT)
    assert second.asked[0].output == "OUT" and first.asked[0].output == "by b" and shown.content == "by a"


@pytest.mark.parametrize("said", [Deny("secret"), Modify({}), Replace(object()), None, ValueError("x"), SystemExit()])
async def test_a_result_that_can_not_be_judged_is_withheld(said: Any) -> None:
    """HO-3, HO-10, TL-20: the model reads who withheld it, and nothing of it; nobody else is asked."""

    @dataclass
    class Odd(Hook):
        async def after(self, request: HookRequest) -> HookOutcome:
            if isinstance(said, BaseException):
                raise said
            return said

    never = Hook("never")
    shown = await before(Odd("odd"), never).after(RESULT)
    assert shown.is_error and shown.is_withheld and never.asked == []
    assert str(shown.content).startswith("denied by hook 'odd'") and "OUT" not in str(shown.content)
    assert ("secret" in str(shown.content)) == isinstance(said, Deny)


# --- interceptors -----------------------------------------------------------------------------------------------------


async def test_an_interceptor_is_named_as_one_on_both_sides() -> None:
    """HO-10, HO-11, HO-20: judging results is up to it."""
    guard = Intercepting(Hook("guard", Deny("no"), Deny("not shown")))
    assert str(await blocked(HookChain(execution=(guard,)))) == "denied by interceptor 'guard': no"
    shown = await HookChain(execution=(guard,)).after(RESULT)
    assert shown.content == "denied by interceptor 'guard': not shown"

    class AheadOnly:
        name = "ahead"

        async def intercept(self, request: HookRequest) -> HookOutcome:
            return Modify({"n": 2})

    chain = HookChain(execution=(Intercepting(AheadOnly()), Hook("b", Modify({"n": 3}, "why"))))
    assert "; ".join(map(str, (await chain.before(REQUEST)).hands)) == "interceptor 'ahead'; hook 'b': why"
    assert (await chain.after(RESULT)).content == "OUT"


@pytest.mark.parametrize("how", ["raises", "exits", "cancels its task", "hangs", "groups"])
async def test_an_interceptor_that_crashes_refuses_and_takes_nobody_with_it(how: str) -> None:
    """HO-19, HO-23: in a task of its own, within its time."""
    tasks: list[object] = []

    class Crashes:
        name = "crash"

        async def intercept(self, request: HookRequest) -> HookOutcome:
            tasks.append(asyncio.current_task())
            match how:
                case "raises":
                    raise ValueError("broken")
                case "exits":
                    raise SystemExit(3)
                case "cancels its task":
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                    await asyncio.sleep(0)
                case "groups":
                    raise BaseExceptionGroup("several", [ValueError("one")])
                case _:
                    await asyncio.get_running_loop().create_future()
            return Allow()

    with anyio.fail_after(5):
        refusal = await blocked(HookChain(execution=(Intercepting(Crashes(), 0.02 if how == "hangs" else 5),)))
    assert str(refusal).startswith("denied by interceptor 'crash'")
    assert tasks != [asyncio.current_task()] and INTERCEPTOR_TIMEOUT_S == 30
    if how == "hangs":
        assert "took longer than its limit of 0.02 s" in str(refusal)


async def test_cancelling_the_turn_is_no_answer_of_a_hook() -> None:
    """AG-27: it is passed on at once, and the hook is told."""
    for chain in (before(_Waiting()), HookChain(execution=(Intercepting(_Waiting()),))):
        entered, told = asyncio.Event(), list[str]()
        waiting = chain.execution[0]
        inner = waiting if isinstance(waiting, _Waiting) else waiting._interceptor  # type: ignore[attr-defined]
        inner.entered, inner.told = entered, told
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(chain.before, REQUEST)
                await entered.wait()
                group.cancel_scope.cancel()
        assert told == ["cancelled"]


@dataclass
class _Waiting(Hook):
    entered: asyncio.Event = None  # type: ignore[assignment]
    told: list[str] = None  # type: ignore[assignment]

    async def before(self, request: HookRequest) -> HookOutcome:
        self.entered.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.told.append("cancelled")
            raise
        return Allow()


# --- anything ---------------------------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(object()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
answers = st.one_of(
    values,
    st.builds(Allow, values),
    st.builds(Deny, values),
    st.builds(Modify, values, values, values),
    st.builds(Replace, values, values, values, values),
    st.sampled_from([ValueError("v"), RecursionError(), KeyError("k"), UnicodeError(), TimeoutError()]),
)


@settings(max_examples=300, deadline=None)
@given(ahead=st.lists(answers, max_size=3), behind=st.lists(answers, max_size=3))
async def test_whatever_hooks_answer_there_is_a_call_or_a_refusal_and_one_result(
    ahead: list[Any], behind: list[Any]
) -> None:
    """HO-3, TL-20: no answer is an exception, and a call goes on only with a JSON object for an input."""

    def hook(said: Any) -> Any:
        async def answer(request: HookRequest) -> Any:
            if isinstance(said, Exception):
                raise said
            return said

        return answer

    try:
        judged = await HookChain(pre=tuple(map(hook, ahead))).before(REQUEST)
        assert isinstance(judged.input, dict)
        assert all(isinstance(said, Allow | Modify) for said in ahead)
        assert len(judged.hands) == sum(isinstance(said, Modify) for said in ahead)
    except CallBlocked:
        assert ahead
    shown = await HookChain(post=tuple(map(hook, behind))).behind(RESULT)
    assert isinstance(shown.is_error, bool)
    if not all(isinstance(said, Allow | Replace) for said in behind):
        assert shown.is_withheld and shown.is_error
