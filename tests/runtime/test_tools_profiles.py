"""Which file tools a runtime has, and what every one of them says of itself."""

import pytest

from basis_daemon.runtime.runtime import Runtime
from basis_daemon.runtime.tools.builtin import FileToolProfile, file_tools

pytestmark = pytest.mark.anyio

SPLIT = {"read", "ls", "grep", "glob", "write", "edit"}


@pytest.mark.parametrize(
    ("profile", "names"), [("none", set[str]()), ("batched", {"files"}), ("split", SPLIT), ("both", {"files", *SPLIT})]
)
async def test_profile_is_exactly_the_file_tools_a_runtime_has(profile: FileToolProfile, names: set[str]) -> None:
    """C-17: the last one said holds, and takes the others' names away."""
    for first in ("both", "none"):
        runtime = Runtime.builder().with_ephemeral_history().with_file_tools(first).with_file_tools(profile).build()
        async with runtime:
            assert {tool.spec.name for tool in runtime.registry.tools()} & {"files", *SPLIT} == names


def test_file_tools_are_scheduled_and_approved_by_what_they_do() -> None:
    """4.10: reading runs beside others; changing runs alone, and is approved as such."""
    for tool in file_tools("both"):
        looks = tool.spec.name in ("read", "ls", "grep", "glob")
        assert tool.spec.execution == ("read_only_parallel" if looks else "exclusive_local_mutation")
        assert tool.spec.approval == ("read_only" if looks else "filesystem")
        assert tool.spec.side_effect == ("none" if looks else "local_state")
