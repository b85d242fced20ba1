"""What a call of `shell` or `background_run` asks for, and what is shown of it before it runs (runtime.md 4.10).

Owns their common input and its checks, in the order of BT-1 and BT-2: refusals come before anybody is asked.
"""

from dataclasses import dataclass
from pathlib import Path

from basis_daemon.runtime.command_text import titled
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import CallPreparation, InputSchema, ToolContext, ToolError, ToolSpec
from basis_daemon.runtime.tools.inputs import integer, spelled, string
from basis_daemon.runtime.tools.shell_validation import ShellVerdict, judge_command, require_sound
from basis_daemon.runtime.tools.threads import in_thread
from basis_protocol.content import CommandPreview

MAX_COMMAND_BYTES = 128 * 1024
"""Linux takes no longer single argument."""

_VERDICTS = {"allow": "allow", "warn": "prompt", "block": "deny"}
"""A verdict as authorizers know it (PO-18)."""


def schema(timeout: str) -> InputSchema:
    """The input schema; `timeout` says what ends a command."""
    return InputSchema(
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command, as the shell takes it."},
                "workingDirectory": {
                    "type": "string",
                    "description": "Where to run it. Default: the working directory.",
                },
                "justification": {"type": "string", "description": "Why it is needed, for whoever is asked."},
                "timeoutMs": {"type": "integer", "description": timeout},
            },
            "required": ["command"],
        },
        spelled(
            {
                "cmd": "command",
                "cwd": "workingDirectory",
                "working_directory": "workingDirectory",
                "timeout_ms": "timeoutMs",
            },
            integers=frozenset({"timeoutMs"}),
        ),
    )


@dataclass(frozen=True, slots=True)
class ShellCall:
    command: str
    cwd: Path
    timeout_s: float | None
    justification: str | None


async def read_call(spec: ToolSpec, context: ToolContext, input: dict[str, Json]) -> ShellCall:
    """The call, with its working directory resolved. Raises `ToolError`, `PolicyDenied`."""
    fields = spec.input_schema.canonical(input) if isinstance(spec.input_schema, InputSchema) else input
    command = string(fields, "command")
    if not command.strip():
        raise ToolError("the command is empty; nothing was run")
    if "\0" in command:
        raise ToolError("the command holds a NUL character, which no command can be given")
    if len(command.encode(errors="replace")) > MAX_COMMAND_BYTES:
        raise ToolError(f"the command is longer than {MAX_COMMAND_BYTES} bytes; write a script and run that")
    given = fields.get("timeoutMs")
    justification = fields.get("justification")
    named = fields.get("workingDirectory")
    cwd = await context.resolve_working_directory(named if isinstance(named, str) else ".")
    return ShellCall(
        command=command,
        cwd=cwd,
        timeout_s=None if given is None else integer(fields, "timeoutMs", 1, at_most=10**9) / 1000,
        justification=justification if isinstance(justification, str) and justification.strip() else None,
    )


async def prepared(
    spec: ToolSpec, context: ToolContext, call: ShellCall, *, timeout_s: float, is_background: bool
) -> CallPreparation:
    """What would run, and what is thought of it (TL-27). Raises `PolicyDenied`."""
    verdict = await in_thread(lambda stop: judge_command(call.command, context.policy))
    require_sound(verdict, context.policy)
    structured: dict[str, Json] = {
        "kind": spec.name,
        "command": call.command,
        "working_directory": str(call.cwd),
        "timeout_ms": round(timeout_s * 1000),
        "background": is_background,
        "validation": _told(verdict, context),
    }
    if call.justification is not None:
        structured["justification"] = call.justification
    return CallPreparation(
        structured_input=structured,
        preview=CommandPreview(command=call.command, cwd=str(call.cwd), classification=verdict.classification),
        side_effect=spec.side_effect,
        execution=spec.execution,
        title=f"run {titled(call.command)}{' in the background' if is_background else ''}",
        covered="every command in the background" if is_background else "every command",
        command_key="command",
    )


def _told(verdict: ShellVerdict, context: ToolContext) -> dict[str, Json]:
    told: dict[str, Json] = {
        "mode": context.policy.shell_validation,
        "intent": verdict.classification.intent,
        "outcome": _VERDICTS[verdict.outcome],
    }
    return told if verdict.reason is None else {**told, "reason": verdict.reason}
