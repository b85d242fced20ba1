"""`shell` on real commands: what is refused, what is shown, what comes back."""

from pathlib import Path
from typing import cast

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basis_daemon.errors import PolicyDenied
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.base import ToolError, ToolOutput
from basis_daemon.runtime.tools.shell import ShellTool
from basis_daemon.runtime.tools.shell_calls import MAX_COMMAND_BYTES
from basis_protocol.content import CommandPreview
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio

shell = ShellTool()


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    root = tmp_path.resolve() / "repo"
    root.mkdir()
    return Caller(root, policy=RuntimePolicy.permissive().with_command_timeout(20.0))


async def refused(caller: Caller, **input: Json) -> str:
    """The reason both halves of the call give."""
    reasons: list[str] = []
    for half in (caller.prepare, caller.execute):
        with pytest.raises((ToolError, PolicyDenied)) as refusal:
            await half(shell, **input)
        reasons.append(str(refusal.value))
    assert reasons[0] == reasons[1]
    return reasons[0]


def details(output: ToolOutput) -> dict[str, Json]:
    return cast(dict[str, Json], output.details)


async def test_streams_and_status_come_back_by_name(caller: Caller) -> None:
    """BT-1, D-69: both streams on success and on failure alike, and the status where it isn't 0."""
    well = await caller.call(shell, command="echo out; echo err >&2")
    assert (well.content, well.is_error) == ("stdout:\nout\nstderr:\nerr", False)

    badly = await caller.call(shell, command="echo out; echo err >&2; exit 3")
    assert isinstance(badly.content, str)
    assert badly.content.startswith("stdout:\nout\nstderr:\nerr\n[exit status 3 after ") and badly.is_error
    shown = details(badly)
    assert shown.keys() == {"exit_code", "timed_out", "stdout_truncated", "stderr_truncated", "duration_ms"}
    assert (shown["exit_code"], shown["timed_out"]) == (3, False)


async def test_command_that_prints_nothing_says_so(caller: Caller) -> None:
    """BT-2."""
    output = await caller.call(shell, command="true")
    assert (output.content, output.is_error) == ("(no output)", False)


@pytest.mark.parametrize("command", ["", " \n\t "])
async def test_empty_command_is_refused_before_anybody_is_asked(caller: Caller, command: str) -> None:
    """BT-2."""
    assert "empty" in await refused(caller, command=command)


async def test_impossible_command_is_refused_before_anybody_is_asked(caller: Caller) -> None:
    assert "NUL" in await refused(caller, command="echo a\0b")
    assert "write a script" in await refused(caller, command="x" * (MAX_COMMAND_BYTES + 1))


async def test_switched_off_commands_name_the_switch(caller: Caller) -> None:
    """BT-1, PO-2."""
    caller.policy = RuntimePolicy()
    assert "allow_shell_commands" in await refused(caller, command="echo x")


async def test_time_is_the_callers_within_the_policys(caller: Caller) -> None:
    """BT-1: the lesser of what is asked for and what there is; a command beyond it is ended and says so."""
    prepared = await caller.prepare(shell, command="true")
    assert prepared.structured_input["timeout_ms"] == 20_000
    assert (await caller.prepare(shell, command="true", timeoutMs=10**8)).structured_input["timeout_ms"] == 20_000

    with anyio.fail_after(10):
        output = await caller.call(shell, command="echo begun; sleep 60", timeoutMs=300)

    assert output.is_error and isinstance(output.content, str)
    assert output.content.startswith("stdout:\nbegun\n[timed out after ")
    assert (details(output)["exit_code"], details(output)["timed_out"]) == (124, True)


async def test_long_output_keeps_both_ends_and_says_what_is_missing(caller: Caller) -> None:
    """BT-1, PO-13, D-63."""
    caller.policy = RuntimePolicy.permissive().with_max_output_bytes_per_stream(1000)
    output = await caller.call(shell, command="seq 1 5000")
    assert isinstance(output.content, str)
    assert output.content.startswith("stdout:\n1\n2\n") and output.content.endswith("\n5000")
    assert "bytes elided" in output.content
    assert (details(output)["stdout_truncated"], details(output)["stderr_truncated"]) == (True, False)


async def test_program_that_waits_for_input_gets_its_end(caller: Caller) -> None:
    """PO-11: nothing hangs at a question nobody sees."""
    with anyio.fail_after(10):
        assert await caller.text(shell, command="cat; read answer || echo nobody") == "stdout:\nnobody"


async def test_working_directory_must_be_one_and_allowed(caller: Caller) -> None:
    """PO-10, PO-16."""
    (caller.root / "sub").mkdir()
    assert await caller.text(shell, command="pwd", workingDirectory="sub") == f"stdout:\n{caller.root}/sub"
    assert await caller.text(shell, command="pwd", cwd="sub/..") == f"stdout:\n{caller.root}"
    assert "no directory" in await refused(caller, command="pwd", workingDirectory="nope")
    assert "outside the working roots" in await refused(caller, command="pwd", workingDirectory="/")


async def test_person_is_shown_the_command_and_what_it_seems_to_do(caller: Caller) -> None:
    """TL-27: rules see the same, by field."""
    prepared = await caller.prepare(shell, command="rm -rf build", justification="stale", timeoutMs=5000)
    assert prepared.structured_input == {
        "kind": "shell",
        "command": "rm -rf build",
        "working_directory": str(caller.root),
        "timeout_ms": 5000,
        "background": False,
        "validation": prepared.structured_input["validation"],
        "justification": "stale",
    }
    validation = cast(dict[str, Json], prepared.structured_input["validation"])
    assert (validation["mode"], validation["intent"], validation["outcome"]) == ("off", "destructive", "prompt")
    assert isinstance(prepared.preview, CommandPreview)
    assert prepared.preview.command == "rm -rf build" and prepared.preview.cwd == str(caller.root)
    assert (prepared.side_effect, prepared.execution) == ("process", "exclusive_local_mutation")


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
async def test_command_reaches_the_shell_as_it_was_written(tmp_path: Path, text: str) -> None:
    """TL-43: nothing of ours is put into it, whatever characters it holds."""
    caller = Caller(tmp_path, policy=RuntimePolicy.permissive())
    quoted = "'" + text.replace("'", "'\\''") + "'"
    await caller.call(shell, command=f"printf %s {quoted} > out")
    assert (tmp_path / "out").read_bytes() == text.encode()
