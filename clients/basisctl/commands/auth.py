"""`basisctl auth`: keys are given to the daemon here, and where each comes from is told. None is ever printed.

Owns how a key is read: unseen from the terminal, or from standard input; never from the command line, which other
users can see and shells remember.
"""

from __future__ import annotations

import json
import os
import sys

from basis_client.errors import fields_of
from basisctl import exit_codes
from basisctl.connecting import configured_endpoint, configured_provider, require_safe_endpoint
from basisctl.opening import Usage, open_daemon
from basisctl.render import table
from basisctl.screen import Screen
from basisctl.visible import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

SOURCES = {"none": "no key", "not_needed": "needs no key"}


def main(args: Namespace) -> int:
    return {"login": _login, "status": _status, "logout": _logout}[args.action](args)


def _login(args: Namespace) -> int:
    params = _meant(args)
    base_url = params.get("baseUrl")
    if base_url is not None:
        require_safe_endpoint(base_url)
    screen = Screen(os.environ)
    connection = open_daemon(args)
    whose = one_line(base_url or params["provider"])
    params |= {"secret": _read_key(whose), "verify": not args.no_verify, "inFile": args.in_file}
    result = connection.request("basis/auth/set", params)
    state = fields_of(result.get("state"))
    if args.json:
        screen.answer(json.dumps(result) + "\n")
        return exit_codes.OK
    tried = " and works" if result.get("verified") else ""
    screen.line(f"the key for {whose} is kept in {one_line(str(state.get('detail')))}{tried}; it holds at once")
    if result.get("problem"):
        screen.line(f"warning: it could not be tried: {one_line(str(result['problem']))}")
    if base_url is None and configured_provider(os.environ) not in (None, params["provider"]):
        screen.line(f"next: basisctl connect {params['provider']} (another provider is chosen at present)")
    elif base_url is None and (chosen := configured_endpoint(os.environ)):
        screen.line(
            f"next: basisctl connect {params['provider']} --base-url '' "
            f"(at present {one_line(chosen['base_url'])} is used, which has a key of its own)"
        )
    return exit_codes.OK


def _meant(args: Namespace) -> dict[str, Any]:
    """Whose key it is: what was named, else what was chosen with `basisctl connect`. Raises `Usage`."""
    chosen = configured_endpoint(os.environ)
    if chosen and (args.base_url == chosen["base_url"] or (args.provider is None and args.base_url is None)):
        meant: dict[str, Any] = {"provider": args.provider or chosen["provider"], "baseUrl": chosen["base_url"]}
        return meant | ({"wire": chosen["wire"]} if "wire" in chosen else {})
    provider = args.provider or ("openai" if args.base_url else configured_provider(os.environ))
    if provider is None:
        raise Usage("whose key is it?", "name the provider: basisctl auth login openai")
    return {"provider": provider, **({"baseUrl": args.base_url} if args.base_url else {})}


def _read_key(whose: str) -> str:
    """The key as typed or piped, without the line's end. Raises `Usage` when there is none."""
    if sys.stdin is None:
        raise Usage("standard input is closed, so no key can be read from it")
    if sys.stdin.isatty():
        from getpass import getpass

        key = getpass(f"key for {whose} (it is not shown): ", stream=sys.stderr)
    else:
        key = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not key.strip():
        raise Usage("no key was given", "paste it, or pipe it in: basisctl auth login PROVIDER < FILE")
    return key.strip()


def _status(args: Namespace) -> int:
    result = open_daemon(args).request("basis/auth/status")
    screen = Screen(os.environ)
    if args.json:
        screen.answer(json.dumps(result) + "\n")
        return exit_codes.OK
    states = [fields_of(state) for state in result.get("providers", ())]
    rows = [[one_line(str(state.get("baseUrl") or state.get("provider"))), _from(state)] for state in states]
    screen.answer(table([["FOR", "KEY FROM"], *rows]) + "\n")
    return exit_codes.OK


def _from(state: dict[str, Any]) -> str:
    """Where a key comes from, in one line."""
    if state.get("problem"):
        return f"can't be used: {one_line(str(state['problem']))}"
    variable = str(state.get("variable", ""))
    is_set_here = bool(os.environ.get(variable, "").strip())
    source = str(state.get("source"))
    if source == "none" and is_set_here:
        return f"{variable}, which is set here"
    found = one_line(str(state.get("detail") or SOURCES.get(source, source)))
    also = [one_line(str(each)) for each in state.get("also", ())]
    return f"{found} (also there: {', '.join(also)})" if also else found


def _logout(args: Namespace) -> int:
    if args.provider is None and args.base_url is None:  # what was chosen is not meant: it would be gone unnamed
        raise Usage("whose key is it?", "name the provider, or give the --base-url it is for")
    params = {"provider": args.provider or "openai"}
    if args.base_url is not None:
        params["baseUrl"] = args.base_url
    connection = open_daemon(args)
    connection.request("basis/auth/forget", params)
    screen = Screen(os.environ)
    if args.json:
        screen.answer(json.dumps({"state": "forgotten", **params}) + "\n")
        return exit_codes.OK
    whose = one_line(params.get("baseUrl", params["provider"]))
    screen.line(f"no key for {whose} is stored any more")
    if args.base_url is None:
        for state in map(fields_of, connection.request("basis/auth/status").get("providers", ())):
            if state.get("provider") == args.provider and not state.get("baseUrl") and state.get("detail"):
                screen.line(f"one is still taken from {one_line(str(state['detail']))}")
    return exit_codes.OK
