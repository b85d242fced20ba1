"""Path globs: `*` and `?` stay within a name, `**` crosses directories, `{a,b}` and `[…]` are syntax (SE-22).

Matching takes time proportional to path times pattern, whatever the pattern: it comes from a model.
"""

import fnmatch
import re
from collections.abc import Sequence

from basis_daemon.runtime.tools.tool_error import ToolError

MAX_ALTERNATIVES = 64
"""Patterns one may stand for once its braces are expanded."""

MAX_PATTERN_CHARS = 1000


class PathGlob:
    """A compiled glob. Raises `ToolError` for a pattern that stands for too many."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise ToolError(f"the glob is longer than {MAX_PATTERN_CHARS} characters")
        self._alternatives = [_Alternative(one) for one in _expanded(pattern)]

    def matches(self, path: str) -> bool:
        """Whether a relative path matches. A pattern without `/` matches names anywhere."""
        names = path.split("/")
        return any(alternative.matches(names) for alternative in self._alternatives)


class _Alternative:
    def __init__(self, pattern: str) -> None:
        parts = [part for part in pattern.removeprefix("./").split("/") if part]
        self._by_name = len(parts) == 1 and "/" not in pattern.strip("/") and parts[0] != "**"
        self._parts = [None if part == "**" else _compiled(part) for part in parts]

    def matches(self, names: Sequence[str]) -> bool:
        if self._by_name:
            return self._name_matches(0, names[-1])
        return self._path_matches(names)

    def _name_matches(self, part: int, name: str) -> bool:
        pattern = self._parts[part]
        return pattern is not None and pattern.match(name) is not None

    def _path_matches(self, names: Sequence[str]) -> bool:
        """Greedy matching that only ever goes back to the last `**`: an earlier one could not do better."""
        part = name = 0
        star, resume = -1, 0
        while name < len(names):
            if part < len(self._parts) and self._parts[part] is None:
                star, resume = part, name
                part += 1
            elif part < len(self._parts) and self._name_matches(part, names[name]):
                part, name = part + 1, name + 1
            elif star >= 0:
                resume += 1
                part, name = star + 1, resume
            else:
                return False
        return all(rest is None for rest in self._parts[part:])


def _compiled(name_pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(name_pattern.replace("[^", "[!")))


def _expanded(pattern: str) -> list[str]:
    """The patterns that braces stand for; a brace without its partner stands for itself."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise ToolError(f"the glob {pattern!r} stands for more than {MAX_ALTERNATIVES} patterns")
        current = waiting.pop()
        braces = _innermost_braces(current)
        if braces is None:
            done.append(current)
            continue
        start, end = braces
        waiting += [current[:start] + choice + current[end + 1 :] for choice in current[start + 1 : end].split(",")]
    return done


def _innermost_braces(pattern: str) -> tuple[int, int] | None:
    """The first `{…,…}` without braces inside."""
    match = re.search(r"\{[^{}]*,[^{}]*\}", pattern)
    return None if match is None else (match.start(), match.end() - 1)
