"""What clients ask of a session's turns: accept a prompt, steer, cancel, stop, carry on.

Owns acceptance: nothing is called accepted that a power cut could lose. The work is the daemon's own, so a client that
leaves takes nothing with it (DM-19). Running is `turn_runner.py`'s.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from basis_daemon.errors import Busy, NoSuchTurn, NothingToResume, StaleTurn
from basis_daemon.runtime.messages import Message
from basis_daemon.runtime.prompts import new_turn_id
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.server import session_config
from basis_daemon.server.asks import AskBook
from basis_daemon.server.prompts import title_of
from basis_daemon.server.session import LiveSession
from basis_daemon.server.turn_runner import PromptOptions, TurnRunner
from basis_daemon.server.unfinished import Unfinished
from basis_daemon.server.work import Work
from basis_protocol.asks import Actor
from basis_protocol.events import InfoChanged, TurnQueued
from basis_protocol.sessions import SessionPromptResult, TurnOutcome

WhenBusy = Literal["reject", "queue", "steer"]


class Turns:
    """The turns of one session, from outside."""

    def __init__(
        self,
        session: LiveSession,
        runner: TurnRunner,
        *,
        asks: AskBook,
        work: Work,
        unfinished: Unfinished,
        is_daemon_stopping: Callable[[], bool],
    ) -> None:
        self._session = session
        self._runner = runner
        self._asks = asks
        self._work = work
        self._unfinished = unfinished
        self._is_daemon_stopping = is_daemon_stopping

    @property
    def is_working(self) -> bool:
        """Whether a task of this session is under way, also between two turns."""
        return self._runner.is_working or self._runner.changing.locked()

    # --- prompts ---

    async def submit(
        self, message: Message, *, by: Actor, options: PromptOptions, when_busy: WhenBusy
    ) -> SessionPromptResult:
        """Accept a prompt. It would survive a power cut when this returns; then it runs, waits, or steers.

        Raises `Busy`, `EmptyPrompt`, `StoreError`. Runs to its end even if the caller is cancelled.
        """
        return await self._work.run(self._submit(message, by, options, when_busy))

    async def steer(self, message: Message, *, expected_turn_id: str, by: Actor) -> SessionPromptResult:
        """Add input to the running turn. Raises `StaleTurn` when another one, or none, runs."""
        self._require_expected(expected_turn_id)
        return await self._work.run(self._steer(message, expected_turn_id, by))

    async def _submit(
        self, message: Message, by: Actor, options: PromptOptions, when_busy: WhenBusy
    ) -> SessionPromptResult:
        session, runner = self._session, self._runner
        # One at a time, so that prompts run in the order in which they came.
        async with runner.changing:
            self._require_running_daemon()
            if session.is_busy and when_busy == "reject":
                raise Busy("a turn is running", hint="wait for it, queue this prompt or steer with it")
            await self._abandon_interrupted()
            prompt = _accepted(message, by, options)
            await self._accept(prompt)
            running = session.running
            if when_busy == "steer" and running is not None and runner.steer(prompt):
                return SessionPromptResult(turn_id=running.id, state="steering")
            position = len(session.queue) + (running is not None)
            runner.enqueue(prompt)
            if position:
                session.emit(TurnQueued(turn_id=prompt.turn_id, position=position, by=by))
            return SessionPromptResult(turn_id=prompt.turn_id, state="queued" if position else "running")

    async def _steer(self, message: Message, expected_turn_id: str, by: Actor) -> SessionPromptResult:
        session = self._session
        async with self._runner.changing:
            self._require_expected(expected_turn_id)
            prompt = _accepted(message, by, PromptOptions())
            session.run.accept(prompt)
            if not self._runner.steer(prompt):
                session.run.withdraw(prompt.turn_id)
                raise Busy("the turn is only beginning", hint="steer again in a moment")
            await session.run.sync()
            return SessionPromptResult(turn_id=expected_turn_id, state="steering")

    async def _accept(self, prompt: PromptAccepted) -> None:
        session = self._session
        run = session.run
        if run.is_persisted:
            run.accept(prompt)
        else:
            await asyncio.to_thread(run.accept, prompt)
            await self._settle_on_disk()
        if not session.title and (title := title_of(prompt.message)):
            run.set_name(title)
            session.emit(InfoChanged(title=title))
        if run.directory is not None:
            await asyncio.to_thread(self._unfinished.add, session.id)
        await run.sync()

    async def _settle_on_disk(self) -> None:
        """The first prompt has given the session a directory: its journal and settings go there."""
        run = self._session.run
        if run.directory is None:
            return
        await self._session.journal.bind(run.directory)
        if run.mode != "prompt":
            await asyncio.to_thread(session_config.save, run.directory, run.mode)

    async def _abandon_interrupted(self) -> None:
        """A new prompt goes on from what an interrupted turn has committed; its question is nobody's any more."""
        if not self._runner.is_working and self._session.run.interrupted is not None:
            await self._withdraw_asks("a new prompt was sent instead of an answer")

    # --- settings ---

    async def set_option(self, option: str, value: str, by: Actor) -> None:
        """Set a config option; never waits for a turn (DM-18). Raises `InvalidParams`."""
        session = self._session
        async with self._runner.changing:
            session.set_option(option, value, by)
            if option == "mode":
                await asyncio.to_thread(session_config.save, session.run.directory, value)

    async def rename(self, title: str) -> None:
        async with self._runner.changing:
            self._session.rename(title)

    # --- ending and carrying on ---

    async def cancel(self, turn_id: str | None, by: Actor) -> None:
        """Abandon a turn and roll it back; withdraw one that waits. Raises `NoSuchTurn`."""
        running = self._session.running
        if running is not None and turn_id in (None, running.id):
            running.cancel.set(f"cancelled by {by.client}")
        elif turn_id is None or not self._runner.withdraw(turn_id, f"withdrawn by {by.client}"):
            await self._cancel_interrupted(turn_id)

    async def stop(self, turn_id: str | None, by: Actor) -> None:
        """End a turn at its next round boundary and keep its work; withdraw one that waits. Raises `NoSuchTurn`."""
        running = self._session.running
        if running is not None and turn_id in (None, running.id):
            running.stop.set(f"stopped by {by.client}")
        elif turn_id is None or not self._runner.withdraw(turn_id, f"withdrawn by {by.client}"):
            raise NoSuchTurn("no such turn is running or waiting")

    async def resume(self) -> str:
        """Carry the interrupted (or failed) turn on, or start what waits. Returns the turn's id.

        Raises `Busy` and `NothingToResume`.
        """
        session = self._session
        self._require_running_daemon()
        await self._runner.settled()
        if self.is_working:
            raise Busy("a turn is running already")
        prompt = session.run.resumable
        if prompt is not None:
            self._runner.start(prompt)
            return prompt.turn_id
        if session.queue:
            self._runner.start()
            return session.queue[0].turn_id
        raise NothingToResume("no turn of this session was cut short", hint="send a prompt")

    def carry_on(self, turn_id: str) -> None:
        """An ask of an interrupted turn was answered: go on with it. Nothing happens if that turn isn't waiting."""
        interrupted = self._session.run.interrupted
        is_free = not self._runner.is_working and not self._runner.is_stopping
        if is_free and interrupted is not None and interrupted.turn_id == turn_id:
            self._runner.start(interrupted)

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
            self._runner.start()
        elif interrupted is None:
            await asyncio.to_thread(self._unfinished.remove, session.id)
        session.refresh_state()

    async def finish(self, *, now: bool, timeout_s: float) -> None:
        """Bring the running turn to an end; see `TurnRunner.finish`."""
        await self._runner.finish(now=now, timeout_s=timeout_s)

    async def wait(self, turn_id: str) -> TurnOutcome:
        """How a turn ended; see `TurnRunner.wait`."""
        return await self._runner.wait(turn_id)

    # --- below ---

    async def _cancel_interrupted(self, turn_id: str | None) -> None:
        await self._runner.settled()
        interrupted = self._session.run.interrupted
        if interrupted is None or turn_id not in (None, interrupted.turn_id) or self._runner.is_working:
            raise NoSuchTurn("no such turn is running or waiting")
        await self._withdraw_asks("the turn was cancelled")
        if not self._runner.is_working:
            self._runner.start(interrupted, is_cancelled=True)

    async def _withdraw_asks(self, reason: str) -> None:
        for ask in self._asks.pending(session_id=self._session.id):
            await self._asks.close(ask.ask_id, reason)

    def _require_running_daemon(self) -> None:
        if self._is_daemon_stopping():
            raise Busy("the daemon is stopping", hint="connect again: the next daemon takes the prompt")
        if self._runner.is_stopping or self._session.is_ending:
            raise Busy("the session is ending", hint="try again in a moment")

    def _require_expected(self, turn_id: str) -> None:
        running = self._session.running
        if running is None or running.id != turn_id:
            raise StaleTurn(
                f"turn {turn_id} is not running (any more)",
                hint="send a prompt instead",
                details={"runningTurnId": running.id if running is not None else None},
            )


def _accepted(message: Message, by: Actor, options: PromptOptions) -> PromptAccepted:
    return PromptAccepted(
        turn_id=new_turn_id(),
        message=message,
        by={key: value for key, value in msgspec.structs.asdict(by).items() if value is not None},
        options=msgspec.to_builtins(options),
        at_ms=time.time_ns() // 1_000_000,
    )
