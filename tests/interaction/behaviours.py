"""What a person can rely on: one sentence each, bound to the tests that show it.

Owns the list. A test says which entry it shows with `@behaviour("id")`; `test_interaction_behaviours.py` fails when an
entry has no test or a test names an entry that is not here.
"""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`source` says where it was agreed: a page and its section."""

    id: str
    sentence: str
    source: str


def behaviour(name: str) -> pytest.MarkDecorator:
    """Mark a test as showing the behaviour of that id."""
    return pytest.mark.behaviour(name)


BEHAVIOURS: tuple[Behaviour, ...] = ()
