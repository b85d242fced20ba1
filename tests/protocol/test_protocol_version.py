"""`basis_protocol.version`: two sides agree on the newest version both speak, or on none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_protocol import PROTOCOL_VERSION
from basis_protocol.version import SUPPORTED, negotiate


def test_this_build_speaks_the_version_it_announces() -> None:
    assert SUPPORTED[-1] == PROTOCOL_VERSION
    assert list(SUPPORTED) == sorted(set(SUPPORTED))


@pytest.mark.parametrize("offered", [[], [0], [2, 3], [999]])
def test_no_common_version_is_none(offered: list[int]) -> None:
    assert negotiate(offered) is None


@given(st.lists(st.integers(min_value=-5, max_value=50)))
def test_the_newest_common_version_wins_whatever_the_order(offered: list[int]) -> None:
    common = set(offered) & set(SUPPORTED)

    assert negotiate(offered) == (max(common) if common else None)


def test_an_offer_that_can_be_read_only_once_is_read_whole() -> None:
    """A generator is an iterable too."""
    assert negotiate(version for version in (7, 1)) == 1
