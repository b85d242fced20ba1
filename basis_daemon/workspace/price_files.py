"""The prices in force for a workspace: the person's own over those that come with the product.

Owns where the person's file is and what is said when it can't be used. What a list means is the runtime's
(`runtime/prices.py`).
"""

from pathlib import Path

from basis_daemon.paths import open_regular
from basis_daemon.runtime.prices import FILE, PriceList, Pricing, UnusablePrices, read_prices, shipped_prices
from basis_daemon.workspace.connection import Connection
from basis_protocol.events import Usage


def discover_prices(global_dir: Path | None) -> tuple[PriceList, list[str]]:
    """The list, and what the person should know about it. Blocking. A file that can't be used costs nobody a session:
    the shipped prices then hold, and it is said."""
    if global_dir is None:
        return shipped_prices(), []
    path = global_dir / FILE
    try:
        with open_regular(path) as file:
            own = read_prices(file.read())
    except FileNotFoundError:
        return shipped_prices(), []
    except OSError as error:
        return shipped_prices(), [f"{path} is not used: {error.strerror}."]
    except UnusablePrices as error:
        return shipped_prices(), [f"{path} is not used: {error}."]
    return own.over(shipped_prices()), []


def pricing(prices: PriceList, connection: Connection) -> Pricing:
    """What responses cost over `connection`. Of another provider nothing is known here."""
    own, billed_as = connection.provider.id, connection.reachable.billed_as or connection.provider.id

    def cost(provider: str, model: str, usage: Usage) -> int | None:
        return prices.cost(billed_as, model, usage) if provider == own else None

    return cost
