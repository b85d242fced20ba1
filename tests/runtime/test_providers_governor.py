"""Who may send a request now (`providers/governor.py`): caps, pauses, order, and nothing lost on the way."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.base import ProviderWait
from basis_daemon.runtime.providers.errors import (
    HttpError,
    InvalidRequest,
    ProviderError,
    RetryableError,
    SocketEnded,
    TransportError,
)
from basis_daemon.runtime.providers.governor import Governor, LaneKey, Place

pytestmark = pytest.mark.anyio
KEY = LaneKey("openai", "https://h:443", (Secret("sk-one"),))
OTHER = LaneKey("openai", "https://h:443", (Secret("sk-two"),))


class Requests:
    """Requests of one test: each holds its place until it is told how it ends."""

    def __init__(self, governor: Governor, tasks: Any, limit: int = 2) -> None:
        self.governor = governor
        self.tasks = tasks
        self.limit = limit
        self.started: list[str] = []
        self.told: dict[str, list[ProviderWait | None]] = {}
        self.failures: dict[str, ProviderError] = {}
        self._ends: dict[str, asyncio.Future[ProviderError | None]] = {}
        self.scopes: dict[str, anyio.CancelScope] = {}
        self._places: dict[str, Place] = {}
        self._changed = asyncio.Event()
        self.on_told: Callable[[str, ProviderWait | None], None] = lambda _name, _wait: None

    def send(self, name: str, key: LaneKey = KEY) -> None:
        self.told[name] = []
        self._ends[name] = asyncio.get_running_loop().create_future()
        self.scopes[name] = anyio.CancelScope()
        self.tasks.start_soon(self._run, name, key)

    async def _run(self, name: str, key: LaneKey) -> None:
        def note(wait: ProviderWait | None) -> None:
            self.told[name].append(wait)
            self.on_told(name, wait)

        with self.scopes[name], suppress(ProviderError):
            async with self.governor.place(key, self.limit, note) as place:
                self._places[name] = place
                self.started.append(name)
                self._changed.set()
                error = await self._ends[name]
                if error is not None:
                    self.failures[name] = error
                    raise error

    async def wait_started(self, *names: str) -> None:
        with anyio.fail_after(5):
            while not set(names) <= set(self.started):
                self._changed.clear()
                await self._changed.wait()

    def answer(self, name: str) -> None:
        self._places[name].answered()

    async def end(self, name: str, error: ProviderError | None = None) -> None:
        self._ends[name].set_result(error)
        await settle()

    async def cancel(self, name: str) -> None:
        self.scopes[name].cancel()
        await settle()


async def settle() -> None:
    """Let everything that can happen now happen."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


@pytest.fixture
async def requests() -> AsyncIterator[Requests]:
    async with anyio.create_task_group() as tasks:
        yield Requests(Governor(), tasks)
        tasks.cancel_scope.cancel()


def rate_limited(seconds: float | None = None, status: int = 429) -> HttpError:
    return HttpError("slow down", status=status, retry_after_s=seconds)


# --- how many at once -------------------------------------------------------------------------------------------------


async def test_requests_beyond_the_cap_go_in_the_order_they_came(requests: Requests) -> None:
    """One governor a process: concurrency cap, first come first served."""
    for name in "abcd":
        requests.send(name)
        await settle()
    assert requests.started == ["a", "b"]
    await requests.end("b")
    assert requests.started == ["a", "b", "c"]
    await requests.end("a")
    assert requests.started == ["a", "b", "c", "d"]


async def test_who_waits_is_told_how_many_go_first_and_when_the_wait_is_over(requests: Requests) -> None:
    for name in "abcd":
        requests.send(name)
        await settle()
    assert requests.told["a"] == [] and requests.told["d"] == [ProviderWait("concurrency", None, 1)]
    await requests.end("a")
    assert requests.told["c"] == [ProviderWait("concurrency", None, 0), None]
    assert requests.told["d"][1:] == [ProviderWait("concurrency", None, 0)]


async def test_place_is_held_until_the_stream_is_closed_not_until_it_was_answered(requests: Requests) -> None:
    requests.limit = 1
    requests.send("a")
    requests.send("b")
    await settle()
    requests.answer("a")
    await settle()
    assert requests.started == ["a"]
    await requests.end("a")
    assert requests.started == ["a", "b"]


async def test_other_keys_have_lanes_of_their_own(requests: Requests) -> None:
    """For each provider and credential; what one key is told does not hold another's requests back."""
    requests.limit = 1
    requests.send("a")
    await settle()
    await requests.end("a", rate_limited(30))
    requests.send("held")
    requests.send("free", OTHER)
    await settle()
    assert requests.started == ["a", "free"]
    assert requests.told["held"][0] is not None and requests.told["free"] == []


# --- pauses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [rate_limited(0.05), rate_limited(0.05, 503), rate_limited(), rate_limited(None, 529)]
)
async def test_all_requests_of_a_key_wait_once_one_is_told_to(error: HttpError, requests: Requests) -> None:
    """With and without Retry-After; those under way are left alone."""
    requests.governor = Governor(first_pause_s=0.05)
    requests.limit = 5
    requests.send("under way")
    requests.send("refused")
    await settle()
    await requests.end("refused", error)
    requests.send("next")
    await settle()
    assert requests.started == ["under way", "refused"]
    told = requests.told["next"][0]
    assert told is not None and told.reason == "rate_limit" and told.until is not None
    await requests.wait_started("next")
    assert requests.told["next"][-1] is None


async def test_behind_a_pause_one_goes_alone_and_every_answer_lets_twice_as_many_go(requests: Requests) -> None:
    """No thundering herd."""
    requests.limit = 8
    for name in ("refused", "other", *"abcdefgh"):
        requests.send(name)
    await settle()
    await requests.end("refused", rate_limited(0.02))
    await requests.end("other", rate_limited(0.02))  # it was sent ahead of the pause: nothing new is learnt from it
    for name in "abcdef":
        await requests.end(name)
    for name in "ijklmn":
        requests.send(name)
    await requests.wait_started("g")
    await settle()
    assert requests.started[8:] == ["g"]
    requests.answer("g")
    await settle()
    assert requests.started[8:] == ["g", "h", "i"]
    requests.answer("h")
    await settle()
    assert requests.started[8:] == ["g", "h", "i", "j", "k", "l"]


async def test_lane_that_answers_is_as_wide_as_before(requests: Requests) -> None:
    requests.limit = 4
    requests.send("a")
    await settle()
    await requests.end("a", rate_limited(0))
    for name in "bcdefg":
        requests.send(name)
    await requests.wait_started("b")
    requests.answer("b")
    await requests.wait_started("c", "d")
    requests.answer("c")
    await requests.wait_started("e")
    await requests.end("d")
    await requests.end("e")
    assert requests.started == ["a", "b", "c", "d", "e", "f", "g"]


async def test_refusal_of_another_kind_is_an_answer_too(requests: Requests) -> None:
    requests.limit = 4
    requests.send("a")
    await settle()
    await requests.end("a", rate_limited(0))
    for name in "bcd":
        requests.send(name)
    await requests.wait_started("b")
    await requests.end("b", HttpError("no such model", status=404))
    assert requests.started == ["a", "b", "c", "d"]


@pytest.mark.parametrize("error", [TransportError("gone"), SocketEnded("closed"), InvalidRequest("not sent")])
async def test_what_was_not_answered_tells_nothing_and_the_next_goes_alone_again(
    error: ProviderError, requests: Requests
) -> None:
    requests.limit = 4
    requests.send("a")
    await settle()
    await requests.end("a", rate_limited(0))
    for name in "bcd":
        requests.send(name)
    await requests.wait_started("b")
    await requests.end("b", error)
    assert requests.started == ["a", "b", "c"]


async def test_pauses_nobody_named_grow_with_every_refusal_in_a_row_up_to_a_limit(
    requests: Requests,
) -> None:
    """PV-52: as far apart as one session's own attempts; refusals of requests sent together count once."""
    clock = [1000.0]
    requests.governor = Governor(clock=lambda: clock[0])
    requests.limit = 3
    pauses: list[float] = []
    for turn in range(1, 7):
        names = [f"{turn}{letter}" for letter in "abc"]
        for name in names:
            requests.send(name)
        await settle()
        started = [name for name in names if name in requests.started]
        for name in started:
            await requests.end(name, rate_limited())
        pauses.append(requests.failures[started[0]].held_s)
        clock[0] += 60
        for name in names[len(started) :]:
            await requests.cancel(name)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


async def test_wish_of_an_hour_is_heeded_for_a_minute(requests: Requests) -> None:
    """PV-52: the cap; the error keeps the wish itself."""
    requests.send("a")
    await settle()
    error = rate_limited(3600)
    await requests.end("a", error)
    assert 59 < error.held_s <= 60 and error.retry_after_s == 3600


async def test_longer_pause_replaces_a_shorter_one_and_never_the_other_way_round(requests: Requests) -> None:
    requests.send("a")
    requests.send("b")
    await settle()
    await requests.end("a", rate_limited(30))
    error = rate_limited(1)
    await requests.end("b", error)
    assert error.held_s > 29


async def test_overload_told_inside_a_stream_pauses_the_lane_too(requests: Requests) -> None:
    requests.send("a")
    await settle()
    await requests.end("a", RetryableError("rate limit reached", status=429, retry_after_s=30))
    requests.send("b")
    await settle()
    assert requests.started == ["a"]


# --- giving up --------------------------------------------------------------------------------------------------------


async def test_who_is_cancelled_while_waiting_gives_its_place_up(requests: Requests) -> None:
    requests.limit = 1
    for name in "abc":
        requests.send(name)
        await settle()
    await requests.cancel("b")
    assert requests.told["b"][-1] is None
    assert requests.told["c"][-1] == ProviderWait("concurrency", None, 0)
    await requests.end("a")
    assert requests.started == ["a", "c"]


async def test_who_is_cancelled_in_the_moment_of_its_turn_gives_the_place_back(requests: Requests) -> None:
    """The task is cancelled when it was given the place already and could not notice yet."""

    async def wait_for_a_place() -> None:
        async with requests.governor.place(KEY, 1):
            raise AssertionError("it was cancelled ahead of this")

    def cancel(name: str, wait: ProviderWait | None) -> None:
        if name == "c" and wait is not None and wait.ahead == 0:
            unlucky.cancel()

    requests.limit = 1
    requests.on_told = cancel
    requests.send("a")
    await settle()
    async with asyncio.TaskGroup() as group:
        unlucky = group.create_task(wait_for_a_place())
        await settle()
        requests.send("c")
        await settle()
        await requests.end("a")
    assert unlucky.cancelled() and requests.started == ["a", "c"]


async def test_lanes_of_keys_long_gone_are_dropped(requests: Requests) -> None:
    """Tokens that rotate would leave one behind each."""
    clock = [1000.0]
    requests.governor = Governor(clock=lambda: clock[0])
    for number in range(5):
        requests.send(str(number), LaneKey("p", "o", (Secret(f"token-{number}"),)))
        await settle()
        await requests.end(str(number))
        clock[0] += 40
    assert len(requests.governor.lanes) == 2


# --- whatever happens -------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "answer", "end", "refuse", "pause", "cut", "cancel"]), st.integers(0, 11)),
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(steps=STEPS, limit=st.integers(1, 4))
def test_no_order_of_events_loses_a_place_or_lets_too_many_go(steps: list[tuple[str, int]], limit: int) -> None:
    """The cap holds at every moment, who is not cancelled is let go in order of arrival, and nobody waits for ever."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            requests = Requests(Governor(first_pause_s=0.001), tasks, limit)
            sent: list[str] = []
            over: set[str] = set()
            cancelled: set[str] = set()
            errors = {"end": None, "refuse": HttpError("no", status=400), "cut": TransportError("gone")}
            for what, number in steps:
                if what == "send":
                    sent.append(str(len(sent)))
                    requests.send(sent[-1])
                    await settle()
                    continue
                name = str(number)
                if name not in sent or name in over | cancelled:
                    continue
                if what == "cancel":
                    cancelled.add(name)
                    await requests.cancel(name)
                elif name in requests.started and what == "answer":
                    requests.answer(name)
                elif name in requests.started:
                    over.add(name)
                    await requests.end(name, rate_limited() if what == "pause" else errors[what])
                under_way = set(requests.started) - over - cancelled
                assert len(under_way) <= limit
            with anyio.fail_after(5):
                for name in sent:
                    if name not in cancelled | over:
                        await requests.wait_started(name)
                        await requests.end(name)
            numbers = [int(name) for name in requests.started]
            assert all(a < b for a, b in pairwise(numbers))
            requests.send("last")  # what was given out has come back
            await requests.wait_started("last")
            assert requests.governor.lanes == {KEY: 1}
            await requests.end("last")
            assert requests.governor.lanes == {KEY: 0}

    anyio.run(run)
