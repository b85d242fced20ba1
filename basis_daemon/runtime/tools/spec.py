"""What a tool says of itself: name, schemas, and how its calls are scheduled and approved (TL-1).

Owns the values only. Whether they can be used is checked when a tool is registered: see `spec_checks.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from basis_daemon.runtime.messages import Json

SideEffectLevel = Literal["none", "local_state", "process", "external"]
ExecutionCategory = Literal[
    "read_only_parallel", "exclusive_local_mutation", "exclusive_persistent_mutation", "background_job", "delegation"
]
ApprovalCategory = Literal["default", "read_only", "filesystem", "process", "background", "delegation"]
ToolKind = Literal["function", "hosted_web_search", "image_generation"]
Durability = Literal["ephemeral", "persistent", "replay_safe"]


class InputSchema(dict[str, Json]):
    """A JSON schema whose tool also takes other spellings. What is published is the schema; what is checked, and used
    by the tool, is `canonical(input)`: a model is taught one spelling and forgiven the others it knows."""

    def __init__(self, schema: Mapping[str, Json], canonical: Callable[[dict[str, Json]], dict[str, Json]]) -> None:
        super().__init__(schema)
        self.canonical = canonical


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool's name, schema, and how it is scheduled and approved (TL-1). `name` matches `[A-Za-z0-9_-]{1,64}`."""

    name: str
    description: str = ""
    input_schema: dict[str, Json] = field(default_factory=lambda: {"type": "object", "properties": {}})
    capabilities: frozenset[str] = frozenset()
    """Words of `spec_checks.CAPABILITIES`, and a host's own as `custom:<name>`."""
    side_effect: SideEffectLevel = "none"
    execution: ExecutionCategory = "exclusive_local_mutation"
    approval: ApprovalCategory = "default"
    timeout_s: float | None = None
    """Seconds one call may take; `None` has no limit of its own."""
    output_schema: dict[str, Json] | None = None
    strict: bool | None = None
    kind: ToolKind = "function"
    """Other kinds than `function` are run by the provider and never reach `execute`."""
    loading: Literal["immediate", "deferred"] = "immediate"
    durability: Durability = "ephemeral"
    options: Mapping[str, Json] = field(default_factory=dict[str, Json])
    terminal: bool = False
    """Whether a call of it is the turn's typed output and ends the turn (3.11)."""

    @staticmethod
    def builder(name: str) -> "ToolSpecBuilder":
        """The same, a field at a time (TL-1)."""
        return ToolSpecBuilder(ToolSpec(name))


@dataclass(frozen=True, slots=True)
class ToolSpecBuilder:
    """Frozen: every method returns a new builder. What is not said keeps the default of `ToolSpec`."""

    spec: ToolSpec

    def build(self) -> ToolSpec:
        return self.spec

    def with_description(self, description: str) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, description=description))

    def with_input_schema(self, schema: dict[str, Json]) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, input_schema=schema))

    def with_output_schema(self, schema: dict[str, Json]) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, output_schema=schema))

    def with_strict(self, strict: bool | None) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, strict=strict))

    def with_options(self, options: Mapping[str, Json]) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, options=options))

    def with_kind(self, kind: ToolKind) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, kind=kind))

    def with_defer_loading(self, deferred: bool = True) -> "ToolSpecBuilder":
        """Whether the model finds the tool by searching instead of being shown it at once."""
        return ToolSpecBuilder(replace(self.spec, loading="deferred" if deferred else "immediate"))

    def with_capabilities(self, *capabilities: str) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, capabilities=frozenset(capabilities)))

    def with_side_effect(self, level: SideEffectLevel) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, side_effect=level))

    def with_durability(self, durability: Durability) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, durability=durability))

    def with_execution(self, category: ExecutionCategory) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, execution=category))

    def with_approval(self, category: ApprovalCategory) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, approval=category))

    def with_timeout(self, seconds: float | None) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, timeout_s=seconds))

    def with_terminal(self, terminal: bool = True) -> "ToolSpecBuilder":
        return ToolSpecBuilder(replace(self.spec, terminal=terminal))
