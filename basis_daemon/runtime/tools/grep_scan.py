"""Finds lines in files. Runs in a worker thread, or as a process of its own for patterns that might never end.

A regular expression can take longer than the universe is old, and while it runs no other thread does. One that repeats
something is therefore matched in a process that can be ended. Few modules are imported here, and no `dataclasses`: the
process is started for every such search, and they would take longer than most searches.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator

MAX_LINE_CHARS = 500
"""A longer line is shown in part, round the match."""

MAX_TAME_BRANCHES = 4
"""Choices in an expression up to which it is still tame: each may double the work."""

MAX_SPANNED_LINES = 50
"""Lines shown of one match over several."""


class Search:
    """What to look for and where. `paths` are canonical; by index in them, `texts` stands for what is on disk, and
    `charsets` are encodings that somebody else than a file itself says it is in."""

    def __init__(
        self,
        pattern: str,
        paths: list[str],
        *,
        texts: dict[int, str] | None = None,
        charsets: dict[int, str] | None = None,
        literal: bool = False,
        ignore_case: bool = False,
        multiline: bool = False,
        context: int = 0,
        limit: int = 200,
        max_file_bytes: int = 10 * 1024 * 1024,
    ) -> None:
        self.pattern = pattern
        self.paths = paths
        self.texts = texts or {}
        self.charsets = charsets or {}
        self.literal = literal
        self.ignore_case = ignore_case
        self.multiline = multiline
        self.context = context
        self.limit = limit
        self.max_file_bytes = max_file_bytes


class Found:
    """What one file holds: `(line number, is a match, text)`, in order, and how many matches that are."""

    def __init__(self, index: int, lines: list[tuple[int, bool, str]], matches: int) -> None:
        self.index = index
        self.lines = lines
        self.matches = matches


class Tally:
    """What was left out and why, and whether the limit ended the search."""

    def __init__(self, not_text: int = 0, unreadable: int = 0, too_large: int = 0, limited: bool = False) -> None:
        self.not_text = not_text
        self.unreadable = unreadable
        self.too_large = too_large
        self.limited = limited


BAD_PATTERN = (re.error, RecursionError, OverflowError)
"""What `re` raises for an expression it can't take."""

OpenFile = Callable[[str], int]
"""Opens a canonical path for reading. Raises `OSError`, without a number for what is no regular file."""

ReadText = Callable[[bytes, str, str | None], str | None]
"""The text of a file from its bytes, its name, and what is said of its encoding; `None` for what is no text."""


def compiled(search: Search) -> re.Pattern[str]:
    """The expression to match. Raises `BAD_PATTERN`."""
    flags = re.MULTILINE | (re.IGNORECASE if search.ignore_case else 0) | (re.DOTALL if search.multiline else 0)
    return re.compile(re.escape(search.pattern) if search.literal else search.pattern, flags)


def is_tame(search: Search) -> bool:
    """Whether matching takes time in proportion to the text: a literal, or an expression that repeats nothing.

    Nested sets are left out because `re` warns about them.
    """
    if search.literal:
        return True
    plain = re.sub(r"\\.", "", search.pattern)
    if re.search(r"[*+]|\{\d*,?\d*\}|\(\?|\[\[|--|&&|~~|\|\|", plain) or re.search(r"\\\d", search.pattern):
        return False
    branches = plain.count("?") + (plain.count("|") if "(" in plain else 0)
    return branches <= MAX_TAME_BRANCHES


def scan(
    search: Search, open_file: OpenFile, read_text: ReadText, tally: Tally, *, is_stopped: Callable[[], bool]
) -> Iterator[Found]:
    """Look through the files in order; yields those with matches."""
    pattern = compiled(search)
    needle = search.pattern.encode(errors="ignore") if search.literal and not search.ignore_case else b""
    left = search.limit
    for index, path in enumerate(search.paths):
        if is_stopped():
            return
        text = search.texts.get(index)
        if text is None:
            data = _bytes_of(path, open_file, search.max_file_bytes, tally)
            if data is None or _lacks(data, needle, is_said=index in search.charsets):
                continue
            text = read_text(data, path, search.charsets.get(index))
            tally.not_text += text is None
        found = None if text is None else _look(text.replace("\r\n", "\n"), index, pattern, search, left)
        if found is None:
            continue
        left -= found.matches
        yield found
        if left <= 0:
            tally.limited = True
            return


def _bytes_of(path: str, open_file: OpenFile, max_bytes: int, tally: Tally) -> bytes | None:
    try:
        with open(open_file(path), "rb") as file:
            data = file.read(max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        # Links and special files carry no number: they are left out, not unreadable.
        tally.unreadable += error.errno is not None
        return None
    if len(data) > max_bytes:
        tally.too_large += 1
        return None
    return data


def _lacks(data: bytes, needle: bytes, *, is_said: bool) -> bool:
    """Whether plain text that is looked for is surely not there, without decoding. Other than ASCII it may be there in
    another encoding, and in UTF-16 so may that."""
    if not needle or is_said or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return False
    return needle not in data and (needle.isascii() or data.isascii())


def _look(text: str, index: int, pattern: re.Pattern[str], search: Search, left: int) -> Found | None:
    """The matches of one text, at most `left`."""
    if not text:
        return None
    places = _spans(text, pattern, left) if search.multiline else _lines(text, pattern, search.pattern, left)
    matched: dict[int, int] = {}
    count = 0
    for first, last, column in places:
        count += 1
        matched.setdefault(first, column)
        for line in range(first + 1, min(last, first + MAX_SPANNED_LINES - 1) + 1):
            matched.setdefault(line, 0)
    if not count:
        return None
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    numbers = {
        near
        for line in matched
        for near in range(max(line - search.context, 0), min(line + search.context + 1, len(lines)))
    }
    shown = [(n + 1, n in matched, _shortened(lines[n], matched.get(n, 0))) for n in sorted(numbers)]
    return Found(index, shown, count)


def _lines(text: str, pattern: re.Pattern[str], source: str, left: int) -> Iterator[tuple[int, int, int]]:
    """Lines that match by themselves, as `(line, line, column)` from 0."""
    if "(?" in source or "\\A" in source or "\\Z" in source or re.search(r"[*+?}]\+", source):
        places = _line_by_line(text, pattern)
    else:
        places = _line_by_jump(text, pattern)
    for _, (line, column) in zip(range(left), places, strict=False):
        yield line, line, column


def _line_by_line(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    for number, line in enumerate(text.removesuffix("\n").split("\n")):
        match = pattern.search(line)
        if match is not None:
            yield number, match.start()


def _line_by_jump(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """The same, by searching the whole text: most texts hold no match, and one call finds that out.

    A match may run over the end of its line, so the line is tried alone as well. For what can tell that there is more
    text after the line, such as a look-ahead, this isn't right: see `_line_by_line`.
    """
    start, number, end = 0, 0, len(text) - text.endswith("\n")
    while start <= end and (match := pattern.search(text, start)) is not None and match.start() <= end:
        number += text.count("\n", start, match.start())
        line_start = text.rfind("\n", 0, match.start()) + 1
        line_end = text.find("\n", match.start())
        line_end = len(text) if line_end < 0 else line_end
        alone = pattern.search(text[line_start:line_end])
        if alone is not None:
            yield number, alone.start()
        number += 1
        start = line_end + 1


def _spans(text: str, pattern: re.Pattern[str], left: int) -> Iterator[tuple[int, int, int]]:
    """Matches that may run over several lines, as `(first line, last line, column)` from 0."""
    number = start = 0
    for _, match in zip(range(left), pattern.finditer(text), strict=False):
        number += text.count("\n", start, match.start())
        start = match.start()
        spanned = text.count("\n", match.start(), max(match.end() - 1, match.start()))
        yield number, number + spanned, match.start() - (text.rfind("\n", 0, match.start()) + 1)


def _shortened(line: str, column: int) -> str:
    if len(line) <= MAX_LINE_CHARS:
        return line
    start = 0 if column < MAX_LINE_CHARS // 2 else column - MAX_LINE_CHARS // 4
    window = line[start : start + MAX_LINE_CHARS]
    return f"{'…' if start else ''}{window}{'…' if start + MAX_LINE_CHARS < len(line) else ''}"


def main(open_file: OpenFile, read_text: ReadText) -> None:
    """The process: a `Search` as JSON in, a JSON line for every `Found`, and at last the tally or an error."""
    fields = json.load(sys.stdin.buffer)
    texts, charsets = ({int(index): text for index, text in fields.pop(name).items()} for name in ("texts", "charsets"))
    tally = Tally()
    try:
        for found in scan(
            Search(texts=texts, charsets=charsets, **fields), open_file, read_text, tally, is_stopped=lambda: False
        ):
            _print(vars(found))
    except BAD_PATTERN as error:
        _print({"error": str(error)})
    else:
        _print({"tally": vars(tally)})


def _print(value: dict[str, object]) -> None:
    sys.stdout.buffer.write(json.dumps(value).encode() + b"\n")
    sys.stdout.buffer.flush()


def parse(output: bytes) -> tuple[list[Found], Tally | None, str | None]:
    """What the process printed: files found, the tally if it came to its end, an error if there was one."""
    found: list[Found] = []
    for line in output.split(b"\n")[:-1]:
        fields = json.loads(line)
        if "error" in fields:
            return found, None, fields["error"]
        if "tally" in fields:
            return found, Tally(**fields["tally"]), None
        lines = [(number, is_match, text) for number, is_match, text in fields["lines"]]
        found.append(Found(fields["index"], lines, fields["matches"]))
    return found, None, None
