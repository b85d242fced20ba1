"""The questions of one session as far as this terminal is concerned: which wait, which is on the screen, who answered.

Owns the keyboard while something is asked, sending the answer, and noticing that nobody was there to be asked. How a
question looks is `asking.py`.
"""

from __future__ import annotations

from basis_client.errors import ClientError, fields_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from basis_client.following import Follower
    from basisctl.asking import Answer, Question
    from basisctl.keyboard import Keyboard
    from basisctl.progress import Progress
    from basisctl.screen import Screen


class Questions:
    """`keyboard` is `None` when there is nobody to ask."""

    def __init__(
        self, follower: Follower, *, screen: Screen, progress: Progress, keyboard: Keyboard | None, client_id: str
    ) -> None:
        self.lacked_a_person = False
        """Whether a call was denied only because there was nobody to ask."""
        self.shown_diffs: set[str] = set()
        """Tool calls whose diff was shown as a question."""
        self._follower = follower
        self._screen = screen
        self._progress = progress
        self._keyboard = keyboard
        self._client_id = client_id
        self._waiting: dict[str, dict[str, Any]] = {}
        self._settled: set[str] = set()
        self._decided_by_people: set[str] = set()
        """Tool calls whose question a person answered."""
        self._shown: Question | None = None

    @property
    def are_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def wait_for_us(self) -> bool:
        """Whether an answer of this terminal's person is waited for."""
        return bool(self._waiting) and self._keyboard is not None

    @property
    def source(self) -> Keyboard | None:
        """What to wait for keys on, while a question is on the screen."""
        return self._keyboard if self._shown is not None else None

    # --- what the session says --------------------------------------------------------------------------------------

    def note(self, attached: dict[str, Any]) -> None:
        """Take the questions that wait according to the answer to an attach."""
        for ask in attached.get("asks", ()):
            self._opened(fields_of(ask))

    def take(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "ask_opened":
                self._opened(fields_of(event.get("ask")))
            case "ask_closed":
                self._closed(event)
            case "permission_resolved":
                self._resolved(event)
            case _:
                pass

    def _opened(self, ask: dict[str, Any]) -> None:
        ask_id = str(ask.get("askId"))
        if ask_id in self._waiting or ask_id in self._settled:
            return
        self._waiting[ask_id] = ask
        if self._keyboard is None:
            self._progress.say(f"waiting for an answer: basisctl approve {ask_id}")

    def _closed(self, event: dict[str, Any]) -> None:
        ask_id = str(event.get("askId"))
        if fields_of(event.get("by")).get("kind", "daemon") != "daemon":
            self._decided_by_people.add(str(self._waiting.get(ask_id, {}).get("toolCallId")))
        self._settle(ask_id)
        if self._shown is not None and self._shown.ask_id == ask_id:
            self._take_down()

    def _resolved(self, event: dict[str, Any]) -> None:
        """A call was let through or not. Denied by neither rule nor person means that a person was lacking."""
        is_denied = event.get("outcome") == "denied" and event.get("ruleScope") is None
        if is_denied and self._keyboard is None and event.get("toolCallId") not in self._decided_by_people:
            self.lacked_a_person = True

    # --- the person ---------------------------------------------------------------------------------------------------

    def put(self) -> None:
        """Put the oldest waiting question to the person, unless one is on the screen already."""
        if self._shown is not None or self._keyboard is None or not self._waiting:
            return
        from basisctl.asking import Question

        ask = next(iter(self._waiting.values()))
        self._progress.pause()
        self._shown = Question(ask, self._screen)
        if fields_of(ask.get("preview")).get("type") == "diff":
            self.shown_diffs.add(str(ask.get("toolCallId")))
        self._keyboard.listen()
        self._shown.show()

    def pressed(self) -> bool:
        """Take the keys that `source` has. Returns whether an answer was sent."""
        assert self._keyboard is not None and self._shown is not None
        keys = self._keyboard.keys()
        if keys is None:
            # The terminal is gone: whoever is asked next sits somewhere else.
            self._take_down()
            self._keyboard = None
            return False
        answer = self._shown.take(keys)
        if answer is None:
            return False
        self._put_away()
        self._send(answer)
        return True

    def hide(self) -> None:
        """Make room for lines above the question on the screen, if there is one, until `show_again`."""
        if self._shown is not None:
            self._shown.hide()

    def show_again(self) -> None:
        if self._shown is not None:
            self._shown.show_prompt()

    def continued(self) -> None:
        """The process was stopped and goes on: the terminal's mode is not what it was."""
        if self._shown is not None and self._keyboard is not None:
            self._keyboard.listen()
            self._shown.show_prompt()

    def drop(self) -> None:
        """Forget every question: the turn is being cancelled, or this terminal leaves."""
        self._waiting.clear()
        if self._shown is not None:
            self._take_down()

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
        self._waiting.pop(ask_id, None)
        self._settled.add(ask_id)

    def _take_down(self) -> None:
        if self._shown is not None:
            self._shown.withdraw()
        self._put_away()

    def _put_away(self) -> None:
        self._shown = None
        self._progress.go_on()
        if self._keyboard is not None:
            self._keyboard.rest()
