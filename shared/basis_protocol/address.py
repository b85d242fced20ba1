"""Where the daemon is found: data directory, socket and log file, worked out the same way by every side.

Standard library only; reads the environment it is given, creates nothing. Every answer comes as text (`find_…`) and as
a `Path`. The command line uses the text: `pathlib` and `hashlib` cost more time to import than a warm daemon takes to
answer, so they are imported where first needed.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""Longest path a unix socket can be bound to, without the closing NUL."""


class NoDataDirectory(RuntimeError):
    """No data directory can be worked out: set BASIS_DATA_DIR."""


def data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The per-user data directory (CL-11): `BASIS_DATA_DIR`, else the platform's own place for `basis`.

    Raises `NoDataDirectory` when neither is known or the one named is relative.
    """
    return _as_path(find_data_dir(environ))


def socket_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The daemon's socket: `BASIS_SOCKET`; beside a data directory that was named; the user's runtime directory; else
    `<data dir>/run/daemon.sock`. A path the platform can't bind is replaced by a short one named by its digest."""
    return _as_path(find_socket(environ))


def log_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The daemon's log, `<data dir>/log/daemon.log`. What a dying start-up prints goes there too."""
    return _as_path(find_log(environ))


def find_data_dir(environ: Mapping[str, str] = os.environ) -> str:
    """`data_dir` as text."""
    named = environ.get("BASIS_DATA_DIR", "").strip()
    if named:
        if not os.path.isabs(named):
            raise NoDataDirectory(f"BASIS_DATA_DIR must be an absolute path, not {named!r}")
        return named
    xdg = environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(xdg):
        return os.path.join(xdg, "basis")
    if sys.platform == "win32":
        roaming = environ.get("APPDATA", "")
        if roaming:
            return os.path.join(roaming, "basis")
    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    if not os.path.isabs(home):
        raise NoDataDirectory("there is no home directory: set BASIS_DATA_DIR to an absolute path")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "basis")
    return os.path.join(home, ".local", "share", "basis")


def find_socket(environ: Mapping[str, str] = os.environ) -> str:
    """`socket_path` as text."""
    named = environ.get("BASIS_SOCKET", "").strip()
    if named:
        return _bindable(os.path.abspath(named), environ)
    if not environ.get("BASIS_DATA_DIR", "").strip():
        runtime = _runtime_dir(environ)
        if runtime is not None:
            return _bindable(os.path.join(runtime, "basis", "daemon.sock"), environ)
    return _bindable(os.path.join(find_data_dir(environ), "run", "daemon.sock"), environ)


def find_log(environ: Mapping[str, str] = os.environ) -> str:
    """`log_path` as text."""
    return os.path.join(find_data_dir(environ), "log", "daemon.log")


def _as_path(text: str) -> Path:
    from pathlib import Path

    return Path(text)


def _runtime_dir(environ: Mapping[str, str]) -> str | None:
    if sys.platform in ("win32", "darwin"):
        return None
    for candidate in (environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.getuid()}"):
        if os.path.isabs(candidate) and os.path.isdir(candidate) and os.access(candidate, os.W_OK | os.X_OK):
            return candidate
    return None


def _bindable(path: str, environ: Mapping[str, str]) -> str:
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    import hashlib

    # SHA-256, because editors work this out too and all of them have it.
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16] + ".sock"
    runtime = _runtime_dir(environ)
    if runtime is not None:
        short = os.path.join(runtime, "basis", name)
        if len(os.fsencode(short)) <= MAX_SOCKET_PATH_BYTES:
            return short
    # Not tempfile.gettempdir(): TMPDIR differs between logins of one person, and the path must not.
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return os.path.join("/tmp", f"basis-{user}", name)
