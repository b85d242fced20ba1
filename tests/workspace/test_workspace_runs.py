"""The library end to end: open a repository, run turns against a model over HTTP, carry a conversation on."""

from pathlib import Path

import anyio
import pytest

from basis_daemon.errors import BudgetExhausted, NoSuchSession, WorkspaceClosed, WorkspaceMismatch
from basis_daemon.runtime.permissions import ApprovalAnswer, ApprovalRequest
from basis_daemon.runtime.providers.base import ModelInfo
from basis_daemon.workspace.approval import DenyAll
from basis_daemon.workspace.budget import BudgetPool
from basis_daemon.workspace.roster import ToolRoster
from basis_daemon.workspace.run import PreparedRun
from basis_daemon.workspace.spec import RunSpec
from basis_daemon.workspace.store import list_in
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.content import CommandPreview
from basis_protocol.events import (
    EVENT_SCHEMA_VERSION,
    AnyEvent,
    AssistantMessage,
    ContextFile,
    ErrorEvent,
    PermissionRequested,
    PermissionResolved,
    RunFinished,
    RunStarted,
    ToolCompleted,
)
from support.model_server import calls, fails, says, tool
from support.sdk import Person, files_below, say, scene, stored, with_model_server
from support.workspaces import bounded, sample_repository

pytestmark = pytest.mark.anyio

OVERWRITE = calls(tool("write", {"path": "README.md", "content": "gone"}, id="call_1"))


async def resume(workspace: Workspace, agent_id: str, spec: RunSpec | None = None) -> PreparedRun:
    """`Workspace.resume` the way a host on a loop calls it (PU-2)."""
    return await anyio.to_thread.run_sync(workspace.resume, agent_id, spec)


async def test_a_turn_reads_writes_with_approval_and_answers_between_its_bookends(tmp_path: Path) -> None:
    """OP-6, WS-3, EV-1, CX-8, TR-2: one `run_started` first, one `run_finished` last; the header tells the truth."""
    script = (
        calls(tool("read", {"path": "calculator.py"})),
        calls(tool("write", {"path": "new.txt", "content": "hi\n"})),
        says("Done."),
    )
    person = Person()
    async with scene(tmp_path, *script, shape=lambda builder: builder.with_system_prompt("Be brief.")) as on:
        run = on.workspace.prepare(RunSpec(session_name="Fix it"))
        told = await say(run, "Fix the mistake.", person)
        run.close()

    header, end = told.events[0], told.events[-1]
    assert isinstance(header, RunStarted) and isinstance(end, RunFinished)
    assert len(told.of(RunStarted)) == len(told.of(RunFinished)) == 1
    assert header.schema == EVENT_SCHEMA_VERSION and header.session_id == run.agent_id
    assert (header.workspace, header.provider, header.model) == (str(on.repo), "openai", "scripted")
    assert header.context_files == [ContextFile(path=str(on.repo / "AGENTS.md"), scope="workspace")]
    assert (end.turn_id, end.status) == (header.turn_id, "ok")
    assert told.report.succeeded and told.report.final_message == "Done."
    assert [asked.tool_name for asked in person.asked] == ["write"]
    assert told.one(PermissionResolved).outcome == "allowed"
    assert (on.repo / "new.txt").read_text() == "hi\n"
    assert run.record.name == "Fix it"
    request = on.server.requests[0]
    assert request.system == f"{on.workspace.context.render()}\n\nBe brief."
    assert request.tool_names == ["edit", "glob", "grep", "ls", "read", "spawn", "write"] == on.workspace.tools


async def test_a_conversation_is_carried_on_by_a_second_workspace(tmp_path: Path) -> None:
    """WS-7, WS-8, ST-24, ST-25: by its agent id, with everything said before."""
    async with scene(tmp_path, says("Seven."), says("Eight.")) as on:
        run = on.workspace.prepare()
        await say(run, "What is three plus four?")
        run.close()
        await on.workspace.aclose()
        (listed,) = await anyio.to_thread.run_sync(list_in, on.store, on.repo)

        async with await with_model_server(on.repo, on.server.base_url, on.store).open() as second:
            resumed = await resume(second, listed.agent_id)
            told = await say(resumed, "And plus five?")
            resumed.close()

    assert listed.agent_id == run.agent_id == resumed.agent_id
    assert told.report.final_message == "Eight."
    assert on.server.requests[1].conversation == [
        ("user", "What is three plus four?"),
        ("assistant", "Seven."),
        ("user", "And plus five?"),
    ]
    assert resumed.record.turns == 2


async def test_a_conversation_of_another_directory_is_refused_ahead_of_every_effect(tmp_path: Path) -> None:
    """WS-9, WS-13, WS-19: the store is byte for byte what it was, and no lease is left behind."""
    elsewhere = sample_repository(tmp_path / "elsewhere")
    async with scene(tmp_path, says("Hello.")) as on:
        run = on.workspace.prepare()
        await say(run, "Hello?")
        run.close()
        before = await anyio.to_thread.run_sync(files_below, on.store)

        async with await with_model_server(elsewhere, on.server.base_url, on.store).open() as workspace:
            with pytest.raises(WorkspaceMismatch) as caught:
                await resume(workspace, run.agent_id)
            with pytest.raises(NoSuchSession, match="agent-nobody"):
                await resume(workspace, "agent-nobody")

        assert await anyio.to_thread.run_sync(files_below, on.store) == before
        (await resume(on.workspace, run.agent_id)).close()

    error = caught.value
    assert (error.agent_id, error.workspace, error.agent_workspace) == (run.agent_id, str(elsewhere), str(on.repo))


async def test_a_repository_reached_by_a_link_is_the_same_workspace(tmp_path: Path) -> None:
    """WS-20, WS-26, SH-16: equal root and identifier, and its conversations are found by either spelling."""
    async with scene(tmp_path, says("Hello.")) as on:
        (tmp_path / "link").symlink_to(on.repo)
        async with await with_model_server(tmp_path / "link", on.server.base_url, on.store).open() as linked:
            run = linked.prepare()
            await say(run, "Hello?")
            run.close()
        (await resume(on.workspace, run.agent_id)).close()

        assert linked.root == linked.path == on.workspace.root == on.repo
        assert linked.identifier == on.workspace.identifier == f"basis:{on.repo}"


async def test_a_refused_change_does_not_happen_and_the_reason_reaches_the_model(tmp_path: Path) -> None:
    """AP-5, AP-9: the effect is checked, not the message."""
    async with scene(tmp_path, OVERWRITE, says("I could not.")) as on:
        run = on.workspace.prepare()
        report = await run.send("Overwrite it.", emit=lambda event: None, approver=DenyAll())
        run.close()

    assert report.succeeded
    assert (on.repo / "README.md").read_text().startswith("# Calculator")
    result = on.server.requests[1].tool_results["call_1"]
    assert "denied" in result and "allows no changes" in result


async def test_mode_never_refuses_without_asking_anybody(tmp_path: Path) -> None:
    """AP-22, AP-23: for new and for resumed conversations alike; reading goes on."""
    both = calls(tool("read", {"path": "README.md"}), tool("write", {"path": "README.md", "content": "gone"}))
    person = Person()
    async with scene(tmp_path, both, says("No."), both, says("No.")) as on:
        run = on.workspace.prepare()
        run.mode = "never"
        first = await say(run, "Overwrite it.", person)
        run.close()
        run = await resume(on.workspace, run.agent_id)
        run.mode = "never"
        second = await say(run, "Overwrite it again.", person)
        run.close()

    assert person.asked == []
    for told in (first, second):
        assert [done.is_error for done in told.of(ToolCompleted)] == [False, True]
    assert (on.repo / "README.md").read_text().startswith("# Calculator")


async def test_mode_always_asks_nobody(tmp_path: Path) -> None:
    """AP-26."""
    person = Person(ApprovalAnswer(allow=False))
    async with scene(tmp_path, OVERWRITE, says("Done.")) as on:
        run = on.workspace.prepare()
        run.mode = "always"
        await say(run, "Write it.", person)
        run.close()

    assert person.asked == [] and (on.repo / "README.md").read_text() == "gone"


async def test_an_answer_for_the_session_is_not_asked_for_again_until_it_is_resumed(tmp_path: Path) -> None:
    """AP-14, AP-15, WS-10."""
    writes = [calls(tool("write", {"path": f"{name}.txt", "content": name})) for name in "abc"]
    script = [turn for write in writes for turn in (write, says("Done."))]
    person = Person(ApprovalAnswer(allow=True, scope="session", pattern="*"))
    async with scene(tmp_path, *script) as on:
        run = on.workspace.prepare()
        await say(run, "Write a.", person)
        await say(run, "Write b.", person)
        asked_before = len(person.asked)
        run.close()
        run = await resume(on.workspace, run.agent_id)
        await say(run, "Write c.", person)
        run.close()

    assert (asked_before, len(person.asked)) == (1, 2)


async def test_commands_run_in_the_root_with_the_snapshot_and_without_keys(tmp_path: Path) -> None:
    """protocol.md 6, SP-13: `BASIS_SESSION_ID` is the session's; the provider's key is not there."""
    person = Person()
    script = (calls(tool("spawn", {"input": "!pwd; env"}, id="call_1")), says("Done."))
    async with scene(tmp_path, *script, shape=lambda builder: builder.with_socket("/run/basis.sock")) as on:
        run = on.workspace.prepare()
        await say(run, "Look around.", person)
        run.close()

    output = on.server.requests[1].tool_results["call_1"].splitlines()
    assert output[0] == str(on.repo)
    assert f"BASIS_SESSION_ID={run.agent_id}" in output and "BASIS_SOCKET=/run/basis.sock" in output
    assert f"BASIS_BASE_URL={on.server.base_url}" in output
    assert not any("sk-canary" in line or line.startswith("HOME=") for line in output)
    assert isinstance(person.asked[0].preview, CommandPreview)


async def test_a_workspace_without_shell_runs_no_command_and_bothers_nobody(tmp_path: Path) -> None:
    """GT-4."""
    person = Person()
    script = (calls(tool("spawn", {"input": "!touch ran"})), says("Not allowed."))
    async with scene(tmp_path, *script, shape=lambda builder: builder.with_shell(False)) as on:
        run = on.workspace.prepare()
        told = await say(run, "Run it.", person)
        run.close()

    assert person.asked == [] and told.of(PermissionRequested) == [] and not (on.repo / "ran").exists()
    assert told.one(ToolCompleted).is_error


async def test_a_tool_that_is_not_on_the_roster_does_not_exist(tmp_path: Path) -> None:
    """TR-3, TR-4: not offered, and not there when guessed."""
    person = Person()
    shape_only_read = ToolRoster.only(["read"])
    async with scene(
        tmp_path, OVERWRITE, says("No such tool."), shape=lambda builder: builder.with_tool_roster(shape_only_read)
    ) as on:
        run = on.workspace.prepare()
        await say(run, "Write it.", person)
        run.close()

    assert on.server.requests[0].tool_names == ["read"] == on.workspace.tools
    assert person.asked == [] and (on.repo / "README.md").read_text().startswith("# Calculator")


async def test_an_ephemeral_conversation_leaves_nothing_and_can_be_carried_on_meanwhile(tmp_path: Path) -> None:
    """ST-19."""
    async with scene(tmp_path, says("One."), says("Two.")) as on:
        run = on.workspace.prepare(ephemeral=True)
        await say(run, "One?")
        run.close()
        run = await resume(on.workspace, run.agent_id)
        await say(run, "Two?")
        run.close()
        listed = await anyio.to_thread.run_sync(list_in, on.store, on.repo)

    assert len(on.server.requests[1].conversation) == 3
    assert listed == [] and not (on.store / "agents").exists()


async def test_no_record_is_written_before_the_first_prompt(tmp_path: Path) -> None:
    """WS-4, protocol.md 3 `session/new`."""
    async with scene(tmp_path) as on:
        run = on.workspace.prepare(agent_id="agent-mine")
        assert run.agent_id == "agent-mine" and not run.is_persisted
        run.close()
        assert not (on.store / "agents").exists()


async def test_effort_comes_from_the_spec_then_the_conversation_then_the_file(tmp_path: Path) -> None:
    """RS-3, WS-17."""
    config = {".basis/config.json": {"schema": 1, "effort": "low"}}
    async with scene(tmp_path, *[says("Yes.")] * 4, files=config) as on:
        by_file = on.workspace.prepare()
        await say(by_file, "One?")
        by_file.close()
        by_spec = on.workspace.prepare(RunSpec(effort="high"))
        await say(by_spec, "Two?")
        by_spec.close()
        again = await resume(on.workspace, by_spec.agent_id)
        await say(again, "Three?")
        again.close()
        changed = await resume(on.workspace, by_spec.agent_id, RunSpec(effort="medium"))
        await say(changed, "Four?")
        changed.close()

    efforts = [request.body.get("reasoning_effort") for request in on.server.requests]
    assert efforts == ["low", "high", "high", "medium"]
    assert changed.record.effort == "medium"


async def test_a_model_switched_to_stays_after_a_resume(tmp_path: Path) -> None:
    """WS-18: the workspace's own model does not overrule the person."""
    async with scene(tmp_path, says("One."), says("Two.")) as on:
        run = on.workspace.prepare()
        run.set_model(ModelInfo("other", "openai"))
        await say(run, "One?")
        run.close()
        run = await resume(on.workspace, run.agent_id)
        await say(run, "Two?")
        run.close()

    assert [request.model for request in on.server.requests] == ["other", "other"]


async def test_a_failed_turn_is_a_report_with_both_bookends(tmp_path: Path) -> None:
    """TN-3, EV-1."""
    async with scene(tmp_path, fails(400, {"error": {"message": "no"}})) as on:
        run = on.workspace.prepare()
        told = await say(run, "Hello?")
        run.close()

    assert told.report.status == "error" and told.report.error
    assert isinstance(told.events[0], RunStarted) and isinstance(told.events[-1], RunFinished)
    assert told.of(ErrorEvent) and told.of(AssistantMessage) == []


async def test_standing_bounds_hold_for_every_turn_of_a_run(tmp_path: Path) -> None:
    """RS-4, TO-5, BD-1."""
    two = calls(tool("read", {"path": "README.md"}), tool("read", {"path": "calculator.py"}))
    async with scene(tmp_path, two) as on:
        run = on.workspace.prepare(RunSpec(tool_budget=1))
        told = await say(run, "Read both.")
        run.close()

    assert told.report.stopped_by == "tool_budget" and not told.report.succeeded


async def test_runs_of_one_pool_stop_when_it_is_spent(tmp_path: Path) -> None:
    """BP-2, BP-3, BP-4: the round that crosses the limit is the last; a further turn is refused before its header."""
    pool = BudgetPool(30)
    async with scene(tmp_path, *[calls(tool("read", {"path": "README.md"}))] * 5) as on:
        run = on.workspace.prepare(pool.spec())
        told = await say(run, "Read on.")
        events: list[object] = []
        with pytest.raises(BudgetExhausted) as caught:
            await run.send("More.", emit=events.append, approver=Person())
        run.close()

    assert told.report.succeeded and told.report.stopped_by == "token_budget"
    assert (pool.spent, pool.is_exhausted, events) == (38, True, [])
    assert (caught.value.limit, caught.value.spent) == (30, 38)


async def test_a_closed_workspace_mints_nothing_and_closing_twice_is_fine(tmp_path: Path) -> None:
    """LC-6."""
    repo = sample_repository(tmp_path / "repo")
    workspace = await bounded(Workspace.builder(repo)).with_runtime_builder(stored(tmp_path / "store")).open()
    await workspace.aclose()
    await workspace.aclose()

    with pytest.raises(WorkspaceClosed):
        workspace.prepare()
    with pytest.raises(WorkspaceClosed):
        workspace.resume("agent-1")


@pytest.mark.parametrize("turned", ["link", "place"])
async def test_a_path_that_was_turned_while_the_person_was_thinking_changes_no_other_file(
    tmp_path: Path, turned: str
) -> None:
    """TL-27, PO-7: what was allowed is a change of the file that was shown, whatever its path leads to by then."""
    path = "link" if turned == "link" else "place/new.txt"
    async with scene(tmp_path, calls(tool("write", {"path": path, "content": "written"})), says("Done.")) as on:
        for name in ("shown", "other"):
            (on.repo / name).mkdir()
            (on.repo / name / "file").write_text("kept")
        (on.repo / "place").symlink_to("shown")
        (on.repo / "link").symlink_to("shown/file")

        class Slow:
            async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
                await anyio.to_thread.run_sync(self.turn)
                return ApprovalAnswer(allow=True)

            def turn(self) -> None:
                (on.repo / turned).unlink()
                (on.repo / turned).symlink_to("other/file" if turned == "link" else "other")

        run = on.workspace.prepare()
        events: list[AnyEvent] = []
        await run.send("Write it.", emit=events.append, approver=Slow())
        run.close()

        assert [event.is_error for event in events if isinstance(event, ToolCompleted)] == [True]
        assert {file.read_text() for file in on.repo.glob("*/file")} == {"kept"}
        assert not list(on.repo.glob("*/new.txt"))
