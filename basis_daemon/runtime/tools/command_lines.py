"""Reads a line of shell commands for remembered rules: what it runs if it is plain, what it mentions, what to suggest.

Owns two readings. The strict one is for allowing: it knows a small part of the shell's syntax for certain and gives up
on everything else. The generous one is for denying: it looks into wrappers, substitutions and lines within lines. Runs
nothing, expands nothing.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from basis_daemon.runtime.tools.classify import classify
from basis_daemon.runtime.tools.known_programs import (
    CLAUSES,
    KEYWORDS,
    PROGRAM_DIRECTORIES,
    SHELLS,
    SUGGESTED_PROGRAMS,
    SUGGESTED_SUBCOMMANDS,
    WRAPPERS,
)
from basis_daemon.runtime.tools.shell_lines import Unreadable, simple_commands

MAX_CHARS = 20_000
"""Longer lines are not plain, whatever is in them."""

MAX_DEPTH = 4
"""Lines within lines that are looked into for what they mention."""

_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t]+)
    | (?P<harmless>(?:[12]?>&[12]|(?:[12]|&)?>>?[ \t]*/dev/null|<[ \t]*/dev/null)(?=[ \t\n;|&]|\Z))
    | (?P<next>&&|\|\||\||;|\n)
    | (?P<word>(?:[\w@%+=:,./^~*?\[\]-]|'[^'\0]*'|"[^"$`\\\0]*")++)(?![<>\\$`"'(])
    """,
    re.VERBOSE,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]*")
_RESERVED = KEYWORDS | CLAUSES | {"time", "coproc", "[["}


def plain_commands(line: str) -> tuple[str, ...] | None:
    """The commands of a line that consists of nothing but simple commands, each in one spelling; `None` for any other.

    They may be chained by `&&`, `||`, `;`, `|` and line ends, and send output to `/dev/null` or to one another.
    Redirections to files, substitutions, variables, escapes, background jobs, groups, functions and clauses are not
    plain, and neither is what this reader does not know. Words are plain text, quoted text and names with `*`, `?`,
    `[…]`, which can become more arguments but never another command.
    """
    if len(line) > MAX_CHARS:
        return None
    commands: list[list[str]] = [[]]
    at = 0
    while at < len(line):
        found = _TOKEN.match(line, at)
        if found is None:
            return None
        if found["next"]:
            # An operator without a command before it is not for this reader to make sense of.
            if not commands[-1] and found["next"] != "\n":
                return None
            commands.append([])
        elif found["word"]:
            commands[-1].append(_unquoted(found["word"]))
        at = found.end()
    if any(words and words[0] in _RESERVED for words in commands):
        return None
    return tuple(dict.fromkeys(spelled(words) for words in commands if words)) or None


def spelled(words: Sequence[str]) -> str:
    """One spelling for one command: words that need quotes get them, a blank between."""
    return shlex.join(words)


def mentioned_commands(line: str, depth: int = 0) -> tuple[str, ...]:
    """Every command that can be made out in a line: in chains, substitutions, behind `sudo` and its like, and in the
    lines shells are given. Empty for a line that can't be read."""
    try:
        commands = simple_commands(line)
    except Unreadable:
        return ()
    return tuple(dict.fromkeys(text for command in commands for text in _mentions(command.words, depth)))


def suggested(line: str) -> tuple[str, str] | None:
    """What a lasting answer about a line would best cover: a pattern for its command, and that in words.

    The line itself, unless it is one plain command of a program whose arguments don't make it another. `None` for a
    line that can't be spelled as a pattern, since `*` and `?` in it would stand for anything.
    """
    plain = plain_commands(line)
    if plain is not None and len(plain) == 1:
        stem = _stem(shlex.split(plain[0]))
        if stem is not None:
            return f"{stem} *", f"`{stem} …`"
    if "*" in line or "?" in line:
        return None
    shown = line if "\n" not in line and len(line) <= 60 else f"{line.splitlines()[0][:60]}…"
    return line, f"exactly `{shown}`"


def _unquoted(word: str) -> str:
    """The word as the program gets it. There are no escapes in it."""
    return re.sub(r"'([^']*)'|\"([^\"]*)\"", lambda found: found[1] if found[1] is not None else found[2], word)


def _stem(words: Sequence[str]) -> str | None:
    """The words at the beginning of a command that say what it does, if any do."""
    program, *rest = words
    if classify(spelled(words)).intent in ("destructive", "system_admin", "process_management"):
        return None
    if program in SUGGESTED_PROGRAMS:
        return program
    known = SUGGESTED_SUBCOMMANDS.get(program, ())
    if not rest or rest[0] not in known:
        return None
    if rest[0] == "run":
        is_named = len(rest) > 1 and _SUBCOMMAND.fullmatch(rest[1]) is not None
        return spelled([program, "run", rest[1]]) if is_named else None
    return spelled([program, rest[0]])


def _mentions(words: Sequence[str], depth: int) -> Iterator[str]:
    rest = list(words)
    while rest and (rest[0] in KEYWORDS or _ASSIGNMENT.match(rest[0])):
        rest.pop(0)
    if not rest:
        return
    directory, _, name = rest[0].rpartition("/")
    program = name if directory in PROGRAM_DIRECTORIES else rest[0]
    yield spelled([program, *rest[1:]])
    if program != rest[0]:
        yield spelled(rest)
    if depth >= MAX_DEPTH:
        return
    if program in SHELLS or program in ("eval", "su"):
        for argument in rest[1:]:
            yield from mentioned_commands(argument, depth + 1)
        yield from mentioned_commands(" ".join(rest[1:]), depth + 1) if program == "eval" else ()
    elif program in WRAPPERS or program == "find":
        # Which of its words is the command depends on options; a denial looks at all that may be.
        for start in range(1, min(len(rest), 12)):
            if not rest[start].startswith("-"):
                yield from _mentions(rest[start:], depth + 1)
