"""`basisctl approve`: yes to one question, once or for what is like it."""

from __future__ import annotations

from basisctl.answering import answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


def main(args: Namespace) -> int:
    return answer(args, decision="allow")
