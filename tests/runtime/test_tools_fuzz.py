"""Whatever a model sends, a builtin tool does its work or says why not."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basis_daemon.errors import BasisError
from basis_daemon.processes import LocalExecutor
from basis_daemon.runtime.background import AgentBackground, BackgroundTasks
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.background import CheckBackgroundTool
from basis_daemon.runtime.tools.base import Tool, ToolOutput, lane_of
from basis_daemon.runtime.tools.builtin import file_tools, runtime_tools
from basis_daemon.runtime.tools.load_skill import LoadSkillTool
from basis_daemon.runtime.tools.validate import validate_input
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio

TOOLS: list[Tool] = [*file_tools("both"), CheckBackgroundTool(), LoadSkillTool()]

PATHS = ["", ".", "a.txt", "b", "dir", "dir/c", "../x", "/etc/passwd", "link", "a" * 300, "\0", "\ud800"]
PATTERNS = ["x", "y\n", "(", "*", "[", "{a,b}", "é→", "true", "2"]
KINDS = ["read", "list", "search", "create", "set", "replace", "insert", "move", "delete", "before", "after"]
words = st.sampled_from([*PATHS, *PATTERNS, *KINDS])
scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 10**20), st.floats(), words, st.text(max_size=6)
)
FIELDS = """
path file_path filePath offset limit depth pattern glob ignore_case literal context multiline include_ignored content
contents edits old_string new_string oldText new replace_all replaceAll operations ops op old from to anchor position
occurrence expectedReplacements workingDirectory task_id name command
"""
names: st.SearchStrategy[str] = st.sampled_from(FIELDS.split())


def inside(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(children, max_size=3), st.dictionaries(names, children, max_size=5))


values = st.recursive(scalars, inside, max_leaves=12)
refined: dict[str, st.SearchStrategy[Any]] = {"glob": words, "context": scalars, "multiline": scalars}
inputs: st.SearchStrategy[Any] = st.one_of(
    st.dictionaries(names, values, max_size=6),
    st.fixed_dictionaries(
        {"operations": st.lists(st.dictionaries(names, scalars, min_size=2, max_size=6), min_size=1, max_size=3)}
    ),
    st.fixed_dictionaries({"path": words, "edits": values}),
    st.fixed_dictionaries({"pattern": words}, optional=refined),
)


def settled(root: Path) -> Path:
    """A few files of several kinds, as they were before."""
    (root / "dir").mkdir(parents=True, exist_ok=True)
    (root / "a.txt").write_text("x\ny\nx é\n")
    (root / "b").write_bytes(b"\0binary")
    (root / "dir" / "c").write_bytes("x\r\nÿ\r\n".encode("cp1252"))
    if not (root / "link").is_symlink():
        (root / "link").symlink_to("dir/c")
    return root


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.spec.name)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(input=inputs)
async def test_any_input_ends_in_a_result_or_a_refusal(tmp_path: Path, tool: Tool, input: dict[str, Json]) -> None:
    """TL-2, TL-15, invariants 3 and 15: nothing but refusals leaves a tool, before anybody is asked and afterwards, and
    nothing outside is touched."""
    root = await asyncio.to_thread(settled, tmp_path / "repo")
    background = AgentBackground(BackgroundTasks(LocalExecutor()), "agent-1")
    caller = Caller(root, policy=RuntimePolicy.workspace_bounded(root), background=background)
    assert lane_of(tool, tool.spec, input) in ("read_only_parallel", "exclusive_local_mutation")
    if validate_input(tool.spec.input_schema, input):
        return
    try:
        prepared = await tool.prepare(caller.context(tool), input)
        output = await tool.execute(caller.context(tool), input)
    except BasisError as refusal:
        said = str(refusal)
    else:
        said = prepared.title
        assert isinstance(output, ToolOutput)
    assert said
    assert await asyncio.to_thread(lambda: [path.name for path in tmp_path.iterdir()]) == ["repo"]


@pytest.mark.parametrize("tool", runtime_tools()[:2], ids=lambda tool: tool.spec.name)
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    input=st.fixed_dictionaries(
        {"command": st.one_of(words, st.text(max_size=30), scalars)},
        optional={"workingDirectory": scalars, "cwd": words, "timeoutMs": scalars, "justification": scalars},
    )
)
async def test_any_command_is_shown_or_refused(tmp_path: Path, tool: Tool, input: dict[str, Json]) -> None:
    """BT-2, TL-27: as far as a person is asked; none of these is run."""
    background = AgentBackground(BackgroundTasks(LocalExecutor()), "agent-1")
    caller = Caller(tmp_path, policy=RuntimePolicy.permissive(), background=background)
    if validate_input(tool.spec.input_schema, input):
        return
    try:
        prepared = await tool.prepare(caller.context(tool), input)
    except BasisError as refusal:
        said = str(refusal)
    else:
        said = prepared.title
        assert prepared.structured_input["command"] == input["command"]
    assert said
