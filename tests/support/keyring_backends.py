"""Keyrings for tests, registered through the package's own interface: one that works, one that is locked.

Owns that the person's own keyring is never touched: the environment of all tests names a backend that keeps nothing.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import keyring
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

B = TypeVar("B", bound=KeyringBackend)


class Drawer(KeyringBackend):
    """Keeps what it is given in `kept`, by service and name."""

    priority: Any = 5

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.reads = 0
        self.refuses = False

    def get_password(self, service: str, username: str) -> str | None:
        self.reads += 1
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.refuses:
            raise KeyringLocked(f"can't store {password}")
        self.kept[(service, username)] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[(service, username)]


class Locked(KeyringBackend):
    """Answers nobody until it is opened, like one that waits for a password in some window."""

    priority: Any = 5

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.open = threading.Event()
        self.answered = threading.Event()

    def get_password(self, service: str, username: str) -> str | None:
        self.asked.set()
        self.open.wait()
        self.answered.set()
        return "opened"

    def set_password(self, service: str, username: str, password: str) -> None:
        self.get_password(service, username)


@contextmanager
def use_backend(backend: B) -> Generator[B]:
    """Make `backend` the keyring in use."""
    before = keyring.get_keyring()
    keyring.set_keyring(backend)
    try:
        yield backend
    finally:
        keyring.set_keyring(before)
        if isinstance(backend, Locked):
            backend.open.set()
