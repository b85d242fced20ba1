"""The loop while a session is on the screen: events, keys and signals, whichever comes first.

Owns who is asked what and when it is over. How events look is `painter.py`, how a question looks is `asking.py`, and
staying connected is `basis_client.following`.
"""

from __future__ import annotations

import select
from collections import deque

from basis_client.errors import ClientError, fields_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from basis_client.following import Follower
    from basisctl.asking import Answer, Question
    from basisctl.keyboard import Keyboard
    from basisctl.painter import Painter
    from basisctl.progress import Progress
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
        self.was_cancelled_here = was_cancelled_here
        self.lacked_a_person = lacked_a_person


class Watching:
    """One session on the screen. `keyboard` is `None` when there is nobody to ask."""

    def __init__(
        self,
        follower: Follower,
        *,
        screen: Screen,
        painter: Painter,
        progress: Progress,
        keyboard: Keyboard | None,
        signals: Signals,
        client_id: str,
    ) -> None:
        self._follower = follower
        self._screen = screen
        self._painter = painter
        self._progress = progress
        self._keyboard = keyboard
        self._signals = signals
        self._client_id = client_id
        self._turn_id: str | None = None
        self._asks: dict[str, dict[str, Any]] = {}
        self._answered: set[str] = set()
        self._question: Question | None = None
        self._is_cancelling = False
        self._lacked_a_person = False
        self._known_turns: list[dict[str, Any]] = []
        self._unpainted: deque[dict[str, Any]] = deque()
        self._people_decided: set[str] = set()
        """Tool calls whose question a person answered."""
        self._is_doubtful = False
        """Our turn was not running after a reconnection. It ended while we were away, or nobody carries it on."""

    def begin(self, attached: dict[str, Any]) -> None:
        """Take the answer to the first attach: what is asked already, what is going on."""
        self._note_asks(attached)
        self._progress.take_state(fields_of(fields_of(attached.get("info")).get("state")))

    def attached_again(self, attached: dict[str, Any]) -> None:
        """Take the answer to an attach after a lost connection (`Follower.on_attached`)."""
        self._progress.say("working" if self._turn_id else "")
        self.begin(attached)
        if "snapshot" in attached:
            self._painter.catch_up(attached)
        self._known_turns = [fields_of(turn) for turn in (attached.get("turn"), *attached.get("queued", ()))]
        running = [turn.get("turnId") for turn in self._known_turns if turn.get("state") != "interrupted"]
        self._is_doubtful = self._turn_id not in running

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

    def lost(self) -> None:
        """Take the news that the connection is gone (`Follower.on_lost`)."""
        self._progress.say("the daemon is gone: reconnecting")

    def until_finished(self, turn_id: str) -> Ended:
        """Watch until `turn_id` has ended. Raises `ClientError`, `OutputGone`, `KeyboardInterrupt`."""
        self._turn_id = turn_id
        self._painter.only_turn = turn_id
        try:
            while True:
                event = self._take(fields_of(self._next()))
                if self._ends(turn_id, event):
                    return self._ended(event)
                if not event:
                    finished = self._finished_unseen(turn_id)
                    if finished is not None:
                        return self._ended(finished)
        finally:
            self._leave()

    def for_ever(self) -> None:
        """Watch until `KeyboardInterrupt` or an error ends it, or the session itself ended."""
        try:
            while True:
                event = self._take(fields_of(self._next()))
                if fields_of(event.get("state")).get("kind") == "ended":
                    return
        finally:
            self._leave()

    # --- one step -----------------------------------------------------------------------------------------------

    def _next(self) -> dict[str, Any] | None:
        """The next event record, or `None` after something else happened."""
        if self._unpainted:
            return self._unpainted.popleft()
        record = self._follower.take()
        if record is None and not self._should_ask_daemon():
            self._wait()
        return record

    def _should_ask_daemon(self) -> bool:
        """Whether our turn may be over with no event to tell. One that waits for this person's answer is not."""
        return self._is_doubtful and not self._is_asked

    @property
    def _is_asked(self) -> bool:
        """Whether this person's answer is waited for."""
        return bool(self._asks) and self._keyboard is not None

    def _wait(self) -> None:
        """Wait for an event, a key, a signal or the clock's next tick, and deal with all but the event."""
        self._ask()
        sources: list[Any] = [self._follower.connection, self._signals]
        if self._question is not None and self._keyboard is not None:
            sources.append(self._keyboard)
        ready, _, _ = select.select(sources, [], [], TICK_S if self._screen.wants_ticks else None)
        if self._signals in ready:
            self._signals.drain()
            self._signalled()
        if self._keyboard in ready:
            self._pressed()
        if not ready:
            self._progress.tick()

    def _take(self, record: dict[str, Any]) -> dict[str, Any]:
        """Paint one record and keep track of questions; returns its event."""
        if not record:
            return {}
        event = fields_of(record.get("event"))
        match event.get("type"):
            case "ask_opened":
                self._opened(fields_of(event.get("ask")))
            case "ask_closed":
                self._closed(event)
            case "permission_resolved":
                self._resolved(event)
            case "run_started":
                self._is_doubtful = False
            case _:
                pass
        if self._question is None:
            self._painter.paint(record)
            return event
        # A question is on the screen: what is painted goes above it, and it is shown again.
        self._question.hide()
        self._painter.paint(record)
        self._question.show_prompt()
        return event

    # --- asks ---------------------------------------------------------------------------------------------------

    def _note_asks(self, attached: dict[str, Any]) -> None:
        for ask in attached.get("asks", ()):
            self._opened(fields_of(ask))

    def _opened(self, ask: dict[str, Any]) -> None:
        ask_id = str(ask.get("askId"))
        if ask_id in self._asks or ask_id in self._answered:
            return
        self._asks[ask_id] = ask
        if self._keyboard is None:
            self._progress.say(f"waiting for an answer: basisctl approve {ask_id}")

    def _closed(self, event: dict[str, Any]) -> None:
        ask_id = str(event.get("askId"))
        if fields_of(event.get("by")).get("kind", "daemon") != "daemon":
            self._people_decided.add(str(self._asks.get(ask_id, {}).get("toolCallId")))
        self._settle(ask_id)
        if self._question is not None and self._question.ask_id == ask_id:
            self._question.withdraw()
            self._forget_question()

    def _resolved(self, event: dict[str, Any]) -> None:
        """A call was let through or not. Denied by neither rule nor person means that a person was lacking."""
        is_denied = event.get("outcome") == "denied" and event.get("ruleScope") is None
        if is_denied and self._keyboard is None and event.get("toolCallId") not in self._people_decided:
            self._lacked_a_person = True

    def _ask(self) -> None:
        """Put the oldest open question to the person, unless one is on the screen already."""
        if self._question is not None or self._keyboard is None or not self._asks:
            return
        ask = next(iter(self._asks.values()))
        from basisctl.asking import Question

        self._progress.is_paused = True
        self._progress.tick()
        self._question = Question(ask, self._screen)
        if fields_of(ask.get("preview")).get("type") == "diff":
            self._painter.shown_diffs.add(str(ask.get("toolCallId")))
        self._keyboard.listen()
        self._question.show()

    def _pressed(self) -> None:
        assert self._keyboard is not None and self._question is not None
        keys = self._keyboard.keys()
        if not keys:
            # The terminal is gone or at its end: whoever is asked next sits somewhere else.
            self._question.withdraw()
            self._forget_question()
            self._keyboard = None
            return
        answer = self._question.take(keys)
        if answer is not None:
            self._forget_question()
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        from basisctl.render import outcome

        self._settle(answer.ask_id)
        self._progress.say("working")
        try:
            self._follower.request("basis/ask/answer", answer.params())
        except ClientError as error:
            if error.is_unreachable:
                raise
            by = fields_of(error.details.get("by"))
            # Sent twice because the connection was lost under it: the answer that stands is ours.
            if by.get("clientId") != self._client_id:
                self._screen.line(outcome(error.details) if by else f"· {error.message}")

    def _settle(self, ask_id: str) -> None:
        self._asks.pop(ask_id, None)
        self._answered.add(ask_id)
        # An answer carries an interrupted turn on.
        self._is_doubtful = False

    def _forget_question(self) -> None:
        self._question = None
        self._progress.is_paused = False
        if self._keyboard is not None:
            self._keyboard.rest()

    # --- ending -------------------------------------------------------------------------------------------------

    def _signalled(self) -> None:
        if self._signals.was_continued and self._question is not None and self._keyboard is not None:
            self._keyboard.listen()
            self._question.show_prompt()
        self._signals.was_continued = False
        if self._signals.interrupts and not self._is_cancelling and self._turn_id is not None:
            self._is_cancelling = True
            if self._question is not None:
                self._question.withdraw()
                self._forget_question()
            self._asks.clear()
            self._progress.say("cancelling (Ctrl-C again leaves at once)")
            self._cancel(self._turn_id)

    def _cancel(self, turn_id: str) -> None:
        try:
            self._follower.request("basis/turn/cancel", {"sessionId": self._follower.session_id, "turnId": turn_id})
        except ClientError as error:
            # It ended by itself in the meantime: its last event is on the way.
            if error.is_unreachable:
                raise

    def _ends(self, turn_id: str, event: dict[str, Any]) -> bool:
        """Whether this is our turn's end. One that was cut short while it asked something goes on when answered."""
        is_its_end = event.get("type") == "run_finished" and event.get("turnId") == turn_id
        return is_its_end and not (event.get("status") == "interrupted" and self._is_asked)

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
        self._lacked_a_person = self._lacked_a_person or bool(self._asks)
        finished = {**told, "type": "run_finished", "turnId": turn_id, "message": told.get("error")}
        self._painter.paint({"event": finished})
        return finished

    def _ended(self, finished: dict[str, Any]) -> Ended:
        return Ended(finished, was_cancelled_here=self._is_cancelling, lacked_a_person=self._lacked_a_person)

    def _leave(self) -> None:
        if self._question is not None:
            self._question.withdraw()
            self._forget_question()
        self._progress.say("")
