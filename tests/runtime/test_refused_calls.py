"""A refused call has had no effect: for every tool that changes something, and every way of refusing (protocol.md 5).

What is looked at is the disk, the processes and the other agents – never the message alone.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.runtime.approvals import ApprovalAnswer, ApprovalRequest, Approver
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.hooks.contract import Deny, HookRequest, Modify
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.permissions import Authorization, AuthorizationRequest, Authorizer
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.scripted import ScriptedCall, ScriptedProvider, ScriptedTurn
from basis_daemon.runtime.rules import RememberedRule
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.tools.base import FunctionTool, Tool, ToolContext, ToolSpec
from basis_daemon.runtime.tools.builtin import file_tools, runtime_tools
from basis_daemon.workspace.approval import DefaultDeny, PolicyApprover, PolicyGate
from basis_daemon.workspace.spawn import SpawnTool
from basis_protocol.events import ToolStarted
from support.conversations import Conversation, close_conversations, new_conversation
from support.sdk import files_below

pytestmark = pytest.mark.anyio

CALLS: dict[str, ScriptedCall] = {
    "write a new file": ScriptedCall("write", {"path": "new.txt", "content": "x"}),
    "write over a file": ScriptedCall("write", {"path": "a.txt", "content": "x"}),
    "edit": ScriptedCall("edit", {"path": "a.txt", "edits": [{"old_string": "one", "new_string": "two"}]}),
    "files: create": ScriptedCall("files", {"operations": [{"op": "create", "path": "new.txt", "content": "x"}]}),
    "files: delete": ScriptedCall("files", {"operations": [{"op": "delete", "path": "a.txt"}]}),
    "files: move": ScriptedCall("files", {"operations": [{"op": "move", "from": "a.txt", "to": "b.txt"}]}),
    "files: read and set": ScriptedCall(
        "files",
        {"operations": [{"op": "read", "path": "a.txt"}, {"op": "set", "path": "a.txt", "content": "x"}]},
    ),
    "shell": ScriptedCall("shell", {"command": "touch ran"}),
    "background_run": ScriptedCall("background_run", {"command": "touch ran"}),
    "spawn": ScriptedCall("spawn", {"input": "!touch ran"}),
    "task": ScriptedCall("task", {"prompt": "touch ran"}),
    "a host's tool": ScriptedCall("publish", {"to": "ran"}),
    "a host's tool beside others": ScriptedCall("publish_beside", {"to": "ran"}),
}
"""One call of every tool, or of every thing a tool can do, that changes something."""


def hosts_tool(name: str, lane: Any) -> Tool:
    async def publish(context: ToolContext, input: dict[str, Any]) -> str:
        await asyncio.to_thread((context.working_directory / input["to"]).write_text, "published")
        return "published"

    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    return FunctionTool(ToolSpec(name, "Publish.", schema, side_effect="external", execution=lane), publish)


def all_tools() -> list[Tool]:
    hosts = [hosts_tool("publish", "exclusive_local_mutation"), hosts_tool("publish_beside", "read_only_parallel")]
    return [*file_tools("both"), *runtime_tools(), SpawnTool(), *hosts]


# --- ways of refusing ---


class Person:
    """Answers alike, and counts."""

    def __init__(self, answer: ApprovalAnswer | None = None) -> None:
        self.answer = answer or ApprovalAnswer(allow=True)
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return self.answer


class Silent(Person):
    """Never answers; `then` is done once they are asked."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._then = then

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        self._then()
        await anyio.sleep_forever()
        raise AssertionError


@dataclass
class Says:
    """An authorizer with one word."""

    said: Authorization | Exception | None
    timeout_s: float | None = None

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        if self.said is None:
            await anyio.sleep_forever()
        if isinstance(self.said, Exception):
            raise self.said
        return self.said  # type: ignore[return-value]


@dataclass
class Scene:
    """A conversation about to make its one call, and what is there to refuse it with."""

    conversation: Conversation
    root: Path
    approver: Approver = field(default_factory=Person)
    options: TurnOptions = field(default_factory=TurnOptions)
    status: str = "ok"
    """How the turn ends."""
    kept: object = None
    """A registration that would go with its guard."""

    def judged_by(self, authorizer: Authorizer) -> None:
        self.conversation.session.with_tool_authorizer(authorizer)

    def remember(self, rule: Callable[[str], RememberedRule]) -> None:
        for tool in all_tools():
            self.conversation.session.answers.remember_rule(rule(tool.spec.name))


def by_a_person(scene: Scene) -> None:
    scene.approver = Person(ApprovalAnswer(reason="no"))


def by_a_person_for_good(scene: Scene) -> None:
    scene.approver = Person(ApprovalAnswer(scope="project", reason="no"))


def by_a_live_rule(scene: Scene) -> None:
    scene.remember(lambda tool: RememberedRule(tool, False, reason="no"))


def by_a_stored_rule(scene: Scene) -> None:
    scene.remember(lambda tool: RememberedRule(tool, False, reason="no", scope="project"))


def by_a_denial_beside_an_allow(scene: Scene) -> None:
    scene.remember(lambda tool: RememberedRule(tool, True, scope="project"))
    scene.remember(lambda tool: RememberedRule(tool, False, "*", "no", "project"))


def by_rules_that_cannot_be_read(scene: Scene) -> None:
    scene.remember(lambda tool: RememberedRule(tool, True, scope="project"))
    file = scene.conversation.session.answers.file
    assert file is not None
    Path(file).write_bytes(Path(file).read_bytes()[:-9])


def by_the_authorizer(scene: Scene) -> None:
    scene.remember(lambda tool: RememberedRule(tool, True, scope="global"))
    scene.judged_by(Says(Authorization("deny", "no")))


def by_an_authorizer_that_fails(scene: Scene) -> None:
    scene.judged_by(Says(RuntimeError("boom")))


def by_an_authorizer_that_takes_too_long(scene: Scene) -> None:
    scene.judged_by(Says(None, timeout_s=0.01))


def by_the_mode(scene: Scene) -> None:
    scene.remember(lambda tool: RememberedRule(tool, True, scope="global"))
    scene.judged_by(PolicyGate(lambda: "never"))


def by_a_mode_that_was_switched_as_it_was_asked(scene: Scene) -> None:
    scene.approver = PolicyApprover(lambda: "never", Person())


def by_a_hook(scene: Scene) -> None:
    async def refuse(request: HookRequest) -> Deny:
        return Deny("no")

    scene.kept = scene.conversation.runtime.hooks.register_pre_hook(refuse)


def by_a_hook_that_fails(scene: Scene) -> None:
    async def fail(request: HookRequest) -> Deny:
        raise RuntimeError("boom")

    scene.kept = scene.conversation.runtime.hooks.register_pre_hook(fail)


def by_nobody_answering_in_time(scene: Scene) -> None:
    scene.approver = DefaultDeny(Silent(), timeout_s=0.02)


def by_an_approver_that_breaks(scene: Scene) -> None:
    class Broken:
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            raise RuntimeError("the window is gone")

    scene.approver = Broken()


def by_cancelling_as_it_is_asked(scene: Scene) -> None:
    cancel = CancelSignal()
    scene.approver = Silent(cancel.set)
    scene.options = replace(scene.options, cancel=cancel)
    scene.status = "cancelled"


def by_the_deadline_as_it_is_asked(scene: Scene) -> None:
    scene.approver = Silent()
    scene.options = replace(scene.options, deadline_s=0.3)
    scene.status = "error"


WAYS: list[Callable[[Scene], None]] = [
    by_a_person,
    by_a_person_for_good,
    by_a_live_rule,
    by_a_stored_rule,
    by_a_denial_beside_an_allow,
    by_rules_that_cannot_be_read,
    by_the_authorizer,
    by_an_authorizer_that_fails,
    by_an_authorizer_that_takes_too_long,
    by_the_mode,
    by_a_mode_that_was_switched_as_it_was_asked,
    by_a_hook,
    by_a_hook_that_fails,
    by_nobody_answering_in_time,
    by_an_approver_that_breaks,
    by_cancelling_as_it_is_asked,
    by_the_deadline_as_it_is_asked,
]


def prepared_in(directory: Path) -> tuple[Path, FileStore]:
    root = directory / "repo"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    store = FileStore(directory / "store")
    store.prepare()
    return root, store


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Scene]]]:
    async def scene(*calls: ScriptedCall, policy: RuntimePolicy | None = None) -> Scene:
        root, store = await asyncio.to_thread(prepared_in, tmp_path)
        permissive = RuntimePolicy.workspace_bounded(root, allow_shell=True).allow_background_commands()
        provider = ScriptedProvider([ScriptedTurn(calls=calls), ScriptedTurn(chunks=("done",))])
        conversation = new_conversation(
            provider, root, *all_tools(), store=store, policy=policy or permissive, project_id="basis:repo"
        )
        return Scene(conversation, root)

    yield scene
    await close_conversations()


def state_of(scene: Scene) -> dict[str, Any]:
    """Everything a call could have changed."""
    session = scene.conversation.session
    return {
        "files": files_below(scene.root),
        "names": sorted(os.listdir(scene.root)),
        "agents": [record.id for record in scene.conversation.runtime.store.list() if record.id != session.agent.id],
        "background": scene.conversation.runtime.background.tasks(session.agent.id),
    }


@pytest.mark.parametrize("refuse", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_refused_call_changes_nothing(
    make: Callable[..., Awaitable[Scene]], call: ScriptedCall, refuse: Callable[[Scene], None]
) -> None:
    """Appendix C 1, SE-17, TL-23, AP-5, D-93: nothing on the disk, no process, no other agent, and nothing started."""
    scene = await make(call)
    await asyncio.to_thread(refuse, scene)
    before = await asyncio.to_thread(state_of, scene)

    with anyio.fail_after(20):
        ended = await scene.conversation.say("go", approver=scene.approver, options=scene.options)

    assert ended.status == scene.status, ended.error
    assert await asyncio.to_thread(state_of, scene) == before
    assert not scene.conversation.seen(ToolStarted)
    if scene.status == "ok":
        (result,) = scene.conversation.session.agent.transcript.messages()[2].content
        assert result.is_error, result  # type: ignore[union-attr]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_the_same_call_has_its_effect_when_it_is_allowed(
    make: Callable[..., Awaitable[Scene]], call: ScriptedCall
) -> None:
    """The test above would see it: every one of its calls changes something when nobody refuses it."""
    scene = await make(call)
    if call.name == "task":
        # What the subagent says, and the last word of the agent.
        scene.conversation.session.options.provider.push(ScriptedTurn(chunks=("done",)))  # type: ignore[attr-defined]
    before = await asyncio.to_thread(state_of, scene)

    with anyio.fail_after(20):
        await scene.conversation.say("go", approver=Person())

    assert await asyncio.to_thread(state_of, scene) != before or call.name == "task"
    assert scene.conversation.seen(ToolStarted)


async def test_a_call_refused_among_others_leaves_only_theirs(make: Callable[..., Awaitable[Scene]]) -> None:
    """TL-25, TL-32: in a run side by side as in one alone, each call stands for itself."""
    calls = [
        ScriptedCall("publish_beside", {"to": "one"}),
        ScriptedCall("publish_beside", {"to": "two"}),
        ScriptedCall("publish", {"to": "three"}),
        ScriptedCall("publish", {"to": "four"}),
    ]
    scene = await make(*calls)

    class Odd(Person):
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            self.asked.append(request)
            return ApprovalAnswer(allow=len(self.asked) % 2 == 1, reason="even")

    with anyio.fail_after(20):
        await scene.conversation.say("go", approver=Odd())

    assert sorted(os.listdir(scene.root)) == ["a.txt", "one", "three"]


async def test_a_person_is_asked_in_the_order_of_the_calls_and_once_for_each(
    make: Callable[..., Awaitable[Scene]],
) -> None:
    """TL-25."""
    calls = [ScriptedCall("publish_beside", {"to": name}) for name in "abc"]
    scene = await make(*calls)
    person = Person(ApprovalAnswer(reason="no"))

    with anyio.fail_after(20):
        await scene.conversation.say("go", approver=person)

    assert [request.input["to"] for request in person.asked] == ["a", "b", "c"]


async def test_what_a_hook_rewrites_is_what_is_judged_shown_and_refused(make: Callable[..., Awaitable[Scene]]) -> None:
    """AP-3, D-50, SE-15: the rule matches the rewritten input; the model reads the reason and whose hand it was."""
    scene = await make(ScriptedCall("publish", {"to": "harmless"}))

    async def rewrite(request: HookRequest) -> Modify:
        return Modify({"to": "ran"})

    scene.kept = scene.conversation.runtime.hooks.register_pre_hook(rewrite)
    scene.conversation.session.answers.remember_rule(RememberedRule("publish", False, '{"to":"ran"}', "not there"))

    with anyio.fail_after(20):
        await scene.conversation.say("go", approver=Person())

    assert sorted(os.listdir(scene.root)) == ["a.txt"]
    (result,) = scene.conversation.session.agent.transcript.messages()[2].content
    assert "not there" in str(result.content)  # type: ignore[union-attr]
