"""Running the turns of one session, one after the other, in the daemon's own task (architecture.md 4).

Owns the queue's progress, how each turn ended, and who waits for which. Accepting prompts is `turns.py`'s; how a turn
works the runtime's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from basis_daemon.errors import BasisError, Busy, NoSuchTurn
from basis_daemon.runtime.cancel import CancelSignal, StopSignal
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.prompts import speaker
from basis_daemon.runtime.store.base import PromptAccepted, TurnEnded
from basis_daemon.runtime.typed_output import OutputSpec, OutputWanted, matching
from basis_daemon.server.approver import TurnApprover
from basis_daemon.server.asks import AskBook
from basis_daemon.server.session import LiveSession
from basis_daemon.server.session_state import RunningTurn
from basis_daemon.server.unfinished import Unfinished
from basis_daemon.server.work import Work
from basis_protocol.events import RunFinished, TurnQueued, Usage
from basis_protocol.sessions import Bounds, OutputRequest, TurnOutcome, Unattended

log = logging.getLogger(__name__)

KEPT_OUTCOMES = 64
"""Turns whose end is remembered here too: those that never got as far as the conversation's own record."""

DEPARTURE_GRACE_S = 10.0
"""Seconds an unattended turn that doesn't wait gives its last approver to come back: an editor's reload takes three."""


class PromptOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client said about how its prompt is to be run. Stored with the prompt: it may run after a restart."""

    bounds: Bounds = Bounds()
    unattended: Unattended = Unattended()
    output: OutputRequest | None = None


class TurnRunner:
    """The one task that runs turns of a session; there is none while nothing waits."""

    def __init__(
        self,
        session: LiveSession,
        *,
        asks: AskBook,
        work: Work,
        unfinished: Unfinished,
        renew: Callable[[LiveSession], Awaitable[None]],
    ) -> None:
        """`renew` gives the session a run from its workspace as it is now; called before each turn."""
        self.changing = asyncio.Lock()
        """Held by whoever uses or replaces the session's run across an await."""
        self.is_stopping = False
        self._session = session
        self._asks = asks
        self._work = work
        self._unfinished = unfinished
        self._renew = renew
        self._task: asyncio.Task[None] | None = None
        self._waiters: dict[str, asyncio.Future[TurnOutcome]] = {}
        self._settled: dict[str, TurnOutcome] = {}
        self._steering: set[str] = set()
        session.on_departure = self._on_departure

    @property
    def is_working(self) -> bool:
        """Whether the task is under way, also between two turns."""
        return self._task is not None

    async def settled(self) -> None:
        """Return at once while turns run or wait; else when the task has tidied up behind the last one, so that whoever
        heard of a turn's end can act on it."""
        if self._task is not None and not self._session.is_busy:
            await asyncio.wait([self._task])

    # --- starting and ending ---

    def start(self, resumed: PromptAccepted | None = None, *, is_cancelled: bool = False) -> None:
        """Run what is queued; first `resumed`, a turn that was cut short. Must not be working already.

        With `is_cancelled` that turn is rolled back by the same code as any other: it begins with its cancel given.
        """
        if resumed is not None:
            self._waiters.setdefault(resumed.turn_id, asyncio.get_running_loop().create_future())
        self._task = self._work.start(self._run(resumed, is_cancelled), name=f"turns of {self._session.id}")

    def enqueue(self, prompt: PromptAccepted) -> None:
        """Run an accepted prompt when its turn comes."""
        self._session.queue.append(prompt)
        self._waiters[prompt.turn_id] = asyncio.get_running_loop().create_future()
        if self._task is None:
            self.start()

    def steer(self, prompt: PromptAccepted) -> bool:
        """Give an accepted prompt to the running turn. False when that has not begun to run yet."""
        try:
            # Whoever watches sees each correction sent at once: none of them waits for another round.
            self._session.run.steering.set_mode("steering", "all")
            self._session.run.steer(prompt)
        except Busy:
            return False
        self._steering.add(prompt.turn_id)
        return True

    def withdraw(self, turn_id: str, why: str) -> bool:
        """Take a prompt out of the queue for good. False when none of that id waits."""
        session = self._session
        for prompt in session.queue:
            if prompt.turn_id == turn_id:
                session.queue.remove(prompt)
                session.run.withdraw(turn_id)
                session.emit(RunFinished(turn_id=turn_id, status="cancelled", message=why))
                self._settle(turn_id, TurnOutcome(status="cancelled", usage=Usage(), error=why))
                session.refresh_state()
                return True
        return False

    async def finish(self, *, now: bool, timeout_s: float) -> None:
        """Begin no further turn and bring the running one to an end: at its next round boundary, or at once.

        A turn that is cut short, or that waits for a person, stays interrupted and can be carried on.
        """
        self.is_stopping = True
        session, task = self._session, self._task
        if task is None:
            return
        if session.running is not None and not now and session.state.kind != "waiting_person":
            session.running.stop.set("the daemon is stopping")
            await asyncio.wait([task], timeout=timeout_s)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=timeout_s)

    # --- outcomes ---

    async def wait(self, turn_id: str) -> TurnOutcome:
        """How a turn ended. Repeatable, and cancelling it changes nothing. Raises `NoSuchTurn`."""
        waiter = self._waiters.get(turn_id)
        if waiter is not None:
            return await asyncio.shield(waiter)
        run = self._session.run
        ended = run.outcome(turn_id)
        if ended is not None:
            return outcome_of(ended)
        if turn_id in self._settled:
            return self._settled[turn_id]
        if run.interrupted is not None and run.interrupted.turn_id == turn_id:
            return TurnOutcome(status="interrupted", usage=Usage())
        raise NoSuchTurn(f"this session has no turn {turn_id!r}, or it ended too long ago")

    def _settle(self, turn_id: str, outcome: TurnOutcome) -> None:
        self._settled[turn_id] = outcome
        while len(self._settled) > KEPT_OUTCOMES:
            del self._settled[next(iter(self._settled))]
        waiter = self._waiters.pop(turn_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(outcome)

    # --- running ---

    async def _run(self, resumed: PromptAccepted | None, is_cancelled: bool) -> None:
        session = self._session
        try:
            if resumed is not None:
                await self._turn(resumed, resumed=True, is_cancelled=is_cancelled)
            while True:
                while session.queue and not self.is_stopping:
                    await self._turn(session.queue.popleft(), resumed=False)
                if self.is_stopping or session.run.interrupted is not None:
                    break
                await asyncio.to_thread(self._unfinished.remove, session.id)
                if not session.queue:
                    break
                # One was accepted while the mark was being taken away.
                await asyncio.to_thread(self._unfinished.add, session.id)
        finally:
            self._task = None
            session.touch()
            session.refresh_state()

    async def _turn(self, prompt: PromptAccepted, *, resumed: bool, is_cancelled: bool = False) -> None:
        session, options = self._session, options_of(prompt)
        turn = self._new_turn(prompt, options.unattended)
        if is_cancelled:
            turn.cancel.set("cancelled before it was carried on")
        session.running = turn
        session.refresh_state()
        outcome = TurnOutcome(status="interrupted", usage=Usage())
        try:
            outcome = await self._execute(turn, options, resumed)
        finally:
            session.running = None
            self._settle(prompt.turn_id, outcome)
        self._take_up_leftovers()
        if not session.queue:
            session.refresh_state()
        session.announce()

    def _new_turn(self, prompt: PromptAccepted, unattended: Unattended) -> RunningTurn:
        session, cancel = self._session, CancelSignal()
        approver = TurnApprover(
            asks=self._asks,
            work=self._work,
            workspace=session.root,
            turn_id=prompt.turn_id,
            cancel=cancel,
            unattended=unattended,
            can_be_asked=session.can_be_asked,
        )
        return RunningTurn(prompt=prompt, approver=approver, cancel=cancel, stop=StopSignal())

    async def _execute(self, turn: RunningTurn, options: PromptOptions, resumed: bool) -> TurnOutcome:
        session = self._session
        try:
            async with self.changing:
                await self._renew(session)
            await session.run.execute(
                turn.prompt,
                emit=session.emit,
                approver=turn.approver,
                options=_turn_options(turn, options.bounds),
                resumed=resumed,
                output=_wanted(turn, options.output),
            )
        except BasisError as error:
            return self._refused(turn.prompt, error)
        except Exception:
            log.exception("a turn failed outside the runtime", extra={"session": session.id})
            return self._refused(turn.prompt, BasisError("the daemon failed to run this turn; its log has the cause"))
        ended = session.run.outcome(turn.id)
        return outcome_of(ended) if ended else TurnOutcome(status="error", usage=Usage())

    def _refused(self, prompt: PromptAccepted, error: BasisError) -> TurnOutcome:
        """The turn could not even begin: end its stream, and don't try again by ourselves."""
        session = self._session
        if any(waiting.turn_id == prompt.turn_id for waiting in session.run.queued):
            with suppress(BasisError):  # it is closed already when it could not be loaded anew
                session.run.withdraw(prompt.turn_id)
        session.emit(session.run.header(prompt.turn_id))
        session.emit(RunFinished(turn_id=prompt.turn_id, status="error", message=str(error)))
        return TurnOutcome(status="error", usage=Usage(), error=str(error))

    def _take_up_leftovers(self) -> None:
        """Steering that came too late for the turn it was meant for is a turn of its own."""
        session = self._session
        for prompt in [each for each in session.run.queued if each.turn_id in self._steering]:
            session.queue.append(prompt)
            self._waiters[prompt.turn_id] = asyncio.get_running_loop().create_future()
            session.emit(TurnQueued(turn_id=prompt.turn_id, position=len(session.queue) - 1, by=speaker(prompt.by)))
        self._steering.clear()

    # --- nobody there ---

    def _on_departure(self) -> None:
        running = self._session.running
        if running is not None and running.approver.leave_nobody():
            asyncio.get_running_loop().call_later(DEPARTURE_GRACE_S, self._deny_unattended, running)

    def _deny_unattended(self, running: RunningTurn) -> None:
        if self._session.running is running:
            for ask_id in running.approver.leave_nobody():
                reason = running.approver.unattended_reason
                self._work.start(self._asks.close(ask_id, reason, withdrawn=False), name="denying an unattended ask")


def outcome_of(ended: TurnEnded) -> TurnOutcome:
    """How a turn ended, as the wire says it."""
    return TurnOutcome(
        status=ended.status,
        stopped_by=ended.stopped_by,
        final_message=ended.final_message,
        output=ended.output,
        usage=ended.usage,
        error=ended.error,
    )


def options_of(prompt: PromptAccepted) -> PromptOptions:
    """What was said with the prompt; options this build can't read are none."""
    try:
        return msgspec.convert(prompt.options, PromptOptions)
    except msgspec.ValidationError:
        log.warning("ignored the options of a stored prompt", extra={"turn": prompt.turn_id})
        return PromptOptions()


def _turn_options(turn: RunningTurn, bounds: Bounds) -> TurnOptions:
    return TurnOptions(
        cancel=turn.cancel,
        stop=turn.stop,
        deadline_s=bounds.deadline_ms / 1000 if bounds.deadline_ms is not None else None,
        tool_budget=bounds.tool_budget,
        token_budget=bounds.token_budget,
    )


def spec_of(request: OutputRequest) -> OutputSpec:
    """The specification a client's request amounts to. Raises `InvalidOutputSpec`."""
    return OutputSpec(request.name, request.description, request.schema, request.keeps_tools)


def _wanted(turn: RunningTurn, request: OutputRequest | None) -> OutputWanted | None:
    """What the turn is to end with: a value that matches the schema, or the model is told and tries again."""
    if request is None:
        return None
    return OutputWanted(spec_of(request).reserve_for(turn.id), matching(request.schema))
