"""Questions answered by code: who is asked, what waits, and what ends the waiting (runtime.md 6.4, 6.7)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
import pytest

from basis_daemon.errors import BasisError, StoreError
from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.agent_handle import AgentHandle
from basis_daemon.runtime.approvals import ApprovalAnswer, ApprovalRequest
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.pending_permissions import NoSuchPermission, PendingPermissions
from basis_daemon.runtime.permissions import Authorization, AuthorizationRequest
from basis_daemon.runtime.providers.scripted import ScriptedTurn
from basis_daemon.runtime.reports import RunReport
from basis_daemon.testing import MockRuntime, MockRuntimeBuilder, ScriptedCall
from basis_protocol.content import CallPreview
from basis_protocol.events import PermissionRequested, PermissionResolved
from support.conversations import Allow, Counter

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def in_bounded_time() -> AsyncIterator[None]:
    with anyio.fail_after(20):
        yield


class Asks:
    """Puts every call to somebody."""

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        return Authorization("prompt", "this one counts")


class Refuses:
    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        return Authorization("deny", "never")


def bumping(counter: Counter, times: int = 1) -> MockRuntimeBuilder:
    builder = MockRuntime.builder().with_tool(counter.tool()).with_tool_authorizer(Asks())
    for number in range(times):
        builder = builder.tool_calls(ScriptedCall("bump", {"n": number}))
    return builder.text("done")


async def asked(agent: AgentHandle) -> ApprovalRequest:
    """The first question that waits."""
    await agent.events.wait_for(lambda now: bool(now.pending_permissions))
    return agent.permissions.pending[0]


async def answered(agent: AgentHandle, answer: ApprovalAnswer) -> tuple[RunReport, ApprovalRequest]:
    async with asyncio.TaskGroup() as tasks:
        turn = tasks.create_task(agent.send("count"))
        request = await asked(agent)
        await agent.permissions.resolve(request.request_id, answer)
    return turn.result(), request


async def test_code_that_watches_the_stream_answers(counter: Counter) -> None:
    """SE-3, SE-13, SE-18: a request is there to be answered by the time a subscription shows it."""
    async with bumping(counter, 2).build() as mock, mock.spawn() as agent:
        subscription = agent.events.subscribe()

        async def answer() -> list[str]:
            outcomes: list[str] = []
            async for event in subscription:
                if isinstance(event, PermissionRequested):
                    await agent.permissions.resolve(event.request_id, ApprovalAnswer(allow=True))
                elif isinstance(event, PermissionResolved):
                    outcomes.append(event.outcome)
            return outcomes

        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(answer())
            report = await agent.send("count")
            agent.events.close()

    assert report.final_message == "done" and answering.result() == ["allowed", "allowed"]
    assert counter.ran == [{"n": 0}, {"n": 1}]


async def test_a_refusal_has_no_effect_and_the_model_reads_why(counter: Counter) -> None:
    """SE-14, SE-15."""
    async with bumping(counter).build() as mock, mock.spawn() as agent:
        _, request = await answered(agent, ApprovalAnswer(reason="not on a Friday"))
        assert request.description == "this one counts" and request.tool_name == "bump"
        assert agent.permissions.pending == ()

    assert counter.ran == []
    assert "not on a Friday" in str(mock.recorded_requests()[1].messages[-1])


async def test_an_answer_is_given_once(counter: Counter) -> None:
    """SE-16: an unknown request and one that was answered are refused, and change nothing."""
    async with bumping(counter).build() as mock, mock.spawn() as agent:
        with pytest.raises(NoSuchPermission):
            await agent.permissions.resolve("perm-nobody-1", ApprovalAnswer(allow=True))
        _, request = await answered(agent, ApprovalAnswer(allow=True))
        with pytest.raises(NoSuchPermission, match=request.request_id):
            await agent.permissions.resolve(request.request_id, ApprovalAnswer())
    assert counter.ran == [{"n": 0}]


async def test_another_thread_may_answer(counter: Counter) -> None:
    """SE-18."""
    async with bumping(counter).build() as mock, mock.spawn() as agent:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            turn = tasks.create_task(agent.send("count"))
            request = await asked(agent)
            resolving = agent.permissions.resolve(request.request_id, ApprovalAnswer(allow=True))
            await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(resolving, loop).result(5))
        assert turn.result().succeeded
    assert counter.ran == [{"n": 0}]


async def test_closing_refuses_what_waits_and_an_old_handle_answers_nothing(counter: Counter) -> None:
    """SE-17, SE-30, D-93."""
    async with bumping(counter).build() as mock:
        agent = mock.spawn()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_ignoring_failure(agent))
            request = await asked(agent)
            agent.close()
            with pytest.raises(NoSuchPermission):
                await agent.permissions.resolve(request.request_id, ApprovalAnswer(allow=True))
    assert counter.ran == []


async def _ignoring_failure(agent: AgentHandle) -> None:
    with contextlib.suppress(StoreError):  # the conversation was closed under it
        await agent.send("count")


async def test_cancelling_the_turn_withdraws_the_question(counter: Counter) -> None:
    """SE-17, AG-27."""
    async with bumping(counter).build() as mock, mock.spawn() as agent:
        cancel = CancelSignal()
        async with asyncio.TaskGroup() as tasks:
            turn = tasks.create_task(agent.send("count", options=TurnOptions(cancel=cancel)))
            request = await asked(agent)
            cancel.set("enough")
        assert turn.result().status == "cancelled" and agent.permissions.pending == ()
        with pytest.raises(NoSuchPermission):
            await agent.permissions.resolve(request.request_id, ApprovalAnswer(allow=True))
    assert counter.ran == []


async def test_a_question_nobody_answers_is_refused_in_time_if_a_time_is_set(counter: Counter) -> None:
    """SE-17: without one it waits for as long as the turn does."""
    async with bumping(counter).build() as mock:
        report = await mock.spawn(config=AgentConfig(permission_timeout_s=0.01)).send("count")
    assert report.succeeded and counter.ran == []
    assert "nobody answered within 0.01 s" in str(mock.recorded_requests()[1].messages[-1])


async def test_an_agent_may_have_an_authorizer_and_an_approver_of_its_own(counter: Counter) -> None:
    """SE-5, D-99: in place of the runtime's; a turn may be given another approver still."""
    async with bumping(counter).text("more").build() as mock:
        await mock.spawn(config=AgentConfig(authorizer=Refuses())).send("count")
    assert counter.ran == [] and "never" in str(mock.recorded_requests()[1].messages[-1])

    async with bumping(counter, 2).build() as mock:
        own, turns = Allow(), Allow()
        agent = mock.spawn(config=AgentConfig(approver=own))
        await agent.send("count")
        mock.push_turn(ScriptedTurn(calls=(ScriptedCall("bump", {"n": 2}),)))
        await agent.send("again", approver=turns)
    assert len(own.asked) == 2 and len(turns.asked) == 1


async def test_an_answer_that_can_not_be_kept_leaves_the_question_open() -> None:
    """SE-16, D-92: and one whose asker is gone meanwhile is not given."""
    desk, failures = PendingPermissions(), [StoreError("the disk is full")]
    kept: list[ApprovalAnswer] = []

    async def keep(answer: ApprovalAnswer) -> None:
        if failures:
            raise failures.pop()
        kept.append(answer)

    request = replace(a_request(), keep=keep)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(desk.approve(request))
        await anyio.lowlevel.checkpoint()
        with pytest.raises(BasisError, match="full"):
            await desk.resolve("perm-1", ApprovalAnswer(allow=True, scope="session"))
        assert desk.pending == (request,)
        await desk.resolve("perm-1", ApprovalAnswer(allow=True, scope="session"))
    assert waiting.result().allow and len(kept) == 1
    desk.close()
    assert not (await desk.approve(request)).allow


def a_request() -> ApprovalRequest:
    return ApprovalRequest(
        request_id="perm-1",
        session_id="agent-1",
        tool_call_id="c1",
        tool_name="bump",
        title="bump",
        description="bump",
        input={},
        preview=CallPreview(input={}),
        side_effect_level=None,
    )
