"""The turns of one session: accepting prompts, running them one after the other, ending them, carrying them on.

Owns acceptance (nothing is called accepted that a power cut could lose), the queue, and who waits for which turn. The
work is the daemon's own: a client that leaves takes nothing with it (architecture.md 4).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

import msgspec

from basis_daemon.errors import BasisError, Busy, NoSuchTurn, NothingToResume, StaleTurn
from basis_daemon.runtime.cancel import CancelSignal, StopSignal
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.messages import Message
from basis_daemon.runtime.store.base import PromptAccepted, TurnEnded
from basis_daemon.server import session_config
from basis_daemon.server.approver import TurnApprover
from basis_daemon.server.asks import AskBook
from basis_daemon.server.prompts import title_of
from basis_daemon.server.session import LiveSession, RunningTurn, actor_of
from basis_daemon.server.unfinished import Unfinished
from basis_daemon.server.work import Work
from basis_daemon.workspace.run import new_turn_id
from basis_protocol.asks import Actor
from basis_protocol.events import InfoChanged, RunFinished, TurnQueued, Usage
from basis_protocol.sessions import Bounds, SessionPromptResult, TurnOutcome, Unattended

log = logging.getLogger(__name__)

WhenBusy = Literal["reject", "queue", "steer"]

DEPARTURE_GRACE_S = 10.0
"""Seconds an unattended turn that doesn't wait gives its last approver to come back: an editor's reload takes three."""


KEPT_OUTCOMES = 64
"""Turns whose end is remembered here too: those that never got as far as the conversation's own record."""


class PromptOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client said about how its prompt is to be run. Stored with the prompt: it may run after a restart."""

    bounds: Bounds = Bounds()
    unattended: Unattended = Unattended()


class Turns:
    """Runs the turns of `session` in the daemon's own tasks."""

    def __init__(
        self,
        session: LiveSession,
        *,
        asks: AskBook,
        work: Work,
        unfinished: Unfinished,
        renew: Callable[[LiveSession], Awaitable[None]],
        is_daemon_stopping: Callable[[], bool],
    ) -> None:
        """`renew` gives the session a run from its workspace as it is now; called before each turn."""
        self._session = session
        self._asks = asks
        self._work = work
        self._unfinished = unfinished
        self._renew = renew
        self._is_daemon_stopping = is_daemon_stopping
        self._accepting = asyncio.Lock()
        self._waiters: dict[str, asyncio.Future[TurnOutcome]] = {}
        self._settled: dict[str, TurnOutcome] = {}
        self._steering: set[str] = set()
        self._runner: asyncio.Task[None] | None = None
        self._is_stopping = False
        session.on_departure = self._on_departure

    @property
    def is_working(self) -> bool:
        """Whether a task of this session is under way, also between two turns."""
        return self._runner is not None or self._accepting.locked()

    # --- prompts ---

    async def submit(
        self, message: Message, *, by: Actor, options: PromptOptions, when_busy: WhenBusy
    ) -> SessionPromptResult:
        """Accept a prompt. It would survive a power cut when this returns; then it runs, waits, or steers.

        Raises `Busy`, `EmptyPrompt`, `StoreError`. Runs to its end even if the caller is cancelled.
        """
        return await self._work.run(self._submit(message, by, options, when_busy))

    async def _submit(
        self, message: Message, by: Actor, options: PromptOptions, when_busy: WhenBusy
    ) -> SessionPromptResult:
        session = self._session
        async with self._accepting:
            self._require_running_daemon()
            if session.is_busy and when_busy == "reject":
                raise Busy("a turn is running", hint="wait for it, queue this prompt or steer with it")
            await self._abandon_interrupted()
            prompt = _accepted(message, by, options)
            await self._accept(prompt)
            running = session.running
            if when_busy == "steer" and running is not None and self._say_in(prompt):
                return SessionPromptResult(turn_id=running.id, state="steering")
            position = len(session.queue) + (session.running is not None)
            self._enqueue(prompt)
            if position:
                session.emit(TurnQueued(turn_id=prompt.turn_id, position=position, by=by))
            return SessionPromptResult(turn_id=prompt.turn_id, state="queued" if position else "running")

    async def steer(self, message: Message, *, expected_turn_id: str, by: Actor) -> SessionPromptResult:
        """Add input to the running turn. Raises `StaleTurn` when another one, or none, runs."""
        self._require_expected(expected_turn_id)
        return await self._work.run(self._steer(message, expected_turn_id, by))

    async def _steer(self, message: Message, expected_turn_id: str, by: Actor) -> SessionPromptResult:
        session = self._session
        async with self._accepting:
            self._require_expected(expected_turn_id)
            prompt = _accepted(message, by, PromptOptions())
            session.run.accept(prompt)
            if not self._say_in(prompt):
                session.run.withdraw(prompt.turn_id)
                raise Busy("the turn is only beginning", hint="steer again in a moment")
            await session.run.sync()
            return SessionPromptResult(turn_id=expected_turn_id, state="steering")

    async def set_option(self, option: str, value: str, by: Actor) -> None:
        """Set a config option; never waits for a turn (DM-18). Raises `InvalidParams`."""
        session = self._session
        session.set_option(option, value, by)
        if option == "mode":
            await asyncio.to_thread(session_config.save, session.run.directory, value)

    # --- ending and carrying on ---

    async def cancel(self, turn_id: str | None, by: Actor) -> None:
        """Abandon a turn and roll it back; withdraw one that waits. Raises `NoSuchTurn`."""
        session = self._session
        running = session.running
        if running is not None and turn_id in (None, running.id):
            running.cancel.set(f"cancelled by {by.client}")
        elif not self._withdraw(turn_id, f"withdrawn by {by.client}"):
            await self._cancel_interrupted(turn_id)

    async def stop(self, turn_id: str | None, by: Actor) -> None:
        """End a turn at its next round boundary and keep its work; withdraw one that waits. Raises `NoSuchTurn`."""
        running = self._session.running
        if running is not None and turn_id in (None, running.id):
            running.stop.set(f"stopped by {by.client}")
        elif not self._withdraw(turn_id, f"withdrawn by {by.client}"):
            raise NoSuchTurn("no such turn is running or waiting")

    async def resume(self) -> str:
        """Carry the interrupted (or failed) turn on, or start what waits. Returns the turn's id.

        Raises `Busy` and `NothingToResume`.
        """
        session = self._session
        self._require_running_daemon()
        if self.is_working:
            raise Busy("a turn is running already")
        prompt = session.run.resumable
        if prompt is not None:
            self._start(prompt)
            return prompt.turn_id
        if session.queue:
            self._start(None)
            return session.queue[0].turn_id
        raise NothingToResume("no turn of this session was cut short", hint="send a prompt")

    def carry_on(self, turn_id: str) -> None:
        """An ask of an interrupted turn was answered: go on with it. Nothing happens if that turn isn't waiting."""
        interrupted = self._session.run.interrupted
        is_free = self._runner is None and not self._is_stopping
        if is_free and interrupted is not None and interrupted.turn_id == turn_id:
            self._start(interrupted)

    async def recover(self) -> None:
        """Take up what an earlier daemon left: prompts that were accepted run, unless an interrupted turn is before
        them, which a person carries on."""
        session = self._session
        interrupted = session.run.interrupted
        for ask in self._asks.pending(session_id=session.id):
            if interrupted is None or self._asks.turn_of(ask.ask_id) != interrupted.turn_id:
                await self._asks.close(ask.ask_id, "the turn it belonged to is over")
        session.queue.extend(session.run.queued)
        if interrupted is None and session.queue:
            self._start(None)
        elif interrupted is None:
            await asyncio.to_thread(self._unfinished.remove, session.id)
        session.refresh_state()

    async def finish(self, *, now: bool, timeout_s: float) -> None:
        """Take no new prompts and bring the running turn to an end: at its next round boundary, or at once.

        A turn that is cut short, or that waits for a person, stays interrupted and can be carried on.
        """
        self._is_stopping = True
        session, runner = self._session, self._runner
        if runner is None:
            return
        if session.running is not None and not now and session.state.kind != "waiting_person":
            session.running.stop.set("the daemon is stopping")
            await asyncio.wait([runner], timeout=timeout_s)
        if not runner.done():
            runner.cancel()
            await asyncio.wait([runner], timeout=timeout_s)

    # --- waiting ---

    async def wait(self, turn_id: str) -> TurnOutcome:
        """How a turn ended. Repeatable, and cancelling it changes nothing. Raises `NoSuchTurn`."""
        session = self._session
        ended = session.run.outcome(turn_id)
        if ended is not None:
            return outcome_of(ended)
        waiter = self._waiters.get(turn_id)
        if waiter is not None:
            return await asyncio.shield(waiter)
        if turn_id in self._settled:
            return self._settled[turn_id]
        interrupted = session.run.interrupted
        if interrupted is not None and interrupted.turn_id == turn_id:
            return TurnOutcome(status="interrupted", usage=Usage())
        raise NoSuchTurn(f"this session has no turn {turn_id!r}, or it ended too long ago")

    # --- accepting, below ---

    async def _accept(self, prompt: PromptAccepted) -> None:
        session = self._session
        run = session.run
        if not session.title:
            title = title_of(prompt.message)
            if title:
                run.set_name(title)
                session.emit(InfoChanged(title=title))
        if run.is_persisted:
            run.accept(prompt)
        else:
            await asyncio.to_thread(run.accept, prompt)
            await self._settle_on_disk()
        if run.directory is not None:
            await asyncio.to_thread(self._unfinished.add, session.id)
        await run.sync()

    async def _settle_on_disk(self) -> None:
        """The first prompt has given the session a directory: its journal and settings go there."""
        directory = self._session.run.directory
        if directory is None:
            return
        await self._session.journal.bind(directory)
        if self._session.run.mode != "prompt":
            await asyncio.to_thread(session_config.save, directory, self._session.run.mode)

    def _say_in(self, prompt: PromptAccepted) -> bool:
        """Give an accepted prompt to the running turn. False when that has not begun to run yet."""
        try:
            self._session.run.steer(prompt)
        except Busy:
            return False
        self._steering.add(prompt.turn_id)
        return True

    def _enqueue(self, prompt: PromptAccepted) -> None:
        self._session.queue.append(prompt)
        self._waiters[prompt.turn_id] = asyncio.get_running_loop().create_future()
        if self._runner is None:
            self._start(None)

    async def _abandon_interrupted(self) -> None:
        """A new prompt goes on from what an interrupted turn has committed; its question is nobody's any more."""
        if self._runner is None and self._session.run.interrupted is not None:
            for ask in self._asks.pending(session_id=self._session.id):
                await self._asks.close(ask.ask_id, "a new prompt was sent instead of an answer")

    def _withdraw(self, turn_id: str | None, why: str) -> bool:
        session = self._session
        for prompt in session.queue:
            if prompt.turn_id == turn_id:
                session.queue.remove(prompt)
                session.run.withdraw(prompt.turn_id)
                session.emit(RunFinished(turn_id=prompt.turn_id, status="cancelled", message=why))
                self._settle(prompt.turn_id, TurnOutcome(status="cancelled", usage=Usage(), error=why))
                session.refresh_state()
                return True
        return False

    async def _cancel_interrupted(self, turn_id: str | None) -> None:
        session = self._session
        interrupted = session.run.interrupted
        if interrupted is None or turn_id not in (None, interrupted.turn_id) or self._runner is not None:
            raise NoSuchTurn("no such turn is running or waiting")
        for ask in self._asks.pending(session_id=session.id):
            await self._asks.close(ask.ask_id, "the turn was cancelled")
        # Rolled back by the same code as any other turn: it is taken up with its cancel signal given already.
        self._start(interrupted, is_cancelled=True)

    # --- running, below ---

    def _start(self, resumed: PromptAccepted | None, *, is_cancelled: bool = False) -> None:
        if resumed is not None and resumed.turn_id not in self._waiters:
            self._waiters[resumed.turn_id] = asyncio.get_running_loop().create_future()
        self._runner = self._work.start(self._run(resumed, is_cancelled), name=f"turns of {self._session.id}")

    async def _run(self, resumed: PromptAccepted | None, is_cancelled: bool) -> None:
        session = self._session
        try:
            if resumed is not None:
                await self._turn(resumed, resumed=True, is_cancelled=is_cancelled)
            while True:
                while session.queue and not self._is_stopping:
                    await self._turn(session.queue.popleft(), resumed=False)
                if self._is_stopping or session.run.interrupted is not None:
                    break
                await asyncio.to_thread(self._unfinished.remove, session.id)
                if not session.queue:
                    break
                # One was accepted while the mark was being taken away.
                await asyncio.to_thread(self._unfinished.add, session.id)
        finally:
            self._runner = None
            session.touch()
            session.refresh_state()

    async def _turn(self, prompt: PromptAccepted, *, resumed: bool, is_cancelled: bool = False) -> None:
        session = self._session
        options = _options(prompt)
        cancel, stop = CancelSignal(), StopSignal()
        if is_cancelled:
            cancel.set("cancelled before it was carried on")
        approver = TurnApprover(
            asks=self._asks,
            work=self._work,
            workspace=session.root,
            turn_id=prompt.turn_id,
            cancel=cancel,
            unattended=options.unattended,
            can_be_asked=session.can_be_asked,
        )
        session.running = RunningTurn(prompt=prompt, approver=approver, cancel=cancel, stop=stop)
        session.refresh_state()
        outcome = TurnOutcome(status="interrupted", usage=Usage())
        try:
            outcome = await self._execute(prompt, approver, _turn_options(options, cancel, stop), resumed)
        finally:
            session.running = None
            self._settle(prompt.turn_id, outcome)
        self._take_up_leftovers()
        if not session.queue:
            session.refresh_state()
        session.announce()

    async def _execute(
        self, prompt: PromptAccepted, approver: TurnApprover, options: TurnOptions, resumed: bool
    ) -> TurnOutcome:
        session = self._session
        try:
            if not resumed:
                await self._renew(session)
            await session.run.execute(prompt, emit=session.emit, approver=approver, options=options, resumed=resumed)
        except BasisError as error:
            return self._refused(prompt, error)
        except Exception:
            log.exception("a turn failed outside the runtime", extra={"session": session.id})
            return self._refused(prompt, BasisError("the daemon failed to run this turn; its log has the cause"))
        ended = session.run.outcome(prompt.turn_id)
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
            session.emit(TurnQueued(turn_id=prompt.turn_id, position=len(session.queue) - 1, by=actor_of(prompt)))
        self._steering.clear()

    def _settle(self, turn_id: str, outcome: TurnOutcome) -> None:
        self._settled[turn_id] = outcome
        while len(self._settled) > KEPT_OUTCOMES:
            del self._settled[next(iter(self._settled))]
        waiter = self._waiters.pop(turn_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(outcome)

    def _require_running_daemon(self) -> None:
        if self._is_daemon_stopping():
            raise Busy("the daemon is stopping", hint="connect again: the next daemon takes the prompt")
        if self._is_stopping or self._session.is_ending:
            raise Busy("the session is ending", hint="try again in a moment")

    def _require_expected(self, turn_id: str) -> None:
        running = self._session.running
        if running is None or running.id != turn_id:
            raise StaleTurn(
                f"turn {turn_id} is not running any more"
                if running is None
                else f"turn {running.id} is running by now",
                hint="send a prompt instead",
                details={"runningTurnId": running.id if running is not None else None},
            )

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


def _accepted(message: Message, by: Actor, options: PromptOptions) -> PromptAccepted:
    return PromptAccepted(
        turn_id=new_turn_id(),
        message=message,
        by={key: value for key, value in msgspec.structs.asdict(by).items() if value is not None},
        options=msgspec.to_builtins(options),
        at_ms=time.time_ns() // 1_000_000,
    )


def _options(prompt: PromptAccepted) -> PromptOptions:
    """What was said with the prompt; options this build can't read are none."""
    try:
        return msgspec.convert(prompt.options, PromptOptions)
    except msgspec.ValidationError:
        log.warning("ignored the options of a stored prompt", extra={"turn": prompt.turn_id})
        return PromptOptions()


def _turn_options(options: PromptOptions, cancel: CancelSignal, stop: StopSignal) -> TurnOptions:
    bounds = options.bounds
    return TurnOptions(
        cancel=cancel,
        stop=stop,
        deadline_s=bounds.deadline_ms / 1000 if bounds.deadline_ms is not None else None,
        tool_budget=bounds.tool_budget,
        token_budget=bounds.token_budget,
    )
