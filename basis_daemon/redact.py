"""Values that must not be seen: credentials, wherever they travel.

Owns the wrapper and the scrubbing of text that is about to be logged or shown. Knows no format and no destination.
"""

import json
from collections.abc import Iterable
from typing import NoReturn
from urllib.parse import quote, quote_plus

REDACTED = "[redacted]"
MIN_SCRUBBED = 6
"""Shorter values aren't searched for: `x`, as given to servers that want no key, would blot out prose."""


class Secret:
    """A value shown as `[redacted]` by everything but `reveal()` (CV-9). Equal and hashable by its value.

    Can't be pickled; encoders that don't know it (msgspec, json) refuse it, which is meant.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value. Every call of this is a place to look at when something leaks."""
        return self._value

    def __repr__(self) -> str:
        return REDACTED

    def __format__(self, spec: str) -> str:
        return REDACTED

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret can't be pickled")


def scrub(text: str, secrets: Iterable[Secret]) -> str:
    """`text` with every occurrence of the secrets replaced, as they are and as JSON and URLs spell them."""
    spellings: set[str] = set()
    for secret in secrets:
        value = secret.reveal()
        if len(value) >= MIN_SCRUBBED:
            spellings |= {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
            spellings |= {quote(value, ""), quote(value), quote_plus(value)}
    for spelling in sorted(spellings, key=len, reverse=True):  # longest first: one may be part of another
        text = text.replace(spelling, REDACTED)
    return text
