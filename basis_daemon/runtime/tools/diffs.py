"""Unified diffs for people: quick on large files, cut to what can be looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from basis_protocol.content import FileDiff

CONTEXT_LINES = 3
MAX_PATCH_BYTES = 64 * 1024
"""A longer patch is cut and marked `truncated`: nobody reads more in a question."""

MAX_WHOLE_TEXT_BYTES = 32 * 1024
"""Up to here the whole texts go along, so that an editor can show them side by side."""

MAX_COMPARED_PAIRS = 4_000_000
"""Lines before times lines after; matching more takes seconds, so they are shown as taken out and put in."""

Opcode = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one file and its size in lines."""

    diff: FileDiff
    added: int
    removed: int

    def __str__(self) -> str:
        return f"+{self.added} −{self.removed}"


def change(path: str, shown: str, old: str | None, new: str | None) -> Change:
    """The change from `old`, or from nothing, to `new`, or to nothing. `path` is absolute; `shown` stands in the
    patch's header."""
    before, after = _lines(old or ""), _lines(new or "")
    groups = _groups(before, after)
    header = [
        f"--- {'/dev/null' if old is None else 'a/' + shown}\n",
        f"+++ {'/dev/null' if new is None else 'b/' + shown}\n",
    ]
    body = [line for group in groups for line in _hunk(group, before, after)]
    patch, is_cut = _cut("".join(header + body)) if body else ("", False)
    whole = max(len(old or ""), len(new or "")) <= MAX_WHOLE_TEXT_BYTES
    return Change(
        diff=FileDiff(
            path=path,
            patch=patch,
            old=old if whole else None,
            new=new if whole else None,
            created=old is None and new is not None,
            truncated=is_cut,
        ),
        added=sum(j2 - j1 for group in groups for tag, _, _, j1, j2 in group if tag != "equal"),
        removed=sum(i2 - i1 for group in groups for tag, i1, i2, _, _ in group if tag != "equal"),
    )


def _lines(text: str) -> list[str]:
    """Lines with their ends. Only a newline ends a line here: other separators are part of the text."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _groups(before: Sequence[str], after: Sequence[str]) -> list[list[Opcode]]:
    """Opcodes as `difflib` gives them, in hunks, for the part that differs only."""
    start, end = _common_ends(before, after)
    if start == len(before) == len(after):
        return []
    first = max(start - CONTEXT_LINES, 0)
    old = before[first : len(before) - max(end - CONTEXT_LINES, 0)]
    new = after[first : len(after) - max(end - CONTEXT_LINES, 0)]
    if len(old) * len(new) > MAX_COMPARED_PAIRS:
        groups = [_replaced(len(old), len(new), start - first, min(end, CONTEXT_LINES))]
    else:
        groups = SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT_LINES)
    return [
        [(tag, i1 + first, i2 + first, j1 + first, j2 + first) for tag, i1, i2, j1, j2 in group] for group in groups
    ]


def _replaced(old: int, new: int, lead: int, trail: int) -> list[Opcode]:
    """One hunk that takes out and puts in everything between `lead` and `trail` lines that stay."""
    return [
        ("equal", 0, lead, 0, lead),
        ("replace", lead, old - trail, lead, new - trail),
        ("equal", old - trail, old, new - trail, new),
    ]


def _common_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines are the same at the start, and at the end without those."""
    shorter = min(len(before), len(after))
    start = next((index for index in range(shorter) if before[index] != after[index]), shorter)
    shorter -= start
    end = next((index for index in range(shorter) if before[-1 - index] != after[-1 - index]), shorter)
    return start, end


def _hunk(group: Sequence[Opcode], before: Sequence[str], after: Sequence[str]) -> list[str]:
    old, new = _range(group[0][1], group[-1][2]), _range(group[0][3], group[-1][4])
    lines = [f"@@ -{old} +{new} @@\n"]
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [_patch_line(" ", line) for line in before[i1:i2]]
        else:
            lines += [_patch_line("-", line) for line in before[i1:i2]]
            lines += [_patch_line("+", line) for line in after[j1:j2]]
    return lines


def _range(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + (length > 0)},{length}"


def _patch_line(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _cut(patch: str) -> tuple[str, bool]:
    data = patch.encode(errors="replace")
    if len(data) <= MAX_PATCH_BYTES:
        return patch, False
    kept = data[:MAX_PATCH_BYTES]
    return kept[: kept.rfind(b"\n") + 1].decode(errors="ignore") or kept.decode(errors="ignore"), True
