"""How things look as text: colour, diffs, ages, tables. Returns strings, prints nothing.

Everything that came over the wire is made `visible` here before it is coloured.
"""

from __future__ import annotations

from basis_client.errors import fields_of
from basisctl.visible import one_line, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"

SHORT_ID = 8
"""Fewest characters of an id that are shown; more where that many are not enough to tell ids apart."""


class Style:
    """Colours text, or leaves it alone."""

    __slots__ = ("has_colour",)

    def __init__(self, *, has_colour: bool) -> None:
        self.has_colour = has_colour

    def __call__(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.has_colour and text else text


def diff(files: Sequence[dict[str, Any]], style: Style, *, indent: str = "  ") -> str:
    """Unified diffs, coloured by line, under their paths. Lines of the files can't pose as ours: each is indented."""
    lines: list[str] = []
    for file in files:
        lines.append(style(BOLD, one_line(str(file.get("path", "")))) + (" (new)" if file.get("created") else ""))
        patch = [line for line in visible(str(file.get("patch", ""))).split("\n") if line]
        # The path stands above already.
        has_header = [line[:4] for line in patch[:2]] == ["--- ", "+++ "]
        lines += (_diff_line(line, style) for line in patch[2 if has_header else 0 :])
        if file.get("truncated"):
            lines.append(style(YELLOW, "… the diff shown is cut; the change is longer"))
    return "\n".join(indent + line for line in lines)


def _diff_line(line: str, style: Style) -> str:
    for mark, colour in (("+", GREEN), ("-", RED), ("@@", CYAN)):
        if line.startswith(mark):
            return style(colour, line)
    return line


def preview(shown: dict[str, Any], style: Style) -> str:
    """What an ask is about, in full: the person decides on exactly this."""
    match shown.get("type"):
        case "diff":
            return diff(shown.get("files", ()), style)
        case "command":
            return _command(shown, style)
        case _:
            import json

            return _block(json.dumps(shown.get("input", shown), indent=2, ensure_ascii=False))


def _command(shown: dict[str, Any], style: Style) -> str:
    command = visible(str(shown.get("command", ""))).split("\n")
    lines = [f"  {'$' if at == 0 else ' '} {style(BOLD, line)}" for at, line in enumerate(command)]
    target = shown.get("target", "local")
    where = "" if target == "local" else f" on {one_line(str(target))}"
    lines.append(style(DIM, f"    in {one_line(str(shown.get('cwd', '')))}{where}"))
    classification = fields_of(shown.get("classification"))
    intent = str(classification.get("intent", "unknown"))
    if intent not in ("unknown", "read_only"):
        lines.append("    " + style(YELLOW, f"looks like: {one_line(intent).replace('_', ' ')}"))
    lines += ("    " + style(YELLOW, f"! {one_line(str(warning))}") for warning in classification.get("warnings", ()))
    return "\n".join(lines)


def _block(text: str) -> str:
    return "\n".join(f"  {line}" for line in visible(text).split("\n"))


def duration(seconds: float) -> str:
    """`7 s`, `3 min`, `2 h`, `5 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def age(timestamp: str) -> str:
    """How long ago an RFC 3339 time was; the text itself when it isn't one."""
    from datetime import UTC, datetime

    try:
        then = datetime.fromisoformat(timestamp)
    except ValueError:
        return one_line(timestamp)
    return duration(max(0.0, (datetime.now(UTC) - then).total_seconds()))


def local_time(timestamp: str) -> str:
    """An RFC 3339 time as the clock on the wall shows it."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(timestamp).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return one_line(timestamp)


def size(count: int) -> str:
    return f"{count / 1_000_000:.1f} MB" if count >= 1_000_000 else f"{count / 1000:.1f} kB"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart; the last one keeps its length."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Every id with its shortest prefix, of at least `SHORT_ID` characters, that no other id of these shares. The word
    that says what kind of id it is (`agent-`, `ask-`) is left out: `opening.the_one` doesn't need it."""
    bare = {one: without_kind(one) for one in ids}
    length = SHORT_ID
    while len({one[:length] for one in bare.values()}) < len(bare):
        length += 1
    return {one: kept[:length] for one, kept in bare.items()}


def without_kind(one: str) -> str:
    kind, dash, rest = one.partition("-")
    return rest if dash and kind.isalpha() and rest else one


def tool_words(name: str, summary: str) -> str:
    """`edit src/app.py`, whether or not the summary names its tool; a command is `run make`, as its question has it."""
    name, summary = one_line(name), one_line(summary)
    if summary.startswith(name):
        summary = summary.removeprefix(name).removeprefix(":").lstrip()
    if name == "spawn" and summary.startswith("!"):
        return f"run {summary[1:].lstrip()}"
    return summary if name == "spawn" and summary.startswith("run ") else f"{name} {summary}".rstrip()


def who(actor: Any) -> str:
    """An actor by name: `nvim`, `basisctl`, `the daemon`."""
    found = fields_of(actor)
    if found.get("kind", "daemon") == "daemon":
        return "the daemon"
    return one_line(str(found.get("client", "somebody")))


def outcome(closed: dict[str, Any]) -> str:
    """One line about an ask that was decided: from `ask_closed`, or from the error `ask_decided`."""
    word = "allowed" if closed.get("decision") == "allow" else "denied"
    scope = str(closed.get("scope", "once"))
    remembered = "" if scope == "once" else f" ({one_line(scope)})"
    reason = closed.get("reason")
    return f"· {word} by {who(closed.get('by'))}{remembered}" + (f": {one_line(str(reason))}" if reason else "")
