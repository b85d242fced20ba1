"""`basisctl asks`: the questions that wait for a person, oldest first."""

from __future__ import annotations

import json
import os

from basis_client.errors import fields_of
from basisctl import exit_codes
from basisctl.opening import open_daemon
from basisctl.render import BOLD, DIM, age, preview
from basisctl.screen import Screen
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


def main(args: Namespace) -> int:
    found = open_daemon(args).request("basis/ask/list").get("asks", ())
    screen = Screen(os.environ)
    for ask in map(fields_of, found):
        if args.json:
            screen.answer(json.dumps(ask) + "\n")
            continue
        style = screen.out_style
        screen.answer(f"{style(BOLD, one_line(str(ask.get('askId'))))}  {one_line(str(ask.get('title', '')))}\n")
        where = f"session {ask.get('sessionId')} in {ask.get('workspace')}, {age(str(ask.get('createdAt', '')))} ago"
        screen.answer(style(DIM, f"  {one_line(where)}") + "\n")
        screen.answer(preview(fields_of(ask.get("preview")), style) + "\n")
        for option in map(fields_of, ask.get("options", ())):
            if option.get("decision") == "allow" and option.get("scope") != "once":
                how = f"--scope {option.get('scope')}: {option.get('label')}"
                screen.answer(style(DIM, f"    {one_line(how)}") + "\n")
        screen.answer("\n")
    if not args.json:
        screen.line(
            "next: basisctl approve ASK [--scope …], or basisctl deny ASK --reason …"
            if found
            else "no question is waiting"
        )
    return exit_codes.OK
