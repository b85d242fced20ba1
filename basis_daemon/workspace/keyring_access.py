"""The system's keyring, through the `keyring` package where that is installed and has a keyring to talk to.

Owns that a keyring never holds anything up: it is loaded when it is first needed, asked in one thread of its own that
no exit waits for, and given up after a bounded time, since a locked one may open a window and wait for a password. What
is kept in it is `credential_store.py`'s.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from basis_daemon.errors import ProviderSetupError

SERVICE = "basis-daemon"
"""Under which name keys are kept; a keyring's own program shows it."""
READING_TIMEOUT_S = 5.0
"""Seconds a keyring has to give a key out. A turn waits for it."""
WRITING_TIMEOUT_S = 60.0
"""Seconds it has to take one or drop one: a person is there, and may have to unlock it."""
USABLE_PRIORITY = 1
"""What the package calls recommended; below are backends that keep nothing, or keep it in plain sight."""

T = TypeVar("T")


class KeyringUnavailable(ProviderSetupError):
    """The keyring did not answer, or refused. Says nothing of what is in it."""

    kind = "keyring_unavailable"


class Keyring:
    """Blocking; for use in threads. Makes no thread before the first call."""

    def __init__(
        self, *, reading_timeout_s: float = READING_TIMEOUT_S, writing_timeout_s: float = WRITING_TIMEOUT_S
    ) -> None:
        self._reading_timeout_s = reading_timeout_s
        self._writing_timeout_s = writing_timeout_s
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stuck: Future[Any] | None = None
        self._backend: Any = None
        self._is_found = False

    def name(self) -> str | None:
        """What a person calls the keyring in use; `None` when there is none that can be used."""
        if not self._is_found and find_spec("keyring") is None:
            return None
        backend = self._call(self._found, self._reading_timeout_s)
        return None if backend is None else str(getattr(backend, "name", type(backend).__name__))

    def get(self, name: str) -> str | None:
        """The key kept as `name`. Raises `KeyringUnavailable`."""
        return self._call(lambda: self._usable().get_password(SERVICE, name), self._reading_timeout_s)

    def put(self, name: str, value: str) -> None:
        """Raises `KeyringUnavailable`."""
        self._call(lambda: self._usable().set_password(SERVICE, name, value), self._writing_timeout_s)

    def drop(self, name: str) -> None:
        """Remove a key; an absent one is fine. Raises `KeyringUnavailable`."""

        def drop() -> None:
            backend = self._usable()
            if backend.get_password(SERVICE, name) is not None:
                backend.delete_password(SERVICE, name)

        self._call(drop, self._writing_timeout_s)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _found(self) -> Any:
        """The backend, looked for once: that alone may ask other processes."""
        if not self._is_found:
            backend = import_module("keyring").get_keyring()
            self._backend = backend if float(backend.priority) >= USABLE_PRIORITY else None
            self._is_found = True
        return self._backend

    def _usable(self) -> Any:
        backend = self._found() if find_spec("keyring") is not None else None
        if backend is None:
            raise KeyringUnavailable("there is no keyring here any more that could be used")
        return backend

    # --- around it ---------------------------------------------------------------------------------------------------

    def _call(self, function: Callable[[], T], timeout_s: float) -> T:
        """Do `function` in the thread. Raises `KeyringUnavailable`, at once while an earlier call hangs."""
        future: Future[T] = Future()
        with self._lock:
            if self._stuck is not None and not self._stuck.done():
                raise _silent()
            self._stuck = None
            if self._thread is None:
                # A daemon thread: nobody who wants to exit waits for a window that asks for a password.
                self._thread = threading.Thread(target=self._serve, name="keyring", daemon=True)
                self._thread.start()
            self._calls.put((future, function))
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise
            self._stuck = future
            raise _silent() from None
        except KeyringUnavailable:
            raise
        except Exception as error:
            # The package and its backends raise kinds of their own, and their words may name what was stored.
            raise KeyringUnavailable(
                f"the keyring refused ({type(error).__name__})", hint="unlock it, or keep the key in a file instead"
            ) from None

    def _serve(self) -> None:
        while True:
            future, function = self._calls.get()
            try:
                result = function()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)


def _silent() -> KeyringUnavailable:
    return KeyringUnavailable(
        "the keyring does not answer; it may be locked, or wait for a password in a window", hint="unlock it"
    )
