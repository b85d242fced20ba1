"""`basisctl pocket install|status`: the small local model. What it does is in `basisctl.pocket`, loaded only here."""

from __future__ import annotations

from basisctl import pocket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


def main(args: Namespace) -> int:
    return pocket.main(args)
