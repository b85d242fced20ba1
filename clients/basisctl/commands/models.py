"""`basisctl models`: the models that can be chosen here, by provider, and why some are missing."""

from __future__ import annotations

import json
import os

from basis_client.errors import fields_of
from basisctl import exit_codes
from basisctl.opening import directory, environment_snapshot, open_daemon
from basisctl.render import table
from basisctl.screen import Screen
from basisctl.spending import tokens
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any


def main(args: Namespace) -> int:
    workspace = directory(args)
    connection = open_daemon(args)
    # With this shell's environment, as `run` would: a key set here counts.
    connection.request("basis/workspace/open", {"path": workspace, "env": environment_snapshot(os.environ)})
    params: dict[str, Any] = {"workspace": workspace, "refresh": args.refresh}
    if args.provider is not None:
        params["provider"] = args.provider
    result = connection.request("basis/model/list", params)
    screen = Screen(os.environ)
    if args.json:
        screen.answer(json.dumps(result) + "\n")
        return exit_codes.OK
    models = [fields_of(model) for model in result.get("models", ())]
    if models:
        screen.answer(table([["PROVIDER", "CONTEXT", "PRICE", "MODEL"], *map(_row, models)]) + "\n")
    if any(model.get("price") for model in models):
        screen.line(screen.style("2", "prices are for a million tokens in / out; long prompts may cost more"))
    for problem in map(fields_of, result.get("problems", ())):
        hint = f"; {problem['hint']}" if problem.get("hint") else ""
        what = one_line(f"{problem.get('provider')}: {problem.get('message')}{hint}")
        screen.line(f"{screen.style('33', 'warning:')} {what}")
    if not models and not result.get("problems"):
        screen.line(
            "no provider within reach lists a model\nnext: basisctl auth login PROVIDER, or basisctl connect --help"
        )
    return exit_codes.OK if models else exit_codes.FAILED


def _row(model: dict[str, Any]) -> list[str]:
    window, price = model.get("contextWindow"), fields_of(model.get("price"))
    cost = f"${price.get('input')}/${price.get('output')}" if price else "?"
    return [
        one_line(str(model.get("provider"))),
        tokens(window) if isinstance(window, int) else "?",
        one_line(cost),
        one_line(str(model.get("id"))),
    ]
