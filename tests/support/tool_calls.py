"""Calling a tool the way the loop does, without a loop: check, prepare, execute."""

from dataclasses import dataclass, field
from pathlib import Path

from basis_daemon.processes import LocalExecutor
from basis_daemon.runtime.background import AgentBackground
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.base import CallPreparation, Tool, ToolContext, ToolOutput
from basis_daemon.runtime.tools.ledger import ReadLedger
from basis_daemon.runtime.tools.validate import validate_input


@dataclass
class Caller:
    """One agent in one directory. `unsaved` is editor text by path; `progress` what tools reported."""

    root: Path
    policy: RuntimePolicy | None = None
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/bin"})
    executor: LocalExecutor = field(default_factory=LocalExecutor)
    ledger: ReadLedger | None = field(default_factory=ReadLedger)
    unsaved: dict[Path, str] = field(default_factory=dict[Path, str])
    progress: list[str] = field(default_factory=list[str])
    background: AgentBackground | None = None

    def context(self, tool: Tool) -> ToolContext:
        return ToolContext(
            agent_id="agent-1",
            tool_call_id="call-1",
            tool_name=tool.spec.name,
            working_directory=self.root,
            policy=self.policy or RuntimePolicy.workspace_bounded(self.root, allow_shell=True),
            executor=self.executor,
            environment=self.environment,
            progress=self.progress.append,
            overlay=self.unsaved.get,
            files=self.ledger,
            background=self.background,
        )

    async def prepare(self, tool: Tool, **input: Json) -> CallPreparation:
        assert validate_input(tool.spec.input_schema, input) == []
        return await tool.prepare(self.context(tool), input)

    async def execute(self, tool: Tool, **input: Json) -> ToolOutput:
        """Only the second half, as after an answer that took its time."""
        return await tool.execute(self.context(tool), input)

    async def call(self, tool: Tool, **input: Json) -> ToolOutput:
        """The whole call, allowed at once."""
        await self.prepare(tool, **input)
        return await self.execute(tool, **input)

    async def text(self, tool: Tool, **input: Json) -> str:
        """What the model reads of a call."""
        output = await self.call(tool, **input)
        assert isinstance(output.content, str)
        return output.content
