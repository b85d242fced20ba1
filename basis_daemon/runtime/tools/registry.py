"""The tools of one runtime, by name and audience (runtime.md 4.2).

Owns which tool a name means for whom. Whether a session is offered it is its roster's matter.
"""

import re
import threading

from basis_daemon.errors import UsageError
from basis_daemon.runtime.tools.base import Tool

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

MAX_DESCRIPTION_BYTES = 4 * 1024
"""Descriptions may come from a manifest or an MCP server; a longer one is refused (TL-40)."""


class InvalidTool(UsageError):
    """A tool whose name or description can't be used."""

    kind = "invalid_tool"


class ToolCollision(UsageError):
    """The name is taken: globally or, for an audience's tool, in that audience (TL-9)."""

    kind = "tool_collision"


class ToolRegistry:
    """Live and shared: what is registered later is seen by sessions that exist already. Safe from any thread.

    A call that has resolved its tool keeps it, whatever is registered meanwhile (TL-10).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tools: dict[tuple[str | None, str], Tool] = {}
        self._own: dict[str, dict[str, Tool]] = {}
        """Tools of one agent alone, by its id and their name."""

    def register(
        self, tool: Tool, *, audience: str | None = None, agent: str | None = None, replace: bool = False
    ) -> None:
        """Offer `tool` to everyone, to one audience, or to exactly one agent. Raises `InvalidTool`, `ToolCollision`.

        `replace` takes the place of a tool of the same name and audience; an audience's tool never covers a global one.
        """
        name = _checked(tool)
        with self._lock:
            if agent is not None:
                own = self._own.setdefault(agent, {})
                if not replace and name in own:
                    raise ToolCollision(f"there is already a tool {name!r}")
                own[name] = tool
                return
            if audience is not None and (None, name) in self._tools:
                raise ToolCollision(f"there is already a tool {name!r} for everyone")
            if not replace and (audience, name) in self._tools:
                raise ToolCollision(f"there is already a tool {name!r}")
            self._tools[audience, name] = tool

    def unregister(self, name: str, *, audience: str | None = None, agent: str | None = None) -> bool:
        """Withdraw a tool; false if there was none."""
        with self._lock:
            if agent is not None:
                own = self._own.get(agent, {})
                was_there = own.pop(name, None) is not None
                if not own:
                    self._own.pop(agent, None)
                return was_there
            return self._tools.pop((audience, name), None) is not None

    def resolve(self, name: str, *, audience: str | None, agent: str | None = None) -> Tool | None:
        """The tool `name` means: the agent's own, else its audience's, else the global one; never another's (TL-7,
        TL-11)."""
        with self._lock:
            if agent is not None and name in self._own.get(agent, ()):
                return self._own[agent][name]
            own = self._tools.get((audience, name))
            return own if own is not None else self._tools.get((None, name))

    def tools(self, audience: str | None = None, agent: str | None = None) -> list[Tool]:
        """Every tool an agent of `audience` can be offered, sorted by name (CV-8)."""
        with self._lock:
            found = {name: tool for (owner, name), tool in self._tools.items() if owner is None}
            found |= {name: tool for (owner, name), tool in self._tools.items() if owner == audience}
            found |= self._own.get(agent, {}) if agent is not None else {}
        return [found[name] for name in sorted(found)]


def _checked(tool: Tool) -> str:
    name = tool.spec.name
    if NAME.fullmatch(name) is None:
        raise InvalidTool(f"{name!r} can't be a tool's name", hint="use 1 to 64 letters, digits, `_` and `-`")
    if len(tool.spec.description.encode()) > MAX_DESCRIPTION_BYTES:
        raise InvalidTool(f"the description of {name!r} is longer than {MAX_DESCRIPTION_BYTES} bytes")
    return name
