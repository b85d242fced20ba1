"""Reading a call's input: other spellings of a field, numbers sent as text, values by type."""

from collections.abc import Callable, Mapping
from pathlib import Path

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import ToolError

PATH_ALIASES = {"file_path": "path", "filePath": "path"}

Canonical = Callable[[dict[str, Json]], dict[str, Json]]


def spelled(aliases: Mapping[str, str], *, integers: frozenset[str] = frozenset()) -> Canonical:
    """A function that renames aliases, unless the field itself is there too, and turns digits into integers."""

    def canonical(input: dict[str, Json]) -> dict[str, Json]:
        named = {name: value for name, value in input.items() if name not in aliases}
        for name, value in input.items():
            if name in aliases:
                named.setdefault(aliases[name], value)
        return {name: _integer(value) if name in integers else value for name, value in named.items()}

    return canonical


def _integer(value: Json) -> Json:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 10:
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def string(input: Mapping[str, Json], name: str, default: str | None = None) -> str:
    value = input.get(name, default)
    if not isinstance(value, str):
        raise ToolError(f"{name}: expected a string")
    return value


def integer(input: Mapping[str, Json], name: str, default: int, *, at_least: int = 1, at_most: int = 1_000_000) -> int:
    """An integer field; beyond `at_most` it is that. Raises `ToolError` below `at_least`."""
    value = input.get(name, default)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ToolError(f"{name}: expected a whole number of at least {at_least}")
    return min(value, at_most)


def flag(input: Mapping[str, Json], name: str) -> bool:
    value = input.get(name)
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")


def shown(path: Path | str, base: Path) -> str:
    """A canonical path as it is shown: relative to `base` where it is below it. Always printable."""
    text = str(path)
    prefix = str(base).rstrip("/") + "/"
    return printable(text.removeprefix(prefix) if text != str(base) else ".")


def printable(name: str) -> str:
    """A file name as valid text on one line: bytes that are no text and control characters are replaced."""
    # Half a surrogate pair stands for a byte that is no text, and isn't printable either.
    return name if name.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in name)
