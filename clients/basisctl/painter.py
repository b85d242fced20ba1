"""A session's events as a person reads them: the answer on stdout, what led to it on stderr (CL-35).

Owns which event is worth which line. On a terminal the answer appears as it is written; into a pipe or a file goes only
what is final, so that a reader never holds half an answer that was begun again.
"""

from __future__ import annotations

from basis_client.errors import fields_of
from basisctl.render import BOLD, CYAN, DIM, RED, YELLOW, diff, outcome, tool_words, who
from basisctl.visible import one_line, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from basisctl.progress import Progress
    from basisctl.screen import Screen

MAX_SUMMARY_CHARACTERS = 200


class Painter:
    """Paints events. With `only_turn` set, those of other turns are left out."""

    def __init__(self, screen: Screen, progress: Progress, *, client_id: str, shown_diffs: set[str]) -> None:
        """`shown_diffs` are tool calls whose diff was shown already, as a question."""
        self.only_turn: str | None = None
        self._shown_diffs = shown_diffs
        self._screen = screen
        self._progress = progress
        self._client_id = client_id
        self._turn: str | None = None
        self._written = ""
        """What is on the screen of the message that is being streamed."""
        self._finished: set[str] = set()
        """Messages that were written whole."""
        self._last_error: str | None = None

    def paint(self, record: dict[str, Any]) -> None:
        """Paint the params of one `basis/session/event`. Raises `OutputGone`."""
        event = fields_of(record.get("event"))
        if event.get("type") == "run_started":
            self._turn = event.get("turnId")
        if self.only_turn in (None, self._turn) or event.get("turnId") == self.only_turn:
            self._event(event)

    def _event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "assistant_delta":
                self._delta(str(event.get("text", "")))
            case "assistant_message":
                self._message(event)
            case "tool_completed":
                self._tool_completed(event)
            case "notice" | "error" | "retry" | "ask_closed" | "run_finished":
                self._always(event)
            case _:
                if self._screen.tells_all:
                    self._progress_line(event)
        self._progress.take(event)

    # --- the answer ---------------------------------------------------------------------------------------------

    def _delta(self, text: str) -> None:
        if self._screen.out_is_terminal:
            self._screen.answer(visible(text))
            self._written += text

    def _message(self, event: dict[str, Any]) -> None:
        """The authoritative text: write what the deltas have not, or all of it where they wrote something else."""
        text = str(event.get("text", ""))
        if self._written and not text.startswith(self._written):
            self._void()
        self._screen.answer(visible(text[len(self._written) :]))
        self._screen.end_line()
        self._written = ""
        self._finished.add(str(event.get("messageId")))

    def _void(self) -> None:
        if self._written:
            self._screen.end_line()
            self._screen.line(self._screen.style(DIM, "· what stands above was cut off and is void"))
            self._written = ""

    def begin(self, attached: dict[str, Any]) -> None:
        """Paint where a session stands: its last exchange, and what is being written."""
        snapshot = fields_of(attached.get("snapshot"))
        items = [fields_of(item) for item in snapshot.get("items", ())]
        last_prompt = max((at for at, item in enumerate(items) if item.get("kind") == "user"), default=0)
        self._turn = fields_of(attached.get("turn")).get("turnId")
        self._items(items[last_prompt:])
        self._delta(str(fields_of(snapshot.get("partial")).get("text", "")))

    def catch_up(self, attached: dict[str, Any]) -> None:
        """Paint what was missed and can't be replayed: the whole messages of the turn that are not on the screen."""
        self._void()
        self._screen.line("· events were missed; what they led to follows")
        snapshot = fields_of(attached.get("snapshot"))
        items = [fields_of(item) for item in snapshot.get("items", ())]
        wanted = [item for item in items if self.only_turn in (None, item.get("turnId"))]
        self._items([item for item in wanted if str(item.get("messageId")) not in self._finished])
        self._delta(str(fields_of(snapshot.get("partial")).get("text", "")))

    def _items(self, items: list[dict[str, Any]]) -> None:
        for item in items:
            match item.get("kind"):
                case "assistant":
                    self._message(item)
                case "user" if self._screen.tells_all:
                    self._user_line(item)
                case "tool":
                    self._progress.learn(str(item.get("toolCallId")), tool_label(item))
                    if self._screen.tells_all:
                        self._screen.line(self._screen.style(DIM, f"· {tool_label(item)}"))
                case _:
                    pass

    # --- what led to it -----------------------------------------------------------------------------------------

    def _always(self, event: dict[str, Any]) -> None:
        """Failures, notices and decisions: shown to scripts as well."""
        style = self._screen.style
        match event["type"]:
            case "notice":
                is_warning = event.get("severity") == "warning"
                word = style(YELLOW, "warning:") if is_warning else "note:"
                self._screen.line(f"{word} {visible(str(event.get('message', '')))}")
            case "error":
                self._last_error = str(event.get("message", ""))
                self._screen.line(f"{style(RED, 'error:')} {visible(self._last_error)}")
            case "retry":
                self._void()
                self._screen.line(_retry_line(event))
            case "ask_closed":
                by = fields_of(event.get("by"))
                if by.get("clientId") != self._client_id:
                    self._screen.line(style(DIM, outcome(event)))
            case _:
                self._finish(event)

    def _finish(self, event: dict[str, Any]) -> None:
        self._screen.end_line()
        self._written = ""
        message = event.get("message")
        if event.get("status") == "ok" and not event.get("stoppedBy"):
            return
        if event.get("status") == "cancelled" and str(message).startswith("cancelled "):
            self._screen.line(self._screen.style(BOLD, f"run {visible(str(message))}"))
            return
        # The same sentence twice helps nobody.
        reason = "" if not message or message == self._last_error else f": {visible(str(message))}"
        self._screen.line(self._screen.style(BOLD, ending(event)) + reason)

    def _tool_completed(self, event: dict[str, Any]) -> None:
        style = self._screen.style
        label = self._progress.label(event)
        summary = str(event.get("summary", ""))
        if event.get("isError"):
            self._screen.line(f"{style(RED, '✗')} {label}: {visible(summary.removeprefix(f'{label}: '))}")
        elif event.get("diff") and self._screen.tells_all and event.get("toolCallId") not in self._shown_diffs:
            self._screen.line(diff(event["diff"], style))

    def _progress_line(self, event: dict[str, Any]) -> None:
        style = self._screen.style
        match event.get("type"):
            case "run_started":
                self._screen.line(style(DIM, _header(event)))
            case "user_message":
                if fields_of(event.get("by")).get("clientId") != self._client_id:
                    self._user_line(event)
            case "tool_started":
                self._screen.line(style(DIM, f"· {self._progress.label(event)}"))
            case "compaction_completed":
                self._screen.line(style(DIM, f"· shortened the conversation by {event.get('replacedItems', 0)} items"))
            case "task_updated":
                words = f"{event.get('status', '')} {event.get('title', '')}"
                self._screen.line(style(DIM, f"· {one_line(str(event.get('kind', 'task')))} {one_line(words)}"))
            case _:
                pass

    def _user_line(self, item: dict[str, Any]) -> None:
        by = fields_of(item.get("by"))
        name = f"{who(by)} " if by else ""
        text = visible(str(item.get("text", ""))).replace("\n", "\n  ")
        self._screen.line(self._screen.style(CYAN, f"{name}› ") + text)


class TypedPainter(Painter):
    """For a turn whose answer is a value: what is said on the way to it is no part of the answer."""

    def _delta(self, text: str) -> None:
        pass

    def _message(self, event: dict[str, Any]) -> None:
        if self._screen.tells_all:
            self._screen.line(self._screen.style(DIM, visible(str(event.get("text", "")))))
        self._finished.add(str(event.get("messageId")))


class JsonPainter(Painter):
    """One JSON object a line: the params of `basis/session/event` as they came. ASCII only, so nothing can steer a
    terminal it may end up on."""

    def paint(self, record: dict[str, Any]) -> None:
        import json

        self._screen.answer(json.dumps(record, separators=(",", ":")) + "\n")
        self._progress.take(fields_of(record.get("event")))

    def begin(self, attached: dict[str, Any]) -> None:
        pass

    def catch_up(self, attached: dict[str, Any]) -> None:
        self._screen.line("events were missed and can't be replayed; the numbers show where")


def ending(event: dict[str, Any]) -> str:
    """How a turn ended, in two words (CL-35)."""
    stopped_by = event.get("stoppedBy")
    if stopped_by:
        return f"run stopped by {one_line(str(stopped_by)).replace('_', ' ')}"
    status = str(event.get("status"))
    return {"cancelled": "run cancelled", "interrupted": "run interrupted"}.get(status, "run failed")


def tool_label(item: dict[str, Any]) -> str:
    """A tool call of the history in a few words; the first text of its input stands in for a summary."""
    texts = [value for value in fields_of(item.get("input")).values() if value.__class__ is str]
    summary = str(item.get("summary") or (texts[0] if texts else ""))
    return tool_words(str(item.get("toolName", "tool")), summary[:MAX_SUMMARY_CHARACTERS])


def _header(event: dict[str, Any]) -> str:
    files = len(event.get("contextFiles", ()))
    parts = list(dict.fromkeys(one_line(str(event.get(name, ""))) for name in ("model", "provider")))
    if files:
        parts.append(f"{files} context file{'s' if files > 1 else ''}")
    if event.get("resumed"):
        parts.append("carrying on")
    return " · ".join(part for part in parts if part)


def _retry_line(event: dict[str, Any]) -> str:
    delay_s = float(event.get("nextDelayMs", 0)) / 1000
    attempt = f"{event.get('attempt', '?')} of {event.get('maxAttempts', '?')}"
    return f"retrying in {delay_s:.1f} s ({attempt}): {visible(str(event.get('error', '')))}"
