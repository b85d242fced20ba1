"""Following one session without an event loop, over as many connections as it takes. Standard library only.

Owns the cursor and the attaching: every event comes once, in order, also when the daemon was killed in between or when
it gave up on a reader that was too slow. Does not know what the events mean.
"""

from __future__ import annotations

import time
from itertools import count

from basis_client.cursor import GAP, NEXT, Cursor
from basis_client.errors import CONNECTION_LOST, DAEMON_UNREACHABLE, NOT_RUNNING, TIMED_OUT, ClientError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from basis_client.blocking import Connection

PATIENCE_S = 20.0
"""How long a lost daemon is looked for before the loss is reported."""

PATIENCE_WHEN_STOPPED_S = 5.0
"""The same when nobody may start one, because somebody stopped it: a service manager's restart takes less."""

LOSSES_WITHOUT_NEWS = 8
"""Give up when the connection was lost this often with no event in between: something ends the daemon each time."""

PAUSES_S = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

PASSING = (CONNECTION_LOST, NOT_RUNNING, DAEMON_UNREACHABLE, TIMED_OUT)


class Follower:
    """The events of one session.

    `dial` makes a new connection and prepares it (opens the workspace again, so that the new daemon knows this
    client's environment). `on_lost` is called when the connection is gone; `on_attached` gets the answer to every
    attach that was made because of it.
    """

    def __init__(
        self,
        connection: Connection,
        session_id: str,
        *,
        dial: Callable[[], Connection],
    ) -> None:
        self.connection = connection
        self.session_id = session_id
        self.cursor = Cursor()
        self.on_lost: Callable[[], None] | None = None
        self.on_attached: Callable[[dict[str, Any]], None] | None = None
        self._dial = dial
        self._losses = 0
        self._asked_again_after: int | None = None

    def attach(self, after_seq: int | None = None) -> dict[str, Any]:
        """Begin. Without `after_seq` the answer carries a snapshot of the past."""
        params: dict[str, Any] = {"sessionId": self.session_id}
        if after_seq is not None:
            params["afterSeq"] = after_seq
        answer = self.connection.request("basis/session/attach", params)
        self.cursor.attached(after_seq=after_seq, seq=answer["seq"], has_snapshot="snapshot" in answer)
        return answer

    def take(self, timeout_s: float = 0.0) -> dict[str, Any] | None:
        """Return the params of the next `basis/session/event`, or `None` when none came in time.

        Reconnects as needed. Raises `ClientError` when that fails for good.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                notification = self.connection.take(max(0.0, deadline - time.monotonic()))
                if notification is None:
                    return None
                event = self._sort(*notification)
            except ClientError as error:
                self.recover(error)
                continue
            if event is not None:
                self._losses = 0
                return event

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A request that may be repeated without harm: sent again when the connection is lost under it."""
        while True:
            try:
                return self.connection.request(method, params)
            except ClientError as error:
                self.recover(error)

    def recover(self, error: ClientError) -> None:
        """Connect and attach again after a lost connection; raise `error` itself when it is something else."""
        if error.kind != CONNECTION_LOST:
            raise error
        self._losses += 1
        if self._losses > LOSSES_WITHOUT_NEWS:
            raise error
        if self.on_lost is not None:
            self.on_lost()
        lost_at = time.monotonic()
        for attempt in count():
            try:
                self._connect_again()
            except ClientError as failure:
                pause = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
                patience_s = PATIENCE_WHEN_STOPPED_S if failure.kind == NOT_RUNNING else PATIENCE_S
                if failure.kind not in PASSING or time.monotonic() + pause > lost_at + patience_s:
                    raise
                time.sleep(pause)
            else:
                return

    def _connect_again(self) -> None:
        self.connection.close()
        self.connection = self._dial()
        self._attach_again()

    def _attach_again(self) -> None:
        answer = self.attach(self.cursor.seen)
        if self.on_attached is not None:
            self.on_attached(answer)

    def _sort(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if params.get("sessionId") != self.session_id:
            return None
        if method == "basis/session/lagged":
            self._attach_again()
            return None
        seq = params.get("seq")
        if method != "basis/session/event" or not isinstance(seq, int):
            return None
        place = self.cursor.take(seq)
        if place == GAP and self._asked_again_after != self.cursor.seen:
            self._asked_again_after = self.cursor.seen
            self._attach_again()
        return params if place == NEXT else None
