"""A turn that gives a host a value instead of prose (workspace.md 4.7).

Owns how what a caller asks for becomes what the runtime is told, and what comes back.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack

from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.permissions import Approver
from basis_daemon.runtime.prompts import Prompt, new_prompt
from basis_daemon.runtime.typed_output import OutputSpec, OutputWanted, Reservation, Validator, converted, converter
from basis_daemon.workspace.reports import OutputFailure, OutputReport
from basis_protocol.events import AnyEvent

if TYPE_CHECKING:
    from basis_daemon.workspace.run import PreparedRun


class TypedTurn(TypedDict, total=False):
    """How a typed turn is run: as any other, with a judge of its value if there is one."""

    emit: Required[Callable[[AnyEvent], None]]
    approver: Required[Approver]
    options: TurnOptions | None
    validator: Validator | None
    keeps_tools: bool


async def run_typed(
    run: "PreparedRun", prompt: Prompt, wanted: "type[Any] | OutputSpec | Reservation", **how: Unpack[TypedTurn]
) -> OutputReport[Any]:
    """Send `prompt` and return the value; see `PreparedRun.output`."""
    convert = converter(wanted) if isinstance(wanted, type) else None
    reservation = _reserved(wanted, keeps_tools=how.get("keeps_tools", False))
    accepted = new_prompt(prompt)
    run.accept(accepted)
    report = await run.execute(
        accepted,
        emit=how["emit"],
        approver=how["approver"],
        options=how.get("options"),
        output=OutputWanted(reservation, how.get("validator"), convert),
    )
    if not report.succeeded:
        raise OutputFailure(report) from report.failure
    return OutputReport(converted(report.output, convert), report)


def _reserved(wanted: "type[Any] | OutputSpec | Reservation", *, keeps_tools: bool) -> Reservation:
    if isinstance(wanted, type):
        wanted = OutputSpec.of(wanted)
    reservation = wanted if isinstance(wanted, Reservation) else wanted.reserve()
    return Reservation(reservation.spec.with_tools(), reservation.tool_name) if keeps_tools else reservation
