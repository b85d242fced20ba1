"""`basisctl attach`: a session as it goes on, with its questions. Leaving it changes nothing."""

from __future__ import annotations

from basis_client.errors import fields_of
from basisctl import exit_codes
from basisctl.attending import Attendance
from basisctl.opening import directory, find_active_session
from basisctl.signals import Signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

_RESTING = {
    "idle": "this session is idle",
    "interrupted": "the last turn was cut short: basisctl resume {} carries it on",
}
"""What to say of a session in which nothing happens by itself."""


def main(args: Namespace) -> int:
    workspace = directory(args)
    with Signals() as signals:
        attendance = Attendance(args, signals=signals, workspace=workspace)
        connection = attendance.connect()
        session = find_active_session(connection, args.session, workspace)
        session_id = str(session["sessionId"])
        follower, watching, painter = attendance.follow(connection, session_id)
        try:
            attached = follower.attach()
            painter.begin(attached)
            watching.begin(attached)
            state = str(fields_of(fields_of(attached.get("info")).get("state")).get("kind", ""))
            if attendance.screen.tells_all and state in _RESTING:
                attendance.screen.line(f"{_RESTING[state].format(session_id)}; what happens shows here, Ctrl-C leaves")
            watching.for_ever()
        except KeyboardInterrupt:
            # The usual way to leave, not a failure.
            attendance.screen.line(f"left; the session goes on\nnext: basisctl attach {session_id}")
    return exit_codes.OK
