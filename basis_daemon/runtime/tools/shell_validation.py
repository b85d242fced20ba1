"""What a policy makes of a command's looks: nothing, a warning, or a refusal (runtime.md 5.4).

Owns the verdict; what a line seems to do is `classify.py`'s. As heuristic as that: a way to keep a well-meaning model
from harm, not a boundary.
"""

from dataclasses import dataclass
from typing import Literal

from basis_daemon.errors import PolicyDenied
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.classify import classify
from basis_protocol.content import Classification

CHANGES_STATE = frozenset(("write", "destructive", "process_management", "package_management", "system_admin"))
"""Intents that a policy which writes nothing has no use for (PO-20)."""


@dataclass(frozen=True, slots=True)
class ShellVerdict:
    """`block` is what enforcing refuses; `warn` is for whoever is asked or listens."""

    classification: Classification
    outcome: Literal["allow", "warn", "block"] = "allow"
    reason: str | None = None


def judge_command(command: str, policy: RuntimePolicy) -> ShellVerdict:
    """The verdict on a command under a policy (PO-18). Never raises; takes time in proportion to the line's length."""
    found = classify(command)
    if not policy.writes_enabled and found.intent in CHANGES_STATE:
        said = f"this session's policy is read-only, and the command reads as {found.intent.replace('_', ' ')}"
        return ShellVerdict(found, "block", said)
    if found.warnings:
        return ShellVerdict(found, "warn", "; ".join(found.warnings))
    if not policy.writes_enabled and found.intent != "read_only":
        said = f"this session's policy is read-only, and the command reads as {found.intent.replace('_', ' ')}"
        return ShellVerdict(found, "warn", said)
    return ShellVerdict(found)


def require_sound(verdict: ShellVerdict, policy: RuntimePolicy) -> None:
    """Raise `PolicyDenied` for a blocked command when the policy enforces its verdicts (PO-17)."""
    if policy.shell_validation == "enforce" and verdict.outcome == "block":
        raise PolicyDenied(f"the command is refused: {verdict.reason} (shell validation)")
