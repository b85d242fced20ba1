"""Where the daemon is found: data directory and socket path, worked out the same way by every side.

Standard library only; reads the environment it is given, creates nothing.
"""

import hashlib
import os
import sys
import tempfile
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
    named = environ.get("BASIS_DATA_DIR", "").strip()
    if named:
        if not os.path.isabs(named):
            raise NoDataDirectory(f"BASIS_DATA_DIR must be an absolute path, not {named!r}")
        return Path(named)
    xdg = environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(xdg):
        return Path(xdg) / "basis"
    if sys.platform == "win32":
        roaming = environ.get("APPDATA", "")
        if roaming:
            return Path(roaming) / "basis"
    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    if not os.path.isabs(home):
        raise NoDataDirectory("there is no home directory: set BASIS_DATA_DIR to an absolute path")
    if sys.platform == "darwin":
        return Path(home) / "Library" / "Application Support" / "basis"
    return Path(home) / ".local" / "share" / "basis"


def socket_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The daemon's socket: `BASIS_SOCKET`; beside a data directory that was named; the user's runtime directory; else
    `<data dir>/run/daemon.sock`. A path the platform can't bind is replaced by a short one named by its digest."""
    named = environ.get("BASIS_SOCKET", "").strip()
    if named:
        return _bindable(Path(os.path.abspath(named)))
    if not environ.get("BASIS_DATA_DIR", "").strip():
        runtime = _runtime_dir(environ)
        if runtime is not None:
            return _bindable(runtime / "basis" / "daemon.sock")
    return _bindable(data_dir(environ) / "run" / "daemon.sock")


def _runtime_dir(environ: Mapping[str, str]) -> Path | None:
    if sys.platform in ("win32", "darwin"):
        return None
    for candidate in (environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.getuid()}"):
        if os.path.isabs(candidate) and os.path.isdir(candidate) and os.access(candidate, os.W_OK | os.X_OK):
            return Path(candidate)
    return None


def _bindable(path: Path) -> Path:
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    digest = hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"basis-{user}" / f"{digest}.sock"
