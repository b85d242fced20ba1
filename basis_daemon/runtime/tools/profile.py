"""Which of the registered tools one agent is offered (TL-12).

Owns the choice by name. It narrows what an agent resolves to and never grants: see `registry.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class ToolProfile:
    """Names to hide, and the only names to offer if `allowed_tools` is set; hidden wins. Calling it answers whether a
    name is offered."""

    allowed_tools: frozenset[str] | None = None
    hidden_tools: frozenset[str] = frozenset()

    @classmethod
    def all(cls) -> Self:
        return cls(hidden_tools=frozenset())

    @classmethod
    def only(cls, names: Iterable[str]) -> Self:
        return cls(allowed_tools=frozenset(names), hidden_tools=frozenset())

    def hide(self, names: Iterable[str]) -> Self:
        """This profile without `names` as well."""
        return type(self)(allowed_tools=self.allowed_tools, hidden_tools=self.hidden_tools | frozenset(names))

    def allows(self, name: str) -> bool:
        return name not in self.hidden_tools and (self.allowed_tools is None or name in self.allowed_tools)

    def __call__(self, name: str) -> bool:
        return self.allows(name)
