"""Who may send a request to a provider now: one lane for each key, shared by every session of the process.

Owns how many requests of one key are under way, the pause after a provider asked for one, and whose turn comes next.
Sends nothing and repeats nothing: `remote_scope.py` asks for a place around each attempt, and trying again is the
loop's.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.base import ProviderWait
from basis_daemon.runtime.providers.errors import ProviderError

FIRST_PAUSE_S = 0.5
"""Seconds of the pause after a refusal that names none; doubles with every further one in a row."""
LONGEST_UNASKED_PAUSE_S = 5.0
"""Where that doubling ends: as far apart as one session's own attempts (PV-52)."""
LONGEST_PAUSE_S = 60.0
"""What is heeded of a provider's own wish, in seconds. After that one request finds out whether it still holds."""
FORGOTTEN_AFTER_S = 60.0
"""Seconds after which an unused lane is dropped: tokens that rotate would leave one behind each."""

WaitListener = Callable[[ProviderWait | None], None]


@dataclass(frozen=True, slots=True)
class LaneKey:
    """Whose limits a request counts against."""

    provider: str
    origin: str
    secrets: tuple[Secret, ...] = ()


class Governor:
    """The lanes of a process. Belongs to one event loop; nothing here blocks or starts a task."""

    def __init__(self, *, first_pause_s: float = FIRST_PAUSE_S, clock: Callable[[], float] | None = None) -> None:
        """`clock` gives seconds; without one it is the running loop's."""
        self._first_pause_s = first_pause_s
        self._clock = clock or _loop_time
        self._lanes: dict[LaneKey, _Lane] = {}

    @property
    def lanes(self) -> dict[LaneKey, int]:
        """How many requests of each key are under way."""
        return {key: lane.under_way for key, lane in self._lanes.items()}

    @asynccontextmanager
    async def place(
        self, key: LaneKey, max_concurrent: int, on_wait: WaitListener | None = None
    ) -> AsyncGenerator["Place"]:
        """Wait for a place among at most `max_concurrent` requests of `key`, and hold it for the block.

        `on_wait` is told what is waited for, whenever that changes, and `None` at the end. A `ProviderError` that asks
        for a pause and leaves the block holds all other requests of the lane back; its `held_s` says for how long.
        Cancelling while waiting gives the place up.
        """
        lane = self._lane(key, max_concurrent)
        place = await lane.enter(on_wait)
        try:
            yield place
        except ProviderError as error:
            lane.failed(place, error)
            raise
        finally:
            lane.leave(place)

    def _lane(self, key: LaneKey, limit: int) -> "_Lane":
        lane = self._lanes.get(key)
        if lane is None:
            now = self._clock()
            self._lanes = {known: each for known, each in self._lanes.items() if not each.is_forgotten(now)}
            lane = self._lanes[key] = _Lane(self._first_pause_s, self._clock)
        lane.limit = limit
        return lane


@dataclass(slots=True, eq=False)
class Place:
    """One request's place in its lane."""

    lane: "_Lane"
    era: int
    """How many pauses there had been when it was given out: what it meets tells nothing of what came later."""
    waited: bool = False
    """Whether others went first: what was worked out before may be out of date."""
    is_answered: bool = False

    def answered(self) -> None:
        """The provider has taken the request: it isn't refusing requests at the moment."""
        self.lane.answered(self)


@dataclass(slots=True, eq=False)
class _Waiter:
    turn: "asyncio.Future[Place]"
    on_wait: WaitListener | None
    told: ProviderWait | None = field(default=None)

    def tell(self, wait: ProviderWait) -> None:
        if self.on_wait is not None and wait != self.told:
            self.told = wait
            self.on_wait(wait)


class _Lane:
    """Places of one key. Behind a pause one request goes alone; every answer lets twice as many go at once again."""

    __slots__ = (
        "_era",
        "_first_pause_s",
        "_now",
        "_paused_until",
        "_pauses",
        "_queue",
        "_timer",
        "_unanswered",
        "_until",
        "_used_at",
        "_width",
        "limit",
        "under_way",
    )

    def __init__(self, first_pause_s: float, clock: Callable[[], float]) -> None:
        self.limit = 1
        self._now = clock
        self._first_pause_s = first_pause_s
        self._queue: deque[_Waiter] = deque()
        self.under_way = 0
        self._era = 0
        self._unanswered = 0
        """Requests of this era that the provider has neither taken nor refused yet."""
        self._width: int | None = None
        """How many requests may be without an answer at once; `None` is any number."""
        self._pauses = 0
        """Refusals in a row, those of requests sent together counted once."""
        self._paused_until = 0.0
        self._until = 0.0
        """The same in seconds since the epoch."""
        self._used_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def is_forgotten(self, now: float) -> bool:
        is_idle = not self._queue and not self.under_way
        return is_idle and now > max(self._used_at, self._paused_until) + FORGOTTEN_AFTER_S

    async def enter(self, on_wait: WaitListener | None) -> Place:
        """A place, once it is this request's turn."""
        if not self._queue and self._may_go():
            return self._begin()
        waiter = _Waiter(asyncio.get_running_loop().create_future(), on_wait)
        self._queue.append(waiter)
        self._move()
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self.leave(waiter.turn.result())  # it was given the place and cancelled in the same moment
            elif waiter in self._queue:
                self._queue.remove(waiter)
                self._move()
            raise
        finally:
            if on_wait is not None and waiter.told is not None:
                on_wait(None)

    def leave(self, place: Place) -> None:
        self.under_way -= 1
        self._used_at = self._now()
        if not place.is_answered and place.era == self._era:
            self._unanswered -= 1
        self._move()

    def answered(self, place: Place) -> None:
        if place.is_answered:
            return
        place.is_answered = True
        if place.era == self._era:
            self._unanswered -= 1
            self._pauses = 0
            if self._width is not None:
                self._width = self._width * 2 if self._width * 2 < self.limit else None
        self._move()

    def failed(self, place: Place, error: ProviderError) -> None:
        """What an error says about the requests that wait."""
        if error.asks_for_pause:
            self._pause(place, error)
        elif error.status is not None:  # else it failed on the way, or was never sent
            self.answered(place)

    def _pause(self, place: Place, error: ProviderError) -> None:
        now = self._now()
        if place.era == self._era:
            self._pauses += 1
        wished = error.retry_after_s
        if wished is None:
            wished = min(self._first_pause_s * 2 ** min(self._pauses - 1, 16), LONGEST_UNASKED_PAUSE_S)
        pause_s = min(wished, LONGEST_PAUSE_S)
        if now + pause_s > self._paused_until:
            self._paused_until = now + pause_s
            self._until = time.time() + pause_s
        self._width, self._era, self._unanswered = 1, self._era + 1, 0
        error.held_s = max(0.0, self._paused_until - now)

    # --- whose turn it is

    def _may_go(self) -> bool:
        is_wide_enough = self._width is None or self._unanswered < self._width
        return self.under_way < self.limit and is_wide_enough and self._now() >= self._paused_until

    def _begin(self) -> Place:
        self.under_way += 1
        self._unanswered += 1
        return Place(self, self._era)

    def _move(self) -> None:
        """Let go who may, wake up again when a pause ends, and tell the others what they wait for."""
        while self._queue and self._may_go():
            waiter = self._queue.popleft()
            if not waiter.turn.done():  # else cancelled, and about to notice
                place = self._begin()
                place.waited = True
                waiter.turn.set_result(place)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pause_s = self._paused_until - self._now()
        is_paused = pause_s > 0
        if self._queue and is_paused:
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._move)
        reason = "rate_limit" if is_paused or self._width is not None else "concurrency"
        for ahead, waiter in enumerate(self._queue):
            waiter.tell(ProviderWait(reason, self._until if is_paused else None, ahead))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
