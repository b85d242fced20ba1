"""What git says belongs to a directory: tracked files, and untracked ones that aren't ignored.

Owns how git is run: with nothing of the repository's own making (FP-11).
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from basis_daemon.processes import CommandNotStarted, run_program
from basis_daemon.runtime.tools.threads import in_thread

MAX_LISTED = 200_000
"""Files after which no further repository inside is looked into."""

GIT_TIMEOUT_S = 20.0
MAX_GIT_BYTES = 64 * 1024 * 1024
MAX_NESTED_REPOSITORIES = 100

GIT_OPTIONS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""A repository's own configuration must not get a program run by looking at it (FP-11)."""

KEPT_VARIABLES = ("PATH", "HOME", "XDG_CONFIG_HOME")
"""What git may see of the environment: where it is, and whose ignore rules and safe directories hold."""

_STAGED = re.compile(rb"([0-7]{6}) [0-9a-f]{40,64} [0-3]\t(.*)", re.DOTALL)


async def listed_by_git(root: str, environment: Mapping[str, str]) -> list[str]:
    """What git lists below `root`, repositories inside it included; nothing if it isn't in a work tree.

    Nothing also where everything is ignored: a directory that is searched on purpose is then walked.
    """
    git = await in_thread(lambda stop: _git_program(root, environment) if _is_in_work_tree(root) else None)
    if git is None:
        return []
    kept = {name: environment[name] for name in KEPT_VARIABLES if name in environment}
    env = {**kept, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    listed: list[str] = []
    waiting = [""]
    for _ in range(MAX_NESTED_REPOSITORIES):
        if not waiting or len(listed) > MAX_LISTED:
            break
        prefix = waiting.pop()
        output = await _run_git(git, os.path.join(root, prefix), env)
        if output is None:
            continue
        names, nested = _parsed(output)
        listed += [prefix + name for name in names]
        waiting += await _repositories(root, [prefix + name for name in nested])
    return listed


async def _repositories(root: str, directories: Sequence[str]) -> list[str]:
    if not directories:
        return []
    return await in_thread(lambda stop: [one for one in directories if _is_repository(root, one)])


async def _run_git(git: str, directory: str, env: Mapping[str, str]) -> bytes | None:
    argv = (git, *GIT_OPTIONS, "ls-files", "-z", "--stage", "--cached", "--others", "--exclude-standard")
    try:
        output = await run_program(
            argv, cwd=Path(directory), env=env, timeout_s=GIT_TIMEOUT_S, max_output_bytes=MAX_GIT_BYTES
        )
    except CommandNotStarted:
        return None
    return output.stdout if output.status == 0 else None


def _parsed(output: bytes) -> tuple[list[str], list[str]]:
    """Files, and directories that are repositories of their own, with a slash at the end. Links are left out."""
    files: list[str] = []
    nested: list[str] = []
    for entry in output.split(b"\0")[:-1]:
        staged = _STAGED.fullmatch(entry)
        mode, raw = (b"", entry) if staged is None else staged.groups()
        name = os.fsdecode(raw)
        if mode == b"160000":
            nested.append(name + "/")
        elif name.endswith("/"):
            nested.append(name)
        elif mode != b"120000":
            files.append(name)
    return files, nested


def _is_in_work_tree(directory: str) -> bool:
    while True:
        if os.path.lexists(os.path.join(directory, ".git")):
            return True
        parent = os.path.dirname(directory)
        if parent == directory:
            return False
        directory = parent


def _is_repository(root: str, relative: str) -> bool:
    """Whether a directory git named is one, checked out, and not a link to somewhere else by now."""
    directory = os.path.join(root, relative).rstrip("/")
    return os.path.realpath(directory) == directory and os.path.lexists(os.path.join(directory, ".git"))


def _git_program(root: str, environment: Mapping[str, str]) -> str | None:
    """The git on the workspace's PATH, unless it comes with the files that are searched."""
    directories = [
        entry
        for entry in environment.get("PATH", os.defpath).split(os.pathsep)
        if os.path.isabs(entry) and not (os.path.realpath(entry) + "/").startswith(root + "/")
    ]
    return shutil.which("git", path=os.pathsep.join(directories))
