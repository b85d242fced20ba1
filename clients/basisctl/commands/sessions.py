"""`basisctl sessions`: the conversations of a workspace, newest first."""

from __future__ import annotations

import json
import os

from basis_client.errors import fields_of
from basisctl import exit_codes
from basisctl.opening import directory, open_daemon, sessions
from basisctl.render import age, local_time, short_ids, table
from basisctl.screen import Screen
from basisctl.spending import money
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any


def main(args: Namespace) -> int:
    workspace = None if args.all else directory(args)
    found = sessions(open_daemon(args), workspace)
    screen = Screen(os.environ)
    if args.json:
        for session in found:
            screen.answer(json.dumps(session) + "\n")
    elif found:
        screen.answer(_table(found, with_workspace=args.all) + "\n")
    else:
        screen.line("no conversations yet" + ("" if args.all else f" in {one_line(str(workspace))}"))
        screen.line('next: basisctl run "…"')
    return exit_codes.OK


def _table(found: list[dict[str, Any]], *, with_workspace: bool) -> str:
    short = short_ids([str(session.get("sessionId")) for session in found])
    rows = [["ID", "STATE", "UPDATED", "TURNS", "COST", *(["WORKSPACE"] if with_workspace else []), "TITLE"]]
    for session in found:
        where = [one_line(str(session.get("workspace", "")))] if with_workspace else []
        rows.append(
            [
                one_line(short[str(session.get("sessionId"))]),
                _state(session),
                age(str(session.get("updatedAt", ""))),
                str(session.get("turns", 0)),
                money(session.get("usage")) or "?",
                *where,
                one_line(str(session.get("title", ""))),
            ]
        )
    return table(rows)


def _state(session: dict[str, Any]) -> str:
    state = fields_of(session.get("state"))
    kind = one_line(str(state.get("kind", "")))
    if kind == "waiting_provider":
        until = state.get("until")
        return "waiting for the provider" + (f" until {local_time(str(until))}" if until else "")
    return "waiting for you" if kind == "waiting_person" else kind
