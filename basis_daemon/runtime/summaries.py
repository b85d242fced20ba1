"""Calls and results in one line, for people who follow along (SE-8)."""

from collections.abc import Mapping

import msgspec

from basis_daemon.runtime.messages import Json

MAX_EVENT_INPUT_BYTES = 32 * 1024
"""A call's input above this stands shortened in the event stream; the call itself gets all of it."""


def summarise_call(name: str, input: Mapping[str, Json]) -> str:
    """`tool: <what it is about>`, else `tool(<its input>)`, both cut."""
    for key in ("command", "path", "file_path", "filePath", "pattern", "input"):
        value = input.get(key)
        if isinstance(value, str):
            return f"{name}: {cut(first_line(value), 100)}"
    return f"{name}({cut(msgspec.json.encode(input).decode(), 60)})"


def event_input(input: dict[str, Json]) -> Json:
    """The input as the event stream carries it."""
    encoded = msgspec.json.encode(input)
    return input if len(encoded) <= MAX_EVENT_INPUT_BYTES else cut(encoded.decode(), MAX_EVENT_INPUT_BYTES)


def first_line(text: str) -> str:
    """The first non-blank line, stripped."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def cut(text: str, limit: int) -> str:
    """`text` cut to `limit` bytes of UTF-8 at a character boundary, with `...` where it was cut."""
    data = text.encode()
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "..."
