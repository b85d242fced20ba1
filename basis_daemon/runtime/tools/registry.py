"""The tools of one runtime, by name and audience (runtime.md 4.2).

Owns which tool a name means for whom. Whether a session is offered it is its profile's matter. Nothing of a tool is
called while the lock is held (RT-40): its specification is read once, before, and what is dropped is let go after.
"""

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from basis_daemon.errors import UsageError
from basis_daemon.runtime.guards import Guard
from basis_daemon.runtime.tools.base import Tool, ToolSpec
from basis_daemon.runtime.tools.spec_checks import MAX_DESCRIPTION_BYTES as MAX_DESCRIPTION_BYTES
from basis_daemon.runtime.tools.spec_checks import InvalidTool as InvalidTool
from basis_daemon.runtime.tools.spec_checks import check_spec


class ToolCollision(UsageError):
    """The name is taken (RT-8, TL-9)."""

    kind = "tool_collision"

    def __init__(self, name: str, where: str) -> None:
        super().__init__(f"there is already a tool {name!r} {where}")
        self.name = name


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """A tool as it was registered: it and its specification belong together, whatever is registered later (TL-10)."""

    tool: Tool
    spec: ToolSpec
    generation: int
    audience: str | None = None
    agent: str | None = None


class ToolGuard(Guard):
    """Holds one registration made while the runtime is in use (TL-9)."""

    __slots__ = ("_registration",)

    def __init__(self, registry: "ToolRegistry", registration: Registration) -> None:
        super().__init__(registry, registration.generation)
        self._registration = registration

    @property
    def audience(self) -> str | None:
        return self._registration.audience

    @property
    def descriptor(self) -> ToolSpec:
        return self._registration.spec


Names = dict[str, Registration]


class ToolRegistry:
    """Live and shared: what is registered later is seen by sessions that exist already (RT-10). Safe from any thread.

    A name means an agent's own tool, else its audience's, else the global one (TL-7).
    """

    def __init__(self) -> None:
        self.forgotten: deque[int] = deque()
        self._lock = threading.Lock()
        self._generations = count(1)
        self._global: Names = {}
        self._audiences: dict[str, Names] = {}
        self._agents: dict[str, Names] = {}

    # --- registering -------------------------------------------------------------------------------------------------

    def register(
        self, tool: Tool, *, audience: str | None = None, agent: str | None = None, replace: bool = False
    ) -> None:
        """Offer `tool` to everyone, to one audience, or to exactly one agent. Raises `InvalidTool`, `ToolCollision`.

        A global tool collides with any tool of its name; with `replace` it takes the place of all of them (RT-8). An
        audience's tool never covers a global one (TL-9). An agent's own covers both.
        """
        self._register(tool, audience, agent, replace)

    def hold(
        self, tool: Tool, *, audience: str | None = None, agent: str | None = None, replace: bool = False
    ) -> ToolGuard:
        """`register` for as long as the guard is kept."""
        return ToolGuard(self, self._register(tool, audience, agent, replace))

    def _register(self, tool: Tool, audience: str | None, agent: str | None, replace: bool) -> Registration:
        spec = tool.spec
        check_spec(spec)
        new = Registration(tool, spec, next(self._generations), audience, agent)
        dropped: list[Registration] = []
        with self._lock:
            self._sweep(dropped)
            if not replace or audience is not None:
                self._refuse_taken(new, replace)
            if audience is None and agent is None:
                dropped += [names.pop(spec.name) for names in list(self._all()) if spec.name in names]
            names = self._namespace(audience, agent)
            dropped += [names[spec.name]] if spec.name in names else []
            names[spec.name] = new
            self._tidy()
        return new

    def unregister(self, name: str, *, audience: str | None = None, agent: str | None = None) -> bool:
        """Withdraw a tool from that one namespace; false if there was none."""
        dropped: list[Registration] = []
        with self._lock:
            self._sweep(dropped)
            found = self._namespace(audience, agent).pop(name, None)
            self._tidy()
        return found is not None

    def withdraw(self, generation: int) -> bool:
        """Withdraw what was registered as this generation; false if it is gone, or another took its place."""
        dropped: list[Registration] = []
        with self._lock:
            self._sweep(dropped)
            return self._withdraw(generation, dropped)

    # --- looking up --------------------------------------------------------------------------------------------------

    def find(self, name: str, *, audience: str | None = None, agent: str | None = None) -> Registration | None:
        """What `name` means for an agent of `audience`; never another's (TL-7, TL-11)."""
        dropped: list[Registration] = []
        with self._lock:
            self._sweep(dropped)
            for names in self._visible(audience, agent):
                if name in names:
                    return names[name]
        return None

    def resolve(self, name: str, *, audience: str | None, agent: str | None = None) -> Tool | None:
        """`find`, for those who want nothing but the tool."""
        found = self.find(name, audience=audience, agent=agent)
        return None if found is None else found.tool

    def has_name(self, name: str) -> bool:
        """Whether anybody has a tool of that name (TL-11)."""
        with self._lock:
            return any(name in names for names in self._all())

    def registrations(self, audience: str | None = None, agent: str | None = None) -> list[Registration]:
        """What an agent of `audience` resolves to, sorted by name (CV-8)."""
        dropped: list[Registration] = []
        with self._lock:
            self._sweep(dropped)
            found: Names = {}
            for names in reversed(list(self._visible(audience, agent))):
                found |= names
        return [found[name] for name in sorted(found)]

    def tools(self, audience: str | None = None, agent: str | None = None) -> list[Tool]:
        """`registrations`, for those who want nothing but the tools."""
        return [each.tool for each in self.registrations(audience, agent)]

    # --- with the lock held ------------------------------------------------------------------------------------------

    def _visible(self, audience: str | None, agent: str | None) -> Iterator[Names]:
        if agent is not None and agent in self._agents:
            yield self._agents[agent]
        if audience is not None and audience in self._audiences:
            yield self._audiences[audience]
        yield self._global

    def _all(self) -> Iterator[Names]:
        yield self._global
        yield from self._audiences.values()
        yield from self._agents.values()

    def _namespace(self, audience: str | None, agent: str | None) -> Names:
        if agent is not None:
            return self._agents.setdefault(agent, {})
        return self._global if audience is None else self._audiences.setdefault(audience, {})

    def _refuse_taken(self, new: Registration, replace: bool) -> None:
        name = new.spec.name
        if new.agent is None and name in self._global:
            raise ToolCollision(name, "for everyone")
        if not replace and name in self._namespace(new.audience, new.agent):
            raise ToolCollision(name, "of this agent" if new.agent is not None else "in this audience")
        if new.agent is None and new.audience is None and any(name in names for names in self._all()):
            raise ToolCollision(name, "that belongs to somebody")

    def _withdraw(self, generation: int, dropped: list[Registration]) -> bool:
        for names in self._all():
            for name, each in names.items():
                if each.generation == generation:
                    dropped.append(names.pop(name))
                    self._tidy()
                    return True
        return False

    def _sweep(self, dropped: list[Registration]) -> None:
        """Withdraw what was registered under guards that are gone."""
        while self.forgotten:
            self._withdraw(self.forgotten.popleft(), dropped)

    def _tidy(self) -> None:
        for owners in (self._audiences, self._agents):
            for owner in [owner for owner, names in owners.items() if not names]:
                del owners[owner]
