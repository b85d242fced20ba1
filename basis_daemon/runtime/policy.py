"""Hard limits of the runtime itself: where builtin tools may read and write, whether commands may start, how much
output is kept (runtime.md 5). Not a sandbox: a command that runs can do what its user can.
"""

from dataclasses import dataclass, field
from pathlib import Path

from basis_daemon.errors import PolicyDenied


@dataclass(frozen=True, slots=True)
class RuntimePolicy:
    """A complete policy; sessions carry their own and it replaces, never merges with, the runtime's (RT-27)."""

    allow_shell: bool = False
    read_roots: tuple[Path, ...] = ()
    write_roots: tuple[Path, ...] = ()
    denied_write_roots: tuple[Path, ...] = ()
    writes_enabled: bool = True
    default_command_timeout_s: float = 30.0
    max_command_timeout_s: float = 30.0
    max_output_bytes_per_stream: int = 64 * 1024
    max_tool_result_bytes: int = 50 * 1024
    max_tool_result_lines: int = 2000
    shell_denied_reason: str = field(default="commands are switched off by this session's policy")

    def require_shell(self) -> None:
        """Raise `PolicyDenied` naming the switch when commands may not run (PO-2)."""
        if not self.allow_shell:
            raise PolicyDenied(self.shell_denied_reason)
