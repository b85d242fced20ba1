"""The status line's words: what the session is doing right now, told from its events.

Owns the wording and the clock. Where the line is drawn is `screen.py`.
"""

from __future__ import annotations

import time

from basis_client.errors import fields_of
from basisctl.render import duration, local_time, tool_words
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from basisctl.screen import Screen

CLOCK_AFTER_S = 2.0
"""Below this a clock is only flicker."""

MAX_DETAIL_CHARACTERS = 200


class Progress:
    """Keeps the status line true. `can_answer` decides whether a waiting ask waits for the reader."""

    def __init__(self, screen: Screen, *, can_answer: bool) -> None:
        self._screen = screen
        self._can_answer = can_answer
        self._what = ""
        self._since = time.monotonic()
        self._labels: dict[str, str] = {}
        self._is_paused = False

    def say(self, what: str) -> None:
        """Show `what`, with a clock that starts now if it is news."""
        if what != self._what:
            self._what = what
            self._since = time.monotonic()
        self.tick()

    def tick(self) -> None:
        waited = time.monotonic() - self._since
        clock = f" · {duration(waited)}" if self._what and waited >= CLOCK_AFTER_S else ""
        self._screen.status("" if self._is_paused else self._what + clock)

    def pause(self) -> None:
        """Draw nothing until `go_on`: a question is on the screen."""
        self._is_paused = True
        self.tick()

    def go_on(self) -> None:
        self._is_paused = False

    def learn(self, tool_call_id: str, label: str) -> None:
        """Take what a call is from elsewhere than its event: it began before anybody here watched."""
        self._labels[tool_call_id] = label

    def label(self, event: dict[str, Any]) -> str:
        """A tool call in a few words: what it was queued as, else its tool's name."""
        name = one_line(str(event.get("toolName", "tool")))
        return self._labels.get(str(event.get("toolCallId")), name)

    def take(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "run_started":
                self.say("working")
            case "assistant_reasoning_delta":
                self.say("thinking")
            case "assistant_delta" | "tool_completed":
                self.say("working")
            case "tool_queued":
                self._labels[str(event.get("toolCallId"))] = tool_words(
                    str(event.get("toolName", "tool")), str(event.get("summary", ""))[:MAX_DETAIL_CHARACTERS]
                )
            case "tool_started":
                self.say(self.label(event))
            case "tool_progress":
                last = str(event.get("progress", "")).rstrip().rpartition("\n")[2]
                self.say(f"{self.label(event)} · {one_line(last[:MAX_DETAIL_CHARACTERS])}")
            case "compaction_started":
                self.say("shortening the conversation")
            case "turn_queued":
                self.say(f"queued behind {event.get('position', 0)}")
            case "info_changed":
                self.take_state(fields_of(event.get("state")))
            case "run_finished":
                self.say("")
            case _:
                pass

    def take_state(self, state: dict[str, Any]) -> None:
        """Show a `SessionState`."""
        detail = one_line(str(state.get("detail", ""))[:MAX_DETAIL_CHARACTERS])
        match state.get("kind"):
            case "waiting_person":
                self.say("waiting for you" if self._can_answer else f"waiting for an answer: {detail}")
            case "waiting_provider":
                until = state.get("until")
                self.say(f"waiting for the provider{f' until {local_time(str(until))}' if until else ''}: {detail}")
            case "queued":
                self.say("queued")
            case "working":
                self.say(self._what or "working")
            case _:
                pass
