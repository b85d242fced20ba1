"""Which model answers: named or newest, found when it is needed, and what happens when there is none."""

import asyncio
import socket
from pathlib import Path

import anyio
import pytest

from basis_daemon.errors import MissingCredential, NoModelsAvailable
from basis_daemon.runtime.providers.selection import FailedToListModels
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.workspace.builder import WorkspaceBuilder
from basis_daemon.workspace.connection import UnavailableProvider
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.events import RunStarted
from basis_protocol.pocket import ENGINE_MODULE, SMOLLM2
from support.model_server import ModelServer, says
from support.sdk import Person, say, scene, stored, with_model_server
from support.workspaces import bounded, sample_repository, write_files

pytestmark = pytest.mark.anyio

CANARY = "sk-canary-0001"


def builder(root: Path, runtime: Runtime | None = None, **environment: str) -> WorkspaceBuilder:
    """A bounded builder, on `runtime` or on an ephemeral one of its own."""
    bare = bounded(Workspace.builder(root), environment)
    own = Runtime.builder().with_ephemeral_history()
    return bare.with_runtime(runtime) if runtime else bare.with_runtime_builder(own)


def closed_port() -> int:
    """A port of this machine nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_opening_asks_nobody_when_a_model_is_named(tmp_path: Path) -> None:
    """RT-29, PR-8: nothing is sent, not even to a provider that is not there."""
    repo = sample_repository(tmp_path / "repo")
    url = f"http://127.0.0.1:{closed_port()}"

    async with await with_model_server(repo, url, tmp_path / "store").open() as workspace:
        assert (workspace.provider, workspace.model) == ("openai", "scripted")
        assert workspace.setup_error is None and workspace.notices == []
        workspace.prepare().close()


async def test_without_a_named_model_the_newest_listed_one_is_used_from_the_first_turn_on(tmp_path: Path) -> None:
    """RT-30, OP-6: opening asks nobody; the first turn does, once, and its header names the model."""
    dated = {"b": 5, "unknown": None, "old": 1, "a": 5}
    models = [{"id": id, "created": created} for id, created in dated.items()]
    async with scene(tmp_path, says("One."), says("Two."), model=None, models=models) as on:
        assert on.workspace.model == "" and on.server.listings == []
        run = on.workspace.prepare()
        told = await say(run, "One?")
        await say(run, "Two?")
        run.close()
        assert on.workspace.model == "a"
    assert told.one(RunStarted).model == "a" == told.report.model == run.record.model
    assert [request.model for request in on.server.requests] == ["a", "a"] and len(on.server.listings) == 1


async def test_a_host_can_have_the_model_found_ahead_of_the_first_turn(tmp_path: Path) -> None:
    """PR-8: many callers, one question."""
    async with scene(tmp_path, model=None, models=["only"]) as on:
        found = await asyncio.gather(*(on.workspace.resolve_model() for _ in range(5)))
    assert {model.id for model in found} == {"only"} and len(on.server.listings) == 1


async def test_a_provider_that_cannot_list_its_models_fails_the_turn_with_a_way_out(tmp_path: Path) -> None:
    """RT-30: the first run reports it, naming config.json and --model; a later turn tries again."""
    repo = sample_repository(tmp_path / "repo")
    port = closed_port()
    url = f"http://127.0.0.1:{port}"
    builder = with_model_server(repo, url, tmp_path / "store", model=None).with_provider("ollama", base_url=url)
    with anyio.fail_after(20):
        async with await builder.open() as workspace:
            run = workspace.prepare()
            failed = await say(run, "One?")
            with pytest.raises(FailedToListModels):
                await workspace.resolve_model()
            async with ModelServer(says("Two."), models=["late"], port=port):
                told = await say(run, "Two?")
            run.close()
    assert failed.report.status == "error"
    assert "config.json" in (failed.report.error or "") and "--model" in (failed.report.error or "")
    assert told.report.succeeded and told.report.model == "late"


async def test_each_workspace_asks_for_models_with_its_own_key(tmp_path: Path) -> None:
    """PR-12, section 3 security: on one runtime, two workspaces of one provider don't see each other's."""
    one, two = sample_repository(tmp_path / "one"), sample_repository(tmp_path / "two")
    runtime = Runtime.builder().with_ephemeral_history().build()
    with anyio.fail_after(20):
        async with ModelServer(models=["a"]) as here, ModelServer(models=["b"]) as there, runtime:
            keys = {one: ("sk-first", here), two: ("sk-second", there)}
            opened = [
                await builder(repo, runtime, BASIS_API_KEY=key, BASIS_BASE_URL=server.base_url).open()
                for repo, (key, server) in keys.items()
            ]
            listed = [[model.id for model in await workspace.list_models()] for workspace in opened]
            for workspace in opened:
                await workspace.aclose()
    assert listed == [["a"], ["b"]]
    assert here.listings[0].headers["authorization"] == "Bearer sk-first"
    assert there.listings[0].headers["authorization"] == "Bearer sk-second"


async def test_a_provider_without_models_says_so(tmp_path: Path) -> None:
    """RT-30."""
    async with scene(tmp_path, model=None, models=[]) as on:
        with pytest.raises(NoModelsAvailable):
            await on.workspace.resolve_model()


async def test_a_missing_key_keeps_nobody_from_opening(tmp_path: Path) -> None:
    """DM-1: the error waits for whoever needs a model; opening again, with the key, tries again."""
    repo = sample_repository(tmp_path / "repo", {".basis/config.json": {"schema": 1, "provider": "openai"}})
    runtime = Runtime.builder().with_ephemeral_history().build()
    async with runtime:
        async with await builder(repo, runtime).open() as workspace:
            assert isinstance(workspace.setup_error, MissingCredential)
            assert workspace.provider == "openai"
            assert "OPENAI_API_KEY" in " ".join(workspace.notices)
            with pytest.raises(MissingCredential):
                workspace.prepare()
        async with await builder(repo, runtime, OPENAI_API_KEY=CANARY).open() as workspace:
            assert workspace.setup_error is None
            workspace.prepare().close()


async def test_a_conversation_can_be_read_without_a_key_and_a_turn_of_it_says_what_is_missing(tmp_path: Path) -> None:
    """WS-30: resuming needs no provider."""
    async with scene(tmp_path, says("Hello.")) as on:
        run = on.workspace.prepare()
        await say(run, "Hello?")
        run.close()

        keyless = bounded(Workspace.builder(on.repo)).with_runtime_builder(stored(on.store)).with_provider("openai")
        async with await keyless.open() as workspace:
            run = await anyio.to_thread.run_sync(workspace.resume, run.agent_id)
            assert [entry.message.text() for entry in run.transcript] == ["Hello?", "Hello."]
            told = await say(run, "More?")
            run.close()
    assert told.report.status == "error" and "OPENAI_API_KEY" in (told.report.error or "")
    assert len(on.server.requests) == 1


async def test_a_conversation_never_falls_back_to_an_embedded_provider_by_itself(tmp_path: Path) -> None:
    """local-model.md 4: with the key gone, the turn fails; named on purpose, the other provider takes over."""
    async with scene(tmp_path, says("Hello.")) as on:
        run = on.workspace.prepare()
        await say(run, "Hello?")
        run.close()

        bare = bounded(Workspace.builder(on.repo)).with_runtime_builder(stored(on.store))
        async with await bare.open() as workspace:
            assert workspace.provider == "rehearsal"
            run = await anyio.to_thread.run_sync(workspace.resume, run.agent_id)
            refused = await say(run, "read README.md")
            run.close()
        async with await bare.with_provider("rehearsal").open() as workspace:
            run = await anyio.to_thread.run_sync(workspace.resume, run.agent_id)
            told = await say(run, "read README.md")
            run.close()
    assert refused.report.status == "error" and refused.report.provider == "openai"
    assert told.report.succeeded and told.report.provider == "rehearsal"


async def test_with_nothing_configured_a_first_prompt_is_no_dead_end(tmp_path: Path) -> None:
    """local-model.md 4: the rehearsal provider carries out exactly what is written, asking first."""
    repo = sample_repository(tmp_path / "repo")
    person = Person()
    with anyio.fail_after(20):
        async with await builder(repo).open() as workspace:
            assert workspace.provider == "rehearsal" and workspace.model
            assert "rehearsal" in " ".join(workspace.notices)
            run = workspace.prepare()
            told = await say(run, "write note.txt: remember", person)
            run.close()
    assert told.report.succeeded and [asked.tool_name for asked in person.asked] == ["write"]
    assert (repo / "note.txt").read_text().startswith("remember")


async def test_the_runtimes_own_settings_stand_below_the_workspaces(tmp_path: Path) -> None:
    """1.3: builder override, then config, then the runtime's policy; a key stays with the provider it was given for."""
    repo = sample_repository(tmp_path / "repo")
    runtime = Runtime.builder().with_ephemeral_history().with_provider("openai").with_api_key(CANARY).with_model("r")
    async with await builder(repo).with_runtime_builder(runtime).open() as workspace:
        assert (workspace.provider, workspace.model, workspace.setup_error) == ("openai", "r", None)
    async with await builder(repo).with_runtime_builder(runtime).with_model("w").open() as workspace:
        assert (workspace.provider, workspace.model) == ("openai", "w")
    other = builder(repo).with_runtime_builder(runtime).with_provider("openrouter")
    async with await other.open() as workspace:
        assert isinstance(workspace.setup_error, MissingCredential)


async def test_an_instance_given_to_the_runtime_is_chosen_by_its_id(tmp_path: Path) -> None:
    """1.2: a ready-made provider."""
    repo = sample_repository(tmp_path / "repo")
    mine = UnavailableProvider("mine", MissingCredential("mine is not set up"))
    runtime = Runtime.builder().with_ephemeral_history().with_provider_instance(mine).with_provider("mine")
    async with await builder(repo).with_runtime_builder(runtime).with_model("m").open() as workspace:
        assert (workspace.provider, workspace.setup_error) == ("mine", None)


async def test_a_refused_key_is_told_without_the_key(tmp_path: Path) -> None:
    """PR-12."""
    repo = sample_repository(tmp_path / "repo")
    with anyio.fail_after(20):
        async with (
            ModelServer(api_key="another") as server,
            await with_model_server(repo, server.base_url, tmp_path / "store", model=None).open() as workspace,
        ):
            with pytest.raises(FailedToListModels) as caught:
                await workspace.resolve_model()
    error = caught.value
    assert CANARY not in f"{error} {error.hint} {error.details} {error.__cause__!r} {error.__context__!r}"


async def test_a_pocket_model_installed_meanwhile_answers_from_the_next_open_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """local-model.md 4: nothing is loaded to find out, and it is one provider for all workspaces of the runtime."""
    repo = sample_repository(tmp_path / "repo")
    models, engine = tmp_path / "models", tmp_path / "engine"
    write_files(engine, {f"{ENGINE_MODULE}.py": "raise AssertionError('only looked for')"})
    monkeypatch.syspath_prepend(engine)
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        opening = builder(repo, runtime).with_models_dir(models)
        async with await opening.open() as before:
            assert before.provider == "rehearsal"

        file = SMOLLM2.path(models)
        file.parent.mkdir(parents=True)
        with file.open("wb") as sparse:
            sparse.truncate(SMOLLM2.size_bytes)
        async with await opening.open() as first, await opening.open() as second:
            assert (first.provider, first.model) == ("pocket", SMOLLM2.id) == (second.provider, second.model)
            assert "facts wrong" in " ".join(first.notices)
            assert "edit" not in first.tools


async def test_a_pocket_model_asked_for_but_not_installed_is_told_how_to_get(tmp_path: Path) -> None:
    repo = sample_repository(tmp_path / "repo", {".basis/config.json": {"schema": 1, "provider": "pocket"}})

    async with await builder(repo).with_models_dir(tmp_path / "none").open() as workspace:
        assert workspace.provider == "pocket"
        assert "basisctl pocket install" in (workspace.setup_error.hint or "" if workspace.setup_error else "")
