"""Starting one daemon process, detached from the client that does it. Standard library only.

Owns the start lock, the child's surroundings and what is said when it dies. Imported only when nothing answers at the
socket; see `connect.py` for when that is.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading

from basis_client.errors import DAEMON_UNREACHABLE, ClientError
from basis_protocol import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ANOTHER_RUNS_EXIT_STATUS = 75
"""What a daemon ends with when another one holds the lock of its data directory (EX_TEMPFAIL)."""

NOT_INHERITED = (
    # The first client's keys and endpoint must not become everybody's: each workspace brings its own environment.
    "BASIS_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY",
    "BASIS_BASE_URL", "OPENAI_BASE_URL",
    # They name one task of one session.
    "BASIS_SESSION_ID", "BASIS_TASK_ID", "BASIS_PARENT_TASK_ID",
)  # fmt: skip

LOG_TAIL_BYTES, LOG_TAIL_LINES = 4096, 12


class StartLock:
    """`<data>/start.lock`: whoever holds it starts the daemon. The kernel lets go of it when its holder dies."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        directory = address.find_data_dir(environ)
        try:
            make_private_directory(directory)
            self._descriptor = os.open(os.path.join(directory, "start.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _unwritable(directory, error) from error
        self._is_mine = False

    def take_nowait(self) -> bool:
        """Whether this process holds the lock, after trying to take it."""
        import fcntl

        if not self._is_mine:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._is_mine = True
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
        return self._is_mine

    def __enter__(self) -> StartLock:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class Launch:
    """A daemon that was just started by this process."""

    def __init__(self, process: subprocess.Popen[bytes], environ: Mapping[str, str], log_mark: int) -> None:
        self._process = process
        self._environ = environ
        self._log_mark = log_mark

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def ends_within(self, timeout_s: float) -> bool:
        """Whether it ends in that time. Blocks."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def raise_unless_another_runs(self) -> None:
        """Raise `ClientError` with the log's last lines, unless it ended because another daemon holds the lock."""
        status = self._process.returncode
        if status in (0, ANOTHER_RUNS_EXIT_STATUS):
            return
        how = f"exit status {status}" if status > 0 else f"signal {-status}"
        raise ClientError(
            f"the daemon ended while starting ({how}){quote_log(self._environ, since=self._log_mark)}",
            kind=DAEMON_UNREACHABLE,
            hint=f"mend what the log names, or run it in sight: {sys.executable} -m basis_daemon",
        )

    def let_go(self) -> None:
        """It is on its own now. A client that lives long must still collect it when it ends, or it stays a zombie."""
        threading.Thread(target=self._process.wait, name="daemon reaper", daemon=True).start()


def launch(environ: Mapping[str, str]) -> Launch:
    """Start a daemon in a session of its own, with cwd `/`, no stdin, and its output in the log."""
    log_path = address.find_log(environ)
    try:
        make_private_directory(os.path.dirname(log_path))
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise _unwritable(log_path, error) from error
    try:
        log_mark = os.fstat(log).st_size
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "basis_daemon"],
            cwd="/",
            env={name: value for name, value in environ.items() if name not in NOT_INHERITED},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        return Launch(process, environ, log_mark)
    except OSError as error:
        raise ClientError(
            f"can't run {sys.executable}: {error.strerror}", kind=DAEMON_UNREACHABLE, hint="reinstall basis-daemon"
        ) from error
    finally:
        os.close(log)


def quote_log(environ: Mapping[str, str], *, since: int = 0) -> str:
    """The log's last lines, ready to be appended to a message; at least the log's name. `since` is a byte offset."""
    path = address.find_log(environ)
    try:
        with open(path, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(since, size - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    except OSError:
        return f"; there is no log at {path}"
    if not lines:
        return f"; it said nothing in {path}"
    return f"; the end of {path}:\n" + "\n".join(f"  {line[:500]}" for line in lines)


def make_private_directory(path: str) -> None:
    """Create `path` and its missing parents with mode 0700 (CL-12). What exists keeps its mode."""
    if os.path.isdir(path):
        return
    make_private_directory(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def _unwritable(path: str, error: OSError) -> ClientError:
    return ClientError(
        f"can't write to {path}: {error.strerror}",
        kind=DAEMON_UNREACHABLE,
        hint="make it writable, or name another directory in BASIS_DATA_DIR",
    )
