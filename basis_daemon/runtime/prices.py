"""What tokens cost: prices by provider and model, and the cost of one model response.

Owns the price list's shape and the arithmetic, exact to a billionth of a dollar. What is not known is `None`, never a
guess. A cost is worked out once, when usage is reported, and kept with it: a price that changes later changes no past.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec

from basis_protocol.events import Usage

SCHEMA = 1
FILE = "prices.json"
SHIPPED = Path(__file__).with_name(FILE)
PER_TOKENS = 1_000_000
MOST = 1_000_000
"""Dollars for a million tokens: what is more is no price, and its sums could be written nowhere."""
NANO_PER_PRICED_TOKEN = Decimal(1_000_000_000) / PER_TOKENS

_DATED = re.compile(r"-\d{4}-?\d{2}-?\d{2}\Z")

Pricing = Callable[[str, str, Usage], int | None]
"""Provider id, model and usage of one response → its cost in billionths of a US dollar, `None` when not known."""


def unpriced(provider: str, model: str, usage: Usage) -> int | None:
    """The `Pricing` of who knows no prices."""
    return None


class UnusablePrices(ValueError):
    """A price list that can't be read; says what is wrong with it."""


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of a list: US dollars per million tokens, as decimal numbers. `model` is an id, which also means the
    id with a date behind it, or a pattern with `*`. Without `input` and `output` the price is not known."""

    provider: str
    """A provider's id for its vendor's own API; `id@https://host:port` for an endpoint under that id."""
    model: str
    input: str | None = None
    output: str | None = None
    cache_read: str | None = None
    cache_write: str | None = None
    up_to_input_tokens: int | None = None
    """The row is for responses whose whole prompt has at most so many tokens; longer ones look further down."""
    until: date | None = None
    """The last day on which it is the price."""
    as_of: str | None = None
    """The day it was read."""
    source: str | None = None

    def fits(self, provider: str, model: str) -> bool:
        """Whether the row is about this model."""
        if self.provider != provider:
            return False
        if "*" in self.model:
            return fnmatchcase(model, self.model)
        return model == self.model or _DATED.sub("", model) == self.model


class _PriceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    prices: list[Price]
    currency: str = "USD"
    per_tokens: int = PER_TOKENS


@dataclass(frozen=True, slots=True)
class PriceList:
    """Rows in the order in which they are looked through; the first that fits decides."""

    rows: Sequence[Price] = ()

    def over(self, other: "PriceList") -> "PriceList":
        """These rows ahead of `other`'s."""
        return PriceList((*self.rows, *other.rows))

    def find(self, provider: str, model: str, *, input_tokens: int = 0, on: date | None = None) -> Price | None:
        """The price of a response whose prompt has so many tokens. `None` when it is not known."""
        day = on or datetime.now(UTC).date()
        for row in self.rows:
            is_in_force = row.until is None or day <= row.until
            if is_in_force and row.fits(provider, model) and input_tokens <= (row.up_to_input_tokens or input_tokens):
                return row if row.input is not None and row.output is not None else None
        return None

    def cost(self, provider: str, model: str, usage: Usage, *, on: date | None = None) -> int | None:
        """What one response cost, in billionths of a US dollar. `None` when any part of its price is not known."""
        price = self.find(provider, model, input_tokens=usage.input_tokens, on=on)
        return None if price is None else cost_of(price, usage)


def cost_of(price: Price, usage: Usage) -> int | None:
    """The cost of one response at `price`. Cached tokens are inside its input, thoughts outside its output (2.6)."""
    fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_creation_tokens
    parts = (
        (max(0, fresh), price.input),
        (usage.cache_read_tokens, price.cache_read),
        (usage.cache_creation_tokens, price.cache_write),
        (usage.output_tokens + usage.thoughts_tokens, price.output),
    )
    total = Decimal(0)
    for tokens, per_million in parts:
        if tokens and per_million is None:
            return None
        total += tokens * Decimal(per_million or 0)
    return int((total * NANO_PER_PRICED_TOKEN).to_integral_value(ROUND_HALF_UP))


def read_prices(data: bytes) -> PriceList:
    """A price list as it stands in a file. Raises `UnusablePrices`."""
    try:
        found = msgspec.json.decode(data, type=_PriceFile)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnusablePrices(str(error) or type(error).__name__) from None
    if found.schema != SCHEMA:
        raise UnusablePrices(f"its `schema` is {found.schema}, not {SCHEMA}")
    if found.currency != "USD" or found.per_tokens != PER_TOKENS:
        raise UnusablePrices(f"prices are in USD per {PER_TOKENS} tokens")
    for at, row in enumerate(found.prices):
        for name in ("input", "output", "cache_read", "cache_write"):
            if not _is_price(getattr(row, name)):
                raise UnusablePrices(f"`prices[{at}].{name}` is no decimal number up to {MOST:,} in a string")
        if row.up_to_input_tokens is not None and row.up_to_input_tokens < 1:
            raise UnusablePrices(f"`prices[{at}].up_to_input_tokens` is less than 1")
    return PriceList(found.prices)


@cache
def shipped_prices() -> PriceList:
    """The prices that come with the product. Blocking the first time."""
    return read_prices(SHIPPED.read_bytes())


def _is_price(value: str | None) -> bool:
    if value is None:
        return True
    try:
        number = Decimal(value)
    except InvalidOperation:
        return False
    return number.is_finite() and 0 <= number <= MOST
