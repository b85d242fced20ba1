"""What a journal says about a turn that the daemon did not live to end.

Owns closing the stream of such a turn: its `run_started` gets the `run_finished` that a killed process could not write
(EV-1), so that a client that only follows events knows where it stands.
"""

import asyncio

from basis_daemon.runtime.store.base import PromptAccepted
from basis_daemon.server.journal import Journal
from basis_protocol.events import RunFinished

LOOKED_BACK = 500
"""Events looked through for the last bookend. A turn ended properly has its `run_finished` among its last few."""


async def close_open_turn(journal: Journal, interrupted: PromptAccepted | None) -> None:
    """Write the missing `run_finished` of an interrupted turn, unless its stream is closed already."""
    if interrupted is None or await asyncio.to_thread(_is_closed, journal):
        return
    journal.append(
        RunFinished(turn_id=interrupted.turn_id, status="interrupted", message="the daemon ended during this turn")
    )


def _is_closed(journal: Journal) -> bool:
    for line in reversed(journal.newest_lines(LOOKED_BACK)):
        if b'"event":{"type":"run_finished"' in line:
            return True
        if b'"event":{"type":"run_started"' in line:
            return False
    return False
