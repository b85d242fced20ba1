"""Replaces passages of a text, leaving every other byte as it was (BT-7).

Pure: text in, text out. Owns matching, exact and forgiving, and line endings.
"""

import bisect
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import accumulate, islice, pairwise

from basis_daemon.runtime.tools.base import ToolError

MAX_FUZZY_CHARS = 2 * 1024 * 1024
"""Above this only exact matches are looked for: normalising takes a second per few megabytes."""

MAX_PASSAGES = 100_000
"""Places one edit may apply to. More is no edit a person could look at."""

MAX_COMPARED_PAIRS = 1_000_000
"""Lines of a passage before times after, up to which single kept lines are recognised inside it."""

_TO_ASCII = str.maketrans(
    {**dict.fromkeys("‘’‚‛′", "'"), **dict.fromkeys("“”„‟″", '"'), **dict.fromkeys("‐‑‒–—―−", "-")}
)


@dataclass(frozen=True, slots=True)
class Edit:
    """A passage to replace, once or `everywhere`. Line endings in both texts become those of the file."""

    old: str
    new: str
    everywhere: bool = False
    occurrence: int | None = None
    """Which of several places is meant, from 1."""


@dataclass(frozen=True, slots=True)
class _Span:
    """A passage found, as offsets into the text with plain newlines."""

    start: int
    end: int
    edit: Edit


def apply_edits(
    text: str, edits: Sequence[Edit], *, name: str = "old_string", else_set: str = "set replace_all"
) -> tuple[str, int]:
    """`text` with every edit made, and how many passages were replaced. All edits are matched against `text` as given.
    `name` is what the passage is called in the call, `else_set` what helps where it is ambiguous.

    Raises `ToolError` when a passage isn't found, is found more than once though wanted once, overlaps another, or when
    nothing would change.
    """
    source = _Source(text)
    spans: list[_Span] = []
    for number, edit in enumerate(edits, 1):
        which = name if len(edits) == 1 else f"{name} of edit {number}"
        spans += _find(source, replace(edit, old=_plain(edit.old), new=_plain(edit.new)), which, else_set)
    spans.sort(key=lambda span: span.start)
    for before, after in pairwise(spans):
        if after.start < before.end:
            raise ToolError(f"two edits overlap in line {source.line_number(after.start)}; make them one")
    result = source.replaced(spans)
    if result == text:
        raise ToolError("the edits change nothing")
    return result, len(spans)


def first_difference(old: str, new: str) -> int:
    """The number of the first line that differs, from 1."""
    before, after = old.split("\n"), new.split("\n")
    pairs = enumerate(zip(before, after, strict=False), 1)
    return next((number for number, (one, other) in pairs if one != other), min(len(before), len(after)) + 1)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


class _Source:
    """A text, the same with plain newlines, and the way back from one to the other."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = _plain(text)
        self._crlf = [match.start() - index for index, match in enumerate(re.finditer("\r\n", text))]
        """Where newlines in `plain` have a carriage return in `text`."""

    def line_number(self, offset: int) -> int:
        return self.plain.count("\n", 0, offset) + 1

    def replaced(self, spans: Sequence[_Span]) -> str:
        pieces: list[str] = []
        end = 0
        for span in spans:
            start = self._back(span.start)
            pieces += [self.text[end:start], self._replacement(span)]
            end = self._back(span.end)
        return "".join([*pieces, self.text[end:]])

    def _back(self, offset: int) -> int:
        return offset + bisect.bisect_left(self._crlf, offset)

    def _replacement(self, span: _Span) -> str:
        original = self.text[self._back(span.start) : self._back(span.end)]
        if original == span.edit.old and not self._crlf:
            return span.edit.new
        return _merged(original, span.edit, self._line_end_near(span))

    def _line_end_near(self, span: _Span) -> str:
        """How lines end where the passage stands: its own first line, else the line before."""
        newline = self.plain.find("\n", span.start)
        if newline < 0:
            newline = self.plain.rfind("\n", 0, span.start)
        index = bisect.bisect_left(self._crlf, newline)
        return "\r\n" if newline >= 0 and index < len(self._crlf) and self._crlf[index] == newline else "\n"


def _merged(original: str, edit: Edit, line_end: str) -> str:
    """The new passage, in which lines that the edit keeps are taken from `original`, byte for byte."""
    kept = original.split("\n")
    old, new = edit.old.split("\n"), edit.new.split("\n")
    pieces: list[str] = []
    for index, line in zip(_kept_lines(old, new), new, strict=True):
        is_last = len(pieces) == len(new) - 1
        if index is None:
            pieces.append(line if is_last else line + line_end.removesuffix("\n"))
        elif is_last and index < len(kept) - 1:
            pieces.append(kept[index].removesuffix("\r"))
        elif not is_last and index == len(kept) - 1:
            pieces.append(kept[index] + line_end.removesuffix("\n"))
        else:
            pieces.append(kept[index])
    return "\n".join(pieces)


def _kept_lines(old: Sequence[str], new: Sequence[str]) -> list[int | None]:
    """For each new line the old line it is, or `None`."""
    kept: list[int | None] = [None] * len(new)
    if len(old) * len(new) > MAX_COMPARED_PAIRS:
        return kept
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            kept[j1:j2] = range(i1, i2)
    return kept


def _find(source: _Source, edit: Edit, name: str, else_set: str) -> list[_Span]:
    if not edit.old:
        raise ToolError(f"{name} is empty; use write to create a file")
    if edit.old == edit.new:
        raise ToolError(f"{name} and its new_string are the same")
    places = islice(_occurrences(source.plain, edit.old, everywhere=edit.everywhere), MAX_PASSAGES + 1)
    spans = [_Span(start, start + len(edit.old), edit) for start in places]
    if not spans and len(source.plain) <= MAX_FUZZY_CHARS:
        spans = list(_fuzzy(source.plain, edit))
    if not spans:
        raise ToolError(f"{name} was not found{_near(source, edit)}")
    if len(spans) > MAX_PASSAGES:
        raise ToolError(f"{name} was found more than {MAX_PASSAGES} times; make it longer")
    if edit.occurrence is not None:
        if edit.occurrence > len(spans):
            times = "once" if len(spans) == 1 else f"{len(spans)} times"
            raise ToolError(f"{name} was found {times} only; there is no occurrence {edit.occurrence}")
        return [spans[edit.occurrence - 1]]
    if len(spans) > 1 and not edit.everywhere:
        lines = ", ".join(str(source.line_number(span.start)) for span in spans[:5])
        more = ", …" if len(spans) > 5 else ""
        raise ToolError(
            f"{name} was found {len(spans)} times (lines {lines}{more}); add surrounding lines to make it unique, or "
            f"{else_set}"
        )
    return spans


def _occurrences(text: str, passage: str, *, everywhere: bool) -> Iterator[int]:
    """Where `passage` stands; overlapping places count as ambiguous but can't all be replaced."""
    start = text.find(passage)
    while start >= 0:
        yield start
        start = text.find(passage, start + (len(passage) if everywhere else 1))


def _fuzzy(text: str, edit: Edit) -> Iterator[_Span]:
    """Whole lines that are the passage but for compatibility forms, typographic quotes and dashes, trailing blanks."""
    if edit.old.endswith("\n") and edit.new.endswith("\n"):
        # The last newline is in both: it stays as it is.
        edit = replace(edit, old=edit.old[:-1], new=edit.new[:-1])
    without_end = replace(edit, old=edit.old.removesuffix("\n"))
    wanted = [_normal(line) for line in without_end.old.split("\n")]
    if not any(wanted):
        return
    lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    normal = [_normal(line) for line in lines]
    index = 0
    while index <= len(lines) - len(wanted):
        end = index + len(wanted)
        if normal[index:end] != wanted:
            index += 1
            continue
        if edit.old.endswith("\n") and end < len(lines):
            yield _Span(starts[index], starts[end], edit)
        else:
            yield _Span(starts[index], starts[end] - 1, without_end)
        index = end


def _normal(line: str) -> str:
    return (line if line.isascii() else unicodedata.normalize("NFKC", line).translate(_TO_ASCII)).rstrip()


def _near(source: _Source, edit: Edit) -> str:
    """A hint where the passage may have been meant: a line that differs in its indentation only."""
    first = next((line.strip() for line in edit.old.split("\n") if line.strip()), "")
    for number, line in enumerate(source.plain.split("\n"), 1):
        if first and line.strip() == first:
            return f"; line {number} has its first line, but what follows or the indentation differs"
    return "; read the file and copy the passage exactly, without line numbers"
