"""`basisctl status`: whether the daemon runs and what it is doing. Never starts one."""

from __future__ import annotations

import json
import os

from basis_client.errors import fields_of
from basis_client.handshake import VERSION
from basis_protocol.address import find_log, find_socket
from basisctl import exit_codes
from basisctl.opening import open_running_daemon
from basisctl.render import duration, size, table
from basisctl.screen import Screen
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any


def main(args: Namespace) -> int:
    screen = Screen(os.environ)
    connection = open_running_daemon()
    if connection is None:
        if args.json:
            screen.answer(json.dumps({"state": "not_running", "socket": find_socket()}) + "\n")
        else:
            screen.answer(f"no daemon is running\nsocket  {find_socket()}\n")
            screen.line("next: basisctl daemon start (a prompt starts one by itself)")
        return exit_codes.UNREACHABLE
    status = connection.request("basis/daemon/status")
    if args.json:
        screen.answer(json.dumps({"state": "running", **status}) + "\n")
        return exit_codes.OK
    screen.answer(table([[name, one_line(value)] for name, value in _rows(status) if value]) + "\n")
    if status.get("version") != VERSION:
        screen.line(f"warning: the daemon is of version {status.get('version')}, basisctl of {VERSION}")
        screen.line("next: basisctl daemon stop (the next command starts the new one)")
    return exit_codes.OK


def _rows(status: dict[str, Any]) -> list[tuple[str, str]]:
    counts = fields_of(status.get("counts"))
    states = fields_of(counts.get("sessions"))
    pending = counts.get("pendingAsks", 0)
    rows = [
        ("daemon", f"{status.get('version')}, pid {status.get('pid')}, up {duration(status.get('uptimeS', 0))}"),
        ("socket", str(status.get("socket", ""))),
        ("data", str(status.get("dataDir", ""))),
        ("log", find_log()),
        ("memory", size(status.get("memoryBytes", 0))),
        ("clients", f"{counts.get('clients', 0)}, with this one"),
        ("open", f"{counts.get('workspaces', 0)} workspace" + ("" if counts.get("workspaces") == 1 else "s")),
        ("sessions", ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in states.items()) or "none live"),
        ("asks", f"{pending} waiting: basisctl asks" if pending else "none waiting"),
    ]
    for provider in map(fields_of, status.get("providers", ())):
        detail = f" · {provider['detail']}" if provider.get("detail") else ""
        state = str(provider.get("state", "")).replace("_", " ")
        rows.append(("provider", f"{provider.get('provider')}: {state}{detail}"))
    return rows
