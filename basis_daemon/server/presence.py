"""Who is attached to a session, told to the others without telling every reconnect.

Owns the identities and the patience: a client that comes back within seconds never left, and a client that comes and
goes all day does not fill the journal.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from basis_protocol.asks import Actor
from basis_protocol.events import AnyEvent, ClientAttached, ClientDetached

GRACE_S = 5.0
"""Seconds after which a client that has not come back is gone: a window reload takes two or three."""

MAX_TOLD = 20
TOLD_WITHIN_S = 600.0
"""At most this many comings and goings are told in this time; the rest only shows in who is attached."""


class Presence:
    """The clients of one session by identity. `tell` gets an event when somebody comes or goes."""

    def __init__(self, tell: Callable[[AnyEvent], None], *, grace_s: float = GRACE_S) -> None:
        self._tell = tell
        self._grace_s = grace_s
        self._connections: Counter[str] = Counter()
        self._told: dict[str, Actor] = {}
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        self._times: deque[float] = deque(maxlen=MAX_TOLD)

    def arrived(self, identity: str, actor: Actor) -> None:
        self._connections[identity] += 1
        leaving = self._leaving.pop(identity, None)
        if leaving is not None:
            leaving.cancel()
        elif identity not in self._told and self._may_tell():
            self._told[identity] = actor
            self._tell(ClientAttached(client=actor))

    def left(self, identity: str) -> None:
        self._connections[identity] -= 1
        if self._connections[identity] <= 0:
            del self._connections[identity]
            if identity in self._told:
                timer = asyncio.get_running_loop().call_later(self._grace_s, self._gone, identity)
                self._leaving[identity] = timer

    def close(self) -> None:
        """Forget everybody without telling."""
        for timer in self._leaving.values():
            timer.cancel()
        self._leaving.clear()
        self._told.clear()

    def _gone(self, identity: str) -> None:
        self._leaving.pop(identity, None)
        # Whoever's coming was told is also told to have gone, however often that was lately.
        self._tell(ClientDetached(client=self._told.pop(identity)))

    def _may_tell(self) -> bool:
        now = asyncio.get_running_loop().time()
        if len(self._times) == MAX_TOLD and now - self._times[0] < TOLD_WITHIN_S:
            return False
        self._times.append(now)
        return True
