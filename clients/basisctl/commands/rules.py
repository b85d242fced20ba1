"""`basisctl rules`: remembered answers – which there are, forgetting one, and which one decides a call."""

from __future__ import annotations

import json
import os

from basis_client.errors import fields_of
from basisctl import exit_codes
from basisctl.opening import Usage, directory, environment_snapshot, find_session, open_daemon
from basisctl.render import BOLD, DIM, GREEN, RED, YELLOW
from basisctl.screen import Screen
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from basis_client.blocking import Connection
    from basisctl.render import Style


def main(args: Namespace) -> int:
    connection = open_daemon(args)
    place = _place(args, connection)
    screen = Screen(os.environ)
    match args.action:
        case "remove":
            return _remove(args, connection, place, screen)
        case "explain":
            return _explain(args, connection, place, screen)
        case _:
            return _list(args, connection, place, screen)


def _list(args: Namespace, connection: Connection, place: dict[str, Any], screen: Screen) -> int:
    result = connection.request("basis/rule/list", place)
    if args.json:
        screen.answer(json.dumps(result) + "\n")
        return exit_codes.OK
    rules = _rules(result)
    for number, rule in enumerate(rules, 1):
        screen.answer(f"{number:>3}  {_spelled(rule, screen.out_style)}\n")
    if rules:
        kept = f" (kept in {one_line(str(result['file']))})" if result.get("file") else ""
        screen.line(
            f"the first that matches decides{kept}\nnext: basisctl rules remove N, or basisctl rules explain TOOL INPUT"
        )
    else:
        screen.line("no answer is remembered here")
    return exit_codes.OK


def _remove(args: Namespace, connection: Connection, place: dict[str, Any], screen: Screen) -> int:
    rules = _rules(connection.request("basis/rule/list", place))
    if args.number > len(rules):
        raise Usage(f"there is no rule {args.number}, only {len(rules)}", hint="see them: basisctl rules")
    wanted: int = args.number
    rule = rules[wanted - 1]
    connection.request("basis/rule/remove", {**place, "rule": rule})
    if args.json:
        screen.answer(json.dumps(rule) + "\n")
    else:
        screen.line(f"forgotten: {_spelled(rule, screen.style)}")
    return exit_codes.OK


def _explain(args: Namespace, connection: Connection, place: dict[str, Any], screen: Screen) -> int:
    result = connection.request("basis/rule/explain", {**place, "tool": args.tool, "input": _input(args.input)})
    if args.json:
        screen.answer(json.dumps(result) + "\n")
        return exit_codes.OK
    style = screen.out_style
    outcome = str(result.get("outcome"))
    words = {"allow": style(GREEN, "allowed"), "deny": style(RED, "denied"), "prompt": style(YELLOW, "asked about")}
    lines = [f"{words.get(outcome, one_line(outcome))}: {one_line(str(result.get('why', '')))}"]
    rule = fields_of(result.get("rule"))
    if rule:
        lines.append(f"  by   {_spelled(rule, style)}")
    if result.get("file"):
        lines.append(style(DIM, f"  from {one_line(str(result['file']))}"))
    lines += (f"  no rule covers `{one_line(str(command))}`" for command in result.get("uncovered", ()))
    for loser in map(fields_of, result.get("runnersUp", ())):
        lines.append(f"  not  {_spelled(fields_of(loser.get('rule')), style)}")
        lines.append(style(DIM, f"         {one_line(str(loser.get('why')))}"))
    screen.answer("\n".join(lines) + "\n")
    return exit_codes.OK


def _rules(listed: dict[str, Any]) -> list[dict[str, Any]]:
    return [fields_of(rule) for rule in listed.get("rules", ())]


def _place(args: Namespace, connection: Connection) -> dict[str, Any]:
    """Where the rules are to hold: in a session, else in the workspace."""
    workspace = directory(args)
    if args.session is None:
        # With this shell's environment, as `run` would: what a call comes to depends on how the workspace is set up.
        if args.action == "explain":
            connection.request("basis/workspace/open", {"path": workspace, "env": environment_snapshot(os.environ)})
        return {"workspace": workspace}
    return {"sessionId": find_session(connection, args.session, workspace)["sessionId"]}


def _input(text: str) -> dict[str, Any]:
    """A call's input as typed: a JSON object, or the text of the one field that most tools for people have."""
    if not text.lstrip().startswith("{"):
        return {"input": text}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Usage(f"the input is no JSON: {error}", hint='quote it for the shell: \'{"path": "a.txt"}\'') from error
    return fields_of(found)


def _spelled(rule: dict[str, Any], style: Style) -> str:
    """A rule in a line: decision, scope, tool, what it covers, why."""
    word = style(GREEN, "allow") if rule.get("allow") else style(RED, "deny ")
    covers = f" {one_line(str(rule['pattern']))}" if rule.get("pattern") is not None else " (all of it)"
    reason = f": {one_line(str(rule['reason']))}" if rule.get("reason") else ""
    tool = style(BOLD, one_line(str(rule.get("toolName"))))
    return f"{word} {one_line(str(rule.get('scope'))):<8}{tool}{covers}{reason}"
