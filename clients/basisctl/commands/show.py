"""`basisctl show`: a conversation from its beginning."""

from __future__ import annotations

import json
import os

from basis_client.errors import fields_of
from basisctl import exit_codes
from basisctl.opening import directory, find_session, open_daemon
from basisctl.painter import tool_label
from basisctl.render import BOLD, CYAN, DIM, RED, diff
from basisctl.screen import Screen
from basisctl.spending import spent
from basisctl.visible import one_line, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any

    from basis_client.blocking import Connection
    from basisctl.render import Style

PAGE = 500


def main(args: Namespace) -> int:
    connection = open_daemon(args)
    session = find_session(connection, args.session, directory(args))
    screen = Screen(os.environ)
    if not args.json:
        screen.answer(_heading(session, screen.out_style))
    for item in _history(connection, str(session["sessionId"])):
        screen.answer(json.dumps(item) + "\n" if args.json else _item(item, screen.out_style))
    return exit_codes.OK


def _history(connection: Connection, session_id: str) -> Iterator[dict[str, Any]]:
    """Every item, oldest first, a page at a time."""
    params: dict[str, Any] = {"sessionId": session_id, "direction": "after", "limit": PAGE}
    while True:
        page = connection.request("basis/session/history", params)
        items = [fields_of(item) for item in page.get("items", ())]
        yield from items
        if not items or not page.get("afterCursor") or page["afterCursor"] == params.get("cursor"):
            return
        params["cursor"] = page["afterCursor"]


def _heading(session: dict[str, Any], style: Style) -> str:
    state = fields_of(session.get("state"))
    facts = (session.get("sessionId"), session.get("workspace"), session.get("model"), state.get("kind"))
    line = " · ".join(one_line(str(fact)) for fact in (*facts, spent(session.get("usage"))) if fact)
    return style(BOLD, one_line(str(session.get("title", "")))) + "\n" + style(DIM, line) + "\n\n"


def _item(item: dict[str, Any], style: Style) -> str:
    text = visible(str(item.get("text", "")))
    match item.get("kind"):
        case "user":
            return style(CYAN, "› ") + text.replace("\n", "\n  ") + "\n\n"
        case "assistant":
            return text + "\n\n" if text.strip() else ""
        case "tool":
            return _tool(item, style)
        case "summary":
            return style(DIM, "· earlier messages were shortened to:\n") + text + "\n\n"
        case _:
            # Context the daemon added for the model; --json has it.
            return ""


def _tool(item: dict[str, Any], style: Style) -> str:
    mark = style(RED, "✗") if item.get("isError") else style(DIM, "·")
    line = f"{mark} {tool_label(item)}\n"
    return line + (diff(item["diff"], style) + "\n" if item.get("diff") else "") + "\n"
