"""`basisctl deny`: no to one question, with a reason the model reads."""

from __future__ import annotations

from basisctl.answering import answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


def main(args: Namespace) -> int:
    return answer(args, decision="deny", reason=args.reason)
