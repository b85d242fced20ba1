"""Who judges and who watches, as a builder is told (runtime.md 1.1, 4.4, 4.6; workspace.md 6)."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from basis_daemon.runtime.hooks.contract import Allow, Deny, HookOutcome, HookRequest, Modify, Replace
from basis_daemon.runtime.observers import AuditStore, RuntimeEvent
from basis_daemon.runtime.permissions import Authorization, AuthorizationRequest
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.runtime.store.audit import MemoryAudit
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.store.volatile import VolatileStore
from basis_daemon.testing import MockRuntime, MockRuntimeBuilder, ScriptedCall
from support.conversations import Counter

pytestmark = pytest.mark.anyio


@dataclass
class Notes:
    """What was asked, in order."""

    said: list[str] = field(default_factory=list[str])

    def pre(self, name: str, outcome: HookOutcome | None = None) -> "Named":
        return Named(name, self.said, outcome or Allow())


@dataclass
class Named:
    name: str
    said: list[str]
    outcome: HookOutcome

    async def __call__(self, request: HookRequest) -> HookOutcome:
        self.said.append(f"{self.name} {request.input['n']}")
        return self.outcome

    async def before(self, request: HookRequest) -> HookOutcome:
        return await self(request)

    async def after(self, request: HookRequest) -> HookOutcome:
        self.said.append(f"{self.name} after")
        return Allow()

    async def intercept(self, request: HookRequest) -> HookOutcome:
        return await self(request)


class Sees:
    """An authorizer that keeps what it judged."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        self.seen.append(request.preparation.structured_input)
        return Authorization("allow")


class Watches:
    def __init__(self) -> None:
        self.events: list[RuntimeEvent] = []

    def on_event(self, audit: AuditStore, event: RuntimeEvent) -> None:
        self.events.append(event)


def bumping(counter: Counter) -> MockRuntimeBuilder:
    script = MockRuntime.builder().with_tool(counter.tool())
    return script.tool_calls(ScriptedCall("bump", {"n": 1})).text("done")


async def test_hooks_judge_in_the_order_they_were_named(counter: Counter) -> None:
    """TL-16, TL-17, TL-19, RT-2: appended, never replaced; what was rewritten is what is judged and what runs."""
    notes, sees = Notes(), Sees()
    builder = (
        bumping(counter)
        .with_pre_hook(notes.pre("first", Modify({"n": 5}, "five is better")))
        .with_pre_hook(notes.pre("second"))
        .with_execution_hooks([notes.pre("third"), notes.pre("fourth")])
        .with_execution_hook(notes.pre("fifth"))
        .with_post_hook(notes.pre("last"))
        .with_post_hook(notes.pre("behind it", Replace("hidden")))
        .with_tool_authorizer(sees)
    )
    async with builder.build() as mock:
        await mock.spawn().send("count")

    assert notes.said == [
        "first 1",
        "second 5",
        "third 5",
        "fourth 5",
        "fifth 5",
        "third after",
        "fourth after",
        "fifth after",
        "behind it 5",
        "last 5",
    ]
    assert counter.ran == [{"n": 5}] and sees.seen == [{"n": 5}]
    assert "hidden" in str(mock.recorded_requests()[1].messages[-1])


async def test_an_interceptor_that_refuses_or_hangs_stops_the_call(counter: Counter) -> None:
    """HO-19, HO-23: it is named in the refusal."""

    class Hangs(Named):
        async def intercept(self, request: HookRequest) -> HookOutcome:
            return await asyncio.get_running_loop().create_future()

    notes = Notes()
    for interceptor in (notes.pre("guard", Deny("no counting")), Hangs("sleeper", [], Allow())):
        async with bumping(counter).with_interceptor(interceptor, timeout_s=0.02).build() as mock:
            await mock.spawn().send("count")
            told = str(mock.recorded_requests()[1].messages[-1])
        assert f"denied by interceptor '{interceptor.name}'" in told
    assert counter.ran == [] and notes.said == ["guard 1"]


async def test_a_hook_may_come_and_go_while_agents_live(counter: Counter) -> None:
    """RT-10, TL-21: seen with the next call; its guard takes it back."""
    script = bumping(counter).tool_calls(ScriptedCall("bump", {"n": 2})).text("done")
    async with script.build() as mock:
        agent = mock.spawn()
        with mock.runtime.hooks.register_pre_hook(Notes().pre("now", Deny("not now"))):
            await agent.send("count")
        await agent.send("again")
    assert counter.ran == [{"n": 2}]


async def test_observers_are_told_and_the_trail_is_kept_unless_it_is_replaced(counter: Counter) -> None:
    """TL-28, TL-29, RT-6: `recovery_prepared` comes once a build. Ids and names are told, nothing anybody said."""
    watches = Watches()
    async with bumping(counter).with_hook(watches).build() as mock:
        agent = mock.spawn()
        await agent.send("count to a secret")
        audit = mock.runtime.observers.audit
    kinds = [event.kind for event in watches.events]
    assert kinds.count("recovery_prepared") == 1 and "tool_execution_finished" in kinds
    assert isinstance(audit, MemoryAudit)
    assert [event.event_type for event in audit.events] == kinds
    assert {event.agent_id for event in watches.events} == {None, agent.id}
    assert "secret" not in str(watches.events)

    async with bumping(counter).with_hooks([watches]).build() as mock:
        await mock.spawn().send("count")
        audit = mock.runtime.observers.audit
    assert isinstance(audit, MemoryAudit) and not audit.events


async def test_the_trail_lies_beside_what_it_is_about(counter: Counter, tmp_path: Path) -> None:
    """TL-29: a store on disk keeps it in a file, once an agent did something; what is kept in memory leaves none."""
    store = await asyncio.to_thread(FileStore, tmp_path / "store")
    builder = bumping(counter).with_store(store)
    mock = await asyncio.to_thread(builder.build)
    async with mock:
        assert not await anyio.Path(tmp_path / "store" / "audit.jsonl").exists()
        agent = mock.spawn()
        async with agent:
            await agent.send("count")
        view = mock.runtime.with_store(VolatileStore())
        view.observers.notify("run_aborted", "agent-volatile")
    text = await anyio.Path(tmp_path / "store" / "audit.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert rows[0]["event_type"] == "recovery_prepared" and rows[0]["scope"] == "runtime"
    assert {row["scope"] for row in rows[1:]} == {f"agent:{agent.id}"}


async def test_a_runtime_without_hooks_asks_nobody() -> None:
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        assert runtime.hooks.snapshot(None).pre == ()
