"""Which files of a directory a search looks at (BT-6).

Owns the ignore rules: inside a git work tree git says what is tracked or could be; elsewhere `.gitignore` and `.ignore`
files are read. Hidden entries and links are left out either way: a link's target is found at its own place, and nothing
leads out. Paths may be gone by the time they are used.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from basis_daemon.runtime.tools.git_files import listed_by_git
from basis_daemon.runtime.tools.nofollow import open_directory, open_regular_in
from basis_daemon.runtime.tools.threads import Stop, in_thread

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MAX_FILES = 200_000
"""Files after which a walk ends and says so."""

MAX_IGNORE_FILE_BYTES = 1024 * 1024


@dataclass
class Files:
    """Relative paths under `root`, sorted. `is_cut` tells that there are more."""

    root: str
    paths: list[str] = field(default_factory=list[str])
    is_cut: bool = False


async def files_below(root: Path, environment: Mapping[str, str], *, include_ignored: bool) -> Files:
    """Files a search of the directory `root` looks at. Raises `OSError` when it can't be listed."""
    if not include_ignored:
        listed = await listed_by_git(str(root), environment)
        if listed:
            return await in_thread(lambda stop: _filtered(str(root), listed))
    return await in_thread(lambda stop: _walked(str(root), stop, include_ignored=include_ignored))


def _filtered(root: str, listed: Iterable[str]) -> Files:
    """What git listed without hidden entries and what `.ignore` files leave out, which git doesn't know."""
    names = set(listed)
    rules: dict[str, GitIgnoreSpec] = {}
    for name in names:
        if name == ".ignore" or name.endswith("/.ignore"):
            directory = os.path.dirname(name)
            spec = _rules_in(os.path.join(root, directory), (".ignore",))
            if spec is not None:
                rules[directory] = spec
    visible = [name for name in names if not _is_hidden(name) and not (rules and _is_ignored(name, rules))]
    visible.sort()
    return Files(root, visible[:MAX_FILES], is_cut=len(visible) > MAX_FILES)


def _is_hidden(path: str) -> bool:
    return path.startswith(".") or "/." in path


def _walked(root: str, stop: Stop, *, include_ignored: bool) -> Files:
    files = Files(root)
    rules: dict[str, GitIgnoreSpec] = {}
    waiting = [""]
    while waiting:
        stop.check()
        directory = waiting.pop()
        try:
            names, directories = _listing(os.path.join(root, directory) if directory else root)
        except OSError:
            if not directory:
                raise
            continue
        prefix = directory + "/" if directory else ""
        if not include_ignored:
            spec = _rules_in(os.path.join(root, directory), (".gitignore", ".ignore"), among=names)
            if spec is not None:
                rules[directory] = spec
            names = [name for name in names if name[0] != "." and not _is_ignored(prefix + name, rules)]
            directories = [
                name for name in directories if name[0] != "." and not _is_ignored(f"{prefix}{name}/", rules)
            ]
        files.paths += [prefix + name for name in names]
        waiting += [prefix + name for name in directories if name != ".git"]
        if len(files.paths) > MAX_FILES:
            files.is_cut = True
            break
    files.paths = sorted(files.paths)[:MAX_FILES]
    return files


def _listing(directory: str) -> tuple[list[str], list[str]]:
    """Regular files and directories by name. Raises `OSError`."""
    files: list[str] = []
    directories: list[str] = []
    looked_up = open_directory(directory)
    try:
        listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=looked_up)
    finally:
        os.close(looked_up)
    try:
        with os.scandir(listing) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
    finally:
        os.close(listing)
    return files, directories


def _rules_in(directory: str, names: Sequence[str], among: Sequence[str] | None = None) -> "GitIgnoreSpec | None":
    """The ignore rules that stand in a directory, later files after earlier ones."""
    lines: list[str] = []
    for name in names:
        if among is None or name in among:
            lines += _lines_of(directory, name)
    if not lines:
        return None
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _lines_of(directory: str, name: str) -> list[str]:
    try:
        looked_up = open_directory(directory)
        try:
            descriptor = open_regular_in(looked_up, name)
        finally:
            os.close(looked_up)
    except OSError:
        return []
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        return file.read(MAX_IGNORE_FILE_BYTES).splitlines()


def _is_ignored(path: str, rules: Mapping[str, "GitIgnoreSpec"]) -> bool:
    """Whether the nearest rule that speaks about `path` ignores it. A path that ends in a slash is a directory."""
    for directory in _ancestors(path.rstrip("/")):
        spec = rules.get(directory)
        if spec is not None:
            verdict = spec.check_file(path[len(directory) + 1 :] if directory else path).include
            if verdict is not None:
                return verdict
    return False


def _ancestors(path: str) -> Iterator[str]:
    """The directories a relative path is in, nearest first; the last is the empty path."""
    while path:
        path = os.path.dirname(path)
        yield path
