"""The tools that search: `grep` and `glob` (runtime.md 4.10).

Owns their inputs and how results are shown. What is looked at: `walk.py`; how lines are found: `grep_scan.py`.
"""

import asyncio
import json
import os
import stat
import sys
from pathlib import Path

from basis_daemon.processes import CommandNotStarted, run_program
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools import grep_scan, nofollow, text_files
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
from basis_daemon.runtime.tools.grep_scan import Found, Search, Tally
from basis_daemon.runtime.tools.inputs import PATH_ALIASES, flag, integer, printable, shown, spelled, string
from basis_daemon.runtime.tools.threads import Stop, in_thread
from basis_daemon.runtime.tools.walk import Files, files_below

MAX_RESULTS = 2000
MAX_CONTEXT_LINES = 20
MAX_PATTERN_CHARS = 10_000

SCAN_TIMEOUT_S = 20.0
"""Seconds the search process has; what it found until then is shown."""

MAX_SCAN_BYTES = 32 * 1024 * 1024

_START_SCAN = (
    "import sys; sys.path.append(sys.argv[1]); import nofollow, grep_scan; grep_scan.main(nofollow.Opener().open)"
)
"""The search process: two files that need nothing but the standard library, and no site packages."""

_SEARCH_FIELDS = {
    "path": {"type": "string", "description": "Directory or file. Default: the working directory."},
    "include_ignored": {"type": "boolean", "description": "Look at hidden and ignored files too. Default false."},
    "limit": {"type": "integer", "description": "Results to show. Default 200."},
}


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
        fields = _canonical(self.spec, input)
        pattern = string(fields, "pattern")
        if len(pattern) > MAX_PATTERN_CHARS:
            raise ToolError(f"pattern: longer than {MAX_PATTERN_CHARS} characters")
        wanted = PathGlob(string(fields, "glob")) if fields.get("glob") else None
        files = await _files(context, fields)
        paths, texts = await in_thread(lambda stop: _candidates(files, wanted, context, stop))
        search = Search(
            pattern=pattern,
            paths=paths,
            texts=texts,
            literal=flag(fields, "literal"),
            ignore_case=flag(fields, "ignore_case"),
            multiline=flag(fields, "multiline"),
            context=integer(fields, "context", 0, at_least=0, at_most=MAX_CONTEXT_LINES),
            limit=integer(fields, "limit", 200, at_most=MAX_RESULTS),
            max_file_bytes=text_files.MAX_FILE_BYTES,
        )
        found, tally, notes = await (_scan_here(search) if grep_scan.is_tame(search) else _scan_apart(search))
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


async def _files(context: ToolContext, fields: dict[str, Json]) -> Files:
    """What to look at: the one file that was named, or what is below the directory."""
    path = string(fields, "path", ".")
    target = await in_thread(lambda stop: context.policy.resolve_read(path, context.working_directory))
    if await in_thread(lambda stop: os.path.isfile(target)):
        return Files(str(target.parent), [target.name])
    try:
        return await files_below(target, context.environment, include_ignored=flag(fields, "include_ignored"))
    except FileNotFoundError as error:
        raise ToolError(f"there is no directory {target}") from error
    except OSError as error:
        raise text_files.refusal(target, error) from error


def _candidates(
    files: Files, wanted: PathGlob | None, context: ToolContext, stop: Stop
) -> tuple[list[str], dict[int, str]]:
    """The files to search, and what an editor has of them."""
    paths = [os.path.join(files.root, path) for path in files.paths if wanted is None or wanted.matches(path)]
    texts: dict[int, str] = {}
    for index, path in enumerate(paths):
        stop.check()
        text = context.overlay(Path(path))
        if text is not None:
            texts[index] = text.replace("\r\n", "\n")
    return paths, texts


async def _scan_here(search: Search) -> tuple[list[Found], Tally, list[str]]:
    def scan(stop: Stop) -> tuple[list[Found], Tally, list[str]]:
        tally = Tally()
        opener = nofollow.Opener()
        try:
            found = list(grep_scan.scan(search, opener.open, tally, is_stopped=lambda: stop.is_set))
        except grep_scan.BAD_PATTERN as error:
            raise _bad_pattern(search, str(error)) from error
        finally:
            opener.close()
        return found, tally, []

    return await in_thread(scan)


async def _scan_apart(search: Search) -> tuple[list[Found], Tally, list[str]]:
    """The same in a process of its own, which can be ended while it matches."""
    request = await asyncio.to_thread(lambda: json.dumps(vars(search)).encode())
    try:
        output = await run_program(
            (sys.executable, "-I", "-S", "-c", _START_SCAN, os.path.dirname(grep_scan.__file__)),
            cwd=Path("/"),
            env={},
            stdin=request,
            timeout_s=SCAN_TIMEOUT_S,
            max_output_bytes=MAX_SCAN_BYTES,
        )
    except CommandNotStarted as error:
        raise ToolError(f"the search could not be started: {error}") from error
    found, tally, error = await asyncio.to_thread(grep_scan.parse, output.stdout)
    if error is not None:
        raise _bad_pattern(search, error)
    notes: list[str] = []
    if tally is None:
        if not output.timed_out and not output.is_cut:
            raise ToolError("the search ended before it was done; try a simpler pattern or a smaller directory")
        notes.append(
            f"[ended after {SCAN_TIMEOUT_S:g} s; there may be more]" if output.timed_out else "[there is more]"
        )
    return found, tally or Tally(), notes


def _bad_pattern(search: Search, reason: str) -> ToolError:
    return ToolError(
        f"pattern: {search.pattern!r} is no regular expression: {reason}. `literal` takes it as plain text."
    )


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
