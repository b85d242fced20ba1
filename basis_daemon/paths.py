"""The daemon's places on disk. One value, worked out once from an environment, passed to whoever needs it."""

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from basis_protocol import address


@dataclass(frozen=True, slots=True)
class Paths:
    """Every directory and file the daemon owns. Creating them is the business of whoever writes there."""

    data: Path
    socket: Path
    config: Path | None
    """The person's global configuration directory, if there is one (workspace.md 0.2)."""

    @property
    def store(self) -> Path:
        return self.data / "store"

    @property
    def asks(self) -> Path:
        return self.data / "asks"

    @property
    def log(self) -> Path:
        return self.data / "log"

    @property
    def models(self) -> Path:
        return self.data / "models"

    @property
    def lock(self) -> Path:
        return self.data / "daemon.lock"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Paths":
        """Raises `basis_protocol.address.NoDataDirectory`."""
        return cls(data=address.data_dir(environ), socket=address.socket_path(environ), config=config_dir(environ))


def config_dir(environ: Mapping[str, str]) -> Path | None:
    """`$BASIS_CONFIG_DIR`, else `$XDG_CONFIG_HOME/basis`, else `$HOME/.config/basis`, else none."""
    for name, below in (("BASIS_CONFIG_DIR", ""), ("XDG_CONFIG_HOME", "basis"), ("HOME", ".config/basis")):
        value = environ.get(name, "")
        if os.path.isabs(value):
            return Path(value) / below if below else Path(value)
    return None


def make_private_directory(path: Path) -> None:
    """Create `path` and its missing parents with mode 0700 (ST-31). An existing directory keeps its mode."""
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        if path.parent == path:
            break
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)


def open_regular(path: Path) -> BinaryIO:
    """Open a file somebody else may have put there, for reading. Raises `OSError` for what is no regular file: a FIFO
    would be waited for, and a device has no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))
