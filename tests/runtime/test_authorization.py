"""What an authorizer and a person are shown of a call: what would really run, and no more of it than is needed."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.runtime.approvals import ApprovalAnswer
from basis_daemon.runtime.permissions import Authorization, AuthorizationRequest
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.scripted import ScriptedCall, ScriptedProvider, ScriptedTurn
from basis_daemon.runtime.tools.base import ExecutionCategory, FunctionTool, Tool, ToolContext, ToolSpec
from basis_daemon.runtime.tools.builtin import file_tools, runtime_tools
from basis_daemon.workspace.spawn import SpawnTool
from basis_protocol.content import CallPreview, CommandPreview, DiffPreview
from basis_protocol.events import ToolCompleted
from support.conversations import Allow, Conversation, close_conversations, new_conversation

pytestmark = pytest.mark.anyio

CANARY = "canary-of-a-secret"


class Noting:
    """Puts everything to a person, and keeps what it was shown."""

    def __init__(self, outcome: Any = "prompt") -> None:
        self.outcome = outcome
        self.judged: list[AuthorizationRequest] = []

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        self.judged.append(request)
        return Authorization(self.outcome)


@pytest.fixture(autouse=True)
async def ending() -> AsyncIterator[None]:
    yield
    await close_conversations()


async def judged(root: Path, *calls: ScriptedCall, tools: tuple[Tool, ...] = ()) -> tuple[Conversation, Noting, Allow]:
    """A conversation in which the model makes these calls at once."""
    provider = ScriptedProvider([ScriptedTurn(calls=calls), ScriptedTurn(chunks=("done",))])
    policy = RuntimePolicy.workspace_bounded(root, allow_shell=True).allow_background_commands()
    known = (*file_tools("both"), *runtime_tools(), SpawnTool(), *tools)
    conversation = new_conversation(provider, root, *known, policy=policy)
    noting, person = Noting(), Allow()
    conversation.session.with_tool_authorizer(noting)
    with anyio.fail_after(20):
        await conversation.say("go", approver=person)
    return conversation, noting, person


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            ScriptedCall("shell", {"command": "true", "justification": "to see", "timeoutMs": 5000}),
            {"kind": "shell", "command": "true", "background": False, "timeout_ms": 5000, "justification": "to see"},
        ),
        (ScriptedCall("background_run", {"command": "true"}), {"command": "true", "background": True}),
        (ScriptedCall("spawn", {"input": "!true"}), {"mode": "command", "body": "true", "target": "local"}),
        (ScriptedCall("write", {"path": "n.txt", "content": CANARY}), {"kind": "file", "op": "write", "bytes": 18}),
        (
            ScriptedCall("edit", {"path": "a.txt", "edits": [{"old_string": "one", "new_string": CANARY}]}),
            {"kind": "file", "op": "edit", "replacements": 1},
        ),
        (
            ScriptedCall("files", {"operations": [{"op": "create", "path": "n.txt", "content": CANARY}]}),
            {"kind": "files"},
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ScriptedCall) else "",
)
async def test_what_rules_and_authorizers_read_is_structured_and_holds_no_contents(
    tmp_path: Path, call: ScriptedCall, expected: dict[str, Any]
) -> None:
    """TL-27, D-80, AP-6: paths and sizes instead of contents; for commands the verdict on them."""
    await asyncio.to_thread((tmp_path / "a.txt").write_text, "one\n")

    _, noting, person = await judged(tmp_path, call)

    structured = noting.judged[0].preparation.structured_input
    assert expected.items() <= structured.items()
    assert CANARY not in str(structured)
    assert person.asked[0].input == structured
    if call.name == "shell":
        assert structured["validation"].keys() == {"mode", "intent", "outcome"}
    if call.name == "files":
        (operation,) = structured["operations"]
        assert operation["op"] == "create" and operation["resolved_path"] == str(tmp_path / "n.txt")


async def test_a_person_sees_the_change_or_the_command_itself(tmp_path: Path) -> None:
    """5.7 (e), AP-3: a diff for edits of every kind, the parsed command for commands, the input for the rest."""
    await asyncio.to_thread((tmp_path / "a.txt").write_text, "one\n")

    async def publish(context: ToolContext, input: dict[str, Any]) -> str:
        return "published"

    calls = [
        ScriptedCall("write", {"path": "n.txt", "content": "new\n"}),
        ScriptedCall("edit", {"path": "a.txt", "edits": [{"old_string": "one", "new_string": "two"}]}),
        ScriptedCall("files", {"operations": [{"op": "create", "path": "m.txt", "content": "mine\n"}]}),
        ScriptedCall("spawn", {"input": "!cd / && rm -rf nothing-there"}),
        ScriptedCall("shell", {"command": "sudo -n true; true"}),
        ScriptedCall("publish", {"to": "all"}),
    ]
    tool = FunctionTool(ToolSpec("publish", side_effect="external"), publish)
    _, _, person = await judged(tmp_path, *calls, tools=(tool,))

    shown = [request.preview for request in person.asked]
    patches = [preview.files[0].patch for preview in shown if isinstance(preview, DiffPreview)]
    assert ["+new" in patches[0], "-one\n+two" in patches[1], "+mine" in patches[2]] == [True] * 3
    spawned, shell = (preview for preview in shown if isinstance(preview, CommandPreview))
    assert (spawned.command, spawned.cwd, spawned.target) == ("cd / && rm -rf nothing-there", str(tmp_path), "local")
    assert spawned.classification is not None and spawned.classification.intent == "destructive"
    assert shell.classification is not None and "runs as another user" in shell.classification.warnings
    assert shown[-1] == CallPreview(input={"to": "all"})


async def test_a_preview_that_fails_blocks_the_call(tmp_path: Path) -> None:
    """TL-23, Appendix C 1: nothing to show is nothing to allow."""
    ran: list[str] = []

    class Broken(FunctionTool):
        async def prepare(self, context: ToolContext, input: dict[str, Any]) -> Any:
            raise RuntimeError("no idea")

    async def act(context: ToolContext, input: dict[str, Any]) -> str:
        ran.append("ran")
        return "ran"

    tool = Broken(ToolSpec("act", side_effect="external"), act)
    conversation, noting, person = await judged(tmp_path, ScriptedCall("act"), tools=(tool,))

    assert ran == [] and noting.judged == [] and person.asked == []
    assert conversation.seen(ToolCompleted)[0].is_error


class Choosing(FunctionTool):
    """A tool that goes beside others unless its input says that it changes something."""

    def execution_category(self, input: dict[str, Any]) -> ExecutionCategory:
        return "exclusive_local_mutation" if input.get("change") else "read_only_parallel"


async def test_the_lane_that_is_judged_is_the_one_the_call_goes_in(tmp_path: Path) -> None:
    """TL-24, D-55: not what the tool says of itself in general, and not a lane an ending call can't have."""

    async def act(context: ToolContext, input: dict[str, Any]) -> str:
        return "done"

    tools = (
        Choosing(ToolSpec("choose", side_effect="external", execution="background_job"), act),
        FunctionTool(ToolSpec("finish", side_effect="external", execution="read_only_parallel", terminal=True), act),
    )
    calls = [
        ScriptedCall("choose", {}),
        ScriptedCall("choose", {"change": True}),
        ScriptedCall("finish", {}),
    ]
    _, noting, _ = await judged(tmp_path, *calls, tools=tools)

    assert [request.preparation.execution for request in noting.judged] == [
        "read_only_parallel",
        "exclusive_local_mutation",
        "exclusive_local_mutation",
    ]


async def test_a_reason_reaches_the_model_word_for_word(tmp_path: Path) -> None:
    """AP-5, SE-15, D-95."""
    provider = ScriptedProvider([ScriptedTurn(calls=(ScriptedCall("bump", {}),)), ScriptedTurn(chunks=("done",))])

    async def act(context: ToolContext, input: dict[str, Any]) -> str:
        return "done"

    tool = FunctionTool(ToolSpec("bump", side_effect="external"), act)
    conversation = new_conversation(provider, tmp_path, tool)
    with anyio.fail_after(20):
        await conversation.say("go", approver=Allow(ApprovalAnswer(reason="use the “other” branch\nplease")))

    (result,) = conversation.session.agent.transcript.messages()[2].content
    assert result.content == "Tool execution denied: use the “other” branch\nplease"  # type: ignore[union-attr]


async def test_the_log_has_names_and_ids_and_nothing_a_call_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SE-32: whatever goes wrong on the way."""
    caplog.set_level(logging.DEBUG)

    class Failing:
        async def authorize(self, request: AuthorizationRequest) -> Authorization:
            raise RuntimeError("boom")

    provider = ScriptedProvider(
        [
            ScriptedTurn(calls=(ScriptedCall("spawn", {"input": f"!echo {CANARY}"}),)),
            ScriptedTurn(calls=(ScriptedCall("write", {"path": "n.txt", "content": CANARY}),)),
            ScriptedTurn(chunks=("done",)),
        ]
    )
    policy = RuntimePolicy.workspace_bounded(tmp_path, allow_shell=True)
    conversation = new_conversation(provider, tmp_path, *file_tools("split"), SpawnTool(), policy=policy)
    conversation.session.with_tool_authorizer(Failing())
    with anyio.fail_after(20):
        await conversation.say("go")

    assert "authorizer failed for tool spawn" in caplog.text and CANARY not in caplog.text
