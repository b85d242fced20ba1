"""What was used, in words: tokens, and money where the daemon knows the price. Guesses nothing."""

from __future__ import annotations

from basis_client.errors import fields_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def spent(usage: Any) -> str:
    """A `Usage` in a few words: `12.3k tokens, $0.04`. Empty when nothing was reported."""
    total = _tokens(usage)
    return f"{tokens(total)} tokens, {money(usage) or 'cost unknown'}" if total else ""


def money(usage: Any) -> str:
    """The cost of a `Usage`; empty when none of it is known, and marked when a part is not."""
    found, total = fields_of(usage), _tokens(usage)
    priced = _count(found, "pricedTokens")
    if not total or not priced:
        return ""
    return ("" if priced >= total else "over ") + dollars(_count(found, "costNanoUsd"))


def dollars(nano: int) -> str:
    """An amount in billionths of a dollar: to the cent, below ten cents to a hundredth of one."""
    if nano <= 0:
        return "$0"
    if nano < 100_000:
        return "under $0.0001"
    if nano < 100_000_000:
        return f"${nano / 1e9:.4f}"
    cents = (nano + 5_000_000) // 10_000_000  # whole numbers: a sum may be more than a float holds
    return f"${cents // 100:,}.{cents % 100:02d}"


def tokens(count: int) -> str:
    """A number of tokens in short: `812`, `12.3k`, `1.05M`."""
    if count < 1000:
        return str(count)
    size, unit = (1_000_000, "M") if count >= 999_500 else (1000, "k")
    return f"{count / size:.3g}{unit}"


def _tokens(usage: Any) -> int:
    found = fields_of(usage)
    return _count(found, "inputTokens") + _count(found, "outputTokens")


def _count(found: dict[str, Any], name: str) -> int:
    value = found.get(name, 0)
    return value if isinstance(value, int) else 0
