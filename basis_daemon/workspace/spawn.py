"""The tool `spawn`: the model's one door for having something else do a piece of work (workspace.md 7).

Owns the convention of its input, the order of refusals, and how a command's outcome reads. Runs nothing itself:
commands go to the session's executor or to that of the target named, and never from one to the other.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from basis_daemon.processes import Executor
from basis_daemon.runtime import command_text
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import CallPreparation, ToolContext, ToolError, ToolOutput, ToolSpec
from basis_daemon.runtime.tools.shell_validation import judge_command, require_sound
from basis_daemon.runtime.tools.threads import in_thread
from basis_protocol.content import CommandPreview

Mode = Literal["command", "agent"]

LOCAL = "local"
"""The target of a command that names none."""

_TARGETED = re.compile(r"(\S*)(.*)", re.DOTALL)
_TARGET_NAME = re.compile(r"[A-Za-z0-9_-]+")

_COMMANDS = (
    "Run a shell command. `input` is the command after an exclamation mark, as in `!make test`. It runs in the working "
    "directory with an empty standard input; its output and exit status come back. Commands run one at a time, and one "
    "that takes too long is ended."
)
_TARGETS = " `!@name command` runs it on a target instead: {names}."
_NO_DELEGATION = "tasks can't be handed to another agent here: do this work yourself, with commands and the other tools"


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """What an input asks for: a command, here or on a target, or a task for another agent."""

    mode: Mode
    body: str
    target: str = LOCAL


def parse_spawn(input: Json) -> SpawnRequest:
    """Read the prefixes (SP-1 to SP-4). Raises `ToolError` saying what is wrong and what would be right."""
    if not isinstance(input, str):
        raise ToolError(f"`input` must be a string such as `!make test`, got {type(input).__name__}")
    if "\0" in input:
        raise ToolError("the command holds a NUL character, which no command can be given")
    text = input.strip()
    if text.startswith("!@"):
        return _targeted(text[2:])
    if text.startswith("!") and not text.startswith("!!"):
        return SpawnRequest("command", _not_blank(text[1:], "there is no command after `!`"))
    # Only the first of two marks is the prefix: the task itself may begin with one.
    return SpawnRequest("agent", _not_blank(text.removeprefix("!"), "the input is empty; `!command` runs a command"))


def _targeted(text: str) -> SpawnRequest:
    found = _TARGETED.fullmatch(text)
    target, command = found.groups() if found else ("", "")
    if not target:
        raise ToolError("there is no target after `!@`; write `!@name command`, or `!command` to run it here")
    if _TARGET_NAME.fullmatch(target) is None:
        raise ToolError(f"{target!r} can't be a target's name: letters, digits, `_` and `-` only")
    if target == LOCAL:
        raise ToolError("there is no target `local`; write `!command` to run it here")
    return SpawnRequest("command", _not_blank(command, f"there is no command after `!@{target}`"), target)


def _not_blank(text: str, problem: str) -> str:
    if not text.strip():
        raise ToolError(problem)
    return text.strip()


class SpawnTool:
    """Runs commands. Tasks for other agents are refused: the limit on delegation is 0 (SP-19).

    `targets` are executors by name. What is registered is all there is: an unknown name never runs here (SP-9).
    """

    def __init__(self, targets: Mapping[str, Executor] = MappingProxyType({})) -> None:
        self._targets = dict(targets)
        names = ", ".join(sorted(self._targets))
        self.spec = ToolSpec(
            name="spawn",
            description=_COMMANDS + (_TARGETS.format(names=names) if names else ""),
            input_schema={
                "type": "object",
                "properties": {"input": {"type": "string", "description": "The command, after a `!`."}},
                "required": ["input"],
            },
            capabilities=frozenset({"process_exec", "filesystem_write"}),
            side_effect="process",
            execution="exclusive_local_mutation",
            approval="process",
        )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        """What would run, in the order of SP-7: refusals come before anybody is asked."""
        request = self._checked(input)
        cwd = context.working_directory
        policy = context.policy
        is_there, verdict = await in_thread(lambda stop: (os.path.isdir(cwd), judge_command(request.body, policy)))
        if not is_there:
            raise ToolError(f"the working directory {cwd} does not exist any more")
        policy.require_shell()
        require_sound(verdict, policy)
        return CallPreparation(
            structured_input={"mode": request.mode, "body": request.body, "cwd": str(cwd), "target": request.target},
            preview=CommandPreview(
                command=request.body,
                cwd=str(cwd),
                target=request.target,
                classification=verdict.classification,
            ),
            side_effect=self.spec.side_effect,
            execution=self.spec.execution,
            title=_title(request),
            remember_pattern=_same_kind(request),
            covered="every command" if request.target == LOCAL else f"every command on {request.target}",
            command_key="body",
        )

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        """Run the command. Parsed and checked again: the world may have moved while a person was thinking (SP-8)."""
        request = self._checked(input)
        if request.target == LOCAL:
            output = await context.run_command(request.body)
        else:
            elsewhere = replace(context, executor=self._targets[request.target])
            output = await elsewhere.run_command(request.body, target=request.target)
        return ToolOutput(
            content=command_text.rendered(output),
            is_error=not output.succeeded,
            summary=f"{_title(request)}: {command_text.outcome(output)}",
            details={**command_text.details(output)},
        )

    def _checked(self, input: dict[str, Json]) -> SpawnRequest:
        request = parse_spawn(input.get("input"))
        if request.target != LOCAL and request.target not in self._targets:
            known = ", ".join(sorted(self._targets))
            raise ToolError(f"there is no target {request.target!r}; registered: {known or 'none'}")
        if request.mode == "agent":
            raise ToolError(_NO_DELEGATION)
        return request


def _title(request: SpawnRequest) -> str:
    where = "" if request.target == LOCAL else f" on {request.target}"
    return f"run{where} {command_text.titled(request.body)}"


def _same_kind(request: SpawnRequest) -> str:
    """The pattern for any other command on the same target, and nothing else (AP-30)."""
    return f'{{"body":"*","cwd":"*","mode":"{request.mode}","target":"{request.target}"}}'
