"""The tools that look at files and directories: `read` and `ls` (runtime.md 4.10)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools import text_files
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    InputSchema,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSpec,
    default_preparation,
)
from basis_daemon.runtime.tools.inputs import PATH_ALIASES, integer, printable, shown, spelled, string
from basis_daemon.runtime.tools.nofollow import open_directory
from basis_daemon.runtime.tools.threads import Stop, in_thread

MAX_READ_LINES = 2000
MAX_LINE_CHARS = 2000
"""A longer line is shown in part: it is generated or data, and would push everything else out."""

NOTE_BYTES = 256
"""Set aside for the line that says how to read on, so that the limiter has nothing left to cut."""

MAX_DEPTH = 20
MAX_ENTRIES = 2000
MAX_SCANNED = 100_000
"""Entries of one directory that are sorted; a directory with more is listed in part."""


class ReadTool:
    """Shows lines of a text file, as an editor has it if it is open there with unsaved changes."""

    spec = ToolSpec(
        name="read",
        description=(
            "Read a text file. Lines come numbered as `L12: text`; the number and what stands before the text are not "
            "part of the file. Long files come in parts: use `offset` to read on."
        ),
        input_schema=InputSchema(
            {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "File, relative to the working directory or absolute."},
                    "offset": {"type": "integer", "description": "First line to show, from 1. Default 1."},
                    "limit": {"type": "integer", "description": f"Lines to show. Default {MAX_READ_LINES}."},
                },
                "required": ["path"],
            },
            spelled(PATH_ALIASES, integers=frozenset({"offset", "limit"})),
        ),
        capabilities=frozenset({"read_only", "filesystem_read"}),
        execution="read_only_parallel",
        approval="read_only",
    )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        return default_preparation(self.spec, _canonical(self.spec, input))

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        fields = _canonical(self.spec, input)
        path = string(fields, "path")
        offset = integer(fields, "offset", 1, at_most=10**9)
        limit = integer(fields, "limit", MAX_READ_LINES, at_most=10**6)
        return await in_thread(lambda stop: _read(context, path, offset, limit))


def _canonical(spec: ToolSpec, input: dict[str, Json]) -> dict[str, Json]:
    return spec.input_schema.canonical(input) if isinstance(spec.input_schema, InputSchema) else input


class NoFile(ToolError):
    """There is nothing to read."""

    kind = "no_file"


@dataclass(frozen=True, slots=True)
class FoundText:
    """A file as a reader sees it. `digest` is that of what is on disk; `notes` tell what is particular about it."""

    text: str
    digest: str
    notes: tuple[str, ...] = ()


def _read(context: ToolContext, path: str, offset: int, limit: int) -> ToolOutput:
    target = context.policy.resolve_read(path, context.working_directory)
    try:
        found = found_text(context, target)
    except NoFile:
        _note(context, target, text_files.ABSENT)
        raise
    _note(context, target, found.digest)
    name = shown(target, context.working_directory)
    lines, notes = numbered(found.text, offset, limit, name, context.policy.max_tool_result_bytes - NOTE_BYTES)
    count = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
    text = "\n".join([*(lines or ["(no lines)"]), *found.notes, *notes])
    return ToolOutput(text, summary=f"read {name}: {count}")


def _note(context: ToolContext, target: Path, digest: str) -> None:
    if context.files is not None:
        context.files.note(target, digest)


def found_text(context: ToolContext, target: Path) -> FoundText:
    """What is at a canonical path, unsaved changes included. Raises `NoFile`, and `ToolError` for what is no text."""
    stored = text_files.read(target)
    unsaved = context.overlay(target)
    digest = text_files.ABSENT if stored is None else stored.digest
    if unsaved is not None:
        return FoundText(unsaved, digest, ("[as an editor has it, with unsaved changes]",))
    if stored is None:
        raise NoFile(f"there is no file {target}")
    file = stored.decode(target)
    is_usual = file.text.isascii() or file.encoding.startswith("utf-")
    return FoundText(file.text, digest, () if is_usual else (f"[encoded as {file.encoding}]",))


def numbered(text: str, offset: int, limit: int, name: str, max_bytes: int) -> tuple[list[str], list[str]]:
    """Lines from `offset` on as they are shown, as many as fit, and what there is to say about the rest."""
    lines = text.removesuffix("\n").split("\n") if text else []
    if offset > max(len(lines), 1):
        raise ToolError(f"{name} has {len(lines)} lines; offset {offset} is past its end")
    page = _page(lines, offset, limit, max_bytes)
    end = offset - 1 + len(page)
    if end >= len(lines):
        return page, []
    return page, [f"[lines {offset} to {end} of {len(lines)}; read on with offset {end + 1}]"]


def _page(lines: list[str], offset: int, limit: int, max_bytes: int) -> list[str]:
    """Numbered lines from `offset` on that fit; always at least one."""
    page: list[str] = []
    left = max_bytes
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset):
        entry = f"L{number}: {_shortened(line.removesuffix(chr(13)))}"
        left -= len(entry.encode(errors="replace")) + 1
        if page and left < 0:
            break
        page.append(entry)
    return page


def _shortened(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]} [line of {len(line)} characters cut here]"


class LsTool:
    """Lists a directory, hidden and ignored entries included."""

    spec = ToolSpec(
        name="ls",
        description=(
            "List a directory with everything in it, hidden and ignored entries too. Entries come as `[dir] name`, "
            "`[file] name`, `[link] name -> target`."
        ),
        input_schema=InputSchema(
            {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Directory. Default: the working directory."},
                    "depth": {"type": "integer", "description": "Levels to descend. Default 1."},
                    "limit": {"type": "integer", "description": "Entries to list. Default 200."},
                },
            },
            spelled(PATH_ALIASES, integers=frozenset({"depth", "limit"})),
        ),
        capabilities=frozenset({"read_only", "filesystem_read"}),
        execution="read_only_parallel",
        approval="read_only",
    )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        return default_preparation(self.spec, _canonical(self.spec, input))

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        fields = _canonical(self.spec, input)
        path = string(fields, "path", ".")
        depth = integer(fields, "depth", 1, at_most=MAX_DEPTH)
        limit = integer(fields, "limit", 200, at_most=MAX_ENTRIES)
        return await in_thread(lambda stop: _list(context, path, depth, limit, stop))


def _list(context: ToolContext, path: str, depth: int, limit: int, stop: Stop) -> ToolOutput:
    target = context.policy.resolve_read(path, context.working_directory)
    lines = listed(target, depth, limit, stop)
    name = shown(target, context.working_directory)
    return ToolOutput("\n".join(lines) or "(no entries)", summary=f"list {name}: {len(lines)} entries")


_NOTHING: Mapping[Path, bool] = MappingProxyType({})


def listed(target: Path, depth: int, limit: int, stop: Stop, presence: Mapping[Path, bool] = _NOTHING) -> list[str]:
    """The entries of a directory as they are shown. `presence` of files is taken for what is on disk. Raises
    `ToolError`."""
    near = {path.relative_to(target).parts: there for path, there in presence.items() if path.is_relative_to(target)}
    found: list[_Entry] = []
    try:
        for entry in _entries(str(target), "", depth):
            stop.check()
            found.append(entry)
            if len(found) > limit + len(near):
                break
    except FileNotFoundError as error:
        if not any(near.values()):
            raise ToolError(f"there is no directory {target}") from error
    except NotADirectoryError as error:
        raise ToolError(f"{target} is not a directory; use read") from error
    except OSError as error:
        raise text_files.refusal(target, error) from error
    entries = _overlaid(found, near, depth) if near else found
    lines = [f"[{entry.kind}] {printable(entry.name + entry.note)}" for entry in entries[:limit]]
    return [*lines, f"[more entries; the first {limit} are listed]"] if len(entries) > limit else lines


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: str
    name: str
    note: str = ""


def _overlaid(found: Sequence[_Entry], near: Mapping[tuple[str, ...], bool], depth: int) -> list[_Entry]:
    """The entries without the files that are gone, and with those that have come and the directories they are in."""
    entries = {tuple(entry.name.split("/")): entry for entry in found}
    for parts, is_there in near.items():
        if not is_there:
            entries.pop(parts, None)
            continue
        for length in range(1, min(len(parts), depth) + 1):
            kind = "file" if length == len(parts) else "dir"
            entries.setdefault(parts[:length], _Entry(kind, "/".join(parts[:length])))
    return [entries[parts] for parts in sorted(entries)]


def _entries(directory: str, prefix: str, depth: int) -> Iterator[_Entry]:
    """Entries by name, each directory's content after it. Links are shown, never followed."""
    descriptor = open_directory(directory)
    try:
        # A descriptor opened only for look-ups can't be listed; this one can, and is the same directory.
        listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
        try:
            with os.scandir(listing) as scan:
                found = sorted((entry.name, _kind(entry)) for entry in islice(scan, MAX_SCANNED))
            links = {name: _link_target(name, listing) for name, kind in found if kind == "link"}
        finally:
            os.close(listing)
    finally:
        os.close(descriptor)
    for name, kind in found:
        yield _Entry(kind, prefix + name, links.get(name, ""))
        if kind == "dir" and depth > 1:
            try:
                yield from _entries(f"{directory}/{name}", f"{prefix}{name}/", depth - 1)
            except OSError:
                yield _Entry("unreadable", f"{prefix}{name}/")


def _kind(entry: "os.DirEntry[str]") -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "dir"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _link_target(name: str, directory: int) -> str:
    try:
        return f" -> {os.readlink(name, dir_fd=directory)}"
    except OSError:
        return ""
