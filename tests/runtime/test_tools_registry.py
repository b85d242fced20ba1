"""Which tool a name means, for whom (runtime.md 4.2)."""

import copy
import gc
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from basis_daemon.errors import UsageError
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import FunctionTool, ToolContext, ToolSpec
from basis_daemon.runtime.tools.builtin import split_file_tools
from basis_daemon.runtime.tools.registry import InvalidTool, ToolCollision, ToolRegistry


def tool(name: str, description: str = "") -> FunctionTool:
    async def run(context: ToolContext, input: dict[str, Json]) -> str:
        return name

    return FunctionTool(ToolSpec(name, description), run)


def test_tools_are_listed_by_name_whatever_the_order_of_registration() -> None:
    """CV-8, D-21: a provider's prompt cache must not miss."""
    registry = ToolRegistry()
    for name in ("zeta", "alpha", "mid"):
        registry.register(tool(name))

    assert [one.spec.name for one in registry.tools()] == ["alpha", "mid", "zeta"]


def test_audience_sees_its_own_tools_beside_the_global_ones() -> None:
    """TL-7, TL-9: the same name may mean different things to different audiences."""
    registry = ToolRegistry()
    common, first, second = tool("common"), tool("own"), tool("own")
    registry.register(common)
    registry.register(first, audience="a")
    registry.register(second, audience="b")

    assert registry.resolve("own", audience="a") is first
    assert registry.resolve("own", audience="b") is second
    assert registry.resolve("common", audience="a") is common
    assert registry.tools("a") == [common, first]


def test_other_audiences_tools_do_not_exist() -> None:
    """TL-11, invariant 2: neither listed nor found by guessing."""
    registry = ToolRegistry()
    registry.register(tool("own"), audience="a")

    assert registry.resolve("own", audience="b") is None
    assert registry.resolve("own", audience=None) is None
    assert registry.tools("b") == [] == registry.tools()


def test_name_that_is_taken_is_refused() -> None:
    """RT-8, TL-9, D-58: globally, in the audience, and a global name by an audience; nothing is replaced."""
    registry = ToolRegistry()
    first = tool("t")
    registry.register(first)
    registry.register(tool("u"), audience="a")
    for name, audience in (("t", None), ("t", "a"), ("u", "a")):
        with pytest.raises(ToolCollision):
            registry.register(tool(name), audience=audience)

    assert registry.resolve("t", audience=None) is first
    assert issubclass(ToolCollision, UsageError)


def test_replacing_is_possible_on_purpose_but_never_covers_a_global_tool() -> None:
    registry = ToolRegistry()
    second = tool("t")
    registry.register(tool("t"))
    registry.register(second, replace=True)
    with pytest.raises(ToolCollision):
        registry.register(tool("t"), audience="a", replace=True)

    assert registry.resolve("t", audience="a") is second


def test_withdrawn_tool_is_gone_for_later_calls_only() -> None:
    """TL-10: a call that has resolved its tool keeps it."""
    registry = ToolRegistry()
    registry.register(tool("t"))
    resolved = registry.resolve("t", audience=None)

    assert registry.unregister("t") is True
    assert registry.unregister("t") is False
    assert registry.resolve("t", audience=None) is None
    assert resolved is not None


@pytest.mark.parametrize("name", ["", "a b", "ä", "a.b", "x" * 65, "a\n"])
def test_impossible_names_are_refused(name: str) -> None:
    """TL-1."""
    with pytest.raises(InvalidTool):
        ToolRegistry().register(tool(name))


def test_overlong_description_is_refused() -> None:
    """TL-40."""
    with pytest.raises(InvalidTool):
        ToolRegistry().register(tool("t", "ä" * 2049))


def test_builtin_tools_say_how_they_are_scheduled_and_approved() -> None:
    """4.10: looking is parallel and never asked about; changing is exclusive and asked about."""
    specs = {one.spec.name: one.spec for one in split_file_tools()}

    assert sorted(specs) == ["edit", "glob", "grep", "ls", "read", "write"]
    for name in ("read", "ls", "grep", "glob"):
        assert (specs[name].side_effect, specs[name].execution) == ("none", "read_only_parallel")
    for name in ("write", "edit"):
        assert (specs[name].side_effect, specs[name].execution) == ("local_state", "exclusive_local_mutation")
        assert specs[name].approval == "filesystem"


# --- an agent's own, and who is seen by whom --------------------------------------------------------------------------


def test_an_agents_own_tool_is_found_first_then_its_audiences_then_everyones() -> None:
    """TL-7: the first match wins."""
    registry = ToolRegistry()
    for owner in ({}, {"agent": "agent-1"}):
        registry.register(tool("t", f"of {owner}"), **owner)
    registry.register(tool("u", "of the audience"), audience="a")
    registry.register(tool("u", "of the agent"), agent="agent-1")

    def seen(**asking: str) -> dict[str, str]:
        return {each.spec.name: each.spec.description for each in registry.registrations(**asking)}

    assert seen() == {"t": "of {}"}
    assert seen(audience="a") == {"t": "of {}", "u": "of the audience"}
    assert seen(audience="a", agent="agent-1") == {"t": "of {'agent': 'agent-1'}", "u": "of the agent"}
    assert seen(audience="a", agent="agent-2") == seen(audience="a")


@pytest.mark.parametrize("asking", ["A", "a ", "", "a\n", "b"])
def test_audiences_are_the_same_only_when_they_are_equal(asking: str) -> None:
    """TL-8, RT-41: opaque labels, compared and never looked into."""
    registry = ToolRegistry()
    registry.register(tool("own"), audience="a")
    assert registry.find("own", audience=asking) is None and registry.has_name("own")


def test_replacing_a_tool_replaces_every_one_of_its_name_at_once() -> None:
    """RT-8: an audience's and an agent's go with it, so that nobody keeps the old one."""
    registry = ToolRegistry()
    registry.register(tool("own"), audience="a")
    registry.register(tool("own"), agent="agent-1")
    registry.register(tool("other"), audience="a")
    new = tool("own")
    registry.register(new, replace=True)

    for asking in ({}, {"audience": "a"}, {"audience": "a", "agent": "agent-1"}):
        found = registry.find("own", **asking)
        assert found is not None and found.tool is new
    assert registry.find("other", audience="a") is not None


@pytest.mark.parametrize("owner", [{}, {"audience": "a"}, {"agent": "agent-1"}])
def test_trying_to_register_a_name_anybody_has_changes_nothing(owner: dict[str, str]) -> None:
    """RT-8, D-58: the error names it."""
    registry = ToolRegistry()
    first = tool("t")
    registry.register(first, **owner)
    with pytest.raises(ToolCollision) as refusal:
        registry.register(tool("t"))
    assert refusal.value.name == "t"
    assert [each.tool for each in registry.registrations(**owner)] == [first]


# --- guards -----------------------------------------------------------------------------------------------------------


def test_a_guard_takes_back_its_own_registration_and_no_later_one() -> None:
    """TL-9, D-59: no ABA. By name alone, the second owner's tool would have been withdrawn."""
    registry = ToolRegistry()
    first = registry.hold(tool("t"), audience="a")
    assert (first.audience, first.descriptor.name) == ("a", "t")
    registry.unregister("t", audience="a")
    second = registry.hold(tool("t"), audience="a")

    assert first.unregister() is False
    assert registry.find("t", audience="a") is not None
    assert second.unregister() is True
    assert second.unregister() is False
    assert registry.find("t", audience="a") is None


def test_a_guard_is_a_context_and_can_not_be_copied() -> None:
    """CV-6, TL-9."""
    registry = ToolRegistry()
    with registry.hold(tool("t"), audience="a") as guard:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="guard"):
                duplicate(guard)
        assert registry.find("t", audience="a") is not None
    assert registry.find("t", audience="a") is None
    guard.close()


def test_a_guard_keeps_no_registry_alive_and_outlives_it() -> None:
    """TL-9: weakly held."""
    registry = ToolRegistry()
    guard = registry.hold(tool("t"), audience="a")
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None and guard.unregister() is False


def test_a_forgotten_guard_takes_its_registration_with_it() -> None:
    """CV-6: whatever part of it is looked at next. (Nothing depends on when a collection happens.)"""
    registry = ToolRegistry()
    registry.hold(tool("t"), audience="a")
    gc.collect()
    assert registry.registrations("a") == []
    registry.register(tool("t"), audience="a")


def test_a_host_s_code_runs_while_nothing_is_locked() -> None:
    """RT-40: describing a tool and letting go of one may look at the very registry they are in."""
    registry = ToolRegistry()
    looked: list[str] = []

    class Looks(FunctionTool):
        @property
        def spec(self) -> ToolSpec:
            looked.append("described")
            registry.tools("a")
            return ToolSpec("t")

        def __del__(self) -> None:
            looked.append("gone")
            registry.find("t", audience="a")

    async def run(context: ToolContext, input: dict[str, Json]) -> str:
        return ""

    def new() -> Looks:
        return Looks(ToolSpec("t"), run)

    with ThreadPoolExecutor(1) as thread:  # a deadlock would not end
        thread.submit(lambda: registry.register(new(), audience="a")).result(5)
        thread.submit(lambda: registry.register(new(), audience="a", replace=True)).result(5)
        thread.submit(lambda: registry.unregister("t", audience="a")).result(5)
        guard = registry.hold(new(), audience="a")
        thread.submit(guard.unregister).result(5)
    del guard
    gc.collect()
    assert looked.count("gone") == 3 and looked.count("described") >= 3


def test_registering_from_many_threads_is_never_seen_half_done() -> None:
    """RT-40: a name is always one whole tool, or none."""
    registry = ToolRegistry()
    stop = threading.Event()
    odd: list[object] = []

    def watch() -> None:
        while not stop.is_set():
            odd.extend(each for each in registry.registrations("a") if each.spec is not each.tool.spec)

    def work(owner: dict[str, str]) -> None:
        for _ in range(300):
            with suppress(ToolCollision), registry.hold(tool("t"), **owner):
                registry.find("t", **owner)

    with ThreadPoolExecutor(5) as pool:
        watching = pool.submit(watch)
        done = [pool.submit(work, owner) for owner in ({}, {"audience": "a"}, {"audience": "b"}, {"agent": "x"})]
        for each in done:
            each.result(20)
        stop.set()
        watching.result(5)
    assert odd == [] and registry.registrations("a", "x") == [] and not registry.has_name("t")
