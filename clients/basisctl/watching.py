"""The loop while a session is on the screen: events, keys and signals, whichever comes first.

Owns when it is over. How events look is `painter.py`, what is asked of the person is `questions.py`, and staying
connected is `basis_client.following`.
"""

from __future__ import annotations

import select
from collections import deque

from basis_client.errors import ClientError, fields_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from basis_client.following import Follower
    from basisctl.painter import Painter
    from basisctl.progress import Progress
    from basisctl.questions import Questions
    from basisctl.screen import Screen
    from basisctl.signals import Signals

TICK_S = 1.0

SILENCE_S = 1.0
"""With nothing to read for so long, the events that were owed have come: they are sent as fast as they are read."""

STILL_RUNNING = "timeout"
"""The daemon's answer to `basis/turn/wait` when its time was up first."""


class Ended:
    """How the turn that was watched ended."""

    def __init__(self, finished: dict[str, Any], *, was_cancelled_here: bool, lacked_a_person: bool) -> None:
        self.status = str(finished.get("status", "error"))
        self.stopped_by: str | None = finished.get("stoppedBy")
        self.usage: Any = finished.get("usage")
        self.was_cancelled_here = was_cancelled_here
        self.lacked_a_person = lacked_a_person


class Watching:
    """One session on the screen."""

    def __init__(
        self,
        follower: Follower,
        *,
        screen: Screen,
        painter: Painter,
        progress: Progress,
        questions: Questions,
        signals: Signals,
    ) -> None:
        self._follower = follower
        self._screen = screen
        self._painter = painter
        self._progress = progress
        self._questions = questions
        self._signals = signals
        self._turn_id: str | None = None
        self._is_cancelling = False
        self._known_turns: list[dict[str, Any]] = []
        self._unpainted: deque[dict[str, Any]] = deque()
        self._is_doubtful = False
        """Our turn was not running after a reconnection. It ended while we were away, or nobody carries it on."""
        self._is_carried_on = False
        """It was cut short, but its question has been answered: it begins again."""

    def begin(self, attached: dict[str, Any]) -> None:
        """Take the answer to the first attach: what is asked already, what is going on."""
        self._questions.note(attached)
        self._progress.take_state(fields_of(fields_of(attached.get("info")).get("state")))

    def lost(self) -> None:
        """Take the news that the connection is gone (`Follower.on_lost`)."""
        if self._questions.source is not None:
            # No status line then: it would be drawn over the question.
            self._questions.hide()
            self._screen.line("· the daemon is gone: reconnecting")
            self._questions.show_again()
        self._progress.say("the daemon is gone: reconnecting")
        # Nothing can be cancelled now: Ctrl-C is to leave at once.
        self._signals.has_something_to_cancel = False

    def attached_again(self, attached: dict[str, Any]) -> None:
        """Take the answer to an attach after a lost connection (`Follower.on_attached`)."""
        self._progress.say("working" if self._turn_id else "")
        self._signals.has_something_to_cancel = self._turn_id is not None
        self.begin(attached)
        if "snapshot" in attached:
            self._painter.catch_up(attached)
        self._known_turns = [fields_of(turn) for turn in (attached.get("turn"), *attached.get("queued", ()))]
        running = [turn.get("turnId") for turn in self._known_turns if turn.get("state") != "interrupted"]
        self._is_doubtful = self._turn_id is not None and self._turn_id not in running

    def find_turn_by(self, client_id: str) -> str | None:
        """After a reconnection: the turn that was begun by `client_id`, if there is one.

        One that ended already is only told of by events: they are read until no more come, and painted later.
        """
        for turn in self._known_turns:
            if fields_of(turn.get("by")).get("clientId") == client_id:
                return turn.get("turnId")
        while (record := self._follower.take(SILENCE_S)) is not None:
            self._unpainted.append(record)
            event = fields_of(record.get("event"))
            if fields_of(event.get("by")).get("clientId") == client_id and event.get("turnId"):
                return event["turnId"]
        return None

    def until_finished(self, turn_id: str) -> Ended:
        """Watch until `turn_id` has ended. Raises `ClientError`, `OutputGone`, `KeyboardInterrupt`."""
        self._turn_id = turn_id
        self._painter.only_turn = turn_id
        try:
            while True:
                event = self._step()
                if self._ends(turn_id, event):
                    return self._ended(event)
                finished = self._session_ended(turn_id, event) if event else self._finished_unseen(turn_id)
                if finished is not None:
                    self._painter.paint({"event": finished})
                    return self._ended(finished)
        finally:
            self._leave()

    def for_ever(self) -> None:
        """Watch until `KeyboardInterrupt` or an error ends it, or the session itself ended."""
        try:
            while not _is_session_end(self._step()):
                pass
        finally:
            self._leave()

    # --- one step -----------------------------------------------------------------------------------------------------

    def _step(self) -> dict[str, Any]:
        """Paint and return the next event; an empty one after something else happened."""
        record = self._unpainted.popleft() if self._unpainted else self._follower.take()
        if record is None:
            if not self._should_ask_daemon():
                self._wait()
            return {}
        event = fields_of(record.get("event"))
        self._questions.take(event)
        if event.get("type") == "run_started":
            self._is_doubtful = self._is_carried_on = False
        elif event.get("type") == "ask_closed" and fields_of(event.get("by")).get("kind", "daemon") != "daemon":
            self._answered()
        self._questions.hide()
        self._painter.paint(record)
        self._questions.show_again()
        return event

    def _wait(self) -> None:
        """Wait for an event, a key, a signal or the clock's next tick, and deal with all but the event."""
        self._questions.put()
        keyboard = self._questions.source
        sources: list[Any] = [self._follower.connection, self._signals] + ([keyboard] if keyboard else [])
        ready, _, _ = select.select(sources, [], [], TICK_S if self._screen.wants_ticks else None)
        if self._signals in ready:
            self._signals.drain()
            self._signalled()
        elif keyboard in ready:
            if self._questions.pressed():
                self._answered()
        elif not ready:
            self._progress.tick()

    def _answered(self) -> None:
        """A question was answered, here or elsewhere: a turn that was cut short while it waited for that goes on."""
        self._is_carried_on = self._is_carried_on or self._is_doubtful
        self._is_doubtful = False

    def _signalled(self) -> None:
        if self._signals.was_continued:
            self._signals.was_continued = False
            self._questions.continued()
        if self._signals.interrupts and not self._is_cancelling and self._turn_id is not None:
            self._is_cancelling = True
            self._questions.drop()
            self._progress.say("cancelling (Ctrl-C again leaves at once)")
            self._cancel(self._turn_id)

    def _cancel(self, turn_id: str) -> None:
        try:
            self._follower.request("basis/turn/cancel", {"sessionId": self._follower.session_id, "turnId": turn_id})
        except ClientError as error:
            # It ended by itself in the meantime: its last event is on the way.
            if error.is_unreachable:
                raise

    # --- ending -------------------------------------------------------------------------------------------------------

    def _ends(self, turn_id: str, event: dict[str, Any]) -> bool:
        """Whether this is our turn's end. One that was cut short while it asked something goes on when answered; that
        it was cut short may be read before the answer is given, or after."""
        if event.get("type") != "run_finished" or event.get("turnId") != turn_id:
            return False
        return event.get("status") != "interrupted" or not (self._questions.wait_for_us or self._is_carried_on)

    def _session_ended(self, turn_id: str, event: dict[str, Any]) -> dict[str, Any] | None:
        """The end of a turn whose session was closed or deleted under it."""
        if not _is_session_end(event):
            return None
        why = f"the session was {event['state'].get('detail') or 'ended'}"
        return {"type": "run_finished", "turnId": turn_id, "status": "interrupted", "message": why}

    def _should_ask_daemon(self) -> bool:
        """Whether our turn may be over with no event to tell. One that waits for this person's answer is not."""
        return self._is_doubtful and not self._questions.wait_for_us

    def _finished_unseen(self, turn_id: str) -> dict[str, Any] | None:
        """With nothing to read: how a doubtful turn ended. `None` when it goes on, or when events will tell."""
        if not self._should_ask_daemon():
            return None
        self._is_doubtful = False
        wait = {"sessionId": self._follower.session_id, "turnId": turn_id, "timeoutMs": 0}
        try:
            told = self._follower.request("basis/turn/wait", wait)
        except ClientError as error:
            if error.kind == STILL_RUNNING:
                return None
            raise
        record = self._follower.take(SILENCE_S)
        if record is not None:
            self._unpainted.append(record)
            self._is_doubtful = True
            return None
        return {**told, "type": "run_finished", "turnId": turn_id, "message": told.get("error")}

    def _ended(self, finished: dict[str, Any]) -> Ended:
        is_stuck = finished.get("status") == "interrupted" and self._questions.are_waiting
        lacked = self._questions.lacked_a_person or is_stuck
        return Ended(finished, was_cancelled_here=self._is_cancelling, lacked_a_person=lacked)

    def _leave(self) -> None:
        self._questions.drop()
        self._progress.say("")


def _is_session_end(event: dict[str, Any]) -> bool:
    return fields_of(event.get("state")).get("kind") == "ended"
