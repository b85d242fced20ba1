"""`basisctl stop` and `basisctl cancel`: end the turn of a session, keeping its work or rolling it back."""

from __future__ import annotations

import os

from basisctl import exit_codes
from basisctl.opening import directory, find_active_session, open_running_daemon
from basisctl.screen import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

WORDS = {"stop": "stopping at the next round boundary", "cancel": "cancelling"}


def main(args: Namespace) -> int:
    screen = Screen(os.environ)
    connection = open_running_daemon()
    if connection is None:
        return _say(
            args, screen, {"state": "not_running"}, "no daemon is running, so nothing is", exit_codes.UNREACHABLE
        )
    session_id = str(find_active_session(connection, args.session, directory(args))["sessionId"])
    connection.request(f"basis/turn/{args.command}", {"sessionId": session_id})
    result = {"sessionId": session_id, "state": f"{args.command}_requested", "next": f"basisctl attach {session_id}"}
    return _say(args, screen, result, f"{WORDS[args.command]}: {session_id}\nnext: {result['next']}", exit_codes.OK)


def _say(args: Namespace, screen: Screen, result: dict[str, str], sentence: str, code: int) -> int:
    if args.json:
        import json

        screen.answer(json.dumps(result) + "\n")
    else:
        screen.line(sentence)
    return code
