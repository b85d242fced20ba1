"""What a session is in the middle of showing: the message being streamed and the calls of the round in flight.

Owns just enough to complete a snapshot taken between two commits of the transcript. Everything here is also in the
journal; once the transcript has it, it is forgotten.
"""

from basis_daemon.runtime.transcript import Transcript
from basis_protocol.events import (
    AnyEvent,
    AssistantDelta,
    AssistantMessage,
    AssistantReasoningDelta,
    Retry,
    RunFinished,
    ToolCompleted,
)
from basis_protocol.sessions import PartialMessage


class Painting:
    """Follows a session's events."""

    __slots__ = ("_message_id", "_reasoning", "_text", "completed")

    def __init__(self) -> None:
        self._message_id: str | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self.completed: dict[str, ToolCompleted] = {}
        """Calls that ended since their round began, by call id."""

    def observe(self, event: AnyEvent) -> None:
        kind = type(event)
        if kind is AssistantDelta or kind is AssistantReasoningDelta:
            self._paint(event)  # type: ignore[arg-type]
        elif kind is AssistantMessage or kind is Retry:
            self._wipe()
        elif isinstance(event, ToolCompleted):
            self.completed[event.tool_call_id] = event
        elif isinstance(event, RunFinished):
            self._wipe()
            self.completed.clear()

    def partial(self, transcript: Transcript) -> PartialMessage | None:
        """The message being streamed, unless the transcript has it by now."""
        leaf = transcript.leaf
        if self._message_id is None or (leaf is not None and leaf.message_id == self._message_id):
            return None
        return PartialMessage(message_id=self._message_id, text="".join(self._text), reasoning="".join(self._reasoning))

    def _paint(self, event: AssistantDelta | AssistantReasoningDelta) -> None:
        if event.message_id != self._message_id:
            self._wipe()
            self.completed.clear()
            self._message_id = event.message_id
        (self._text if isinstance(event, AssistantDelta) else self._reasoning).append(event.text)

    def _wipe(self) -> None:
        self._message_id = None
        self._text.clear()
        self._reasoning.clear()
