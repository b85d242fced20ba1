"""Long results in pages: the first one in the conversation, the others through `read_tool_result` (runtime.md 4.9).

Owns the pages of one agent, in memory, for as long as its session lives, and how a page reads. A page holds whole
lines; of a line longer than a page it shows the beginning and says so.
"""

import threading
from dataclasses import dataclass

from basis_daemon.errors import UsageError
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSpec,
    default_preparation,
)
from basis_daemon.runtime.tools.inputs import integer, string

MAX_KEPT = 200
MAX_KEPT_BYTES = 64 << 20
"""Beyond either the oldest results of an agent go."""

RAISED_BYTES = 8 << 20
"""What one result may be where it is handed out in pages (TL-39)."""

END = "…[end of result]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultPaging:
    """How long a text result may be before it is paged, and how long a page is. Bytes of UTF-8."""

    threshold_bytes: int = 64 * 1024
    page_bytes: int = 32 * 1024

    def __post_init__(self) -> None:
        if self.page_bytes < 1 or self.threshold_bytes < 0:
            raise UsageError("a page has at least 1 byte, and a threshold is not negative")


class Pager:
    """The long results of one agent. Thread-safe."""

    def __init__(self, paging: ToolResultPaging | None = None) -> None:
        self.paging = paging or ToolResultPaging()
        self._lock = threading.Lock()
        self._kept: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}

    def first_page(self, tool_use_id: str, text: str) -> str:
        """`text` as it enters the conversation: itself, or its first page when it is longer than the threshold."""
        size = len(text.encode())
        if size <= self.paging.threshold_bytes:
            return text
        lines = text.removesuffix("\n").encode().split(b"\n")
        self._keep(tool_use_id, lines, size)
        return _page(tool_use_id, lines, 1, self.paging.page_bytes, size)

    def page(self, tool_use_id: str, start_line: int) -> str:
        """The page that begins at `start_line`, from 1. Raises `ToolError` for a result that is not kept."""
        with self._lock:
            lines = self._kept.get(tool_use_id)
            size = self._sizes.get(tool_use_id, 0)
        if lines is None:
            raise ToolError(
                f"no long result of a call {tool_use_id!r} is kept here; calls can be repeated if it is needed again"
            )
        return _page(tool_use_id, lines, start_line, self.paging.page_bytes, size)

    def adopt(self, other: "Pager") -> None:
        """Have the results of another pager as well, which nobody uses any more."""
        for tool_use_id, lines in other._kept.items():
            self._keep(tool_use_id, lines, other._sizes[tool_use_id])

    def _keep(self, tool_use_id: str, lines: list[bytes], size: int) -> None:
        with self._lock:
            self._kept.pop(tool_use_id, None)
            self._kept[tool_use_id], self._sizes[tool_use_id] = lines, size
            while len(self._kept) > 1 and (len(self._kept) > MAX_KEPT or sum(self._sizes.values()) > MAX_KEPT_BYTES):
                oldest = next(iter(self._kept))
                del self._kept[oldest], self._sizes[oldest]


class ReadToolResult:
    """`read_tool_result`, for exactly the agent whose pager it has (TL-38)."""

    spec = ToolSpec(
        name="read_tool_result",
        description=(
            "Read on in a long tool result that was shown in part. The note at the end of each part names the call and "
            "the line to go on with."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "tool_use_id": {"type": "string", "description": "The call whose result is read, as the note has it."},
                "start_line": {"type": "integer", "description": "First line to show, from 1."},
            },
            "required": ["tool_use_id", "start_line"],
            "additionalProperties": False,
        },
        capabilities=frozenset({"read_only"}),
        execution="read_only_parallel",
        approval="read_only",
    )

    def __init__(self, pager: Pager) -> None:
        self._pager = pager

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        return default_preparation(self.spec, input)

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        start_line = integer(_whole(input), "start_line", 1, at_most=10**12)
        return ToolOutput(self._pager.page(string(input, "tool_use_id"), start_line), keep_whole=True)


def _whole(input: dict[str, Json]) -> dict[str, Json]:
    """`10.0` is an integer (TL-15)."""
    line = input.get("start_line")
    return {"start_line": int(line) if isinstance(line, float) and line.is_integer() else line}


def _page(tool_use_id: str, lines: list[bytes], start: int, page_bytes: int, total_bytes: int) -> str:
    if start > len(lines):
        return END
    shown, end, used = _window(lines, start, page_bytes)
    if end >= len(lines):
        return f"{shown}\n{END}"
    where = f"lines {start:,}–{end:,} of {len(lines):,} ({_kib(used)} of {_kib(total_bytes)})"
    call = f'read_tool_result(tool_use_id="{tool_use_id}", start_line={end + 1})'
    return f"{shown}\n…[paged: {where}. Call {call} for the next window.]"


def _window(lines: list[bytes], start: int, page_bytes: int) -> tuple[str, int, int]:
    """The text of one page, its last line, and how many bytes of the result it shows."""
    first = lines[start - 1]
    if len(first) > page_bytes:
        beginning = first[:page_bytes].decode(errors="ignore")
        shown = len(beginning.encode())
        note = f"…[line {start:,} is longer than a page: {shown:,} of {len(first):,} bytes shown]"
        return f"{beginning}\n{note}", start, shown
    end, used = start, len(first)
    while end < len(lines) and used + 1 + len(lines[end]) <= page_bytes:
        used += 1 + len(lines[end])
        end += 1
    return b"\n".join(lines[start - 1 : end]).decode(), end, used


def _kib(size: int) -> str:
    return f"{size / 1024:,.1f} KB"
