"""How a provider that is no model, or hardly one, says what a call came to: the call, and its result as it stands."""

MAX_CHARS = 400
MAX_LINES = 12
"""How much of a result is repeated; all of it stands with the call."""


def retell(title: str, result: str, *, is_error: bool) -> str:
    """One line for a short result; otherwise a line and the beginning of the result below it."""
    text = result.strip("\n")
    outcome = "did not work" if is_error else "done"
    if not text.strip():
        return f"`{title}`: {outcome}, with no output."
    if "\n" not in text and len(text) <= MAX_CHARS:
        return f"`{title}`: {outcome}: {text.strip()}"
    return f"`{title}`: {outcome}:\n```\n{_beginning(text)}\n```"


def shortened(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}…"


def _beginning(text: str) -> str:
    lines = text.split("\n")
    shown = shortened("\n".join(lines[:MAX_LINES]), MAX_CHARS)
    left = len(lines) - MAX_LINES
    return f"{shown}\n… {left} more line{'s' if left > 1 else ''}" if left > 0 else shown
