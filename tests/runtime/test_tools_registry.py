"""Which tool a name means, for whom (runtime.md 4.2)."""

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
