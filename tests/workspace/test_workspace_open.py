"""Opening: what is found, what belongs to whom, and that a failed or cancelled one leaves nothing behind."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from basis_daemon.errors import (
    BasisError,
    ConfigError,
    ContextUnreadable,
    WorkspaceMissing,
)
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolSpec
from basis_daemon.workspace.builder import WorkspaceBuilder
from basis_daemon.workspace.config import Config
from basis_daemon.workspace.host_tools import HostToolRefused
from basis_daemon.workspace.prompt import Replace
from basis_daemon.workspace.store import list_in
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.events import ContextFile, RunStarted
from support.model_server import ModelServer, says
from support.sdk import say, scene, stored
from support.workspaces import bounded, sample_repository, write_files

pytestmark = pytest.mark.anyio

CANARY = "sk-canary-0001"


def builder(root: Path, runtime: Runtime | None = None, **environment: str) -> WorkspaceBuilder:
    """A bounded builder, on `runtime` or on an ephemeral one of its own."""
    bare = bounded(Workspace.builder(root), environment)
    own = Runtime.builder().with_ephemeral_history()
    return bare.with_runtime(runtime) if runtime else bare.with_runtime_builder(own)


def greet(name: str = "greet") -> FunctionTool:
    async def run(context: ToolContext, input: dict[str, Any]) -> str:
        return "hello"

    return FunctionTool(ToolSpec(name, "Greets."), run)


async def test_what_was_found_is_a_snapshot_with_its_files(tmp_path: Path) -> None:
    """DI-1, DI-6, WS-27, CF-6."""
    write_files(tmp_path / "g", {"config.json": {"schema": 1, "provider": "rehearsal"}, "AGENTS.md": "Personal."})
    repo = sample_repository(tmp_path / "repo", {".basis/config.json": {"schema": 1, "effort": "low"}})

    async with await builder(repo).with_global_dir(tmp_path / "g").open() as workspace:
        write_files(repo, {"AGENTS.md": "Changed."})

        assert workspace.config_files == [
            ContextFile(path=str(repo / ".basis/config.json"), scope="workspace"),
            ContextFile(path=str(tmp_path / "g/config.json"), scope="global"),
        ]
        assert [file.scope for file in workspace.context_files] == ["global", "workspace"]
        assert "Changed" not in workspace.context.render()


async def test_the_global_directory_is_the_environments(tmp_path: Path) -> None:
    """0.2: `BASIS_CONFIG_DIR` of the snapshot, not of this process."""
    write_files(tmp_path / "g", {"AGENTS.md": "Personal."})
    repo = sample_repository(tmp_path / "repo")
    bare = Workspace.builder(repo).with_runtime_builder(Runtime.builder().with_ephemeral_history())

    async with await bare.with_environment({"BASIS_CONFIG_DIR": str(tmp_path / "g")}).open() as workspace:
        assert workspace.context_files[0].scope == "global"


async def test_discovery_can_be_switched_off(tmp_path: Path) -> None:
    """1.3: `without_discovery`; explicit objects still hold."""
    repo = sample_repository(tmp_path / "repo", {".basis/config.json": "not json"})

    async with await builder(repo).without_discovery().open() as workspace:
        assert workspace.context.is_empty and workspace.config.is_empty
    async with await builder(repo).with_config(Config()).open() as workspace:
        assert not workspace.context.is_empty


async def test_replacing_the_prompt_does_not_hide_what_was_found(tmp_path: Path) -> None:
    """CX-9."""
    async with scene(
        tmp_path, says("Hi."), shape=lambda builder: builder.with_system_prompt(Replace("Only this."))
    ) as on:
        run = on.workspace.prepare()
        told = await say(run, "Hi?")
        run.close()
    assert on.server.requests[0].system == "Only this."
    assert len(told.one(RunStarted).context_files) == 1


async def test_by_default_the_environment_is_this_processs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-6, protocol.md 6: for the library; a daemon always passes its client's snapshot, or none."""
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("MARK", "here")
    repo = sample_repository(tmp_path / "repo")
    bare = Workspace.builder(repo).with_runtime_builder(Runtime.builder().with_ephemeral_history())

    async with await bare.open() as workspace:
        assert workspace.provider == "openai"
        assert workspace.environment["MARK"] == "here" and CANARY not in workspace.environment.values()
    async with await bare.with_environment(None).open() as workspace:
        assert workspace.provider == "rehearsal" and "MARK" not in workspace.environment


async def test_no_representation_shows_a_secret_or_a_document(tmp_path: Path) -> None:
    """WS-24, RT-4, 0.3.5."""
    repo = sample_repository(tmp_path / "repo")
    bare = builder(repo, OPENAI_API_KEY=CANARY, OTHER="private").with_system_prompt("prompt text").with_tool(greet())
    bare = bare.with_provider("openai", api_key=CANARY)

    async with await bare.open() as workspace:
        shown = f"{bare!r} {workspace!r} {workspace.prepare().header('turn-1')!r}"
        assert repr(workspace).startswith(f"Workspace(root={str(repo)!r}, provider='openai'")
    for hidden in (CANARY, "private", "prompt text", "Run the tests"):
        assert hidden not in shown
    assert "greet" in repr(bare) and "greet" in repr(workspace)


async def test_a_host_tool_is_one_workspaces_own(tmp_path: Path) -> None:
    """SH-22: a sibling on the same runtime is not offered it; it goes with the workspace."""
    one, two = sample_repository(tmp_path / "one"), sample_repository(tmp_path / "two")
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        first = await builder(one, runtime).with_tool(greet()).open()
        second = await builder(two, runtime).open()
        assert first.host_tools == ["greet"] and "greet" in first.tools
        assert second.host_tools == [] and "greet" not in second.tools
        await first.aclose()
        assert runtime.registry.resolve("greet", audience=first.identifier) is None
        await second.aclose()


async def test_two_opens_of_one_directory_share_a_tool_object_and_refuse_another(tmp_path: Path) -> None:
    """SH-24: it stays until the last of them closes."""
    repo = sample_repository(tmp_path / "repo")
    tool = greet()
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        first = await builder(repo, runtime).with_tool(tool).open()
        second = await builder(repo, runtime).with_tool(tool).open()
        with pytest.raises(HostToolRefused, match="greet"):
            await builder(repo, runtime).with_tool(greet()).open()
        await first.aclose()
        assert "greet" in second.tools
        await second.aclose()
        assert runtime.registry.resolve("greet", audience=first.identifier) is None


@pytest.mark.parametrize("name", ["read", "spawn", "greet"])
async def test_a_taken_name_fails_the_open_and_leaves_no_trace(tmp_path: Path, name: str) -> None:
    """SH-23, OP-3: a builtin, `spawn`, or an earlier host tool."""
    repo = sample_repository(tmp_path / "repo")
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        await (await builder(repo, runtime).open()).aclose()
        before = runtime.registry.tools(f"basis:{repo}")
        with pytest.raises(HostToolRefused) as caught:
            await builder(repo, runtime).with_tool(greet()).with_tool(greet("other")).with_tool(greet(name)).open()
        assert caught.value.name == name
        assert runtime.registry.tools(f"basis:{repo}") == before


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"AGENTS.md": "\udce9"}, ContextUnreadable),
        ({".basis/config.json": "{"}, ConfigError),
        (None, WorkspaceMissing),
    ],
)
async def test_a_malformed_file_fails_before_the_runtime_is_touched(
    tmp_path: Path, files: dict[str, str] | None, expected: type[BasisError]
) -> None:
    """OP-2: not even `spawn` is registered, and no store is made."""
    repo = tmp_path / "repo"
    for name, text in (files or {}).items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        before = runtime.registry.tools(f"basis:{repo}")
        with pytest.raises(expected):
            await builder(repo, runtime).with_tool(greet()).open()
        assert runtime.registry.tools(f"basis:{repo}") == before
    with pytest.raises(expected):
        await builder(repo).with_runtime_builder(stored(tmp_path / "store")).open()
    assert not (tmp_path / "store").exists()


async def test_a_cancelled_open_leaves_nothing(tmp_path: Path) -> None:
    """OP-7: cancelled at every point it can be, the registry is what it was."""
    repo = sample_repository(tmp_path / "repo")
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        await (await builder(repo, runtime).open()).aclose()
        before = runtime.registry.tools(f"basis:{repo}")
        opening = builder(repo, runtime).with_tool(greet())

        async def attempt() -> None:
            await (await opening.open()).aclose()

        for steps in range(0, 200, 4):
            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(attempt)
                    for _ in range(steps):
                        await anyio.lowlevel.checkpoint()
                    tasks.cancel_scope.cancel()
            assert runtime.registry.tools(f"basis:{repo}") == before


async def test_workspaces_open_side_by_side_and_keep_their_conversations_apart(tmp_path: Path) -> None:
    """SH-1, SH-2, SH-33, OP-6: one runtime, one store, disjoint lists."""
    repos = [sample_repository(tmp_path / name) for name in ("one", "two", "three")]
    with anyio.fail_after(20):
        async with ModelServer(respond=lambda request: says(request.prompt)) as server:
            environment = {"BASIS_BASE_URL": server.base_url, "BASIS_API_KEY": CANARY}
            runtime = await asyncio.to_thread(stored(tmp_path / "store").build)
            async with runtime:
                opened = await asyncio.gather(
                    *(builder(repo, runtime, **environment).with_model("m").open() for repo in repos)
                )
                runs = [workspace.prepare() for workspace in opened]
                await asyncio.gather(*(say(run, f"I am {run.record.base_dir}") for run in runs))
                for run, workspace in zip(runs, opened, strict=True):
                    run.close()
                    await workspace.aclose()
        for run, repo in zip(runs, repos, strict=True):
            listed = await asyncio.to_thread(list_in, tmp_path / "store", repo)
            assert [session.agent_id for session in listed] == [run.agent_id]


async def test_a_run_outlives_its_workspace_on_a_shared_runtime(tmp_path: Path) -> None:
    """LC-2, WS-6."""
    runtime = Runtime.builder().with_ephemeral_history().build()
    async with runtime, scene(tmp_path, says("Still here."), shape=lambda builder: builder.with_runtime(runtime)) as on:
        run = on.workspace.prepare()
        await on.workspace.aclose()
        told = await say(run, "There?")
        run.close()
    assert told.report.final_message == "Still here."


async def test_a_builder_is_a_value(tmp_path: Path) -> None:
    """0.3.3: half of one can be kept and finished twice."""
    repo = sample_repository(tmp_path / "repo")
    half = builder(repo)
    one, two = half.with_model("one").with_shell(False), half.with_model("two")

    async with await one.open() as first, await two.open() as second:
        assert (first.allows_shell, second.allows_shell) == (False, True)
    assert half.settings.model is None
