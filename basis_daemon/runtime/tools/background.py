"""The tools `background_run` and `check_background`: commands that are not waited for (BT-3).

Owns what the model is told of them. The commands themselves are the runtime's matter: see `background.py` there.
"""

from basis_daemon.runtime.background import AgentBackground, BackgroundTask
from basis_daemon.runtime.command_text import titled
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSpec,
    default_preparation,
)
from basis_daemon.runtime.tools.inputs import string
from basis_daemon.runtime.tools.shell_calls import ShellCall, prepared, read_call, schema


class BackgroundRunTool:
    """Starts a command and gives back the id of its task."""

    spec = ToolSpec(
        name="background_run",
        description=(
            "Start a shell command and go on without waiting for it: a server, a long build. Gives back a task id at "
            "once. When it has ended, its result is reported to you; check_background shows how it is doing."
        ),
        input_schema=schema("Milliseconds after which it is ended. Default and maximum: the session's longest."),
        capabilities=frozenset({"background_exec", "filesystem_write"}),
        side_effect="process",
        durability="persistent",
        execution="background_job",
        approval="background",
    )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        call = await self._allowed(context, input)
        _background(context)
        limit = context.policy.max_command_timeout_s
        timeout_s = min(call.timeout_s or limit, limit)
        return await prepared(self.spec, context, call, timeout_s=timeout_s, is_background=True)

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        call = await self._allowed(context, input)
        task = await context.start_background_task(call.command, timeout_s=call.timeout_s, cwd=call.cwd)
        return ToolOutput(
            f"started {task.id}: {titled(task.command)}",
            summary=f"run {titled(task.command)} in the background as {task.id}",
            details={"task_id": task.id},
        )

    async def _allowed(self, context: ToolContext, input: dict[str, Json]) -> ShellCall:
        context.policy.require_background()
        return await read_call(self.spec, context, input)


class CheckBackgroundTool:
    """Tells how background tasks are doing."""

    spec = ToolSpec(
        name="check_background",
        description=(
            "Show the background tasks, one a line; or with `task_id` one task and what it has printed so far."
        ),
        input_schema={
            "type": "object",
            "properties": {"task_id": {"type": "string", "description": "One task. Default: all of them."}},
        },
        capabilities=frozenset({"read_only"}),
        execution="read_only_parallel",
        approval="read_only",
    )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        return default_preparation(self.spec, input)

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        background = _background(context)
        if input.get("task_id") is not None:
            task_id = string(input, "task_id")
            task = background.get(task_id)
            printed = background.output(task_id).rstrip("\n")
            return ToolOutput(f"{_line(task)}\n{printed or '(no output)'}", summary=f"{task_id}: {task.status}")
        lines = [_line(task) for task in background.tasks()]
        return ToolOutput("\n".join(lines) or "(no background tasks)", summary=f"{len(lines)} background tasks")


def _background(context: ToolContext) -> AgentBackground:
    if context.background is None:
        raise ToolError("there is no background here to run commands in")
    return context.background


def _line(task: BackgroundTask) -> str:
    how = f" ({task.outcome})" if task.outcome is not None else ""
    return f"{task.id} {task.status}{how}: {titled(task.command)}"
