"""Sample repositories and workspaces for tests: small, real, in a temporary directory.

Owns how a test lays out a repository and opens it without seeing anything above or beside it.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from basis_daemon.workspace.agents_md import ContextConfig

if TYPE_CHECKING:
    from basis_daemon.workspace.builder import WorkspaceBuilder

CALCULATOR = "def add(a, b):\n    return a - b\n"


def write_files(root: Path, files: Mapping[str, str | dict[str, object]]) -> Path:
    """Write `files` below `root`, which is created; a dict is written as JSON. Returns `root`."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return root


def sample_repository(root: Path, files: Mapping[str, str | dict[str, object]] | None = None) -> Path:
    """A repository with a README, a module with a mistake in it, and whatever `files` adds."""
    sample: dict[str, str | dict[str, object]] = {
        "README.md": "# Calculator\n\nAdds numbers.\n",
        "calculator.py": CALCULATOR,
        "AGENTS.md": "Run the tests before saying that something works.\n",
    }
    return write_files(root, {**sample, **(files or {})})


def git_repository(root: Path, files: Mapping[str, str | dict[str, object]] | None = None) -> Path:
    """`sample_repository`, committed to git. Blocking; for use outside the loop."""
    sample_repository(root, files)
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "A start")):
        subprocess.run(["git", *command], cwd=root, check=True, capture_output=True)
    return root


def bounded(builder: "WorkspaceBuilder", environment: Mapping[str, str] | None = None) -> "WorkspaceBuilder":
    """`builder` so that it sees nothing above the repository, no global directory, and only `environment`."""
    return (
        builder.with_context(ContextConfig(walk_parents=False))
        .with_global_dir(None)
        .with_environment({"PATH": "/usr/local/bin:/usr/bin:/bin", **(environment or {})})
    )
