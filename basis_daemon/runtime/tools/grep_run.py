"""Carrying a search out where it can be stopped: in a thread, or apart for patterns that might never end.

Owns the choice, and the process and its limits. How lines are found: `grep_scan.py`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from basis_daemon.processes import CommandNotStarted, run_program
from basis_daemon.runtime.tools import charsets, grep_scan, nofollow
from basis_daemon.runtime.tools.grep_scan import Found, Search, Tally
from basis_daemon.runtime.tools.threads import Stop, in_thread
from basis_daemon.runtime.tools.tool_error import ToolError

SCAN_TIMEOUT_S = 20.0
"""Seconds the search process has; what it found until then is shown."""

MAX_SCAN_BYTES = 32 * 1024 * 1024

_START_SCAN = (
    "import sys; sys.path.append(sys.argv[1]); import charsets, nofollow, grep_scan; "
    "grep_scan.main(nofollow.Opener().open, charsets.text_of)"
)
"""The search process: three files that need nothing but the standard library, and no site packages."""


async def find(search: Search) -> tuple[list[Found], Tally, list[str]]:
    """What was found, what was left out, and what there is to say about it. Raises `ToolError` for a pattern that is
    none."""
    return await (_scan_here(search) if grep_scan.is_tame(search) else _scan_apart(search))


async def _scan_here(search: Search) -> tuple[list[Found], Tally, list[str]]:
    def scan(stop: Stop) -> tuple[list[Found], Tally, list[str]]:
        tally = Tally()
        opener = nofollow.Opener()
        try:
            found = list(grep_scan.scan(search, opener.open, charsets.text_of, tally, is_stopped=lambda: stop.is_set))
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
