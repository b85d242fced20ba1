"""How a command and its outcome read, for a model and for a person.

Owns the words only; every tool that runs commands uses them.
"""

from collections.abc import Mapping

from basis_daemon.processes import CommandOutput

TIMED_OUT_STATUS = 124
"""What is reported as exit status of a command that ran out of time (PO-12)."""

MAX_TITLE_CHARS = 120


def titled(command: str) -> str:
    """The command on one line, cut to what a title may hold."""
    first, *more = command.splitlines() or [""]
    is_cut = bool(more) or len(first) > MAX_TITLE_CHARS
    return f"{first[:MAX_TITLE_CHARS]}{' …' if is_cut else ''}"


def rendered(output: CommandOutput, *, always_labelled: bool = False) -> str:
    """The output as the model reads it: each stream by name, how it ended, and what of it is missing. A single stream
    of a command that succeeded stands bare unless `always_labelled`."""
    notes = [f"[{outcome(output)}]"] if not output.succeeded else []
    if output.note is not None:
        notes.append(f"[{output.note}]")
    streams = [(name, text) for name, text in (("stdout", output.stdout), ("stderr", output.stderr)) if text.strip()]
    if len(streams) == 1 and output.succeeded and not always_labelled:
        parts = [streams[0][1].rstrip("\n")]
    else:
        parts = [f"{name}:\n{text.rstrip(chr(10))}" for name, text in streams]
    return "\n".join([*(parts or ["(no output)"]), *notes])


def outcome(output: CommandOutput) -> str:
    took = f"after {output.duration_s:.1f} s"
    if output.timed_out:
        return f"timed out {took}; it was ended with everything it had started"
    if output.status is None:
        return f"ended by a signal {took}"
    return f"exit status {output.status} {took}"


def details(output: CommandOutput) -> Mapping[str, int | bool | None]:
    """What a host can show of an outcome (BT-1)."""
    return {
        "exit_code": TIMED_OUT_STATUS if output.timed_out else output.status,
        "timed_out": output.timed_out,
        "stdout_truncated": output.stdout_truncated,
        "stderr_truncated": output.stderr_truncated,
        "duration_ms": round(output.duration_s * 1000),
    }
