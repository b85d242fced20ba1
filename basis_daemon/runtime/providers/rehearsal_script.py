"""What the rehearsal provider understands: one line, one step.

Owns the little language (docs/explanation/embedded-defaults.md has it for people). Does no I/O and knows no provider.

    !COMMAND                   run a command
    read PATH                  show a file
    write PATH: TEXT           make or replace a file; TEXT is the rest of the line, as it is
    write PATH: <<END          … or all lines up to one that is END
    edit PATH: OLD -> NEW      replace a passage; the first `->` divides

A path with a space, a colon or a backtick in it stands in double quotes. OLD and NEW lose the blanks around them;
between backticks they are taken as they are, `->` included. Blank lines mean nothing.
"""

import re
from dataclasses import dataclass

from basis_daemon.runtime.messages import Json

UNDERSTOOD = "`!command`, `read PATH`, `write PATH: text`, `edit PATH: old -> new`"


@dataclass(frozen=True, slots=True)
class Step:
    """One call to make, and how it is named to a person."""

    tool: str
    input: dict[str, Json]
    title: str


@dataclass(frozen=True, slots=True)
class Script:
    """The steps of a message; or, when a line of it is not understood, that line and no steps at all."""

    steps: tuple[Step, ...] = ()
    not_understood: str | None = None


_PATH = r'(?:"(?P<quoted>[^"\n]+)"|`(?P<ticked>[^`\n]+)`|(?P<plain>[^\s:"`][^\s"`]*?))'
_READ = re.compile(rf"read\s+{_PATH}\s*\Z", re.IGNORECASE)
_WRITE = re.compile(rf"write\s+{_PATH}\s*:(?: (?P<text>.*)|(?P<tight>\S.*)|\s*)\Z", re.IGNORECASE | re.DOTALL)
_EDIT = re.compile(rf"edit\s+{_PATH}\s*:\s*(?P<change>.*)\Z", re.IGNORECASE | re.DOTALL)
_CHANGE = re.compile(
    r"(?:`(?P<old_ticked>[^`]+)`|(?P<old>[^`].*?))\s*->\s*(?:`(?P<new_ticked>[^`]*)`|(?P<new>.*))\s*\Z", re.DOTALL
)
_HEREDOC = re.compile(r"<<\s*(?P<end>\S+)\s*\Z")


def parse(text: str) -> Script:
    """The steps `text` asks for, in order. Text without any line that says something gives an empty script."""
    lines = text.split("\n")
    steps: list[Step] = []
    at = 0
    while at < len(lines):
        line = lines[at].strip(" \t\r")
        at += 1
        if not line:
            continue
        step = _step(line)
        if step is not None and step.tool == "write":
            step, at = _with_heredoc(step, lines, at)
        if step is None:
            return Script(not_understood=line)
        steps.append(step)
    return Script(tuple(steps))


def _step(line: str) -> Step | None:
    if line.startswith("!"):
        return Step("spawn", {"input": line}, line) if line.strip("! \t") else None
    if found := _READ.match(line):
        return Step("read", {"path": _path(found)}, f"read {_path(found)}")
    if found := _WRITE.match(line):
        content = found["text"] or found["tight"] or ""
        return Step("write", {"path": _path(found), "content": content}, f"write {_path(found)}")
    if found := _EDIT.match(line):
        return _edit(_path(found), found["change"])
    return None


def _path(found: re.Match[str]) -> str:
    return found["quoted"] or found["ticked"] or found["plain"]


def _edit(path: str, change: str) -> Step | None:
    found = _CHANGE.match(change)
    if found is None:
        return None
    old = found["old_ticked"] or (found["old"] or "").strip()
    new = found["new_ticked"] if found["new_ticked"] is not None else found["new"].strip()
    if not old or old == new:
        return None
    return Step("edit", {"path": path, "edits": [{"old_string": old, "new_string": new}]}, f"edit {path}")


def _with_heredoc(step: Step, lines: list[str], at: int) -> tuple[Step | None, int]:
    """`step` with the lines that follow, if its text says `<<END`, and the index behind them. No END: no step."""
    found = _HEREDOC.match(str(step.input["content"]))
    if found is None:
        return step, at
    body: list[str] = []
    for index in range(at, len(lines)):
        if lines[index].strip() == found["end"]:
            content = "".join(f"{line}\n" for line in body)
            return Step("write", {"path": step.input["path"], "content": content}, step.title), index + 1
        body.append(lines[index].removesuffix("\r"))
    return None, len(lines)
