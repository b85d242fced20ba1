"""Reading one config.json: JSON with positions, `${VAR}` expansion, and errors that never quote what they read.

Owns the syntax (CF-1…CF-3, EX-1…EX-3, DI-4). How two files are layered is `config.py`'s.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from basis_daemon.errors import ConfigError
from basis_daemon.paths import open_regular
from basis_daemon.workspace.discovery import WORKSPACE, Source

SCHEMA = 1
KEYS = ("provider", "model", "effort", "base_url", "wire")
"""Everything a file may say. There is no key for a credential, ever (CF-1)."""

_E = TypeVar("_E", bound=ConfigError)
_DECODER = json.JSONDecoder()
_WHITESPACE = " \t\n\r"


class ConfigUnreadable(ConfigError):
    kind = "config_unreadable"


class ConfigMalformed(ConfigError):
    """The file is no JSON object."""

    kind = "config_malformed"


class ConfigWithoutSchema(ConfigError):
    kind = "config_no_schema"


class ConfigUnsupportedSchema(ConfigError):
    kind = "config_unsupported_schema"


class ConfigInvalid(ConfigError):
    """A key that must not be there, or one whose value can't be used."""

    kind = "config_invalid"


class WorkspaceBaseUrl(ConfigError):
    """CF-3: a repository must not choose where prompts and keys are sent."""

    kind = "config_workspace_base_url"


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a file, where it stands (from 1), and its value: raw JSON, later expanded text."""

    key: str
    value: Any
    line: int
    column: int


class ConfigFile:
    """One file that was read; `entries` holds the recognised keys as expanded, non-blank text."""

    def __init__(self, source: Source, environment: Mapping[str, str]) -> None:
        """Read and check `source`. Raises `ConfigError` kinds. Blocking."""
        self.source = source
        members = self._members(self._text())
        self._check_schema(members)
        self._check_keys(members)
        self.entries = {
            entry.key: Entry(entry.key, self._expanded(entry, environment), entry.line, entry.column)
            for entry in members.values()
            if entry.key != "schema"
        }

    def invalid(self, entry: Entry, reason: str) -> ConfigInvalid:
        """The error for a value that can't be used."""
        return self._error(ConfigInvalid, f"`{entry.key}` {reason}", entry)

    def _text(self) -> str:
        # Parser and codec exceptions hold the text they failed on, so ours are raised once those are let go (DI-4).
        try:
            # A repository brings this file, and could bring a FIFO.
            with open_regular(self.source.path) as file:
                return file.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            problem = "it is not UTF-8 text"
        except OSError as error:
            problem = error.strerror or "reading it failed"
        raise self._error(ConfigUnreadable, problem)

    def _members(self, text: str) -> dict[str, Entry]:
        at = None
        try:
            entries = list(_object_members(text))
        except json.JSONDecodeError as error:
            at = Entry("", None, error.lineno, error.colno)
            problem = f"it is not a JSON object: {error.msg.partition(':')[0]}"
        except (ValueError, RecursionError):
            problem = "it holds a number or a nesting no JSON reader takes"
        else:
            return self._without_repeats(entries)
        raise self._error(ConfigMalformed, problem, at)

    def _without_repeats(self, entries: list[Entry]) -> dict[str, Entry]:
        members: dict[str, Entry] = {}
        for entry in entries:
            if entry.key in members:
                raise self._error(ConfigInvalid, "a key stands there twice", entry)
            members[entry.key] = entry
        return members

    def _check_schema(self, members: dict[str, Entry]) -> None:
        entry = members.get("schema")
        if entry is None:
            raise self._error(ConfigWithoutSchema, 'it says no `schema`; add "schema": 1')
        if type(entry.value) is not int or entry.value != SCHEMA:
            raise self._error(ConfigUnsupportedSchema, f"its `schema` is not {SCHEMA}, the only one known", entry)

    def _check_keys(self, members: dict[str, Entry]) -> None:
        for key in ("base_url", "wire"):
            if key in members and self.source.scope == WORKSPACE:
                raise self._error(
                    WorkspaceBaseUrl,
                    f"`{key}` may not be set by a repository, only in the global config.json",
                    members[key],
                )
        for entry in members.values():
            if entry.key not in KEYS and entry.key != "schema":
                raise self._error(ConfigInvalid, f"there is an unknown key; known are schema, {', '.join(KEYS)}", entry)

    def _expanded(self, entry: Entry, environment: Mapping[str, str]) -> str:
        if not isinstance(entry.value, str):
            raise self.invalid(entry, "must be a string")
        try:
            value = expand(entry.value, environment).strip()
        except ExpansionError as error:
            raise self.invalid(entry, str(error)) from None  # names a variable, never a value
        if not value:
            raise self.invalid(entry, "is blank")
        return value

    def _error(self, kind: type[_E], problem: str, at: Entry | None = None) -> _E:
        line, column = (at.line, at.column) if at else (1, 1)
        key = at.key if at and at.key in (*KEYS, "schema") else None
        path = self.source.path
        return kind(f"{path}:{line}:{column}: {problem}", path=str(path), key=key, line=line, column=column)


class ExpansionError(ValueError):
    """A `${…}` that can't be filled in; names the variable, never a value (EX-2)."""


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Fill in `${NAME}` and `${NAME:-default}` in one pass; a `$` without a brace stays as it is (EX-1…EX-3).

    Raises `ExpansionError`.
    """
    parts: list[str] = []
    rest = text
    while (start := rest.find("${")) >= 0:
        end = rest.find("}", start)
        if end < 0:
            raise ExpansionError("holds an unterminated `${`")
        parts += (rest[:start], _placeholder(rest[start + 2 : end], environment))
        rest = rest[end + 1 :]
    return "".join((*parts, rest))


def _placeholder(inside: str, environment: Mapping[str, str]) -> str:
    name, has_default, default = inside.partition(":-")
    name = name.strip()
    value = environment.get(name, "") if name else ""
    if has_default:
        return value or default
    if not name:
        raise ExpansionError("holds an empty placeholder `${}`")
    if name not in environment:
        raise ExpansionError(f"names the variable {name}, which is not set")
    return value


def _object_members(text: str) -> Iterator[Entry]:
    """The members of the JSON object `text` is, each with the position of its key. Raises `JSONDecodeError`."""
    at = _expect(text, 0, "{")
    while (at := _skip(text, at)) < len(text) and text[at] != "}":
        line, column = _position(text, _expect_ahead(text, at, '"', "Expecting a key in double quotes"))
        key, at = _DECODER.raw_decode(text, at)
        value, at = _DECODER.raw_decode(text, _skip(text, _expect(text, at, ":")))
        yield Entry(key, value, line, column)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            _expect_ahead(text, at, '"', "Expecting a key after the comma")
        else:
            _expect_ahead(text, at, "}", "Expecting `,` or `}`")
    if (end := _skip(text, _expect(text, at, "}"))) != len(text):
        raise json.JSONDecodeError("Extra data", text, end)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITESPACE:
        at += 1
    return at


def _expect(text: str, at: int, char: str) -> int:
    return _expect_ahead(text, _skip(text, at), char, f"Expecting `{char}`") + 1


def _expect_ahead(text: str, at: int, char: str, problem: str) -> int:
    if text[at : at + 1] != char:
        raise json.JSONDecodeError(problem, text, at)
    return at


def _position(text: str, at: int) -> tuple[int, int]:
    line_start = text.rfind("\n", 0, at) + 1
    return text.count("\n", 0, at) + 1, at - line_start + 1
