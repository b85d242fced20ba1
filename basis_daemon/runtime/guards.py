"""Taking back a registration that was made while things run (CV-6).

Owns the guard; what was registered, and how it is withdrawn, is the table's matter. A guard that is forgotten takes its
registration back when it is collected, which the table notices with its next use: a collection may happen while the
table is in the middle of something, so nothing is done in it.
"""

import weakref
from collections import deque
from types import TracebackType
from typing import Never, Protocol, Self


class Table(Protocol):
    """Something registrations are taken back from, by their generation."""

    @property
    def forgotten(self) -> deque[int]:
        """Generations whose guards were collected."""
        ...

    def withdraw(self, generation: int) -> bool:
        """Remove what was registered under this generation. False if it is not there any more."""
        ...


class Guard:
    """Holds one registration: that one, never another that took its place since (no ABA). Leaving its context, or
    `unregister`, takes it back. It does not keep the table alive and can't be copied."""

    __slots__ = ("__weakref__", "_finalizer", "_generation", "_table")

    def __init__(self, table: Table, generation: int) -> None:
        self._table = weakref.ref(table)
        self._generation = generation
        self._finalizer = weakref.finalize(self, table.forgotten.append, generation)
        self._finalizer.atexit = False

    def unregister(self) -> bool:
        """Take it back. False if it was gone already. Idempotent, and safe from any thread."""
        self._finalizer.detach()
        table = self._table()
        return table is not None and table.withdraw(self._generation)

    def close(self) -> None:
        self.unregister()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()

    def __copy__(self) -> Never:
        raise TypeError("a guard can't be copied: it would take back what another still holds")

    def __deepcopy__(self, memo: object) -> Never:
        self.__copy__()

    def __reduce__(self) -> Never:
        self.__copy__()
