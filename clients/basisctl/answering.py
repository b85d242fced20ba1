"""What `approve` and `deny` share: one answer to one ask, found by the beginning of its id."""

from __future__ import annotations

import os

from basis_client.errors import ClientError, fields_of
from basisctl import exit_codes
from basisctl.opening import begins, environment_snapshot, open_daemon, the_one
from basisctl.render import outcome
from basisctl.screen import Screen
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from basis_client.blocking import Connection


def answer(args: Namespace, *, decision: str, reason: str | None = None) -> int:
    """Send the answer and say what came of it. Raises `ClientError`, `Usage`."""
    connection = open_daemon(args, can_approve=True)
    ask = _find(connection, args.ask)
    _open_workspace(connection, ask)
    said = {"reason": reason, "pattern": args.pattern}
    params = {"askId": ask["askId"], "decision": decision, "scope": args.scope}
    params |= {name: text for name, text in said.items() if text}
    try:
        result = connection.request("basis/ask/answer", params)
    except ClientError as error:
        if error.kind == "ask_decided":
            error.message = f"too late: {outcome(error.details).removeprefix('· ')}"
        raise
    screen = Screen(os.environ)
    if args.json:
        import json

        screen.answer(json.dumps({"askId": ask["askId"], **result}) + "\n")
    else:
        title = one_line(str(ask.get("title") or ask["askId"]))
        screen.line(f"{one_line(str(result.get('outcome', decision)))}: {title}")
    return exit_codes.OK


def _find(connection: Connection, named: str) -> dict[str, Any]:
    """The ask meant. One that doesn't wait any more is looked for by the daemon, which knows who decided it."""
    pending = [fields_of(ask) for ask in connection.request("basis/ask/list").get("asks", ())]
    if not any(begins(str(ask.get("askId")), named) for ask in pending):
        return {"askId": named}
    return the_one("waiting question", named, pending, "askId", see="basisctl asks")


def _open_workspace(connection: Connection, ask: dict[str, Any]) -> None:
    """After a restart nobody may have opened the ask's workspace yet, and its turn needs an environment to go on in.
    One that is open keeps the environment it has."""
    path = ask.get("workspace")
    opened = [fields_of(each).get("path") for each in connection.request("basis/workspace/list").get("workspaces", ())]
    if path is not None and path not in opened:
        connection.request("basis/workspace/open", {"path": path, "env": environment_snapshot(os.environ)})
