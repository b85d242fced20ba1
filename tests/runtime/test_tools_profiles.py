"""Which file tools a runtime has, and what every one of them says of itself."""

import json
import os
from pathlib import Path

import pytest

from basis_daemon.errors import PolicyDenied
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.runtime.tools.builtin import FileToolProfile, file_tools
from support.tool_calls import Caller

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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve()


CHANGES: list[tuple[str, dict[str, Json]]] = [
    ("write", {"path": "{path}", "content": "x"}),
    ("edit", {"path": "{path}", "edits": [{"old_string": "old", "new_string": "new"}]}),
    ("files", {"operations": [{"op": "create", "path": "{path}.new", "content": "x"}]}),
    ("files", {"operations": [{"op": "set", "path": "{path}", "content": "x"}]}),
    ("files", {"operations": [{"op": "replace", "path": "{path}", "old": "old", "new": "new"}]}),
    (
        "files",
        {"operations": [{"op": "insert", "path": "{path}", "anchor": "old", "position": "after", "content": "x"}]},
    ),
    ("files", {"operations": [{"op": "move", "from": "{path}", "to": "moved"}]}),
    ("files", {"operations": [{"op": "move", "from": "other", "to": "{path}.new"}]}),
    ("files", {"operations": [{"op": "delete", "path": "{path}"}]}),
]
"""Every way a file tool has of changing `{path}`."""


@pytest.mark.parametrize(("name", "input"), CHANGES)
@pytest.mark.parametrize("is_read_only", [True, False])
async def test_no_file_tool_writes_where_it_may_not(
    root: Path, name: str, input: dict[str, Json], is_read_only: bool
) -> None:
    """D-74, C-10, PO-1: under a read-only policy not even in the base directory; D-75, PO-3, invariant 4: nor in a
    denied root. Refused before anybody is asked, and again when it would be done."""
    bounded = RuntimePolicy.workspace_bounded(root).with_denied_write_root(root / "held")
    caller = Caller(root, policy=RuntimePolicy.read_only(root) if is_read_only else bounded)
    for path in ("held/a", "other"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("old\n")
    tool = next(tool for tool in file_tools("both") if tool.spec.name == name)
    filled: dict[str, Json] = json.loads(json.dumps(input).replace("{path}", "held/a"))

    for half in (caller.prepare, caller.execute):
        with pytest.raises(PolicyDenied, match="read-only" if is_read_only else "denied write root"):
            await half(tool, **filled)

    assert (sorted(os.listdir(root)), os.listdir(root / "held")) == (["held", "other"], ["a"])
    assert (root / "held/a").read_text() == (root / "other").read_text() == "old\n"


async def test_one_instance_serves_several_runtimes() -> None:
    """D-82: tools are shared as they are."""
    tools = file_tools("both")
    builder = Runtime.builder().with_ephemeral_history().with_file_tools("none")
    for tool in tools:
        builder = builder.with_tool(tool)
    async with builder.build() as one, builder.build() as other:
        for tool in tools:
            assert one.registry.resolve(tool.spec.name, audience=None) is tool
            assert other.registry.resolve(tool.spec.name, audience=None) is tool


def test_file_tools_are_scheduled_and_approved_by_what_they_do() -> None:
    """4.10: reading runs beside others; changing runs alone, and is approved as such."""
    for tool in file_tools("both"):
        looks = tool.spec.name in ("read", "ls", "grep", "glob")
        assert tool.spec.execution == ("read_only_parallel" if looks else "exclusive_local_mutation")
        assert tool.spec.approval == ("read_only" if looks else "filesystem")
        assert tool.spec.side_effect == ("none" if looks else "local_state")
