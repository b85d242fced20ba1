"""Commands on this machine: what they get, what is kept of what they print, and that nothing of them survives."""

import asyncio
import os
import sys
from pathlib import Path

import anyio
import pytest

from basis_daemon.processes import (
    PIPE,
    ChildLabel,
    CommandNotStarted,
    CommandOutput,
    CommandRequest,
    LocalExecutor,
    ProcessTable,
    run_program,
)

pytestmark = pytest.mark.anyio

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def executor() -> LocalExecutor:
    return LocalExecutor()


def request(command: str, tmp_path: Path, **fields: object) -> CommandRequest:
    return CommandRequest(**{"command": command, "cwd": tmp_path, "timeout_s": 20.0, "env": PATH, **fields})  # type: ignore[arg-type]


async def run(executor: LocalExecutor, command: str, tmp_path: Path, **fields: object) -> CommandOutput:
    with anyio.fail_after(20):
        return await executor.run(request(command, tmp_path, **fields))


async def pid_in(file: Path) -> int:
    """The process id a command wrote to `file`; waits for it."""
    with anyio.fail_after(5):
        while True:
            text = await anyio.Path(file).read_text() if await anyio.Path(file).exists() else ""
            if text.endswith("\n"):
                return int(text)
            await anyio.sleep(0.005)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


async def test_command_gets_exactly_the_environment_it_was_given(executor: LocalExecutor, tmp_path: Path) -> None:
    """PO-11: nothing of the host's environment reaches a child, a key least of all."""
    output = await run(executor, "/usr/bin/env", tmp_path, env={"ONE": "1"})

    names = {line.partition("=")[0] for line in output.stdout.splitlines()}
    assert "ONE" in names
    assert names <= {"ONE", "PWD", "_", "SHLVL"}  # the last three are the shell's own


async def test_command_runs_in_its_directory_with_an_empty_standard_input(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    """PO-11."""
    output = await run(executor, "pwd; cat", tmp_path)

    assert output.stdout == f"{tmp_path}\n"
    assert output.succeeded


async def test_outputs_and_exit_status_come_back_apart(executor: LocalExecutor, tmp_path: Path) -> None:
    output = await run(executor, "echo out; echo err >&2; exit 3", tmp_path)

    assert (output.stdout, output.stderr, output.status) == ("out\n", "err\n", 3)
    assert not output.succeeded


async def test_command_ended_by_a_signal_has_no_status_and_says_so(executor: LocalExecutor, tmp_path: Path) -> None:
    output = await run(executor, "kill -SEGV $$", tmp_path)

    assert output.status is None
    assert output.note == "ended by signal SIGSEGV"


async def test_missing_directory_is_named_before_anything_runs(executor: LocalExecutor, tmp_path: Path) -> None:
    """PO-16."""
    with pytest.raises(CommandNotStarted, match=r"working directory .*/gone"):
        await run(executor, "touch ran", tmp_path / "gone")


async def test_command_with_a_nul_character_is_refused_without_running(executor: LocalExecutor, tmp_path: Path) -> None:
    with pytest.raises(CommandNotStarted):
        await run(executor, "touch ran\0; true", tmp_path)

    assert not (tmp_path / "ran").exists()


async def test_long_output_keeps_its_beginning_and_end_within_the_cap(executor: LocalExecutor, tmp_path: Path) -> None:
    """PO-13: everything is drained; the marker is paid from the cap."""
    output = await run(executor, "seq 100000", tmp_path, max_output_bytes_per_stream=1000)

    head, marker, tail = output.stdout.partition("\n[... ")
    assert output.stdout_truncated and not output.stderr_truncated
    assert head.startswith("1\n2\n") and marker and tail.endswith("99999\n100000\n")
    assert len(output.stdout.encode()) <= 1000
    elided = int(tail.split()[0])
    shown = len(head.encode()) + len(tail.partition("elided ...]\n")[2].encode())
    assert elided + shown == len("".join(f"{n}\n" for n in range(1, 100001)))


@pytest.mark.parametrize("cap", [0, 1, 10, 255])
async def test_tiny_cap_keeps_only_the_beginning(executor: LocalExecutor, tmp_path: Path, cap: int) -> None:
    """PO-13: below 256 bytes there is no marker."""
    output = await run(executor, "seq 1000", tmp_path, max_output_bytes_per_stream=cap)

    assert output.stdout == "".join(f"{n}\n" for n in range(1, 1001))[:cap]
    assert output.stdout_truncated


async def test_cut_falls_between_characters_and_bad_bytes_are_replaced(executor: LocalExecutor, tmp_path: Path) -> None:
    """PO-13."""
    (tmp_path / "text").write_text("ä€😀" * 5000)
    output = await run(executor, "cat text", tmp_path, max_output_bytes_per_stream=1001)
    bad = await run(executor, r"printf 'a\377b'", tmp_path)

    assert "\ufffd" not in output.stdout
    assert bad.stdout == "a\ufffdb"


async def test_lines_are_passed_on_as_they_arrive(executor: LocalExecutor, tmp_path: Path) -> None:
    """SP-15: the second line is printed only after the first was seen."""
    seen: list[str] = []

    def on_output(line: str) -> None:
        seen.append(line)
        (tmp_path / "go").touch()

    command = "echo one; while [ ! -e go ]; do sleep 0.01; done; printf 'two\\r\\nthree'; echo bad >&2"
    await run(executor, command, tmp_path, on_output=on_output)

    assert seen[0] == "stdout: one"
    assert sorted(seen) == ["stderr: bad", "stdout: one", "stdout: three", "stdout: two"]


async def test_flood_of_lines_is_counted_rather_than_passed_on(executor: LocalExecutor, tmp_path: Path) -> None:
    """A hundred thousand lines must not become a hundred thousand events."""
    seen: list[str] = []
    await run(executor, "seq 100000", tmp_path, on_output=seen.append)

    shown = [line for line in seen if "not shown live" not in line]
    skipped = sum(int(line.split("[")[1].split()[0]) for line in seen if "not shown live" in line)
    assert 1000 <= len(shown) < 10_000
    assert len(shown) + skipped == 100_000


async def test_listener_that_fails_fails_the_command_after_it_was_drained(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    def on_output(line: str) -> None:
        raise RuntimeError("the journal is gone")

    with pytest.raises(RuntimeError, match="journal"):
        await run(executor, "seq 100000; touch done", tmp_path, on_output=on_output)
    assert (tmp_path / "done").exists()


async def test_timeout_ends_the_whole_tree(executor: LocalExecutor, tmp_path: Path) -> None:
    """PO-12, invariant 6: children, grandchildren and those that ignore SIGTERM."""
    command = "(trap '' TERM; sleep 100 & echo $! > child; wait) & sleep 100"
    output = await run(executor, command, tmp_path, timeout_s=0.3)

    assert output.timed_out and output.status is None
    assert not lives(int((tmp_path / "child").read_text()))


@ONLY_LINUX
@pytest.mark.parametrize(
    "escape",
    [
        pytest.param("setsid sh -c 'echo $$ > pid; sleep 100' &", id="a session of its own"),
        pytest.param("(setsid sh -c 'echo $$ > pid; exec sleep 100' &)", id="and no parent"),
        pytest.param(
            "(setsid sh -c 'echo $$ > pid; trap \"\" TERM HUP; exec sleep 100' >/dev/null 2>&1 </dev/null &)",
            id="and no pipe, ignoring signals",
        ),
        pytest.param(
            "env -i setsid sh -c \"sh -c 'echo \\$\\$ > pid; exec sleep 100' >/dev/null 2>&1 </dev/null &\" &",
            id="and no environment",
        ),
        pytest.param("nohup sh -c 'echo $$ > pid; exec sleep 100' >/dev/null 2>&1 & disown 2>/dev/null", id="nohup"),
    ],
)
async def test_cancelling_ends_what_left_the_group(executor: LocalExecutor, tmp_path: Path, escape: str) -> None:
    """PO-12, PO-23, D-70, invariant 6: found by session, by parent, or by the tag that nothing takes away."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(executor.run, request(f"{escape}\nsleep 100", tmp_path))
        pid = await pid_in(tmp_path / "pid")
        assert lives(pid)
        tasks.cancel_scope.cancel()

    assert not lives(pid)


async def test_cancelled_task_is_cancelled_only_once_the_tree_is_gone(executor: LocalExecutor, tmp_path: Path) -> None:
    """PO-12, with asyncio's own cancellation."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(executor.run(request("sleep 100 & echo $! > pid; wait", tmp_path)))
        pid = await pid_in(tmp_path / "pid")
        running.cancel()

    assert running.cancelled()
    assert not lives(pid)


async def test_cancelling_twice_still_leaves_nothing(executor: LocalExecutor, tmp_path: Path) -> None:
    """A second cancellation cuts the grace short."""
    command = "trap '' TERM; sleep 100 & echo $! > pid; while :; do wait; done"
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(executor.run(request(command, tmp_path)))
        pid = await pid_in(tmp_path / "pid")
        running.cancel()
        await asyncio.sleep(0.1)
        assert not running.done()  # in its grace
        running.cancel()

    with anyio.fail_after(5):
        while lives(pid):  # noqa: ASYNC110
            await anyio.sleep(0.005)


@ONLY_LINUX
async def test_cancelling_while_a_timeout_is_ending_the_tree_leaves_nothing(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    """PO-12: the ending that was interrupted is done again, whole."""
    command = (
        "(setsid sh -c 'echo $$ > pid; trap \"\" TERM; exec sleep 100' &) ; trap '' TERM; while :; do sleep 1; done"
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(executor.run(request(command, tmp_path, timeout_s=0.3)))
        pid = await pid_in(tmp_path / "pid")
        await asyncio.sleep(0.5)
        assert not running.done()  # it timed out and is in its grace
        running.cancel()

    assert running.cancelled()
    assert not lives(pid)


async def test_process_left_behind_does_not_turn_success_into_failure(executor: LocalExecutor, tmp_path: Path) -> None:
    """PO-14, D-71: what was printed comes back, with a note; the process goes on and stays in the table."""
    output = await run(executor, "sleep 100 & echo started", tmp_path, owner="agent-1")

    assert output.succeeded and output.stdout == "started\n"
    assert output.note is not None and "still runs" in output.note
    (row,) = await executor.processes.running()
    assert (row.what, row.command, row.owner) == ("shell", "sleep 100 & echo started", "agent-1")
    assert lives(row.pid) and row.rss_bytes > 0
    await executor.processes.end_all()
    assert not lives(row.pid)
    assert await executor.processes.running() == []


async def test_output_that_comes_just_after_the_end_is_still_read(executor: LocalExecutor, tmp_path: Path) -> None:
    """PO-14."""
    output = await run(executor, "(sleep 0.2; echo late) & echo early", tmp_path)

    assert output.stdout == "early\nlate\n"
    assert output.note is None


async def test_running_commands_are_listed_by_owner(executor: LocalExecutor, tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(executor.run, request("echo $$ > pid; sleep 100", tmp_path, owner="agent-1", what="hook"))
        pid = await pid_in(tmp_path / "pid")
        (row,) = await executor.processes.running("agent-1")
        others = await executor.processes.running("agent-2")
        tasks.cancel_scope.cancel()

    assert (row.pid, row.what) == (pid, "hook")
    assert row.age_s >= 0 and row.rss_bytes > 0
    assert others == []
    assert await executor.processes.running() == []


async def test_hundred_commands_at_once_leave_no_descriptor_open(executor: LocalExecutor, tmp_path: Path) -> None:
    await run(executor, "true", tmp_path)
    before = len(os.listdir("/dev/fd"))
    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(run, executor, "echo x; echo y >&2", tmp_path)

    assert len(os.listdir("/dev/fd")) == before


async def test_long_lived_child_is_spoken_to_and_ended(tmp_path: Path) -> None:
    """What an MCP server or a local model needs: pipes, waiting, ending; the table knows it."""
    table = ProcessTable()
    child = table.start(
        ("/bin/cat",), cwd=tmp_path, env={}, label=ChildLabel("mcp", "cat server"), stdin=PIPE, stdout=PIPE
    )
    assert child.stdin is not None and child.stdout is not None
    await asyncio.to_thread(child.stdin.write, b"hello\n")
    answer = await asyncio.to_thread(child.stdout.read, 6)
    (row,) = await table.running()
    await table.end_all()
    child.stdin.close()
    child.stdout.close()

    assert answer == b"hello\n"
    assert (row.pid, row.what, row.command) == (child.pid, "mcp", "cat server")
    assert child.has_exited and await table.running() == []


async def test_program_is_fed_and_its_output_collected(tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    with anyio.fail_after(20):
        output = await run_program(
            ("/bin/cat",), cwd=tmp_path, env={}, stdin=data, timeout_s=10, max_output_bytes=2_000_000
        )

    assert (output.stdout, output.status) == (data, 0)


async def test_program_that_prints_too_much_or_hangs_is_ended(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        loud = await run_program(("/usr/bin/yes",), cwd=tmp_path, env={}, timeout_s=10, max_output_bytes=1000)
        slow = await run_program(("/bin/sleep", "100"), cwd=tmp_path, env={}, timeout_s=0.1, max_output_bytes=1000)
        done = await run_program(
            ("/bin/true",), cwd=tmp_path, env={}, stdin=b"x" * 100_000, timeout_s=9, max_output_bytes=9
        )

    assert loud.is_cut and loud.stdout == b"y\n" * 500 and loud.status is None
    assert slow.timed_out and slow.status is None
    assert done.status == 0
