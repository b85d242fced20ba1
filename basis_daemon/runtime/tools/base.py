"""What a tool is: its description, what it is told when called, and what it gives back (runtime.md 4.1).

Owns the contract between the loop and every tool. Does not decide whether a call may run: see `permissions.py` and
`policy.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from basis_daemon.processes import CommandOutput, CommandRequest, Executor
from basis_daemon.runtime.background import AgentBackground, BackgroundTask, NoSuchTask
from basis_daemon.runtime.delegation import AgentOperations
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.skills import SessionSkills, SkillTable
from basis_daemon.runtime.tools.app_context import AppContext
from basis_daemon.runtime.tools.classify import classify
from basis_daemon.runtime.tools.shell_validation import judge_command, require_sound
from basis_daemon.runtime.tools.spec import ApprovalCategory as ApprovalCategory
from basis_daemon.runtime.tools.spec import ExecutionCategory as ExecutionCategory
from basis_daemon.runtime.tools.spec import InputSchema as InputSchema
from basis_daemon.runtime.tools.spec import SideEffectLevel as SideEffectLevel
from basis_daemon.runtime.tools.spec import ToolSpec as ToolSpec
from basis_daemon.runtime.tools.tool_error import ToolError as ToolError
from basis_protocol.content import CallPreview, Classification, FileDiff, Preview

T = TypeVar("T")


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

    agent_name: str = ""
    background: AgentBackground | None = None
    """Where commands go on that are not waited for."""
    skills: SessionSkills | None = None
    app: AppContext = field(default_factory=AppContext)
    """What the host gave the runtime for its tools."""

    def app_context(self, wanted: type[T]) -> T:
        """The host's object of exactly this type. Raises `MissingContext` naming the type (RT-11)."""
        return self.app.get(wanted)

    async def resolve_working_directory(self, path: str | None = None) -> Path:
        """The directory a call works in: `path` from the agent's own, else that one (PO-10). Raises `PolicyDenied`,
        `ToolError` where there is none."""
        if path is None:
            return self.working_directory
        directory = await asyncio.to_thread(self.policy.resolve_working_directory, path, self.working_directory)
        if not await asyncio.to_thread(directory.is_dir):
            raise ToolError(f"there is no directory {directory}")
        return directory

    def load_skill(self, name: str) -> str:
        """The text of a skill that the model may use. Raises `UnknownSkill` naming those there are."""
        return (self.skills or SessionSkills(SkillTable())).body(name)

    async def read_file(self, path: str | Path) -> str:
        """The text of a file the policy lets this agent read, unsaved changes included. Raises `PolicyDenied`,
        `ToolError`."""
        return await asyncio.to_thread(_read_text, self, path)

    async def shell_validation(self, command: str) -> Classification:
        """What a command seems to do; nothing is run (5.4)."""
        return await asyncio.to_thread(classify, command)

    async def run_command(
        self, command: str, *, timeout_s: float | None = None, cwd: Path | None = None, target: str | None = None
    ) -> CommandOutput:
        """Run a shell command under the policy, in the working directory unless `cwd` says otherwise. Raises
        `PolicyDenied` when commands are switched off, or when the policy refuses this one for its looks.

        `target` names where it runs, for executors that know more places than this machine.
        """
        self.policy.require_shell()
        request = await self._command(command, timeout_s or self.policy.default_command_timeout_s, cwd)
        return await self.executor.run(replace(request, on_output=self.progress, target=target))

    async def start_background_task(
        self, command: str, *, timeout_s: float | None = None, cwd: Path | None = None
    ) -> BackgroundTask:
        """Start a shell command that is not waited for, under the policy. It is ended after `timeout_s`, and after the
        policy's longest time at the latest (CO-18). Raises `PolicyDenied`, `TooManyBackgroundTasks`, `ToolError`."""
        self.policy.require_background()
        if self.background is None:
            raise ToolError("there is no background here to run commands in")
        request = await self._command(command, timeout_s or self.policy.max_command_timeout_s, cwd)
        return self.background.start(replace(request, what="background"), limit=self.policy.max_background_tasks)

    def check_background_task(self, task_id: str) -> BackgroundTask:
        """A task of this agent's as it stands. Raises `NoSuchTask`."""
        if self.background is None:
            raise NoSuchTask(task_id)
        return self.background.get(task_id)

    async def _command(self, command: str, timeout_s: float, cwd: Path | None) -> CommandRequest:
        """The request for a command that may run. Raises `PolicyDenied` for one that is refused for its looks."""
        if self.policy.shell_validation == "enforce":
            require_sound(await asyncio.to_thread(judge_command, command, self.policy), self.policy)
        return CommandRequest(
            command=command,
            cwd=cwd or self.working_directory,
            timeout_s=min(timeout_s, self.policy.max_command_timeout_s),
            env=self.policy.command_environment(self.environment),
            max_output_bytes_per_stream=self.policy.max_output_bytes_per_stream,
            owner=self.agent_id,
            what="shell",
        )


def _read_text(context: ToolContext, path: str | Path) -> str:
    from basis_daemon.runtime.tools import text_files

    target = context.policy.resolve_read(path, context.working_directory)
    unsaved = context.overlay(target)
    if unsaved is not None:
        return unsaved
    stored = text_files.read(target)
    if stored is None:
        raise ToolError(f"there is no file {target}")
    return stored.decode(target).text


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
    """Whether the turn ends once this round's results are committed (AG-14). Not for calls that run side by side."""
    keep_whole: bool = False
    """Whether the model gets all of it, whatever the limits: for what is bounded at its source (TL-38, D-83)."""


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
    command_key: str | None = None
    """Where in `structured_input` a line for the shell is, if the call runs one: rules read it command by command."""


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


ExecutableTool = Tool
"""A definition with its executor: what a tool is (TL-6)."""


@runtime_checkable
class ChoosesLane(Protocol):
    """A tool whose calls are scheduled by what is in their input, not all alike."""

    def execution_category(self, input: dict[str, Json]) -> ExecutionCategory:
        """The lane of one call. Quick, and without effects: it is asked before anything is checked."""
        ...


PARALLEL: ExecutionCategory = "read_only_parallel"
"""The one lane whose calls run side by side (TL-30)."""


def lane_of(tool: Tool, spec: ToolSpec, input: dict[str, Json]) -> ExecutionCategory:
    """The lane a call with this input goes in. One that ends the turn never runs beside others (TL-32)."""
    lane = tool.execution_category(input) if isinstance(tool, ChoosesLane) else spec.execution
    return "exclusive_local_mutation" if spec.terminal and lane == PARALLEL else lane


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
