"""The environment a workspace's commands run with: the client's snapshot, without credentials (protocol.md 6).

Owns which variables are taken out and put in. The environment of this process is not used, except on Windows, where
no command starts without a few of its variables.
"""

import os
import sys
from collections.abc import Mapping

from basis_daemon.workspace.provider_names import CREDENTIAL_VARIABLES

SESSION_VARIABLE = "BASIS_SESSION_ID"
SOCKET_VARIABLE = "BASIS_SOCKET"
OF_ANOTHER_RUN = frozenset({SESSION_VARIABLE, "BASIS_TASK_ID", "BASIS_PARENT_TASK_ID"})
"""Variables that name the run a client itself was started by; its workspace's commands belong to other runs (DM-10)."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def command_environment(snapshot: Mapping[str, str], *, socket: str | None = None) -> dict[str, str]:
    """What commands of a workspace start with."""
    left_out = CREDENTIAL_VARIABLES | OF_ANOTHER_RUN
    environment = {name: value for name, value in snapshot.items() if name not in left_out}
    if socket is not None:
        environment[SOCKET_VARIABLE] = socket
    return environment


def session_environment(environment: Mapping[str, str], session_id: str) -> dict[str, str]:
    """A workspace's environment as the commands of one session get it."""
    return {**environment, SESSION_VARIABLE: session_id}


def minimal_environment() -> dict[str, str]:
    """What stands in for the snapshot of a client that sent none: the least a command needs, from the account this
    process runs under."""
    if sys.platform == "win32":
        kept = ("PATH", "PATHEXT", "SYSTEMROOT", "COMSPEC", "TEMP", "TMP", "USERPROFILE")
        return {name: os.environ[name] for name in kept if name in os.environ}
    import pwd

    minimal = {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8"}
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:
        # No entry for this user, as in some containers: a command then does without.
        return minimal
    name, home, shell = account.pw_name, account.pw_dir, account.pw_shell
    return {**minimal, "HOME": home, "USER": name, "LOGNAME": name, "SHELL": shell or "/bin/sh"}
