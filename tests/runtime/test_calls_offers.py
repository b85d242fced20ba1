"""Which tools an agent is offered, and what a name means that is not for it (runtime.md 4.2)."""

from typing import Any

import pytest

from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.observers import AuditStore, RuntimeEvent
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.providers.base import ToolChoice, ToolDefinition
from basis_daemon.runtime.reports import OutputFailure
from basis_daemon.runtime.tool_host import available_choice
from basis_daemon.runtime.tools.base import FunctionTool, ToolSpec
from basis_daemon.runtime.tools.paging import ToolResultPaging
from basis_daemon.runtime.tools.profile import ToolProfile
from basis_daemon.runtime.tools.registry import ToolCollision
from basis_daemon.runtime.typed_output import OutputSpec
from basis_daemon.testing import MockRuntime
from support.rounds import Hook, Watching, a_tool, call, empty, noting, one_round, run_round

pytestmark = pytest.mark.anyio


async def offered(mock: MockRuntime, config: AgentConfig | None = None) -> list[str]:
    """The names in the next request of a new agent."""
    mock.push_turn(MockRuntime.builder().text("hi").turns[0])
    async with mock.spawn(config=config) as agent:
        await agent.send("hello")
    return [tool.name for tool in mock.recorded_requests()[-1].tools]


def tools(*names: str, **fields: Any) -> list[FunctionTool]:
    return [a_tool(name, noting([]), **fields) for name in names]


# --- profiles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "allowed"),
    [
        (ToolProfile.all(), {"a", "b", "c"}),
        (ToolProfile.only(["a", "b", "nowhere"]), {"a", "b"}),
        (ToolProfile.all().hide(["a"]), {"b", "c"}),
        (ToolProfile.only(["a", "b"]).hide(["a"]), {"b"}),
        (ToolProfile.only([]), set()),
    ],
)
async def test_a_profile_narrows_what_there_is(profile: ToolProfile, allowed: set[str]) -> None:
    """TL-12: hidden wins over allowed; it grants nothing; calls by guessed names are refused as well."""
    ran: list[Any] = []
    builder = empty()
    for name in ("a", "b", "c"):
        builder = builder.with_tool(a_tool(name, noting(ran)))
    assert {name for name in ("a", "b", "c", "d") if profile.allows(name)} >= allowed
    async with builder.build() as mock:
        assert set(await offered(mock, AgentConfig(tools=profile))) == allowed
    done = await run_round(builder, *(call(name) for name in ("a", "b", "c")), config=AgentConfig(tools=profile))
    assert len(ran) == len(allowed)
    assert sum(not result.is_error for result in done.results.values()) == len(allowed)


async def test_a_deferred_tool_is_under_the_profile_too_and_offers_say_all_there_is() -> None:
    """TL-12, TL-1: kind, loading, strictness and options reach the provider."""
    later = ToolSpec("later", loading="deferred", strict=True, options={"a": 1}, output_schema={"type": "string"})
    hosted = ToolSpec("web_search", kind="hosted_web_search")
    builder = empty().with_tool(FunctionTool(later, noting([]))).with_tool(FunctionTool(hosted, noting([])))
    async with builder.build() as mock:
        assert await offered(mock, AgentConfig(tools=ToolProfile.all().hide(["later"]))) == ["web_search"]
        await offered(mock)
        deferred, search = mock.recorded_requests()[-1].tools
    assert (deferred.deferred, deferred.strict, deferred.options) == (True, True, {"a": 1})
    assert deferred.output_schema == {"type": "string"} and search.kind == "hosted_web_search"
    done = await run_round(builder, call("web_search"))
    assert "carried out by the provider itself" in done.text()


# --- names ------------------------------------------------------------------------------------------------------------


async def test_a_name_for_somebody_else_and_a_name_for_nobody_are_refused_apart() -> None:
    """TL-11, TL-7, appendix C 2, D-59: neither runs anything, hooks and authorizer included, nor fails the
    run."""
    ran: list[Any] = []
    hook, sees = Hook(), Watching()
    builder = empty().with_pre_hook(hook).with_hook(sees).tool_calls(call("theirs"), call("nowhere"), call("hidden"))
    async with builder.text("done").with_tool(a_tool("hidden", noting(ran))).build() as mock:
        mock.runtime.registry.register(a_tool("theirs", noting(ran)), audience="a")
        theirs_hook = Hook()
        with mock.runtime.register_pre_hook(theirs_hook, audience="a"):
            done = await one_round(mock, config=AgentConfig(tools=ToolProfile.all().hide(["hidden"])))
        assert [tool.name for tool in mock.recorded_requests()[0].tools] == []
    foreign, nowhere, hidden = (result.as_text() for result in done.results.values())
    assert foreign == "There is no tool 'theirs' available for this agent."
    assert hidden == "There is no tool 'hidden' available for this agent."
    assert nowhere == "There is no tool 'nowhere': no such name was found."
    assert ran == hook.asked == theirs_hook.asked == [] and done.report.status == "ok"
    assert all(result.is_error for result in done.results.values())
    assert "tool_authorization_started" not in sees.kinds() and sees.kinds().count("tool_execution_blocked") == 3


@pytest.mark.parametrize("audience", [None, "b", "A", "a\n"])
async def test_no_agent_reaches_an_audience_it_is_not_of(audience: str | None) -> None:
    """Appendix C 2, TL-8: whatever the model calls, and whatever its own audience is named."""
    ran: list[Any] = []
    async with empty().tool_calls(call("own"), call("a/own"), call("own ")).text("done").build() as mock:
        guard = mock.runtime.try_register_tool_for_audience("a", a_tool("own", noting(ran)))
        done = await one_round(mock, config=AgentConfig(audience=audience))
        assert guard.descriptor.name == "own"
        assert ran == [] and [spec.name for spec in mock.runtime.tools_for_audience(audience)] == []
        assert [spec.name for spec in mock.runtime.tools_for_audience("a")] == ["own"]
    assert all(result.is_error for result in done.results.values()) and len(done.results) == 3


async def test_tools_come_and_go_for_agents_that_live_already() -> None:
    """RT-10, D-60, RT-9, RT-8: seen with the next request; the surface reports what is global."""
    first, second = tools("a", description="first")[0], tools("a", description="second")[0]
    async with empty().build() as mock:
        runtime = mock.runtime
        async with mock.spawn(config=AgentConfig(audience="x")) as agent:

            async def seen() -> dict[str, str]:
                mock.push_turn(MockRuntime.builder().text("hi").turns[0])
                await agent.send("hello")
                return {tool.name: tool.description for tool in mock.recorded_requests()[-1].tools}

            assert await seen() == {}
            guard = runtime.try_register_tool_for_audience("x", first)
            assert await seen() == {"a": "first"} and runtime.tools() == [] and runtime.tool_descriptor("a") is None
            with pytest.raises(ToolCollision):
                runtime.try_register_tool(second)
            assert await seen() == {"a": "first"}
            runtime.register_tool(second)
            assert await seen() == {"a": "second"} and runtime.tool_descriptor("a") == second.spec
            assert guard.unregister() is False and await seen() == {"a": "second"}
            assert runtime.tools() == runtime.tools_for_audience("x") == [second.spec]
            assert runtime.unregister_tool("a") and not runtime.unregister_tool("a")
            assert await seen() == {}


# --- what is left out by itself ---------------------------------------------------------------------------------------


async def test_some_tools_are_there_only_where_they_can_do_something() -> None:
    """TL-13, D-79: idling is for teammates; reading on is for those whose results come in pages."""
    builder = empty().with_tool(tools("idle")[0])
    async with builder.build() as mock:
        assert await offered(mock) == []
        assert await offered(mock, AgentConfig(tool_result_paging=ToolResultPaging())) == ["read_tool_result"]
        assert await offered(mock) == [], "it was that agent's alone, and went with it"
    done = await run_round(builder, call("idle"))
    assert "available for this agent" in done.text()


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        (RuntimePolicy(), {"plain"}),
        (RuntimePolicy(allow_shell=True), {"plain", "shell"}),
        (RuntimePolicy(allow_shell=True, allow_background=True), {"plain", "shell", "background"}),
        (RuntimePolicy(allow_background=True), {"plain"}),
    ],
)
async def test_what_the_policy_refuses_is_listed_unless_the_host_says_otherwise(
    policy: RuntimePolicy, shown: set[str]
) -> None:
    """TL-13, PO-2."""
    builder = empty().with_policy(policy)
    for name, needs in (("plain", "read_only"), ("shell", "process_exec"), ("background", "background_exec")):
        builder = builder.with_tool(tools(name, capabilities=frozenset({needs}))[0])
    async with builder.build() as mock:
        assert set(await offered(mock)) == {"plain", "shell", "background"}
        assert set(await offered(mock, AgentConfig(hide_denied_tools=True))) == shown


# --- forced choice ----------------------------------------------------------------------------------------------------


def test_forcing_a_tool_that_is_not_there_leaves_the_choice_to_the_model() -> None:
    """TL-14: else every provider would refuse the request."""
    host_tools = [ToolDefinition("a", "", {})]
    assert available_choice(ToolChoice("tool", "b"), host_tools) == ToolChoice("auto")
    for choice in (ToolChoice("tool", "a"), ToolChoice("any"), ToolChoice("auto")):
        assert available_choice(choice, host_tools) == choice


async def test_a_forced_tool_that_the_host_withdrew_meanwhile_is_not_asked_for() -> None:
    """TL-14, through the loop: the answering tool of a typed turn, taken away under it."""
    running: list[MockRuntime] = []

    class Withdraws:
        def on_event(self, audit: AuditStore, event: RuntimeEvent) -> None:
            if event.kind == "model_request_started":
                registry = running[0].runtime.registry
                for each in registry.registrations(None, event.agent_id):
                    registry.unregister(each.spec.name, agent=event.agent_id)

    asked = OutputSpec("answer", "An answer.", {"type": "object"})
    async with empty().with_hook(Withdraws()).text("no").build() as mock, mock.spawn() as agent:
        running.append(mock)
        with pytest.raises(OutputFailure):
            await agent.output("go", asked)
    assert mock.recorded_requests()[0].tool_choice == ToolChoice("auto")
    assert mock.recorded_requests()[0].tools == []
