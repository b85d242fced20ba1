"""The tool `shell`: a command, waited for (BT-1, BT-2).

Owns how an outcome becomes a result. Workspaces offer `spawn` in its place.
"""

from basis_daemon.runtime import command_text
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import CallPreparation, ToolContext, ToolOutput, ToolSpec
from basis_daemon.runtime.tools.shell_calls import ShellCall, prepared, read_call, schema


class ShellTool:
    """Runs commands under the session's policy."""

    spec = ToolSpec(
        name="shell",
        description=(
            "Run a shell command and wait for its end. Standard input is empty; what it prints and its exit status "
            "come back. Commands run one at a time, and one that takes too long is ended."
        ),
        input_schema=schema("Milliseconds after which it is ended. Default and maximum are the session's."),
        capabilities=frozenset({"process_exec", "filesystem_write"}),
        side_effect="process",
        execution="exclusive_local_mutation",
        approval="process",
    )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        call = await self._allowed(context, input)
        timeout_s = min(
            call.timeout_s or context.policy.default_command_timeout_s, context.policy.max_command_timeout_s
        )
        return await prepared(self.spec, context, call, timeout_s=timeout_s, is_background=False)

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        call = await self._allowed(context, input)
        output = await context.run_command(call.command, timeout_s=call.timeout_s, cwd=call.cwd)
        return ToolOutput(
            command_text.rendered(output, always_labelled=True),
            is_error=not output.succeeded,
            summary=f"run {command_text.titled(call.command)}: {command_text.outcome(output)}",
            details={**command_text.details(output)},
        )

    async def _allowed(self, context: ToolContext, input: dict[str, Json]) -> ShellCall:
        context.policy.require_shell()
        return await read_call(self.spec, context, input)
