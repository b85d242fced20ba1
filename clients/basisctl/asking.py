"""One question at a time, put to the person at the terminal.

Owns what is shown of an ask, which key means which answer, and the line in which a reason is typed. Does no I/O of its
own: keys come in, an answer comes out, text goes to the screen. Who sends the answer is `watching.py`.
"""

from __future__ import annotations

from basis_client.errors import fields_of
from basisctl.render import BOLD, DIM, YELLOW, preview
from basisctl.visible import one_line, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from basisctl.screen import Screen

KEYS = (
    ("y", "allow", "once", "yes"),
    ("a", "allow", "session", ""),
    ("p", "allow", "project", "for the project"),
    ("g", "allow", "global", "everywhere"),
    ("n", "deny", "once", "no"),
)
"""Key, decision, scope, label (else the option's own). A key is offered when the ask has an option of that decision and
scope."""

SPELLED_OUT = ("project", "global")
"""Scopes whose options stand in full above the prompt: what outlives the session should be read first."""

ENTER, ERASE, WORD_ERASE, LINE_ERASE, ESCAPE = "\r\n", "\x7f\x08", "\x17", "\x15", "\x1b"


class Answer:
    """What the person decided."""

    __slots__ = ("ask_id", "decision", "reason", "scope")

    def __init__(self, ask_id: str, decision: str, scope: str, reason: str | None = None) -> None:
        self.ask_id = ask_id
        self.decision = decision
        self.scope = scope
        self.reason = reason

    def params(self) -> dict[str, Any]:
        found = {"askId": self.ask_id, "decision": self.decision, "scope": self.scope}
        return {**found, "reason": self.reason} if self.reason else found


class Question:
    """An ask on the screen, until it is answered here or elsewhere."""

    def __init__(self, ask: dict[str, Any], screen: Screen) -> None:
        self.ask = ask
        self._screen = screen
        self._reason: str | None = None
        """The reason so far; `None` while no reason is being typed."""
        options = [fields_of(option) for option in ask.get("options", ())]
        offered = {(option.get("decision"), option.get("scope")): str(option.get("label", "")) for option in options}
        self._keys = {key: (decision, scope) for key, decision, scope, _ in KEYS if (decision, scope) in offered}
        # How far an answer reaches is the daemon's to say: "every command" is more than a person may think.
        labels = [
            f"[{key}] {label or _lower(one_line(offered[self._keys[key]]))}"
            for key, _, _, label in KEYS
            if key in self._keys
        ]
        self._lasting = [
            f"[{key}] {one_line(offered[choice])}" for key, choice in self._keys.items() if choice[1] in SPELLED_OUT
        ]
        if "n" in self._keys:
            labels.append("[r] no, with a reason")
        self._menu = "  " + "  ".join(labels) + " "

    @property
    def ask_id(self) -> str:
        return str(self.ask["askId"])

    def show(self) -> None:
        """Put the whole question on the screen."""
        style = self._screen.style
        title = one_line(str(self.ask.get("title", "")))
        self._screen.line(style(YELLOW, "?") + " " + style(BOLD, title))
        description = str(self.ask.get("description", ""))
        shown = fields_of(self.ask.get("preview"))
        if description and description not in (title, shown.get("command")):
            self._screen.line("\n".join(f"  {line}" for line in visible(description).split("\n")))
        text = preview(shown, style)
        self._screen.line(text)
        if not self._screen.fits(text):
            # What is asked has left the screen at the top.
            self._screen.line(style(YELLOW, "?") + " " + style(BOLD, title))
        for option in self._lasting:
            self._screen.line(style(DIM, f"  {option}"))
        self.show_prompt()

    def show_prompt(self) -> None:
        """Show the line that waits for a key, as it stands: first time, or after something was written over it."""
        text = self._menu if self._reason is None else f"  reason: {one_line(self._reason)}"
        self._screen.bare(f"\r\033[K{text}" if self._screen.style.has_colour else f"\r{text}")

    def take(self, keys: str) -> Answer | None:
        """Take what was pressed, read at once; an answer once there is one.

        Several characters at once are a paste, an arrow key or a terminal's report, never a decision.
        """
        if self._reason is None:
            pressed = keys.strip(ENTER)
            answer = self._choose(pressed) if len(pressed) == 1 else None
        elif keys.startswith(ESCAPE) and keys != ESCAPE:
            answer = None
        else:
            answer = self._type(keys)
        if answer is None:
            self.show_prompt()
        else:
            self._screen.bare("\n")
        return answer

    def hide(self) -> None:
        """Make room for a line: the prompt is taken away until `show_prompt`."""
        self._screen.bare("\r\033[K" if self._screen.style.has_colour else "\n")

    def withdraw(self) -> None:
        """It is not for this person to answer any more."""
        self._screen.bare("\n")

    def _choose(self, key: str) -> Answer | None:
        if key in self._keys:
            return Answer(self.ask_id, *self._keys[key])
        if key == "r" and "n" in self._keys:
            self._reason = ""
        return None

    def _type(self, keys: str) -> Answer | None:
        reason = self._reason or ""
        for key in keys:
            if key in ENTER:
                return Answer(self.ask_id, "deny", "once", reason.strip() or None)
            if key == ESCAPE:
                self._reason = None
                return None
            reason = _edited(reason, key)
        self._reason = reason
        return None


def _lower(label: str) -> str:
    return label[:1].lower() + label[1:]


def _edited(text: str, key: str) -> str:
    if key in ERASE:
        return text[:-1]
    if key == WORD_ERASE:
        head, space, _ = text.rstrip().rpartition(" ")
        return head + space
    if key == LINE_ERASE:
        return ""
    return text + key if key.isprintable() else text
