"""The tool `load_skill`: instructions for a kind of work, read when they are needed (4.10).

Owns how a skill is handed to the model. There only while there are skills: see `skills.py` in the runtime.
"""

from basis_daemon.runtime.envelopes import envelope
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.skills import UnknownSkill
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSpec,
    default_preparation,
)
from basis_daemon.runtime.tools.inputs import string

NAME = "load_skill"


class LoadSkillTool:
    """Gives back a skill, whole whatever the limits (D-83)."""

    spec = ToolSpec(
        name=NAME,
        description="Read the instructions of a skill before you begin work of its kind.",
        input_schema={
            "type": "object",
            "properties": {"name": {"type": "string", "description": "One of the skills listed."}},
            "required": ["name"],
        },
        capabilities=frozenset({"skill_load", "read_only"}),
        execution="read_only_parallel",
        approval="read_only",
    )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        _body(context, string(input, "name"))
        return default_preparation(self.spec, input)

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        name = string(input, "name")
        text = envelope("skill", _body(context, name), name=name)
        return ToolOutput(text, summary=f"load skill {name}", keep_whole=True)


def _body(context: ToolContext, name: str) -> str:
    try:
        return context.load_skill(name)
    except UnknownSkill as error:
        raise ToolError(str(error)) from error
