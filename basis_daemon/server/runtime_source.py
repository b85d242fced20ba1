"""The daemon's one runtime, built at first need (DM-1)."""

import threading
from collections.abc import Callable

from basis_daemon.runtime.runtime import Runtime


class RuntimeSource:
    """A failure to build is reported to whoever needed the runtime, and the next one tries again. Thread-safe."""

    def __init__(self, build: Callable[[], Runtime]) -> None:
        self._build = build
        self._lock = threading.Lock()
        self._runtime: Runtime | None = None

    def get(self) -> Runtime:
        """Raises what building raises (`StoreError`). Blocking the first time: use a thread."""
        with self._lock:
            if self._runtime is None:
                self._runtime = self._build()
            return self._runtime

    @property
    def built(self) -> Runtime | None:
        """The runtime if there is one."""
        return self._runtime
