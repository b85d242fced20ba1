"""What `approve` and `deny` share: one answer to one ask, found by the beginning of its id."""

from __future__ import annotations

import os

from basis_client.errors import ClientError, fields_of
from basisctl import exit_codes
from basisctl.opening import open_daemon, the_one
from basisctl.render import outcome
from basisctl.screen import Screen
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


def answer(args: Namespace, *, decision: str, scope: str = "once", reason: str | None = None) -> int:
    """Send the answer and say what came of it. Raises `ClientError`, `Usage`."""
    connection = open_daemon(args, can_approve=True)
    ask_id = args.ask
    pending = [fields_of(ask) for ask in connection.request("basis/ask/list").get("asks", ())]
    if pending and not _is_decided_elsewhere(ask_id, pending):
        ask_id = str(the_one("waiting question", ask_id, pending, "askId", see="basisctl asks")["askId"])
    params = {"askId": ask_id, "decision": decision, "scope": scope} | ({"reason": reason} if reason else {})
    try:
        result = connection.request("basis/ask/answer", params)
    except ClientError as error:
        if error.kind != "ask_decided":
            raise
        error.message = f"too late: {outcome(error.details).removeprefix('· ')}"
        raise
    screen = Screen(os.environ)
    if args.json:
        import json

        screen.answer(json.dumps({"askId": ask_id, **result}) + "\n")
    else:
        screen.line(f"{one_line(str(result.get('outcome', decision)))}: {one_line(_title(ask_id, pending))}")
    return exit_codes.OK


def _is_decided_elsewhere(ask_id: str, pending: list[dict[str, object]]) -> bool:
    """A whole id that is not pending: let the daemon say who decided it."""
    return not any(str(ask.get("askId")).startswith(ask_id) for ask in pending)


def _title(ask_id: str, pending: list[dict[str, object]]) -> str:
    return next((str(ask.get("title")) for ask in pending if ask.get("askId") == ask_id), ask_id)
