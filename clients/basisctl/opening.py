"""How a command gets its connection: who it says it is, where it is, what it knows of its surroundings.

Owns the environment that is sent with a workspace, and the way from an id as a person types it to the session meant.
"""

from __future__ import annotations

import os

from basis_client.blocking import Connection, open_connection
from basis_client.connect import ALWAYS, NEVER
from basis_client.errors import NOT_RUNNING, ClientError, fields_of
from basis_client.handshake import Hello
from basisctl.render import without_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping
    from typing import Any

TERMINAL_NOISE = (
    # What describes the terminal or the shell that basisctl runs in says nothing about the commands an agent will run.
    "_", "COLORTERM", "COLUMNS", "GPG_TTY", "LINES", "LS_COLORS", "OLDPWD", "PROMPT", "PROMPT_COMMAND", "PS1", "PS2",
    "PS4", "PWD", "SHLVL", "SSH_TTY", "STY", "TERM", "TERMCAP", "TERM_PROGRAM", "TERM_PROGRAM_VERSION",
    "TERM_SESSION_ID", "TMUX", "TMUX_PANE", "VTE_VERSION", "WINDOWID", "WINDOWPATH",
    # They name the task that basisctl itself may be running in.
    "BASIS_PARENT_TASK_ID", "BASIS_SESSION_ID", "BASIS_TASK_ID",
)  # fmt: skip

NOISE_PREFIXES = ("ALACRITTY_", "GHOSTTY_", "ITERM_", "KITTY_", "KONSOLE_", "LC_TERMINAL", "WEZTERM_")


class Usage(Exception):
    """Wrong invocation, found after the arguments were read. `hint` says what would be right."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def hello(*, can_approve: bool) -> Hello:
    return Hello("basisctl", kind="cli", can_approve=can_approve)


def open_daemon(args: Namespace, *, can_approve: bool = False) -> Connection:
    """Connect for one request or a few. Raises `ClientError`."""
    return open_connection(hello(can_approve=can_approve), start=NEVER if args.no_start else ALWAYS)


def open_running_daemon() -> Connection | None:
    """Connect to the daemon that runs; `None` when none does. Never starts one."""
    try:
        return open_connection(hello(can_approve=False), start=NEVER)
    except ClientError as error:
        if error.kind == NOT_RUNNING:
            return None
        raise


def environment_snapshot(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment commands of this workspace will run with. Values that aren't UTF-8 can't be sent and are left
    out."""
    return {
        name: value
        for name, value in environ.items()
        if name not in TERMINAL_NOISE and not name.startswith(NOISE_PREFIXES) and _is_sendable(name + value)
    }


def _is_sendable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def directory(args: Namespace) -> str:
    """The workspace meant, as an absolute path without symlinks. Raises `Usage`."""
    try:
        path = os.path.realpath(args.directory or os.getcwd())
    except FileNotFoundError:
        raise Usage("the current directory is gone", "go somewhere else, or name one with -C") from None
    if not os.path.isdir(path):
        raise Usage(f"{args.directory} is not a directory")
    return path


def sessions(connection: Connection, workspace: str | None, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Sessions of a workspace, or of all, most recently used first; at most `limit`, if given."""
    found: list[dict[str, Any]] = []
    params: dict[str, Any] = {} if workspace is None else {"workspace": workspace}
    params["limit"] = limit or 500
    while True:
        page = connection.request("basis/session/list", params)
        found += (fields_of(session) for session in page.get("sessions", ()))
        if not page.get("nextCursor") or limit is not None:
            return found
        params["cursor"] = page["nextCursor"]


def find_session(connection: Connection, named: str, workspace: str) -> dict[str, Any]:
    """The session meant by `last` (of this workspace), an id, or the beginning of one. Raises `Usage`."""
    if named == "last":
        newest = sessions(connection, workspace, limit=1)
        if not newest:
            raise Usage(f"there is no session in {workspace} yet", 'begin one: basisctl run "…"')
        return newest[0]
    return the_one("session", named, sessions(connection, None), "sessionId", see="basisctl sessions --all")


def find_active_session(connection: Connection, named: str | None, workspace: str) -> dict[str, Any]:
    """The session named, else the only one of this workspace that is doing something, else the last. Raises `Usage`."""
    if named is not None:
        return find_session(connection, named, workspace)
    of_workspace = sessions(connection, workspace)
    busy = [session for session in of_workspace if fields_of(session.get("state")).get("kind") not in ("idle", "ended")]
    if len(busy) > 1:
        ids = ", ".join(str(session["sessionId"]) for session in busy)
        raise Usage(f"several sessions are active here: {ids}", "name the one you mean")
    if not of_workspace:
        raise Usage(f"there is no session in {workspace} yet", "name one of another directory: basisctl sessions --all")
    return (busy or of_workspace)[0]


def the_one(what: str, named: str, among: list[dict[str, Any]], key: str, *, see: str) -> dict[str, Any]:
    """The item whose id is `named` or, if there is only one, begins with it. Raises `Usage`."""
    exact = [item for item in among if item.get(key) == named]
    matching = exact or [item for item in among if begins(str(item.get(key)), named)]
    if len(matching) == 1 and named:
        return matching[0]
    if matching and named:
        ids = ", ".join(str(item[key]) for item in matching[:5])
        raise Usage(f"{named!r} could be {len(matching)} {what}s: {ids}", "type more of the id")
    raise Usage(f"there is no {what} {named!r}", f"see which there are: {see}")


def begins(one: str, named: str) -> bool:
    """Whether `one` begins with what was typed, with or without the word for its kind."""
    return one.startswith(named) or without_kind(one).startswith(named)
