"""Hard limits of the runtime itself: where builtin tools may read and write, whether commands may start, how much
output is kept (runtime.md 5). Not a sandbox: a command that runs can do what its user can.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from basis_daemon.errors import PolicyDenied
from basis_daemon.runtime.path_rules import canonical, is_within

ShellValidation = Literal["off", "warn", "enforce"]

ENV_ALLOWLIST = ("PATH",) + (("PATHEXT", "SystemRoot", "COMSPEC", "TEMP", "TMP") if sys.platform == "win32" else ())
"""Variables without which no command starts."""

SHELL_POSTURE_DENIED = (
    "commands are refused: the shell posture of this workspace is `denied`. File tools keep working; "
    "say what you would have run if it matters."
)


@dataclass(frozen=True, slots=True)
class PathScope:
    """A set of canonical roots, worked out once for many checks."""

    roots: tuple[Path, ...]

    def admits(self, path: Path) -> bool:
        """Whether a canonical path lies in one of the roots."""
        return any(is_within(path, root) for root in self.roots)

    def __str__(self) -> str:
        return ", ".join(map(str, self.roots))


@dataclass(frozen=True, slots=True)
class RuntimePolicy:
    """A complete policy; sessions carry their own and it replaces, never merges with, the runtime's (RT-27).

    The base directory of the agent is always readable, and writable unless writing is off (PO-1). Relative roots are
    made absolute when the policy is made (PO-8).
    """

    allow_shell: bool = False
    allow_background: bool = False
    """Whether commands may go on after their call; they need the shell switch as well (PO-2)."""
    working_roots: tuple[Path, ...] = ()
    """Where commands may be told to run, besides the base directory (PO-10)."""
    read_roots: tuple[Path, ...] = ()
    write_roots: tuple[Path, ...] = ()
    denied_write_roots: tuple[Path, ...] = ()
    """Checked before everything that allows; binds the file tools only (PO-3)."""
    writes_enabled: bool = True
    default_command_timeout_s: float = 30.0
    max_command_timeout_s: float = 30.0
    max_background_tasks: int = 8
    """Commands one agent may have running in the background."""
    env_allowlist: tuple[str, ...] = ENV_ALLOWLIST
    """Variables of this process's own environment that commands get where their session's snapshot has none (PO-11)."""
    shell_validation: ShellValidation = "off"
    """What is done about a command that reads as harmful: it is shown; observers are told; it is refused (PO-17)."""
    max_output_bytes_per_stream: int = 64 * 1024
    max_tool_result_bytes: int = 50 * 1024
    max_tool_result_lines: int = 2000
    spill_full_tool_output: bool = True
    """Whether the whole of a shortened result is kept in a file (TL-36)."""
    shell_denied_reason: str = field(
        default="commands are switched off by this session's policy (allow_shell_commands)"
    )

    def __post_init__(self) -> None:
        for name in ("working_roots", "read_roots", "write_roots", "denied_write_roots"):
            roots: Sequence[Path] = getattr(self, name)
            object.__setattr__(self, name, tuple(root if root.is_absolute() else root.absolute() for root in roots))

    @classmethod
    def workspace_bounded(cls, root: Path, *, allow_shell: bool = False) -> "RuntimePolicy":
        """Files of one workspace, but for what git runs or obeys (GT-1); commands only if the host says so (PO-5)."""
        return cls(
            allow_shell=allow_shell,
            working_roots=(root,),
            read_roots=(root,),
            write_roots=(root,),
            denied_write_roots=(root / ".git" / "hooks", root / ".git" / "config"),
            default_command_timeout_s=120.0,
            max_command_timeout_s=600.0,
            shell_denied_reason=SHELL_POSTURE_DENIED,
        )

    @classmethod
    def read_only(cls, root: Path) -> "RuntimePolicy":
        """Files of one workspace, to look at: nothing is written and no command runs (PO-1)."""
        return cls(working_roots=(root,), read_roots=(root,), writes_enabled=False)

    @classmethod
    def permissive(cls) -> "RuntimePolicy":
        """Commands run, in the background too; file tools stay in the base directory."""
        return cls(allow_shell=True, allow_background=True)

    def require_shell(self) -> None:
        """Raise `PolicyDenied` naming the switch when commands may not run (PO-2)."""
        if not self.allow_shell:
            raise PolicyDenied(self.shell_denied_reason)

    def require_background(self) -> None:
        """Raise `PolicyDenied` naming the switch when commands may not run in the background (PO-2)."""
        self.require_shell()
        if not self.allow_background:
            raise PolicyDenied(
                "commands in the background are switched off by this session's policy (allow_background_commands)"
            )

    def resolve_working_directory(self, path: str | Path, base: Path) -> Path:
        """The canonical directory a command is to run in, relative to `base` (PO-10). Raises `PolicyDenied`.

        Blocking: use a thread.
        """
        target = canonical(path, base)
        scope = PathScope(self._canonical_roots(self.working_roots, base))
        if not scope.admits(target):
            raise PolicyDenied(f"running commands in {target} is refused: it is outside the working roots ({scope})")
        return target

    def command_environment(self, snapshot: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a command: the session's snapshot, and of this process only what is listed."""
        listed = {name: os.environ[name] for name in self.env_allowlist if name in os.environ}
        return {**listed, **snapshot}

    def resolve_read(self, path: str | Path, base: Path) -> Path:
        """The canonical path to read, relative to `base`. Raises `PolicyDenied`. Blocking: use a thread."""
        target = canonical(path, base)
        scope = self.read_scope(base)
        if not scope.admits(target):
            raise PolicyDenied(f"reading {target} is refused: it is outside the read roots ({scope})")
        return target

    def resolve_write(self, path: str | Path, base: Path) -> Path:
        """The canonical path to write, relative to `base`. Raises `PolicyDenied`. Blocking: use a thread."""
        target = canonical(path, base)
        if not self.writes_enabled:
            raise PolicyDenied(f"writing {target} is refused: this session's policy is read-only")
        for root in self.denied_write_roots:
            # Case is folded everywhere here: a refusal too many costs nothing, and git itself folds it.
            if is_within(target, canonical(root, base), fold_case=True):
                raise PolicyDenied(f"writing {target} is refused: {root} is a denied write root")
        scope = PathScope(self._canonical_roots(self.write_roots, base))
        if not scope.admits(target):
            raise PolicyDenied(f"writing {target} is refused: it is outside the write roots ({scope})")
        return target

    def read_scope(self, base: Path) -> PathScope:
        """Where files may be read, for checking many of them. Blocking: use a thread."""
        return PathScope(self._canonical_roots(self.read_roots, base))

    def _canonical_roots(self, roots: Sequence[Path], base: Path) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(canonical(root, base) for root in (*roots, base)))

    def allow_shell_commands(self, allow: bool = True) -> "RuntimePolicy":
        """This policy with commands switched on or off."""
        return replace(self, allow_shell=allow)

    def allow_background_commands(self, allow: bool = True) -> "RuntimePolicy":
        return replace(self, allow_background=allow)

    def with_shell_validation(self, mode: ShellValidation) -> "RuntimePolicy":
        return replace(self, shell_validation=mode)

    def with_allowed_working_root(self, root: Path) -> "RuntimePolicy":
        return replace(self, working_roots=(*self.working_roots, root))

    def with_allowed_env_var(self, name: str) -> "RuntimePolicy":
        """Let commands have a variable of this process's own environment."""
        return replace(self, env_allowlist=(*self.env_allowlist, name))

    def with_max_background_tasks(self, count: int) -> "RuntimePolicy":
        return replace(self, max_background_tasks=count)

    def with_allowed_read_root(self, root: Path) -> "RuntimePolicy":
        return replace(self, read_roots=(*self.read_roots, root))

    def with_allowed_write_root(self, root: Path) -> "RuntimePolicy":
        return replace(self, write_roots=(*self.write_roots, root))

    def with_denied_write_root(self, root: Path) -> "RuntimePolicy":
        """Take a path out of every write root (PO-3). Hygiene, not a boundary: commands can still write."""
        return replace(self, denied_write_roots=(*self.denied_write_roots, root))

    def with_default_command_timeout(self, seconds: float) -> "RuntimePolicy":
        return replace(self, default_command_timeout_s=seconds)

    def with_max_command_timeout(self, seconds: float) -> "RuntimePolicy":
        return replace(self, max_command_timeout_s=seconds)

    def with_command_timeout(self, seconds: float) -> "RuntimePolicy":
        """Default and ceiling alike."""
        return replace(self, default_command_timeout_s=seconds, max_command_timeout_s=seconds)

    def with_max_output_bytes_per_stream(self, count: int) -> "RuntimePolicy":
        return replace(self, max_output_bytes_per_stream=count)

    def with_max_tool_result_bytes(self, count: int) -> "RuntimePolicy":
        return replace(self, max_tool_result_bytes=count)

    def with_max_tool_result_lines(self, count: int) -> "RuntimePolicy":
        return replace(self, max_tool_result_lines=count)

    def with_spilled_tool_output(self, keep: bool) -> "RuntimePolicy":
        """Whether the whole of a shortened result is kept in a file."""
        return replace(self, spill_full_tool_output=keep)
