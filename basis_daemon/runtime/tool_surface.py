"""What a host does with the tools and hooks of a runtime that is in use (RT-8, RT-9, TL-9, TL-21).

Owns the names a host types. What they mean is the registry's and the table's matter.
"""

from basis_daemon.runtime.guards import Guard
from basis_daemon.runtime.hooks.contract import ExecutionHook, PostHook, PreHook
from basis_daemon.runtime.hooks.table import HookTable
from basis_daemon.runtime.tools.base import Tool
from basis_daemon.runtime.tools.registry import ToolGuard, ToolRegistry
from basis_daemon.runtime.tools.spec import ToolSpec


class ToolSurface:
    """Seen by every session at its next request or call, those that exist already included (RT-10)."""

    registry: ToolRegistry
    hooks: HookTable

    def register_tool(self, tool: Tool) -> None:
        """Offer `tool` to everyone, in place of every other of its name, whosever it was. Raises `InvalidTool`."""
        self.registry.register(tool, replace=True)

    def try_register_tool(self, tool: Tool) -> None:
        """Offer `tool` to everyone. Raises `ToolCollision`, and changes nothing, if anybody has a tool of its name."""
        self.registry.register(tool)

    def try_register_tool_for_audience(self, audience: str, tool: Tool) -> ToolGuard:
        """Offer `tool` to the agents of one audience for as long as the guard is kept. Raises `ToolCollision` for a
        name that is global, or taken in that audience."""
        return self.registry.hold(tool, audience=audience)

    def unregister_tool(self, name: str) -> bool:
        """Withdraw a global tool; false if there was none. Calls that have begun go on (TL-10)."""
        return self.registry.unregister(name)

    def tools(self) -> list[ToolSpec]:
        """The global tools, by name."""
        return [each.spec for each in self.registry.registrations()]

    def tool_descriptor(self, name: str) -> ToolSpec | None:
        """What a global tool says of itself."""
        found = self.registry.find(name)
        return None if found is None else found.spec

    def tools_for_audience(self, audience: str | None) -> list[ToolSpec]:
        """What an agent of that audience could be offered, by name; never what belongs to one agent alone."""
        return [each.spec for each in self.registry.registrations(audience)]

    def register_pre_hook(self, hook: PreHook, *, audience: str | None = None) -> Guard:
        """Have calls judged by one more hook; of one audience only if that is named."""
        return self.hooks.register_pre_hook(hook, audience=audience)

    def register_post_hook(self, hook: PostHook, *, audience: str | None = None) -> Guard:
        return self.hooks.register_post_hook(hook, audience=audience)

    def register_execution_hooks(self, *hooks: ExecutionHook, audience: str | None = None) -> Guard:
        """A batch that comes and goes as one."""
        return self.hooks.register_execution_hooks(*hooks, audience=audience)
