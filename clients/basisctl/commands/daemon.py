"""`basisctl daemon start|stop|status|logs`."""

from __future__ import annotations

import json
import os
import time
from collections import deque

from basis_client.blocking import Connection, open_connection
from basis_client.connect import dial
from basis_client.errors import CONNECTION_LOST, ClientError
from basis_protocol.address import find_log, find_socket
from basisctl import exit_codes
from basisctl.opening import Usage, hello, open_running_daemon
from basisctl.screen import Screen
from basisctl.visible import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, BinaryIO

STOP_TIMEOUT_S = 60.0
"""A drain waits for round boundaries, and a round may be one long command."""

LOOK_AGAIN_S = 0.05
FOLLOW_PAUSE_S = 0.25


def main(args: Namespace) -> int:
    screen = Screen(os.environ)
    match args.action:
        case "start":
            return _start(args, screen)
        case "stop":
            return _stop(args, screen)
        case "logs":
            return _logs(args, screen)
        case _:
            from basisctl.commands import status

            return status.main(args)


def _start(args: Namespace, screen: Screen) -> int:
    was_started = False

    def starting() -> None:
        nonlocal was_started
        was_started = True
        screen.status("starting the daemon")

    connection = open_connection(hello(can_approve=False), on_starting=starting)
    screen.status("")
    daemon = connection.daemon
    word = "started" if was_started else "running"
    sentence = f"{'started' if was_started else 'already running'}: {daemon.get('version')}, pid {daemon.get('pid')}"
    return _say(args, screen, {"state": word, "daemon": daemon}, sentence)


def _stop(args: Namespace, screen: Screen) -> int:
    connection = open_running_daemon()
    if connection is None:
        return _say(args, screen, {"state": "not_running"}, "no daemon is running")
    screen.status("stopping the daemon" if args.now else "waiting for round boundaries (--now does not)")
    try:
        connection.request("basis/daemon/stop", {"mode": "now" if args.now else "drain"}, timeout_s=STOP_TIMEOUT_S)
    except ClientError as error:
        # It may be gone before its answer is read.
        if error.kind != CONNECTION_LOST:
            raise
    _wait_until_gone(connection)
    screen.status("")
    return _say(args, screen, {"state": "stopped"}, "stopped")


def _wait_until_gone(connection: Connection) -> None:
    """Until our connection was closed and nobody accepts a new one."""
    give_up_at = time.monotonic() + STOP_TIMEOUT_S
    try:
        while time.monotonic() < give_up_at:
            connection.take(1.0)
    except ClientError as error:
        if error.kind != CONNECTION_LOST:
            raise
    while time.monotonic() < give_up_at:
        found = dial(find_socket())
        if found is None:
            return
        found.close()
        time.sleep(LOOK_AGAIN_S)
    raise ClientError(
        "the daemon was told to stop but still runs",
        kind="still_running",
        hint="see what it waits for in basisctl daemon logs, or use basisctl daemon stop --now",
    )


def _say(args: Namespace, screen: Screen, result: dict[str, Any], sentence: str) -> int:
    if args.json:
        screen.answer(json.dumps(result) + "\n")
    else:
        screen.line(sentence)
    return exit_codes.OK


def _logs(args: Namespace, screen: Screen) -> int:
    path = find_log()
    with _open_log(path) as log:
        for line in deque(log, maxlen=args.lines):
            _print(line, screen)
        if args.follow:
            _follow(log, screen)
    while args.follow:
        # It was rotated: the new one is read from its beginning.
        with _open_log(path) as log:
            _follow(log, screen)
    return exit_codes.OK


def _open_log(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise Usage(f"there is no log yet at {path}", "it begins with the first start: basisctl daemon start") from None


def _follow(log: BinaryIO, screen: Screen) -> None:
    """Print what is appended, until another file has taken the log's place."""
    while True:
        line = log.readline()
        if line:
            _print(line, screen)
        elif _was_rotated(log):
            return
        else:
            time.sleep(FOLLOW_PAUSE_S)


def _print(line: bytes, screen: Screen) -> None:
    screen.answer(visible(line.decode("utf-8", "replace").rstrip("\n")) + "\n")


def _was_rotated(log: BinaryIO) -> bool:
    try:
        return os.fstat(log.fileno()).st_ino != os.stat(log.name).st_ino
    except FileNotFoundError:
        return False
