"""`basisctl resume`: carries an interrupted turn on from its last committed round, and watches it like `run`."""

from __future__ import annotations

from basisctl.attending import Attendance
from basisctl.opening import directory, find_session
from basisctl.signals import Signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


def main(args: Namespace) -> int:
    workspace = directory(args)
    with Signals() as signals:
        attendance = Attendance(args, signals=signals, workspace=workspace)
        connection = attendance.connect()
        session_id = str(find_session(connection, args.session, workspace)["sessionId"])
        follower, watching, _ = attendance.follow(connection, session_id)
        watching.begin(follower.attach())
        signals.has_something_to_cancel = True
        resumed = follower.connection.request("basis/turn/resume", {"sessionId": session_id})
        ended = watching.until_finished(str(resumed["turnId"]))
        follower.connection.close()
        return attendance.conclude(ended, session_id)
