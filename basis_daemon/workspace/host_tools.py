"""Tools a host gives to one workspace: registered for its audience only, held as long as a workspace holds them.

Owns joining and refusing (SH-22…SH-24). Two opens of one root with the same tool object share its registration.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from basis_daemon.errors import UsageError
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    ExecutionCategory,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
    lane_of,
)
from basis_daemon.runtime.tools.registry import ToolCollision, ToolRegistry


class HostToolRefused(UsageError):
    """SH-23: a host tool's name is taken."""

    kind = "host_tool"

    def __init__(self, name: str) -> None:
        super().__init__(f"the tool name {name!r} is taken", hint="give the host's tool another name")
        self.name = name


class HeldTool:
    """A host tool as it is registered, with the number of workspaces that hold it."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.holders = 0

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    def execution_category(self, input: dict[str, Any]) -> ExecutionCategory:
        return lane_of(self.tool, self.spec, input)

    async def prepare(self, context: ToolContext, input: dict[str, Any]) -> CallPreparation:
        return await self.tool.prepare(context, input)

    async def execute(self, context: ToolContext, input: dict[str, Any]) -> ToolOutput:
        return await self.tool.execute(context, input)


@contextmanager
def held(registry: ToolRegistry, tools: Sequence[Tool], audience: str) -> Generator[None]:
    """Hold `tools` for `audience` until the context is left. Raises `HostToolRefused`; then none of them is held."""
    with ExitStack() as holds:
        names: set[str] = set()
        for tool in tools:
            if tool.spec.name in names:
                raise HostToolRefused(tool.spec.name)
            names.add(tool.spec.name)
            _hold(registry, tool, audience)
            holds.callback(_release, registry, tool.spec.name, audience)
        yield


def _hold(registry: ToolRegistry, tool: Tool, audience: str) -> None:
    present = registry.resolve(tool.spec.name, audience=audience)
    if present is None:
        present = HeldTool(tool)
        try:
            registry.register(present, audience=audience)
        except ToolCollision:
            raise HostToolRefused(tool.spec.name) from None
    elif not isinstance(present, HeldTool) or present.tool is not tool:
        raise HostToolRefused(tool.spec.name)
    present.holders += 1


def _release(registry: ToolRegistry, name: str, audience: str) -> None:
    present = registry.resolve(name, audience=audience)
    if isinstance(present, HeldTool):
        present.holders -= 1
        if present.holders == 0:
            registry.unregister(name, audience=audience)
