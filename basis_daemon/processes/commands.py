"""What is asked of an executor and what it answers. Hosts may bring an executor of their own (PO-15)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from basis_daemon.errors import BasisError


class CommandNotStarted(BasisError):
    """The command could not be started at all: no such directory, an impossible argument, no processes left (PO-16)."""

    kind = "command_not_started"


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """One shell command. `env` is the whole environment of the child: nothing is inherited (protocol.md 6)."""

    command: str
    cwd: Path
    timeout_s: float
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    max_output_bytes_per_stream: int = 65536
    on_output: Callable[[str], None] | None = None
    """Called on the loop with `stdout: LINE` / `stderr: LINE` as lines arrive (SP-15)."""
    owner: str | None = None
    """Session the child belongs to."""
    what: str = "shell"
    target: str | None = None
    """Where to run it, by a name that an executor of the host knows; `None` is this machine (PO-15)."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """How a command ended. `status` is `None` when a signal or the timeout ended it."""

    stdout: str
    stderr: str
    status: int | None
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    duration_s: float = 0.0
    note: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.status == 0 and not self.timed_out


class Executor(Protocol):
    """Runs commands. Cancelling `run` ends the whole process tree before it returns (PO-12)."""

    async def run(self, request: CommandRequest) -> CommandOutput: ...
