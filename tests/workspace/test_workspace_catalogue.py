"""The list of models: of every provider within reach, asked at once, kept for a while, whole where one is down."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest

from basis_daemon.errors import MissingCredential, NoModelsAvailable, ProviderNotFound, ResolvedModelProviderMismatch
from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.base import ModelInfo, Provider
from basis_daemon.runtime.providers.definition import Credentials, ProviderDefinition, RetryPolicy, StaticCredentials
from basis_daemon.runtime.providers.registry import ProviderRegistry, openai_definition
from basis_daemon.runtime.providers.scripted import ScriptedProvider
from basis_daemon.runtime.providers.selection import FailedToListModels, ModelSelector
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.workspace.credentials import Keychain
from basis_daemon.workspace.model_catalogue import ANSWER_HOLDS_S, FAILURE_HOLDS_S, ModelCatalogue, Reachable
from basis_daemon.workspace.reachable import listings
from basis_daemon.workspace.workspace import Workspace
from support.model_server import ModelServer, fails, says
from support.sdk import say, scene
from support.workspaces import bounded, sample_repository

pytestmark = pytest.mark.anyio


class Clock:
    """Time as a test wants it, in seconds."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Changing:
    """A source whose key changes, as a stored one may."""

    key: str

    async def credentials(self) -> Credentials:
        return Credentials(key=Secret(self.key))


def definition(id: str, server: ModelServer) -> ProviderDefinition:
    """A provider of that id at `server`, which is asked once."""
    return replace(openai_definition(), id=id, label=id, base_url=server.base_url, retry=RetryPolicy(max_attempts=1))


def provider(registry: ProviderRegistry, id: str, server: ModelServer) -> Provider:
    return registry.make(definition(id, server), StaticCredentials(Secret("sk-canary-0001")))


async def test_providers_are_asked_at_once_and_one_that_is_down_hides_none_of_the_others() -> None:
    """Issue: degraded when one is down. In the order asked, with the reason beside."""
    registry = ProviderRegistry()
    async with ModelServer(models=["a"]) as up, ModelServer(listing=fails(500)) as down:
        found = await ModelCatalogue().listings(
            [Reachable(provider(registry, "down", down)), Reachable(provider(registry, "up", up))]
        )
    await registry.aclose()
    assert [listing.provider for listing in found] == ["down", "up"]
    assert found[0].models == () and found[0].error is not None and "500" in str(found[0].error)
    assert [model.id for model in found[1].models] == ["a"] and found[1].error is None


async def test_a_hosts_provider_that_breaks_hides_none_of_the_others() -> None:
    """It is said what it raised, and nothing of what that said."""

    class Broken(ScriptedProvider):
        async def list_models(self) -> list[ModelInfo]:
            raise KeyError("sk-canary-0001")

    found = await ModelCatalogue().listings([Reachable(Broken()), Reachable(ScriptedProvider())])

    assert found[0].models == () and "KeyError" in str(found[0].error) and "canary" not in str(found[0].error)
    assert found[1].error is None and found[1].models


async def test_an_answer_is_kept_for_some_minutes_and_a_failure_for_some_seconds() -> None:
    """Bound in time; `refresh` asks whatever is known."""
    registry, clock = ProviderRegistry(), Clock()
    catalogue = ModelCatalogue(now=clock)
    async with ModelServer(models=["a"]) as server:
        asked = Reachable(provider(registry, "p", server))
        for _ in range(3):
            assert [model.id for model in (await catalogue.listings([asked]))[0].models] == ["a"]
        assert len(server.listings) == 1
        await catalogue.listings([asked], refresh=True)
        assert len(server.listings) == 2
        clock.at += ANSWER_HOLDS_S + 1
        await catalogue.listings([asked])
        assert len(server.listings) == 3
    clock.at += ANSWER_HOLDS_S + 1
    (stale,) = await catalogue.listings([asked])
    assert stale.error is not None and [model.id for model in stale.models] == ["a"]
    assert (await catalogue.listings([asked]))[0].error is stale.error
    clock.at += FAILURE_HOLDS_S + 1
    assert (await catalogue.listings([asked]))[0].error is not stale.error
    await registry.aclose()


async def test_another_key_is_another_question() -> None:
    """Bound to the credential: nobody is shown what somebody else's key may see."""
    registry, catalogue = ProviderRegistry(), ModelCatalogue()
    async with ModelServer(models=["a"]) as server:
        source = Changing("sk-first-000001")
        asked = Reachable(registry.make(definition("p", server), source), source)
        await catalogue.listings([asked])
        source.key = "sk-second-00002"
        await catalogue.listings([asked])
        source.key = "sk-first-000001"
        await catalogue.listings([asked])
    await registry.aclose()
    assert len(server.listings) == 3


async def test_equal_questions_at_the_same_time_are_asked_once() -> None:
    registry, catalogue = ProviderRegistry(), ModelCatalogue()
    async with ModelServer(models=["a"]) as server:
        asked = Reachable(provider(registry, "p", server))
        found = await asyncio.gather(*(catalogue.listings([asked], refresh=flag) for flag in (False, True) * 5))
    await registry.aclose()
    assert all(len(listing.models) == 1 for (listing,) in found)
    assert len(server.listings) <= 2


async def test_what_a_workspace_can_reach_is_its_own_provider_and_all_it_has_keys_of(tmp_path: Path) -> None:
    """Across providers, each asked with its own key (PV-62); a key that is missing is no problem to tell of."""
    repo = sample_repository(tmp_path / "repo")
    runtime = Runtime.builder().with_ephemeral_history().build()
    with anyio.fail_after(20):
        async with ModelServer(models=["own"]) as own, ModelServer(models=["routed"]) as routed, runtime:
            runtime.providers.register(provider(runtime.providers, "openrouter", routed))
            environment = {
                "OPENROUTER_API_KEY": "sk-x",
                "BASIS_BASE_URL": own.base_url,
                "BASIS_API_KEY": "sk-own-000001",
            }
            builder = bounded(Workspace.builder(repo).with_runtime(runtime), {**environment, "BASIS_DETECT": "off"})
            async with await builder.open() as workspace:
                assert own.listings == []
                found = await workspace.reachable_models()
                only = await workspace.reachable_models(only="openrouter")
    assert {listing.provider: [model.id for model in listing.models] for listing in found} == {
        "openai": ["own"],
        "openrouter": ["routed"],
    }
    assert [listing.provider for listing in only] == ["openrouter"]
    assert own.listings[0].headers["authorization"] == "Bearer sk-own-000001"


async def test_without_a_workspace_stored_keys_and_the_daemons_own_count() -> None:
    runtime = Runtime.builder().with_ephemeral_history().build()
    async with ModelServer(models=["routed"]) as routed, runtime:
        runtime.providers.register(provider(runtime.providers, "openrouter", routed))
        keychain = Keychain({"BASIS_DETECT": "off"}, fallback={"OPENROUTER_API_KEY": "sk-x"})
        found = await listings(ModelCatalogue(), runtime, keychain, None)
    assert [(listing.provider, [model.id for model in listing.models]) for listing in found] == [
        ("openrouter", ["routed"])
    ]


async def test_a_workspace_without_a_provider_says_why_beside_the_others(tmp_path: Path) -> None:
    repo = sample_repository(tmp_path / "repo")
    builder = bounded(Workspace.builder(repo), {"BASIS_DETECT": "off"}).with_provider("openai")
    async with await builder.with_runtime_builder(Runtime.builder().with_ephemeral_history()).open() as workspace:
        (listing,) = await workspace.reachable_models()
    assert isinstance(listing.error, MissingCredential)


async def test_the_newest_models_list_is_one_question_for_all_who_share_a_catalogue(tmp_path: Path) -> None:
    """RT-30, PR-8: two workspaces that look for the newest model at the same place ask once."""
    runtime, catalogue = Runtime.builder().with_ephemeral_history().build(), ModelCatalogue()
    async with ModelServer(models=["only"]) as server, runtime:
        environment = {"BASIS_BASE_URL": server.base_url, "BASIS_API_KEY": "sk-x"}
        for name in ("one", "two"):
            root = sample_repository(tmp_path / name)
            builder = bounded(Workspace.builder(root).with_runtime(runtime), environment).with_catalogue(catalogue)
            async with await builder.open() as workspace:
                assert (await workspace.resolve_model()).id == "only"
    assert len(server.listings) == 1


# --- the runtime's own ------------------------------------------------------------------------------------------------


async def test_a_named_model_is_described_where_the_list_names_it_and_bare_where_it_does_not() -> None:
    """RT-29, RT-32: never raises because of listing."""
    runtime = Runtime.builder().with_ephemeral_history().build()
    rows = [{"id": "known", "context_length": 32000, "name": "Known", "created": 7}]
    async with ModelServer(models=rows) as server, ModelServer(listing=fails(500)) as down, runtime:
        runtime.providers.register(provider(runtime.providers, "p", server))
        runtime.providers.register(provider(runtime.providers, "q", down))
        known = await runtime.resolve_model("p", ModelSelector("known"))
        other = await runtime.resolve_model("p", ModelSelector("unheard-of"))
        unlisted = await runtime.resolve_model("q", ModelSelector("x"))
    assert (known.id, known.provider, known.created_at) == ("known", "p", 7)
    assert known.context_window == 32000
    assert other == ModelInfo("unheard-of", "p") and unlisted == ModelInfo("x", "q")


async def test_the_newest_is_the_one_made_last_and_having_none_is_an_error() -> None:
    """RT-30: unknown dates after all others, ties by id."""
    runtime = Runtime.builder().with_ephemeral_history().build()
    dated = {"b": 5, "unknown": None, "old": 1, "a": 5}
    rows = [{"id": id, "created": created} for id, created in dated.items()]
    async with (
        ModelServer(models=rows) as server,
        ModelServer(models=[]) as bare,
        ModelServer(listing=fails(500)) as down,
    ):
        for id, at in (("p", server), ("bare", bare), ("down", down)):
            runtime.providers.register(provider(runtime.providers, id, at))
        assert (await runtime.resolve_model("p")).id == "a"
        with pytest.raises(NoModelsAvailable):
            await runtime.resolve_model("bare")
        with pytest.raises(FailedToListModels):
            await runtime.resolve_model("down")
    await runtime.aclose()


async def test_a_provider_the_runtime_does_not_have_is_refused_ahead_of_all_traffic() -> None:
    """RT-31."""
    async with Runtime.builder().with_ephemeral_history().build() as runtime:
        with pytest.raises(ProviderNotFound, match="'nobody'"):
            await runtime.resolve_model("nobody")


async def test_a_conversation_takes_models_of_its_own_provider_only(tmp_path: Path) -> None:
    """PR-10: by id unchecked; another provider's is refused and changes nothing. The next turn uses what was set."""
    async with scene(tmp_path, says("One."), says("Two.")) as on:
        run = on.workspace.prepare()
        await say(run, "One?")
        with pytest.raises(ResolvedModelProviderMismatch):
            run.set_model(ModelInfo("x", "anthropic"))
        assert run.record.model == "scripted"
        run.set_model("not-in-any-catalogue")
        assert (await say(run, "Two?")).report.model == "not-in-any-catalogue"
        run.close()
        again = await asyncio.to_thread(on.workspace.resume, run.agent_id)
        assert again.record.model == "not-in-any-catalogue"
        again.close()
    assert [request.model for request in on.server.requests] == ["scripted", "not-in-any-catalogue"]


async def test_what_is_known_of_a_providers_models_is_told_without_asking(tmp_path: Path) -> None:
    async with scene(tmp_path, says("One."), model=None, models=["a", "b"]) as on:
        run = on.workspace.prepare()
        assert run.known_models == () and on.server.listings == []
        await say(run, "One?")
        assert {model.id for model in run.known_models} == {"a", "b"} and len(on.server.listings) == 1
        run.close()
