"""The tools that search: `grep` and `glob` (runtime.md 4.10).

Owns their inputs and how results are shown. What is looked at: `walk.py`; how lines are found: `grep_scan.py`.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools import editorconfig, text_files
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    InputSchema,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSpec,
    default_preparation,
)
from basis_daemon.runtime.tools.globs import PathGlob
from basis_daemon.runtime.tools.grep_run import find
from basis_daemon.runtime.tools.grep_scan import Found, Search, Tally
from basis_daemon.runtime.tools.inputs import PATH_ALIASES, flag, integer, printable, shown, spelled, string
from basis_daemon.runtime.tools.threads import Stop, in_thread
from basis_daemon.runtime.tools.walk import Files, files_below

MAX_RESULTS = 2000
MAX_CONTEXT_LINES = 20
MAX_PATTERN_CHARS = 10_000

_SEARCH_FIELDS = {
    "path": {"type": "string", "description": "Directory or file. Default: the working directory."},
    "include_ignored": {"type": "boolean", "description": "Look at hidden and ignored files too. Default false."},
    "limit": {"type": "integer", "description": "Results to show. Default 200."},
}


_NOTHING: Mapping[Path, str | None] = MappingProxyType({})


class GrepTool:
    """Finds lines that match an expression."""

    spec = ToolSpec(
        name="grep",
        description=(
            "Search file contents with a Python regular expression. Results come as `path:line: text`, lines around "
            "them as `path-line- text`. Hidden and ignored files and links are left out."
        ),
        input_schema=InputSchema(
            {
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "Regular expression, matched line by line."},
                    "glob": {
                        "type": "string",
                        "description": "Only files that match, e.g. `*.py` or `src/**/*.{ts,tsx}`.",
                    },
                    "ignore_case": {"type": "boolean"},
                    "literal": {"type": "boolean", "description": "Take the pattern as plain text."},
                    "context": {"type": "integer", "description": "Lines to show around each match. Default 0."},
                    "multiline": {
                        "type": "boolean",
                        "description": "Let a match run over several lines; `.` takes newlines.",
                    },
                    **_SEARCH_FIELDS,
                },
                "required": ["pattern"],
            },
            spelled(
                {**PATH_ALIASES, "ignoreCase": "ignore_case", "includeIgnored": "include_ignored"},
                integers=frozenset({"context", "limit"}),
            ),
        ),
        capabilities=frozenset({"read_only", "filesystem_read"}),
        execution="read_only_parallel",
        approval="read_only",
    )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        return default_preparation(self.spec, _canonical(self.spec, input))

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        return await grep(context, _canonical(self.spec, input))


async def grep(
    context: ToolContext, fields: dict[str, Json], changed: Mapping[Path, str | None] = _NOTHING
) -> ToolOutput:
    """Search as the canonical `fields` of a call say, taking `changed` for what is on disk: texts of files by canonical
    path, `None` for one that is gone. Raises `ToolError`, `PolicyDenied`."""
    pattern = string(fields, "pattern")
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(f"pattern: longer than {MAX_PATTERN_CHARS} characters")
    wanted = PathGlob(string(fields, "glob")) if fields.get("glob") else None
    files = await _files(context, fields, changed)
    search = Search(
        pattern=pattern,
        paths=[],
        literal=flag(fields, "literal"),
        ignore_case=flag(fields, "ignore_case"),
        multiline=flag(fields, "multiline"),
        context=integer(fields, "context", 0, at_least=0, at_most=MAX_CONTEXT_LINES),
        limit=integer(fields, "limit", 200, at_most=MAX_RESULTS),
        max_file_bytes=text_files.MAX_FILE_BYTES,
    )
    await in_thread(lambda stop: _add_candidates(search, files, wanted, context, changed, stop))
    found, tally, notes = await find(search)
    return _grep_output(search, found, [*_tally_notes(tally, search), *notes, *_walk_notes(files)], context)


class GlobTool:
    """Finds files by their names."""

    spec = ToolSpec(
        name="glob",
        description=(
            "Find files by a path glob: `*` within a name, `**` across directories, `{a,b}` and `[…]`. A pattern "
            "without `/` matches names anywhere. Hidden and ignored files and links are left out."
        ),
        input_schema=InputSchema(
            {
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "Glob, e.g. `*.py` or `src/**/test_*.ts`."},
                    **_SEARCH_FIELDS,
                },
                "required": ["pattern"],
            },
            spelled({**PATH_ALIASES, "includeIgnored": "include_ignored"}, integers=frozenset({"limit"})),
        ),
        capabilities=frozenset({"read_only", "filesystem_read"}),
        execution="read_only_parallel",
        approval="read_only",
    )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        return default_preparation(self.spec, _canonical(self.spec, input))

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        fields = _canonical(self.spec, input)
        pattern = string(fields, "pattern")
        limit = integer(fields, "limit", 200, at_most=MAX_RESULTS)
        files = await _files(context, fields)
        glob = PathGlob(pattern.removeprefix(files.root.rstrip("/") + "/"))
        return await in_thread(lambda stop: _glob_output(files, glob, limit, context, stop))


def _canonical(spec: ToolSpec, input: dict[str, Json]) -> dict[str, Json]:
    return spec.input_schema.canonical(input) if isinstance(spec.input_schema, InputSchema) else input


async def _files(context: ToolContext, fields: dict[str, Json], changed: Mapping[Path, str | None] = _NOTHING) -> Files:
    """What to look at: the one file that was named, or what is below the directory."""
    path = string(fields, "path", ".")
    target = await in_thread(lambda stop: context.policy.resolve_read(path, context.working_directory))
    if target in changed or await in_thread(lambda stop: os.path.isfile(target)):
        return Files(str(target.parent), [target.name])
    try:
        files = await files_below(target, context.environment, include_ignored=flag(fields, "include_ignored"))
    except FileNotFoundError as error:
        raise ToolError(f"there is no directory {target}") from error
    except OSError as error:
        raise text_files.refusal(target, error) from error
    present = [path for path, text in changed.items() if text is not None and path.is_relative_to(target)]
    if present:
        files.paths = sorted({*files.paths, *(str(path.relative_to(target)) for path in present)})
    return files


def _add_candidates(
    search: Search,
    files: Files,
    wanted: PathGlob | None,
    context: ToolContext,
    changed: Mapping[Path, str | None],
    stop: Stop,
) -> None:
    """The files to search, what an editor or this call has of them, and what the project says they are encoded in."""
    gone = {str(path) for path, text in changed.items() if text is None}
    paths = (os.path.join(files.root, path) for path in files.paths if wanted is None or wanted.matches(path))
    configured = editorconfig.Charsets()
    for path in paths:
        if path in gone:
            continue
        stop.check()
        index = len(search.paths)
        search.paths.append(path)
        text = changed.get(Path(path)) if changed else None
        text = context.overlay(Path(path)) if text is None else text
        if text is not None:
            search.texts[index] = text
        charset = configured.of(path)
        if charset is not None and not charset.startswith("utf-8"):
            search.charsets[index] = charset


def _grep_output(search: Search, found: list[Found], notes: list[str], context: ToolContext) -> ToolOutput:
    blocks = [_block(search, one, context.working_directory) for one in found]
    matches = sum(one.matches for one in found)
    separator = "\n--\n" if search.context else "\n"
    text = separator.join(blocks) or "(no matches)"
    files = "1 file" if len(found) == 1 else f"{len(found)} files"
    return ToolOutput("\n".join([text, *notes]), summary=f"grep {printable(search.pattern)}: {matches} in {files}")


def _block(search: Search, found: Found, base: Path) -> str:
    name = shown(search.paths[found.index], base)
    lines: list[str] = []
    previous: int | None = None
    for number, is_match, text in found.lines:
        if search.context and previous is not None and number > previous + 1:
            lines.append("--")
        lines.append(f"{name}:{number}: {text}" if is_match else f"{name}-{number}- {text}")
        previous = number
    return "\n".join(lines)


def _tally_notes(tally: Tally, search: Search) -> list[str]:
    limited = [f"[stopped at {search.limit} matches; narrow the search or raise `limit`]"] if tally.limited else []
    skipped = [
        f"{count} {what}"
        for count, what in (
            (tally.not_text, "not text"),
            (tally.unreadable, "unreadable"),
            (tally.too_large, f"larger than {search.max_file_bytes // 1024 // 1024} MiB"),
        )
        if count
    ]
    return [*limited, f"[files skipped: {', '.join(skipped)}]"] if skipped else limited


def _walk_notes(files: Files) -> list[str]:
    return [f"[only the first {len(files.paths)} files were looked at]"] if files.is_cut else []


def _glob_output(files: Files, glob: PathGlob, limit: int, context: ToolContext, stop: Stop) -> ToolOutput:
    lines: list[str] = []
    notes = _walk_notes(files)
    for path in files.paths:
        stop.check()
        # git also lists what is tracked but deleted, and its list is a moment old.
        if not glob.matches(path) or not _is_file(os.path.join(files.root, path)):
            continue
        if len(lines) == limit:
            notes.insert(0, f"[more files; the first {limit} are listed]")
            break
        lines.append(shown(os.path.join(files.root, path), context.working_directory))
    count = "1 file" if len(lines) == 1 else f"{len(lines)} files"
    return ToolOutput("\n".join([*(lines or ["(no files)"]), *notes]), summary=f"glob: {count}")


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
