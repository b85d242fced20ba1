"""Making a runtime, and what it says of itself (runtime.md 1.1, 1.2, 1.8, 1.9)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.errors import LegacyStore, ProviderNotFound, UsageError
from basis_daemon.redact import Secret
from basis_daemon.runtime.host_environment import detect_environment
from basis_daemon.runtime.messages import Json, ToolResult
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.definition import Credentials
from basis_daemon.runtime.providers.errors import TransportError
from basis_daemon.runtime.providers.registry import chat_completions_definition, openai_definition
from basis_daemon.runtime.providers.scripted import ScriptedProvider, text
from basis_daemon.runtime.runtime import Runtime, RuntimeBuilder
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.store.volatile import VolatileStore
from basis_daemon.runtime.tools.app_context import MissingContext
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolSpec
from basis_daemon.runtime.tools.registry import ToolCollision
from basis_daemon.testing import MockRuntime, ScriptedCall
from support.model_server import ModelServer, says
from support.sdk import files_below

pytestmark = pytest.mark.anyio

KEY = "sk-canary-0001"


def in_memory() -> RuntimeBuilder:
    return Runtime.builder().with_ephemeral_history()


def ids(runtime: Runtime) -> list[str]:
    return [provider.id for provider in runtime.providers.registered]


@dataclass
class Settings:
    base: str


async def read_settings(context: ToolContext, input: dict[str, Json]) -> str:
    return context.app_context(Settings).base


def tool(name: str = "inspect", answer: str | None = None) -> FunctionTool:
    async def answered(context: ToolContext, input: dict[str, Json]) -> str:
        return answer or ""

    return FunctionTool(ToolSpec(name, "Look."), read_settings if answer is None else answered)


async def test_builder_has_what_everybody_needs_and_an_empty_one_nothing() -> None:
    """RT-1."""
    async with (
        in_memory().build() as full,
        Runtime.empty_builder().with_ephemeral_history().with_ollama().build() as empty,
    ):
        assert {"read", "write", "edit", "task"} <= {each.spec.name for each in full.registry.tools()}
        assert empty.registry.tools() == []
        assert ids(full) == ["rehearsal"] and ids(empty) == ["ollama"]


async def test_builder_is_a_value_that_may_be_used_again() -> None:
    """RT-2: calls make new builders, and their order does not matter."""
    half = in_memory().with_model("m")
    one = half.with_runtime_identifier("one").with_tool(tool())
    async with one.build() as first, one.build() as second, half.build() as third:
        assert first.store is not second.store and first.registry is not second.registry
        assert (first.identifier, third.identifier) == ("one", "default")
        assert third.registry.find("inspect") is None
    mine = one.tools[0]
    assert half.with_model("n").with_tool(mine) == half.with_tool(mine).with_model("n")


CALLS: list[Callable[[RuntimeBuilder], RuntimeBuilder]] = [
    lambda builder: builder.with_model("m"),
    lambda builder: builder.with_ephemeral_history(),
    lambda builder: builder.with_policy(RuntimePolicy.permissive()),
    lambda builder: builder.with_runtime_identifier("mine"),
    lambda builder: builder.with_responses_transport("web_socket"),
    lambda builder: builder.with_file_tools("both"),
    lambda builder: builder.with_ollama(),
    lambda builder: builder.with_context(Settings("here")),
    lambda builder: builder.with_base_url("http://127.0.0.1:9/"),
    lambda builder: builder.with_wire("responses"),
]


@given(st.permutations(CALLS))
def test_the_order_of_calls_does_not_matter(calls: list[Callable[[RuntimeBuilder], RuntimeBuilder]]) -> None:
    """RT-2: as long as they speak of different things."""
    assert reduce(lambda builder, call: call(builder), calls, RuntimeBuilder()) == reduce(
        lambda builder, call: call(builder), CALLS, RuntimeBuilder()
    )


def test_building_without_any_provider_fails_and_leaves_nothing(tmp_path: Path) -> None:
    """RT-4, RT-39."""
    with pytest.raises(ProviderNotFound):
        Runtime.empty_builder().with_store_dir(tmp_path / "store").build()
    assert list(tmp_path.iterdir()) == []


async def test_a_provider_may_be_optional() -> None:
    """RT-5: without a key there is none; an empty key is a key, and fails when it is used."""
    builder = in_memory().with_optional_provider("openai", None).with_optional_provider("gemini", "")
    async with builder.build() as runtime:
        assert ids(runtime) == ["gemini", "rehearsal"]
    with pytest.raises(ProviderNotFound, match="nobody"):
        in_memory().with_provider("nobody", KEY)


def test_only_the_store_the_builder_ended_up_with_is_looked_at(tmp_path: Path) -> None:
    """RT-6, D-49: and a place that can't be used is told at once."""
    replaced, used = tmp_path / "replaced", tmp_path / "used"
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "runtime.sqlite").write_bytes(b"")
    runtime = Runtime.builder().with_store_dir(replaced).with_store(FileStore(used)).build()
    assert runtime.store.root == used and not replaced.exists()
    asyncio.run(runtime.aclose())
    with pytest.raises(LegacyStore):
        Runtime.builder().with_store_dir(tmp_path / "old").build()


async def test_the_first_provider_is_the_default_and_an_id_is_replaced_in_place() -> None:
    """RT-7, RT-12, RT-13: also behind the build, and whatever kind of provider it is."""
    builder = in_memory().with_provider_instance(ScriptedProvider(id="one")).with_lmstudio()
    async with builder.build() as runtime:
        assert runtime.default_provider.id == "one"
        assert [model.id for model in await runtime.list_models()] == ["mock-model"]
        again = runtime.register_provider(ScriptedProvider(id="one"))
        runtime.register_provider("ollama")
        runtime.register_provider(chat_completions_definition("own", "http://127.0.0.1:9/"), KEY)
        assert ids(runtime) == ["one", "lmstudio", "rehearsal", "ollama", "own"]
        assert runtime.providers.by_id("one") is again
        assert runtime.providers.embedding_provider()


async def test_keyed_providers_reach_their_endpoints_with_their_own_keys() -> None:
    """RT-33, RT-34, RT-35: by a name, by a definition of one's own, and with a key looked up ahead of every request."""

    class Rotating:
        def __init__(self) -> None:
            self.asked = 0

        async def credentials(self) -> Credentials:
            self.asked += 1
            return Credentials(key=Secret(f"key-{self.asked}"))

    async with ModelServer(says("one"), says("two"), says("three")) as server:
        own = replace(openai_definition(), id="own", base_url=server.base_url, is_vendor=False)
        builder = (
            in_memory()
            .with_openai_compatible("plain", server.base_url)
            .with_registered_provider(own, Rotating())
            .with_model("scripted")
        )
        async with builder.build() as runtime:
            plain = runtime.spawn()
            other = runtime.spawn("other", await runtime.resolve_model("own", "scripted"))
            said = [(await agent.send("go")).final_message for agent in (plain, other, other)]

    asked = [request for request in server.requests if request.method == "POST"]
    assert said == ["one", "two", "three"]
    keys = [request.headers.get("authorization") for request in asked]
    assert keys[0] is None
    assert keys[1] is not None and keys[2] is not None and keys[1] != keys[2]


async def test_what_the_builder_names_for_workspaces_is_also_the_default() -> None:
    """RT-7: naming a provider needs no key; a first key does not rename what was named."""
    async with in_memory().with_ollama().with_provider("openai", KEY).build() as runtime:
        assert runtime.default_provider.id == "openai"
    async with in_memory().with_provider("openai", KEY).with_provider("gemini", KEY).build() as runtime:
        assert runtime.default_provider.id == "openai"
        assert ids(runtime) == ["openai", "gemini", "rehearsal"]


async def test_a_tool_of_a_taken_name_takes_its_place_only_if_told_to() -> None:
    """RT-8, RT-9: see also the registry's own tests."""
    async with in_memory().build() as runtime:
        runtime.register_tool(tool("mine", "first"))
        with pytest.raises(ToolCollision):
            runtime.registry.register(tool("mine", "second"))
        runtime.register_tool(second := tool("mine", "second"))
        assert runtime.registry.resolve("mine", audience=None) is second
        assert runtime.registry.unregister("mine") and not runtime.registry.unregister("mine")
    with pytest.raises(UsageError, match="read"):
        in_memory().with_tool(tool("read")).build()


async def test_a_tool_registered_later_is_there_with_the_next_request() -> None:
    """RT-10: agents that live already share one registry."""
    async with MockRuntime.builder().text("a").text("b").text("c").build() as mock:
        agent = mock.spawn()
        await agent.send("one")
        mock.runtime.register_tool(tool("late", ""))
        await agent.send("two")
        mock.runtime.registry.unregister("late")
        await agent.send("three")

    offered = [{each.name for each in request.tools} for request in mock.recorded_requests()]
    assert ["late" in names for names in offered] == [False, True, False]


async def test_tools_find_the_hosts_objects_by_their_exact_type() -> None:
    """RT-11: the later of one type counts; a type nobody gave is named."""
    builder = MockRuntime.builder().with_context(Settings("old")).with_context(Settings("new")).with_tool(tool())
    async with builder.tool_calls(ScriptedCall("inspect")).text("done").build() as mock:
        await mock.spawn().send("go")
        assert mock.runtime.app_context(Settings).base == "new"
        with pytest.raises(MissingContext, match="ToolContext"):
            mock.runtime.app_context(ToolContext)
        (result,) = mock.recorded_requests()[1].messages[-1].content
    assert isinstance(result, ToolResult) and result.content == "new"


async def test_a_conversation_of_its_own_with_a_provider_is_had_without_traffic() -> None:
    """RT-14: of the default one, too."""
    async with in_memory().with_openai_compatible("own", "http://127.0.0.1:9/").build() as runtime:
        scope = runtime.fresh_provider_session_scope()
        assert scope.id == "own" and scope is not runtime.providers.by_id("own")
        with pytest.raises(ProviderNotFound, match="nobody"):
            runtime.fresh_provider_session_scope("nobody")


@pytest.mark.parametrize(
    ("environ", "file", "expected"),
    [
        ({}, None, "host"),
        ({"CI": "false"}, None, "host"),
        ({"CI": "true"}, ".dockerenv", "ci"),
        ({"GITHUB_ACTIONS": "1"}, None, "ci"),
        ({}, ".dockerenv", "docker"),
        ({}, "run/.containerenv", "container"),
        ({}, "proc/self/cgroup", "container"),
    ],
)
def test_the_kind_of_host_is_told(tmp_path: Path, environ: dict[str, str], file: str | None, expected: str) -> None:
    """RT-17."""
    if file is not None:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("0::/kubepods/pod1\n")
    assert detect_environment(environ, tmp_path) == expected
    assert Runtime.detect_environment() in ("ci", "docker", "container", "host")


async def test_closing_is_repeatable_and_ends_what_is_behind() -> None:
    """RT-18: a provider of a closed runtime opens no connection any more."""
    runtime = in_memory().with_openai_compatible("own", "http://127.0.0.1:9/").build()
    async with runtime:
        provider = runtime.providers.by_id("own")
    await runtime.aclose()

    assert provider is not None
    with pytest.raises(TransportError, match="the runtime was closed"):
        await provider.list_models()


async def test_another_store_shares_all_the_rest() -> None:
    """RT-5, RT-40: a view, not a copy: what is registered in one is there in the other."""
    async with in_memory().build() as runtime:
        other = runtime.with_store(VolatileStore())
        runtime.register_tool(tool("late", ""))
        assert other.registry.resolve("late", audience=None) is not None
        assert other.store is not runtime.store and other.providers is runtime.providers


async def test_nothing_shows_a_credential(tmp_path: Path) -> None:
    """RT-3, RT-42: not the builder, the runtime or a definition, and no file of a conversation."""
    secretive = replace(
        chat_completions_definition("own", f"https://host.example/v1?token={KEY}"),
        headers={"x-key": KEY},
        query={"key": KEY},
    )
    builder = (
        Runtime.builder()
        .with_store_dir(tmp_path / "store")
        .with_provider("openai", KEY)
        .with_api_key(KEY)
        .with_registered_provider(secretive, KEY)
        .with_provider_instance(ScriptedProvider([text("hello")]))
        .with_context(Settings(KEY))
    )
    async with await builder.build_async() as runtime:
        agent = runtime.spawn("a", await runtime.resolve_model("scripted", "mock-model"))
        async with agent:
            await agent.send("hi")
        assert KEY not in repr([builder, secretive, runtime, agent, runtime.providers, runtime.context])
    written = b"".join(files_below(tmp_path).values())
    assert b"hello" in written and KEY.encode() not in written
