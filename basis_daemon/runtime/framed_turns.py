"""A turn as watchers and callers see it: bracketed by its bookends, and reported (workspace.md 4.3, 4.7).

Owns the frame — `run_started` first, `run_finished` last, whatever happens between — the report a turn ends with, and
how what a caller wants for a value becomes what the turn is told. How a turn works is the session's matter.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from basis_daemon.errors import StoreError
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.permissions import Approver
from basis_daemon.runtime.prompts import Prompt, new_prompt
from basis_daemon.runtime.reports import OutputFailure, OutputReport, RunReport
from basis_daemon.runtime.sessions import Session
from basis_daemon.runtime.store.base import PromptAccepted, TurnEnded
from basis_daemon.runtime.typed_output import OutputSpec, OutputWanted, Reservation, Validator, converted, converter
from basis_protocol.events import AnyEvent, Notice, RunFinished, RunStarted

Remarks = Callable[[], Awaitable[Sequence[str]]]
"""What is said right behind a turn's header."""


async def _nothing_to_say() -> Sequence[str]:
    return ()


async def run_framed(
    session: Session,
    turn: PromptAccepted,
    *,
    header: RunStarted,
    remarks: Remarks = _nothing_to_say,
    emit: Callable[[AnyEvent], None],
    approver: Approver,
    options: TurnOptions,
    resumed: bool = False,
    output: OutputWanted | None = None,
) -> RunReport:
    """Run an accepted prompt and report how it ended (EV-1).

    A sink that raises is not called again and doesn't stop the turn (TN-5). Raises `Busy`. A cancelled calling task
    leaves the turn interrupted.
    """
    sink = _Sink(emit)
    sink(header)
    try:
        for remark in await remarks():
            sink(Notice(message=remark))
        outcome = await session.run(turn, emit=sink, approver=approver, options=options, resumed=resumed, output=output)
    except asyncio.CancelledError:
        sink(RunFinished(turn_id=turn.turn_id, status="interrupted", message="the turn was interrupted"))
        raise
    except StoreError as error:
        outcome = TurnEnded(turn_id=turn.turn_id, status="error", error=str(error))
    sink(
        RunFinished(
            turn_id=turn.turn_id,
            status=outcome.status,
            message=outcome.error,
            stopped_by=outcome.stopped_by,
            usage=outcome.usage,
        )
    )
    return _report(session, outcome, sink.error)


async def run_typed(
    prompt: Prompt,
    wanted: "type[Any] | OutputSpec | Reservation",
    run: Callable[[PromptAccepted, OutputWanted], Awaitable[RunReport]],
    *,
    validator: Validator | None = None,
    keeps_tools: bool = False,
) -> OutputReport[Any]:
    """Have `run` carry out `prompt` as a turn that ends with a value, and return that. Raises `OutputFailure`."""
    convert = converter(wanted) if isinstance(wanted, type) else None
    reservation = _reserved(wanted, keeps_tools=keeps_tools)
    report = await run(new_prompt(prompt), OutputWanted(reservation, validator, convert))
    if not report.succeeded:
        raise OutputFailure(report) from report.failure
    return OutputReport(converted(report.output, convert), report)


def _reserved(wanted: "type[Any] | OutputSpec | Reservation", *, keeps_tools: bool) -> Reservation:
    if isinstance(wanted, type):
        wanted = OutputSpec.of(wanted)
    reservation = wanted if isinstance(wanted, Reservation) else wanted.reserve()
    return Reservation(reservation.spec.with_tools(), reservation.tool_name) if keeps_tools else reservation


def _report(session: Session, outcome: TurnEnded, sink_error: Exception | None) -> RunReport:
    record = session.agent.record
    return RunReport(
        turn_id=outcome.turn_id,
        status=outcome.status,
        model=record.model,
        provider=record.provider,
        final_message=outcome.final_message,
        error=outcome.error,
        stopped_by=outcome.stopped_by,
        usage=outcome.usage,
        output=outcome.output,
        failure=session.failure if outcome.status != "ok" else None,
        sink_error=sink_error,
    )


class _Sink:
    """Calls `emit` until it raises, then never again."""

    def __init__(self, emit: Callable[[AnyEvent], None]) -> None:
        self._emit = emit
        self.error: Exception | None = None

    def __call__(self, event: AnyEvent) -> None:
        if self.error is None:
            try:
                self._emit(event)
            except Exception as error:
                self.error = error
