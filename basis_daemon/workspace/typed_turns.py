"""A turn that gives a host a value instead of prose, as a workspace's run is asked for one (workspace.md 4.7).

Owns how such a turn is run in a workspace. What becomes of the value is the runtime's: see `framed_turns.py`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack

from basis_daemon.runtime import framed_turns
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.permissions import Approver
from basis_daemon.runtime.prompts import Prompt
from basis_daemon.runtime.reports import OutputReport, RunReport
from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.runtime.typed_output import OutputSpec, OutputWanted, Reservation, Validator
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

    async def turn(accepted: PromptAccepted, output: OutputWanted) -> RunReport:
        run.accept(accepted)
        return await run.execute(
            accepted, emit=how["emit"], approver=how["approver"], options=how.get("options"), output=output
        )

    return await framed_turns.run_typed(
        prompt, wanted, turn, validator=how.get("validator"), keeps_tools=how.get("keeps_tools", False)
    )
