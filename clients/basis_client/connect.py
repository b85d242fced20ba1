"""Finding the daemon's socket, and starting a daemon when none answers there. Standard library only.

Only the kernel is asked who is alive: a socket that refuses means nobody listens, a lock that can be taken means nobody
is starting one. Process ids are never trusted. Of many clients that find no daemon at the same moment one starts it,
under `<data>/start.lock`; the others wait for the socket. The daemon guards itself once more with its own lock.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time

from basis_client.errors import BAD_PEER, DAEMON_UNREACHABLE, NOT_RUNNING, ClientError
from basis_protocol import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from basis_client.launch import Launch

START_TIMEOUT_S = 30.0
"""Bound on finding or starting a daemon. A start takes 0.1 s; a cold disk or a machine out of memory takes longer."""

RETRY_FIRST_S, RETRY_LONGEST_S = 0.004, 0.06
"""Pauses between looks at the socket while another process starts the daemon; fifty may be looking at once."""

NOBODY_LISTENS = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR, errno.ENOTSOCK, errno.ECONNRESET)
BUSY = (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT, errno.EINPROGRESS)
"""The daemon is there but its queue of new connections is full: wait, don't start another."""


ALWAYS, IF_IT_DIED, NEVER = "always", "if_it_died", "never"
"""When a daemon is started. A client that lost its connection starts one in place of a daemon that died, but does not
undo somebody's `basisctl daemon stop`: see `has_died`."""

DEATH_CERTAIN_AFTER_S = 0.1
"""A daemon that ends takes its socket's path away within this time after it stopped listening."""


END_IS_SEEN_WITHIN_S = 1.0
"""A dying daemon's connections break before its exit status can be had."""


class Found:
    """A connected socket, and the daemon this client started to get it, if it did.

    The socket is bound before the daemon has imported anything, so one that can't start dies after it was connected to.
    Say how it went: `answered` or `explain`.
    """

    __slots__ = ("_launched", "socket")

    def __init__(self, connected: socket.socket, launched: Launch | None = None) -> None:
        self.socket = connected
        self._launched = launched

    def answered(self) -> None:
        """The daemon is up, and on its own."""
        if self._launched is not None:
            self._launched.let_go()

    def explain(self, error: ClientError) -> ClientError:
        """The connection was lost before the daemon answered: return why, if that can be known. May block a second."""
        if self._launched is None:
            return error
        if not self._launched.ends_within(END_IS_SEEN_WITHIN_S):
            self._launched.let_go()
            return error
        try:
            self._launched.raise_unless_another_runs()
        except ClientError as cause:
            return cause
        return error


def connect(
    environ: Mapping[str, str] = os.environ,
    *,
    start: str = ALWAYS,
    timeout_s: float = START_TIMEOUT_S,
    on_starting: Callable[[], None] | None = None,
) -> Found:
    """Find a socket connected to this user's daemon; start one if none answers and `start` allows it.

    `on_starting` is called once, when it turns out that there is something to wait for. Raises `ClientError` with kind
    `not_running` if it may not, or `daemon_unreachable`, quoting the log when a start failed.
    """
    try:
        path = address.find_socket(environ)
    except address.NoDataDirectory as error:
        raise ClientError(str(error), kind=DAEMON_UNREACHABLE) from error
    found = dial(path)
    if found is not None:
        return Found(found)
    if start == IF_IT_DIED:
        time.sleep(DEATH_CERTAIN_AFTER_S)
    if start == NEVER or (start == IF_IT_DIED and not has_died(environ)):
        raise _not_running(path)
    if on_starting is not None:
        on_starting()
    return _start_and_connect(path, environ, start, time.monotonic() + timeout_s)


def has_died(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a daemon that was there a moment ago died, rather than ended on purpose: one that ends takes its socket's
    path away, one that is killed can't."""
    return os.path.lexists(address.find_socket(environ))


def dial(path: str) -> socket.socket | None:
    """Connect once. `None` when nobody listens, or when whoever does can't take another connection just now."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(1.0)
        connection.connect(path)
        _check_peer(connection, path)
        connection.settimeout(None)
    except (OSError, ClientError) as error:
        connection.close()
        if isinstance(error, ClientError):
            raise
        if isinstance(error, TimeoutError) or error.errno in NOBODY_LISTENS or error.errno in BUSY:
            return None
        raise ClientError(
            f"can't connect to {path}: {error.strerror}",
            kind=DAEMON_UNREACHABLE,
            hint="the socket and its directory must be yours and reachable; BASIS_SOCKET names another one",
        ) from error
    return connection


def _start_and_connect(path: str, environ: Mapping[str, str], start: str, deadline: float) -> Found:
    """Look at the socket until it answers; meanwhile be the one that starts the daemon, if nobody else is."""
    from basis_client.launch import StartLock, launch

    pause = RETRY_FIRST_S
    launched: Launch | None = None
    with StartLock(environ) as lock:
        while True:
            # Held before the socket is looked at: a daemon that someone else just started must be seen here.
            is_mine = lock.take_nowait()
            found = dial(path)
            if found is not None:
                return Found(found, launched)
            if is_mine and launched is None:
                if start == IF_IT_DIED and not has_died(environ):
                    raise _not_running(path)
                launched = launch(environ)
            elif launched is not None and launched.has_ended():
                launched.raise_unless_another_runs()
                # Another daemon holds the lock without listening: it is about to listen, or about to end.
                launched, pause = None, RETRY_LONGEST_S * 4
            if time.monotonic() > deadline:
                raise _took_too_long(path, environ, launched)
            time.sleep(pause)
            pause = min(pause * 1.5, RETRY_LONGEST_S)


def _not_running(path: str) -> ClientError:
    return ClientError(
        f"no daemon is running (nothing answers at {path})",
        kind=NOT_RUNNING,
        hint="start one: basisctl daemon start",
    )


def _took_too_long(path: str, environ: Mapping[str, str], launched: Launch | None) -> ClientError:
    from basis_client.launch import quote_log

    if launched is not None:
        launched.let_go()
    return ClientError(
        f"a daemon was started but nothing answers at {path}{quote_log(environ)}",
        kind=DAEMON_UNREACHABLE,
        hint=f"look at the log, or run it in sight: {sys.executable} -m basis_daemon",
    )


def _check_peer(connection: socket.socket, path: str) -> None:
    """Refuse a listener that runs as somebody else: we are about to hand it our environment."""
    uid = _peer_uid(connection)
    if uid is not None and uid != os.getuid():
        raise ClientError(
            f"the daemon at {path} belongs to user {uid}, not to you",
            kind=BAD_PEER,
            hint="name a socket of your own in BASIS_SOCKET",
        )


def _peer_uid(connection: socket.socket) -> int | None:
    """The uid at the other end, as the kernel recorded it; `None` where the platform doesn't say."""
    if sys.platform == "linux":
        _pid_uid_gid = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(_pid_uid_gid[4:8], sys.byteorder)
    if sys.platform == "darwin":
        # struct xucred: version and uid, four bytes each. SOL_LOCAL is 0, LOCAL_PEERCRED is 1.
        return int.from_bytes(connection.getsockopt(0, 1, 76)[4:8], sys.byteorder)
    return None
