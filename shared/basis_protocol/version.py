"""Protocol versions: which ones this build speaks, and how two sides agree on one.

Versions are an enumerated list and are only compared by membership; a version nobody here has heard of is not ours.
"""

from collections.abc import Iterable

SUPPORTED: tuple[int, ...] = (1,)
"""Every version this build can speak, oldest first."""


def negotiate(offered: Iterable[int]) -> int | None:
    """Return the newest version both sides speak, or `None` when there is none."""
    common = [version for version in SUPPORTED if version in set(offered)]
    return common[-1] if common else None
