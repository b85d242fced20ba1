"""Who listens to a conversation, and what it looks like at the moment (runtime.md 3.9, 6.2).

A `Feed` is an `emit`: what a turn emits goes to every tap as it happens, then to every subscription, then into the
snapshot. Owns none of the events and waits for nobody. It belongs to one event loop; taps are called on it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Literal, Self

from basis_daemon.errors import UsageError
from basis_protocol.events import (
    AnyEvent,
    AssistantDelta,
    AssistantMessage,
    PermissionRequested,
    PermissionResolved,
    Retry,
    RunFinished,
    RunStarted,
    TaskUpdated,
    ToolCompleted,
    ToolQueued,
    ToolStarted,
    UserMessage,
)

logger = logging.getLogger(__name__)

CAPACITY = 512
"""Events a subscription keeps for a slow reader (SE-11)."""

Status = Literal["idle", "awaiting_model", "streaming", "executing_tool", "finished", "failed", "interrupted"]
ENDED: dict[str, Status] = {"ok": "finished", "error": "failed", "cancelled": "failed"}


@dataclass(frozen=True, slots=True)
class Lagged:
    """In the place of `count` events that a slow reader has lost (AG-31)."""

    count: int


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A tool call that has no result yet."""

    tool_call_id: str
    tool_name: str
    is_running: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A conversation at one moment (AG-34). `generation` counts turns, `text` is what the answer under way says."""

    status: Status = "idle"
    generation: int = 0
    turn_id: str | None = None
    text: str = ""
    message: str | None = None
    """Why the last turn failed, if it did."""
    pending_calls: tuple[PendingCall, ...] = ()
    pending_permissions: tuple[str, ...] = ()
    tasks: tuple[TaskUpdated, ...] = ()
    """Subagents and background commands, each as last heard of."""

    @property
    def is_running(self) -> bool:
        """Whether a turn is under way."""
        return self.status in ("awaiting_model", "streaming", "executing_tool")


class Tap:
    """A callback's place in a feed. Leaving it as a context, or `close`, takes exactly this callback out."""

    def __init__(self, callback: Callable[[AnyEvent], object], remove: "Callable[[Tap], None]") -> None:
        self._callback = callback
        self._remove = remove

    def close(self) -> None:
        """Not called again once this returns. Raises `UsageError` inside the callback itself (AG-32)."""
        self._remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def deliver(self, event: AnyEvent) -> None:
        """Call it. What it raises is logged and stays here."""
        try:
            self._callback(event)
        except Exception:
            logger.exception("a tap failed; the others and the turn go on")


class Subscription:
    """Events from now on, for one reader: `async for event in subscription`. One that reads too slowly loses the oldest
    and is told how many (AG-31). Ends with `close`, or with its feed."""

    def __init__(self, capacity: int, remove: "Callable[[Subscription], None]") -> None:
        self._remove = remove
        self._events: deque[AnyEvent] = deque(maxlen=capacity)
        self._lost = 0
        self._more = asyncio.Event()
        self._is_closed = False

    def close(self) -> None:
        """What was kept can still be read; nothing is added."""
        self._is_closed = True
        self._more.set()
        self._remove(self)

    def __aiter__(self) -> AsyncIterator[AnyEvent | Lagged]:
        return self

    async def __anext__(self) -> AnyEvent | Lagged:
        while not self._events and not self._lost:
            if self._is_closed:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return Lagged(lost)
        return self._events.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def deliver(self, event: AnyEvent) -> None:
        """Keep it for the reader; the oldest goes if there is no room."""
        self._lost += len(self._events) == self._events.maxlen
        self._events.append(event)
        self._more.set()


@dataclass(slots=True, eq=False)
class _Waiter:
    is_met: Callable[[Snapshot], bool]
    met: "asyncio.Future[Snapshot]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Feed:
    """Hand it to a turn as `emit`; nothing of it outlives the process."""

    def __init__(self) -> None:
        self._taps: tuple[Tap, ...] = ()
        self._subscriptions: set[Subscription] = set()
        self._waiters: list[_Waiter] = []
        self._is_calling = False
        self._state = Snapshot()
        self._text: list[str] = []

    @property
    def snapshot(self) -> Snapshot:
        """The latest; whoever looks late sees only this one."""
        return replace(self._state, text="".join(self._text))

    def __call__(self, event: AnyEvent) -> None:
        """Take the next event. Never raises."""
        self._is_calling = True
        try:
            for tap in self._taps:
                tap.deliver(event)
        finally:
            self._is_calling = False
        for subscription in self._subscriptions:
            subscription.deliver(event)
        self._note_text(event)
        self._state = _after(self._state, event)
        if self._waiters:
            self._settle_waiters()

    def tap(self, callback: Callable[[AnyEvent], object]) -> Tap:
        """Call `callback` with every event from now on, in order, as it happens (AG-32). Keep it short."""
        tap = Tap(callback, self._remove)
        self._taps = (*self._taps, tap)
        return tap

    def subscribe(self, capacity: int = CAPACITY) -> Subscription:
        """Events from now on, read at the reader's own pace."""
        subscription = Subscription(capacity, self._subscriptions.discard)
        self._subscriptions.add(subscription)
        return subscription

    async def wait_for(self, is_met: Callable[[Snapshot], bool], timeout_s: float | None = None) -> Snapshot:
        """The first snapshot, from the present one on, that `is_met` holds for. Raises `TimeoutError`."""
        now = self.snapshot
        if is_met(now):
            return now
        waiter = _Waiter(is_met)
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter.met
        finally:
            self._waiters = [one for one in self._waiters if one is not waiter]

    def wait_until_idle(self, timeout_s: float | None = None) -> Coroutine[object, object, Snapshot]:
        """The snapshot behind the turn under way, or behind the next one if none is (AG-36). Raises `TimeoutError`."""
        generation = self._state.generation + (not self._state.is_running)
        return self.wait_for(lambda now: now.generation >= generation and not now.is_running, timeout_s)

    def close(self) -> None:
        """End all subscriptions and forget the taps."""
        for subscription in tuple(self._subscriptions):
            subscription.close()
        self._taps = ()

    def _remove(self, tap: Tap) -> None:
        if self._is_calling:
            raise UsageError("a tap can't be closed by a callback", hint="close it once the callback has returned")
        self._taps = tuple(one for one in self._taps if one is not tap)

    def _note_text(self, event: AnyEvent) -> None:
        match event:
            case AssistantDelta():
                self._text.append(event.text)
            case AssistantMessage():
                self._text = [event.text]
            case RunStarted() | UserMessage() | Retry() | ToolCompleted():
                self._text = []
            case _:
                pass

    def _settle_waiters(self) -> None:
        now = self.snapshot
        for waiter in self._waiters:
            try:
                if not waiter.met.done() and waiter.is_met(now):
                    waiter.met.set_result(now)
            except Exception as error:
                waiter.met.set_exception(error)


def _after(now: Snapshot, event: AnyEvent) -> Snapshot:
    match event:
        case RunStarted():
            return replace(
                now,
                status="awaiting_model",
                generation=now.generation + 1,
                turn_id=event.turn_id,
                message=None,
            )
        case RunFinished():
            status = ENDED.get(event.status, "interrupted")
            return replace(now, status=status, message=event.message, pending_calls=(), pending_permissions=())
        case UserMessage() | Retry():
            return replace(now, status="awaiting_model")
        case AssistantDelta():
            return now if now.status == "streaming" else replace(now, status="streaming")
        case ToolQueued():
            return replace(now, pending_calls=(*now.pending_calls, PendingCall(event.tool_call_id, event.tool_name)))
        case ToolStarted():
            running = (
                replace(call, is_running=True) if call.tool_call_id == event.tool_call_id else call
                for call in now.pending_calls
            )
            return replace(now, status="executing_tool", pending_calls=tuple(running))
        case ToolCompleted():
            left = tuple(call for call in now.pending_calls if call.tool_call_id != event.tool_call_id)
            return replace(now, status=now.status if left else "awaiting_model", pending_calls=left)
        case PermissionRequested():
            return replace(now, pending_permissions=(*now.pending_permissions, event.request_id))
        case PermissionResolved():
            left_open = tuple(one for one in now.pending_permissions if one != event.request_id)
            return replace(now, pending_permissions=left_open)
        case TaskUpdated():
            others = tuple(task for task in now.tasks if task.task_id != event.task_id)
            return replace(now, tasks=(*others, event))
        case _:
            return now
