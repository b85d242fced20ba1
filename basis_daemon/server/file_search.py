"""Paths of a repository that match what a person has typed after an `@`.

Owns the listing (git's, so ignored files stay out; a bounded walk elsewhere) and the order of matches. Reads no file.
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from basis_daemon.processes import CommandNotStarted, run_program

GIT_TIMEOUT_S = 10.0
MAX_LISTING_BYTES = 32 * 1024 * 1024
MAX_WALKED = 50_000
"""Files looked at where there is no git; a home directory opened by mistake must not be walked to its end."""

_GIT = (
    "git",
    # A repository's own configuration may name a program for either of these.
    *("-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false"),
    *("ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "-z"),
)
_SKIPPED = frozenset({"node_modules", "__pycache__", "target", "dist", "build"})


async def search(root: Path, query: str, limit: int) -> list[str]:
    """At most `limit` paths relative to `root`, best match first. An empty query gives the shallowest files."""
    listed = await _git_files(root)
    if listed is None:
        listed = await asyncio.to_thread(_walk, root)
    return await asyncio.to_thread(rank, listed, query, limit)


def rank(paths: Iterable[str], query: str, limit: int) -> list[str]:
    """The matches of `query`, best first: in the file's name before in its path, at its start before further in."""
    wanted = query.casefold().strip()
    scored = [(score, len(path), path) for path in paths if (score := _score(path.casefold(), wanted)) is not None]
    return [path for _, _, path in sorted(scored)[:limit]]


def _score(path: str, wanted: str) -> int | None:
    if not wanted:
        return path.count("/")
    name = path.rsplit("/", 1)[-1]
    if name.startswith(wanted):
        return 0
    if wanted in name:
        return 1
    if wanted in path:
        return 2
    return 3 if _has_in_order(path, wanted) else None


def _has_in_order(path: str, wanted: str) -> bool:
    rest = iter(path)
    return all(character in rest for character in wanted)


async def _git_files(root: Path) -> list[str] | None:
    """Files git knows or would know of; `None` where git is missing or this is no repository."""
    try:
        output = await run_program(
            _GIT,
            cwd=root,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "GIT_OPTIONAL_LOCKS": "0"},
            timeout_s=GIT_TIMEOUT_S,
            max_output_bytes=MAX_LISTING_BYTES,
        )
    except CommandNotStarted:
        return None
    if output.status != 0 and not output.is_cut:
        return None
    return [path for path in output.stdout.decode("utf-8", "surrogateescape").split("\0") if _is_text(path)]


def _is_text(path: str) -> bool:
    """Whether a path can be told to a client: one that isn't UTF-8 can't."""
    return bool(path) and path.isprintable()


def _walk(root: Path) -> list[str]:
    found: list[str] = []
    for directory, subdirectories, files in os.walk(root):
        subdirectories[:] = [name for name in subdirectories if not name.startswith(".") and name not in _SKIPPED]
        below = os.path.relpath(directory, root)
        found += [os.path.join(below, name) if below != "." else name for name in files if _is_text(name)]
        if len(found) > MAX_WALKED:
            break
    return found
