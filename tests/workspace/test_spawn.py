"""The tool `spawn`: its convention, its refusals, and commands that really run (workspace.md 7)."""

from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.errors import PolicyDenied
from basis_daemon.processes import CommandNotStarted, CommandOutput, CommandRequest
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.rules import canonical_data, matches_data
from basis_daemon.runtime.tools.base import ToolError
from basis_daemon.workspace.spawn import SpawnRequest, SpawnTool, parse_spawn
from basis_protocol.content import CommandPreview
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return Caller(tmp_path.resolve())


@pytest.fixture
def spawn() -> SpawnTool:
    return SpawnTool()


@pytest.mark.parametrize(
    ("input", "request_"),
    [
        ("!ls -la", SpawnRequest("command", "ls -la")),
        ("  !  ls\n", SpawnRequest("command", "ls")),
        ("!a\nb", SpawnRequest("command", "a\nb")),
        ("! @x y", SpawnRequest("command", "@x y")),
        ("!@box ls", SpawnRequest("command", "ls", "box")),
        ("!@box\n ls", SpawnRequest("command", "ls", "box")),
        ("!!important", SpawnRequest("agent", "!important")),
        ("!!@box ls", SpawnRequest("agent", "!@box ls")),
        ("do it", SpawnRequest("agent", "do it")),
        ("@box ls", SpawnRequest("agent", "@box ls")),
    ],
)
def test_prefixes_say_what_is_meant(input: str, request_: SpawnRequest) -> None:
    """SP-2, SP-4."""
    assert parse_spawn(input) == request_


@pytest.mark.parametrize(
    ("input", "reason"),
    [
        (5, "must be a string"),
        (None, "must be a string"),
        (["!ls"], "must be a string"),
        ("", "is empty"),
        ("  \n", "is empty"),
        ("!", "no command after `!`"),
        ("!  ", "no command after `!`"),
        ("!@", "no target after `!@`"),
        ("!@ ls", "no target after `!@`"),
        ("!@box", "no command after `!@box`"),
        ("!@box  ", "no command after `!@box`"),
        ("!@b/x ls", "can't be a target's name"),
        ("!@bäx ls", "can't be a target's name"),
        ("!@local ls", "no target `local`"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(input: Json, reason: str) -> None:
    """SP-1, SP-3, SP-4."""
    with pytest.raises(ToolError, match=reason):
        parse_spawn(input)


@given(st.text(alphabet="!@ ab\n-", max_size=12))
def test_every_text_is_a_request_or_a_refusal(text: str) -> None:
    try:
        request = parse_spawn(text)
    except ToolError:
        return
    assert request.body.strip() == request.body != ""
    assert (request.mode == "command") == (text.strip()[:1] == "!" and text.strip()[:2] != "!!")


async def test_person_is_shown_the_command_and_what_it_seems_to_do(caller: Caller, spawn: SpawnTool) -> None:
    """SP-10: and rules see mode, body, place and target."""
    prepared = await caller.prepare(spawn, input="! rm -rf build")

    cwd = str(caller.root)
    assert prepared.structured_input == {"mode": "command", "body": "rm -rf build", "cwd": cwd, "target": "local"}
    assert isinstance(prepared.preview, CommandPreview)
    assert (prepared.preview.command, prepared.preview.cwd, prepared.preview.target) == ("rm -rf build", cwd, "local")
    assert prepared.preview.classification is not None
    assert prepared.preview.classification.intent == "destructive"
    assert (prepared.side_effect, prepared.execution) == ("process", "exclusive_local_mutation")
    assert prepared.title == "run rm -rf build"


async def test_long_command_has_a_short_title(caller: Caller, spawn: SpawnTool) -> None:
    assert (await caller.prepare(spawn, input="!a\nb")).title == "run a …"
    assert len((await caller.prepare(spawn, input="!" + "x" * 1000)).title) < 130


@pytest.mark.parametrize("body", ["ls", 'x","mode":"agent","target":"local"}', "*", "a\nb", 'y","target":"box"}'])
async def test_remembered_answer_covers_commands_here_and_nothing_else(caller: Caller, body: str) -> None:
    """AP-30, AP-21: whatever a command's text imitates."""
    spawn = SpawnTool({"box": caller.executor})
    here = await caller.prepare(spawn, input=f"!{body}")
    there = await caller.prepare(spawn, input=f"!@box {body}")

    assert here.remember_pattern is not None and there.remember_pattern is not None
    assert matches_data(here.remember_pattern, canonical_data(here.structured_input))
    assert not matches_data(here.remember_pattern, canonical_data(there.structured_input))
    assert not matches_data(here.remember_pattern, canonical_data({**here.structured_input, "mode": "agent"}))


async def test_output_of_one_stream_comes_bare(caller: Caller, spawn: SpawnTool) -> None:
    """SP-16, BT-2."""
    assert await caller.text(spawn, input="!echo out") == "out"
    assert await caller.text(spawn, input="!echo err >&2") == "err"
    assert await caller.text(spawn, input="!true") == "(no output)"


async def test_both_streams_come_by_name(caller: Caller, spawn: SpawnTool) -> None:
    """D-69: success hides no warning."""
    assert await caller.text(spawn, input="!echo out; echo warn >&2") == "stdout:\nout\nstderr:\nwarn"


async def test_failure_shows_everything_there_is(caller: Caller, spawn: SpawnTool) -> None:
    """D-69, BT-1."""
    output = await caller.call(spawn, input="!echo out; echo err >&2; exit 3")

    assert output.is_error
    assert output.content.startswith("stdout:\nout\nstderr:\nerr\n[exit status 3 after ")
    assert output.summary is not None and output.summary.startswith("run echo out; echo err >&2; exit 3: exit status 3")
    details = output.details
    assert details.pop("duration_ms") >= 0
    assert details == {"exit_code": 3, "timed_out": False, "stdout_truncated": False, "stderr_truncated": False}
    assert (await caller.call(spawn, input="!exit 1")).content.startswith("(no output)\n[exit status 1")
    assert "ended by a signal" in (await caller.call(spawn, input="!kill -9 $$")).content


async def test_time_is_limited_by_the_policy(caller: Caller, spawn: SpawnTool) -> None:
    """SP-13, PO-12: 124 stands for running out of time."""
    caller.policy = RuntimePolicy.workspace_bounded(caller.root, allow_shell=True).with_command_timeout(0.2)
    with anyio.fail_after(10):
        output = await caller.call(spawn, input="!echo started; sleep 100")

    assert output.is_error and output.details["exit_code"] == 124
    assert "started" in output.content and "timed out after 0." in output.content


async def test_lines_are_reported_while_the_command_runs(caller: Caller, spawn: SpawnTool) -> None:
    """SP-15."""
    await caller.call(spawn, input="!echo one; echo two >&2")

    assert sorted(caller.progress) == ["stderr: two", "stdout: one"]


async def test_command_has_the_workspaces_environment_and_directory(caller: Caller, spawn: SpawnTool) -> None:
    """SP-13, SP-14, invariant 5."""
    caller.environment["MARK"] = "workspace"
    output = await caller.text(spawn, input="!pwd; echo $MARK; env | cut -d= -f1 | sort | tr '\\n' ' '")

    assert output.splitlines() == [str(caller.root), "workspace", "MARK PATH PWD "]


async def test_posture_is_checked_before_anybody_is_asked_and_again(caller: Caller, spawn: SpawnTool) -> None:
    """GT-4, SP-8."""
    caller.policy = RuntimePolicy.workspace_bounded(caller.root, allow_shell=False)
    for half in (caller.prepare, caller.execute):
        with pytest.raises(PolicyDenied, match="shell posture of this workspace is `denied`"):
            await half(spawn, input="!touch ran")

    assert not (caller.root / "ran").exists()


async def test_bad_input_is_refused_ahead_of_the_posture(caller: Caller, spawn: SpawnTool) -> None:
    """SP-7: the order of refusals."""
    caller.policy = RuntimePolicy.workspace_bounded(caller.root, allow_shell=False)
    with pytest.raises(ToolError, match="no command"):
        await caller.prepare(spawn, input="!")
    with pytest.raises(ToolError, match="registered: none"):
        await caller.prepare(spawn, input="!@box ls")
    with pytest.raises(ToolError, match="do this work yourself"):
        await caller.prepare(spawn, input="a task")


async def test_tasks_are_refused_with_the_advice_to_do_them(caller: Caller, spawn: SpawnTool) -> None:
    """SP-19."""
    for half in (caller.prepare, caller.execute):
        with pytest.raises(ToolError, match="do this work yourself"):
            await half(spawn, input="!!refactor it")


async def test_vanished_directory_is_told(caller: Caller, spawn: SpawnTool) -> None:
    caller.root = caller.root / "gone"
    with pytest.raises(ToolError, match="does not exist any more"):
        await caller.prepare(spawn, input="!ls")


class Remote:
    """A target that keeps what it was told to run."""

    def __init__(self) -> None:
        self.requests: list[CommandRequest] = []

    async def run(self, request: CommandRequest) -> CommandOutput:
        self.requests.append(request)
        return CommandOutput("from afar\n", "", 0)


async def test_targeted_command_runs_there_and_never_here(caller: Caller) -> None:
    """SP-17, invariant 7."""
    remote = Remote()
    spawn = SpawnTool({"box": remote})
    output = await caller.call(spawn, input="!@box touch ran")

    assert output.content == "from afar"
    (request,) = remote.requests
    assert (request.command, request.timeout_s, request.cwd) == ("touch ran", 120.0, caller.root)
    assert request.target == "box"
    assert not (caller.root / "ran").exists()
    assert (await caller.prepare(spawn, input="!@box ls")).title == "run on box ls"
    with pytest.raises(ToolError, match="registered: box"):
        await caller.prepare(spawn, input="!@other ls")


async def test_target_that_leads_back_here_is_refused_not_run(caller: Caller) -> None:
    """PO-15, invariant 7: the local executor takes no command that is meant for another place."""
    spawn = SpawnTool({"box": caller.executor})
    with pytest.raises(CommandNotStarted, match=r"'box' can't be run here"):
        await caller.execute(spawn, input="!@box touch ran")

    assert not (caller.root / "ran").exists()


async def test_policy_that_enforces_refuses_before_anybody_is_asked_and_again(caller: Caller, spawn: SpawnTool) -> None:
    """PO-17, PO-22: a command that reads as a change is not for a read-only session that says so."""
    caller.policy = RuntimePolicy.read_only(caller.root).allow_shell_commands().with_shell_validation("enforce")
    for half in (caller.prepare, caller.execute):
        with pytest.raises(PolicyDenied, match="read-only"):
            await half(spawn, input="!ls; touch ran")

    assert not (caller.root / "ran").exists()
    assert "(no output)" in await caller.text(spawn, input="!ls")


def test_targets_are_taught_only_where_there_are_some() -> None:
    """SP-6."""
    assert "!@" not in SpawnTool().spec.description
    assert "!@name command" in SpawnTool({"box": Remote()}).spec.description
    assert SpawnTool().spec.input_schema["required"] == ["input"]
