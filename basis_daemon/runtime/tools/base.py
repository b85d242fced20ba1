"""What a tool is: its description, what it is told when called, and what it gives back (runtime.md 4.1).

Owns the contract between the loop and every tool. Does not decide whether a call may run: see `permissions.py` and
`policy.py`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from basis_daemon.errors import BasisError
from basis_daemon.processes import CommandOutput, CommandRequest, Executor
from basis_daemon.runtime.delegation import AgentOperations
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_protocol.content import CallPreview, FileDiff, Preview

SideEffectLevel = Literal["none", "local_state", "process", "external"]
ExecutionCategory = Literal[
    "read_only_parallel", "exclusive_local_mutation", "exclusive_persistent_mutation", "background_job", "delegation"
]
ApprovalCategory = Literal["default", "read_only", "filesystem", "process", "background", "delegation"]


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
    description: str
    input_schema: dict[str, Json] = field(default_factory=lambda: {"type": "object", "properties": {}})
    capabilities: frozenset[str] = frozenset()
    side_effect: SideEffectLevel = "none"
    execution: ExecutionCategory = "exclusive_local_mutation"
    approval: ApprovalCategory = "default"
    timeout_s: float | None = None
    """Seconds one call may take; `None` has no limit of its own."""
    output_schema: dict[str, Json] | None = None
    strict: bool | None = None
    kind: Literal["function", "hosted_web_search", "image_generation"] = "function"
    """Other kinds than `function` are run by the provider and never reach `execute`."""
    loading: Literal["immediate", "deferred"] = "immediate"
    durability: Literal["ephemeral", "persistent", "replay_safe"] = "ephemeral"
    options: Mapping[str, Json] = field(default_factory=dict[str, Json])
    terminal: bool = False
    """Whether a call of it is the turn's typed output and ends the turn (3.11)."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What one call knows of its surroundings. Paths in the input are relative to `working_directory`."""

    agent_id: str
    tool_call_id: str
    tool_name: str
    working_directory: Path
    policy: RuntimePolicy
    executor: Executor
    environment: Mapping[str, str]
    """The environment commands run with: the workspace's snapshot, already filtered by nobody (protocol.md 6)."""
    progress: Callable[[str], None]
    """Report progress; may be called from any thread."""
    overlay: Callable[[Path], str | None] = lambda path: None
    """Unsaved editor text of a canonical path, if an editor has it open and changed. Called from worker threads too."""
    files: "FileLedger | None" = None
    prepared: "CallPreparation | None" = None
    """While the call runs: what was shown of it, and allowed."""
    agent: AgentOperations | None = None
    """What the call may do to its agent; `None` outside an agent's turn."""

    async def run_command(self, command: str, *, timeout_s: float | None = None) -> CommandOutput:
        """Run a shell command under the policy. Raises `PolicyDenied` when commands are switched off."""
        self.policy.require_shell()
        limit = min(timeout_s or self.policy.default_command_timeout_s, self.policy.max_command_timeout_s)
        return await self.executor.run(
            CommandRequest(
                command=command,
                cwd=self.working_directory,
                timeout_s=limit,
                env=self.environment,
                max_output_bytes_per_stream=self.policy.max_output_bytes_per_stream,
                on_output=self.progress,
                owner=self.agent_id,
                what="shell",
            )
        )


class FileLedger(Protocol):
    """Remembers which version of a file an agent has read, so that a write over somebody else's change is refused."""

    def note(self, path: Path, digest: str) -> None: ...

    def seen(self, path: Path) -> str | None:
        """Digest of the version this agent last read or wrote, or `None`."""
        ...


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call gave back. `content` is text or structured JSON for the model.

    `summary` is one line for a person; `diff` is what changed on disk; `details` stays on the transcript and is never
    sent to a provider (TL-3).
    """

    content: Json
    is_error: bool = False
    summary: str | None = None
    diff: tuple[FileDiff, ...] = ()
    details: Json = None
    terminate: bool = False
    """Whether the turn ends once this round's results are committed (AG-14)."""


class ToolError(BasisError):
    """A call that failed in a way the model should read. Any other exception becomes an error result too (TL-2)."""

    kind = "tool"


@dataclass(frozen=True, slots=True)
class CallPreparation:
    """What will happen if this call runs, worked out before anybody is asked (AP-2, TL-27).

    `structured_input` is what remembered rules are matched against: never file contents. `preview` is what a person
    sees. `side_effect` and `execution` may be narrower than the tool's static ones.
    """

    structured_input: dict[str, Json]
    preview: Preview
    side_effect: SideEffectLevel
    execution: ExecutionCategory
    title: str
    """One line naming what would happen, e.g. `edit src/app.py (+3 −1)`."""
    remember_pattern: str | None = None
    """What an answer "for this session" covers: a pattern over `structured_input`; `None` is the whole tool (AP-30)."""
    covered: str | None = None
    """The same in words for the person who decides, e.g. `every command`."""


class Tool(Protocol):
    """A tool. One instance may serve many agents at once."""

    @property
    def spec(self) -> ToolSpec: ...

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        """Check `input` as far as possible without side effects and say what running it would do.

        Raises `ToolError` or `PolicyDenied` to refuse before anybody is asked. Must not change anything.
        """
        ...

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        """Do it. Checks again whatever `prepare` checked: the world may have moved while a person was thinking."""
        ...


class FunctionTool:
    """A tool from a plain async function, for embedders: `FunctionTool(spec, fn)`; `fn(context, input)` returns text,
    structured JSON or a `ToolOutput`."""

    def __init__(self, spec: ToolSpec, function: Callable[[ToolContext, dict[str, Json]], Awaitable[Any]]) -> None:
        self._spec = spec
        self._function = function

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        return default_preparation(self._spec, input)

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        value = await self._function(context, input)
        return value if isinstance(value, ToolOutput) else ToolOutput(value)


def default_preparation(spec: ToolSpec, input: dict[str, Json]) -> CallPreparation:
    """The preparation of a tool that has nothing special to show: its input, as it is."""
    return CallPreparation(
        structured_input=input,
        preview=CallPreview(input=input),
        side_effect=spec.side_effect,
        execution=spec.execution,
        title=spec.name,
    )
