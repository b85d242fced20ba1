"""The tool `task`: hand a piece of work to a subagent and read its answer (runtime.md 10.1).

Owns what the model is told of it. The subagent's life is the runtime's matter, reached through the call's context.
"""

from basis_daemon.errors import EmptyPrompt
from basis_daemon.runtime.delegation import SubagentTemplate
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import CallPreparation, ToolContext, ToolError, ToolOutput, ToolSpec
from basis_protocol.content import CallPreview

MAX_TITLE_CHARS = 120

NO_SUMMARY = "The subagent has finished and said nothing about it."


class TaskTool:
    """`task {prompt}`. Its calls run within the turn's bounds and end with it (CO-1, CO-6)."""

    spec = ToolSpec(
        name="task",
        description=(
            "Hand a self-contained piece of work to a subagent with the same tools and rules, and get back its final "
            "answer. It sees nothing of this conversation: say in `prompt` all it needs to know and what to report."
        ),
        input_schema={
            "type": "object",
            "properties": {"prompt": {"type": "string", "description": "The work to do, complete in itself."}},
            "required": ["prompt"],
            "additionalProperties": False,
        },
        capabilities=frozenset({"delegation"}),
        side_effect="local_state",
        execution="delegation",
        approval="delegation",
    )

    def __init__(self, template: SubagentTemplate | None = None) -> None:
        """With a `template` it works for the one agent that made it (CO-4)."""
        self._template = template

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        prompt = _prompt(input)
        if context.agent is None:
            raise ToolError("there is no agent here that could hand work on")
        context.agent.check_delegation()
        first, *more = prompt.splitlines()
        return CallPreparation(
            structured_input={"prompt": prompt},
            preview=CallPreview(input={"prompt": prompt}),
            side_effect=self.spec.side_effect,
            execution=self.spec.execution,
            title=f"hand on: {first[:MAX_TITLE_CHARS]}{' …' if more or len(first) > MAX_TITLE_CHARS else ''}",
        )

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        if context.agent is None:
            raise ToolError("there is no agent here that could hand work on")
        outcome = await context.agent.spawn_subagent(_prompt(input), template=self._template)
        details: Json = {"agent_id": outcome.agent_id, "status": outcome.status}
        if not outcome.succeeded:
            return ToolOutput(f"Subagent failed: {outcome.error or outcome.status}", is_error=True, details=details)
        return ToolOutput(outcome.text or NO_SUMMARY, details=details)


def _prompt(input: dict[str, Json]) -> str:
    prompt = input.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ToolError(str(EmptyPrompt()))
    return prompt.strip()
