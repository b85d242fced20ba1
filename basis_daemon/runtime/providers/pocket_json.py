"""The pocket model's forced JSON, read while it is being written.

Owns taking the text of an `answer` out piece by piece, and the action out of the whole.
"""

import json
import re
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Action:
    """One action of the model; the fields that its tool has not are empty."""

    tool: str
    path: str = ""
    content: str = ""
    command: str = ""
    text: str = ""


def parse_action(written: str) -> Action | None:
    """The action `written` is, or `None` for anything else."""
    try:
        return msgspec.json.decode(written, type=Action)
    except (msgspec.DecodeError, RecursionError):
        return None


_ANSWER_STARTS = re.compile(r'\s*\{\s*"tool"\s*:\s*"answer"\s*,\s*"text"\s*:\s*"')
_WHOLE = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*'
)
"""As much of a JSON string as can be told for sure: no half escape, no first half of a surrogate pair."""


class AnswerText:
    """Feed it the JSON as it comes; it gives the new part of the answer's text. Empty while it is another action."""

    def __init__(self) -> None:
        self.written = ""
        self._at: int | None = None

    def feed(self, piece: str) -> str:
        self.written += piece
        if self._at is None:
            start = _ANSWER_STARTS.match(self.written)
            if start is None:
                return ""
            self._at = start.end()
        whole = _WHOLE.match(self.written, self._at)
        assert whole is not None
        self._at = whole.end()
        return json.loads(f'"{whole.group()}"', strict=False)
