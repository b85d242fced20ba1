"""Objects a host gives the runtime for its own tools, by their type (RT-11)."""

from typing import Any, TypeVar, cast

from basis_daemon.errors import UsageError

T = TypeVar("T")


class MissingContext(UsageError):
    """A tool asked for an object of a type the host gave none of."""

    kind = "missing_context"


class AppContext:
    """Immutable. Of two objects of one type the later is kept; a subclass does not stand for its base."""

    __slots__ = ("_by_type",)

    def __init__(self, *values: object) -> None:
        self._by_type: dict[type[Any], object] = {type(value): value for value in values}

    def get(self, wanted: type[T]) -> T:
        """Raises `MissingContext` naming the type."""
        if wanted not in self._by_type:
            raise MissingContext(
                f"the host gave the runtime no {wanted.__qualname__}",
                hint=f"`Runtime.builder().with_context(...)` takes an instance of exactly {wanted.__qualname__}",
            )
        return cast(T, self._by_type[wanted])

    def __repr__(self) -> str:
        """The types only: their objects may hold anything."""
        return f"AppContext({', '.join(sorted(kind.__qualname__ for kind in self._by_type))})"
