"""The limit on what one tool result puts before the model (runtime.md 4.8).

Owns which part of a long text is shown. Keeping the whole is the caller's business.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy

SMALL_BYTES = 256
SMALL_LINES = 4
"""Below either there is no sense in two windows: everything goes to the head (TL-34)."""

MARKER_BYTES = 128
"""Set aside for the marker, so that a shortened text keeps to the limit."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """A result fit for the model. `is_cut` tells that this is not all of it."""

    text: str
    is_cut: bool = False


def shorten(content: Json, policy: RuntimePolicy, *, note: str = "") -> Shortened:
    """`content` within the policy's bytes and lines.

    A long text keeps its beginning and its end, at line boundaries, with a marker between that ends with `note`. Other
    JSON is kept whole or not at all: a fragment would mislead (TL-35).
    """
    if not isinstance(content, str):
        return _whole_or_marker(msgspec.json.encode(content).decode(), policy, note)
    if fits(content, policy):
        return Shortened(content)
    return Shortened(_windows(content, policy, note), is_cut=True)


def fits(text: str, policy: RuntimePolicy) -> bool:
    """Whether a text may stand before the model as it is."""
    return len(text.encode()) <= policy.max_tool_result_bytes and _count_lines(text) <= policy.max_tool_result_lines


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and text != "")


def _whole_or_marker(encoded: str, policy: RuntimePolicy, note: str) -> Shortened:
    if fits(encoded, policy):
        return Shortened(encoded)
    size = f"{len(encoded.encode())} bytes, {_count_lines(encoded)} lines"
    return Shortened(f"[truncated: structured result of {size} left out{_appended(note)}]", is_cut=True)


def _windows(text: str, policy: RuntimePolicy, note: str) -> str:
    lines = text.removesuffix("\n").split("\n")
    is_small = policy.max_tool_result_bytes < SMALL_BYTES or policy.max_tool_result_lines < SMALL_LINES
    reserved = 0 if is_small else MARKER_BYTES + len(note.encode())
    room = policy.max_tool_result_bytes - reserved
    head = _window(lines, room if is_small else room // 2, _share(policy, is_small))
    tail: list[str] = []
    if not is_small:
        rest = lines[len(head) :] or [lines[-1]]
        tail = _window((line[::-1] for line in reversed(rest)), room // 2, _share(policy, is_small))
        tail = [line[::-1] for line in reversed(tail)]
    shown = min(len(head) + len(tail), len(lines))
    marker = f"[truncated: showing {shown} of {len(lines)} lines; {len(text.encode())} bytes in all{_appended(note)}]"
    return "\n".join((*head, marker, *tail))


def _share(policy: RuntimePolicy, is_small: bool) -> int:
    return max(policy.max_tool_result_lines if is_small else policy.max_tool_result_lines // 2, 1)


def _window(lines: Iterable[str], max_bytes: int, max_lines: int) -> list[str]:
    """Whole lines from the start that fit; of a first line that doesn't, as many characters as fit."""
    window: list[str] = []
    left = max_bytes
    for line in lines:
        size = len(line.encode()) + 1
        if size > left or len(window) == max_lines:
            break
        window.append(line)
        left -= size
    else:
        return window
    if not window:
        window.append(_prefix(line, max_bytes))
    return window


def _prefix(line: str, max_bytes: int) -> str:
    return line[:max_bytes].encode()[:max_bytes].decode(errors="ignore")


def _appended(note: str) -> str:
    return f"; {note}" if note else ""
