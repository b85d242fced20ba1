"""The arguments of `basisctl`: commands, options, help texts, and which exit code an error has. Does none of the work.

Only the parser of the command at hand is built, and only that command's module is imported.
"""

from __future__ import annotations

import os
import sys
from argparse import (
    SUPPRESS,
    ArgumentParser,
    ArgumentTypeError,
    HelpFormatter,
    Namespace,
    RawDescriptionHelpFormatter,
)
from importlib import import_module

from basisctl import exit_codes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

KEYED = ("anthropic", "openai", "gemini", "openrouter")
LOCAL_SERVERS = ("ollama", "lmstudio")
PROVIDERS = (*KEYED, *LOCAL_SERVERS, "pocket", "rehearsal")
WIRES = ("chat_completions", "responses", "anthropic_messages", "gemini_generate_content")
SCOPES = ("once", "session", "project", "global")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
MAX_DURATION_S = 4_294_967_295

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


MAX_HELP_COLUMNS = 120


def help_width() -> int:
    """argparse would import shutil, with four compression libraries, to ask the same."""
    try:
        return min(os.get_terminal_size(1).columns, MAX_HELP_COLUMNS) - 2
    except OSError:
        return 98


def _plain(prog: str) -> HelpFormatter:
    return HelpFormatter(prog, width=help_width())


def _raw(prog: str) -> HelpFormatter:
    return RawDescriptionHelpFormatter(prog, width=help_width())


def duration_s(text: str) -> int:
    """A duration as typed, in seconds (CL-5): `90s`, `30m`, `2h`, `1d`."""
    text = text.strip()
    if not text:
        raise ArgumentTypeError("a duration can't be empty: 90s, 30m, 2h or 1d")
    number, unit = text[:-1], text[-1]
    if text.isdecimal():
        raise ArgumentTypeError(f"{text!r} has no unit: {text}s, {text}m, {text}h or {text}d")
    if unit not in UNITS_S:
        raise ArgumentTypeError(f"{text!r} ends in an unknown unit: use s, m, h or d")
    if not (number.isascii() and number.isdecimal()):
        raise ArgumentTypeError(f"{text!r} does not begin with a whole number")
    seconds = int(number) * UNITS_S[unit]
    if seconds == 0:
        raise ArgumentTypeError("a duration must be longer than nothing")
    if seconds > MAX_DURATION_S:
        raise ArgumentTypeError(f"{text!r} is longer than {MAX_DURATION_S} s")
    return seconds


def count(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < minimum:
            raise ArgumentTypeError(f"{text!r} is not a whole number of at least {minimum}")
        return int(text)

    return parse


# --- options several commands share -----------------------------------------------------------------------------------


def _directory(parser: ArgumentParser) -> None:
    parser.add_argument("-C", dest="directory", metavar="DIR", help="the workspace (default: the current directory)")


def _json(parser: ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print {what} and nothing else on stdout")


def _no_start(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--no-start", action="store_true", help="fail when no daemon is running instead of starting one"
    )


def _watching(parser: ArgumentParser) -> None:
    _json(parser, "one JSON object a line, the params of basis/session/event,")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show tools and diffs even when stderr is not a terminal"
    )
    _no_start(parser)


# --- commands ---------------------------------------------------------------------------------------------------------


def _run(parser: ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="+", help="what to do; - reads it from standard input")
    _directory(parser)
    parser.add_argument(
        "-s", "--session", metavar="ID", help="continue this session; `last` is this workspace's newest"
    )
    parser.add_argument("--provider", choices=PROVIDERS, metavar="NAME", help="one of: " + " ".join(PROVIDERS))
    parser.add_argument("--model", metavar="ID", help="the provider's name of a model")
    parser.add_argument(
        "--effort", choices=("default", *EFFORTS), help="how hard the model should think; default: as it does unasked"
    )
    parser.add_argument(
        "--approve",
        choices=("prompt", "always", "never"),
        help="what happens to calls that change or run something: ask (default), allow all, deny all",
    )
    parser.add_argument("--deadline", type=duration_s, metavar="D", help="stop the turn after 90s, 30m, 2h, …")
    parser.add_argument("--tool-budget", type=count(0), metavar="N", help="stop the turn after N tool calls")
    parser.add_argument("--token-budget", type=count(1), metavar="N", help="stop the turn after N tokens")
    parser.add_argument(
        "--schema", metavar="FILE", help="ask for JSON of the schema in FILE; it alone is printed on stdout"
    )
    _watching(parser)


def _attach(parser: ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", metavar="ID", help="default: the active session of this workspace")
    _directory(parser)
    _watching(parser)


def _resume(parser: ArgumentParser) -> None:
    parser.add_argument("session", metavar="ID", help="an id, the beginning of one, or `last`")
    _directory(parser)
    _watching(parser)


def _sessions(parser: ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="of every workspace, not only this one")
    _directory(parser)
    _json(parser, "one JSON object a line, a SessionInfo,")
    _no_start(parser)


def _show(parser: ArgumentParser) -> None:
    parser.add_argument("session", metavar="ID", help="an id, the beginning of one, or `last`")
    _directory(parser)
    _json(parser, "one JSON object a line, a HistoryItem,")
    _no_start(parser)


def _asks(parser: ArgumentParser) -> None:
    _json(parser, "one JSON object a line, an Ask,")
    _no_start(parser)


def _remembering(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--scope",
        choices=SCOPES,
        default="once",
        help="how long the answer holds: once (default), for the session, the project, or everywhere (global); "
        "`basisctl asks` says what each would cover",
    )
    parser.add_argument(
        "--pattern",
        metavar="GLOB",
        help="what it covers instead: for commands, like 'git log *'; each command of a line has to match",
    )


def _approve(parser: ArgumentParser) -> None:
    parser.add_argument("ask", metavar="ASK", help="an id from `basisctl asks`, or the beginning of one")
    _remembering(parser)
    parser.add_argument(
        "--for-session", action="store_const", const="session", dest="scope", help="the same as --scope session"
    )
    _json(parser, "one JSON object")
    _no_start(parser)


def _deny(parser: ArgumentParser) -> None:
    parser.add_argument("ask", metavar="ASK", help="an id from `basisctl asks`, or the beginning of one")
    parser.add_argument("--reason", metavar="TEXT", help="why; the model reads it")
    _remembering(parser)
    _json(parser, "one JSON object")
    _no_start(parser)


def _stop(parser: ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", metavar="ID", help="default: the active session of this workspace")
    _directory(parser)
    _json(parser, "one JSON object")


def _status(parser: ArgumentParser) -> None:
    _json(parser, "one JSON object")


def _daemon(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    start = actions.add_parser("start", help="start it, unless it runs")
    _json(start, "one JSON object")
    stop = actions.add_parser("stop", help="end it; turns are stopped at their next round boundary and can be resumed")
    stop.add_argument("--now", action="store_true", help="don't wait for round boundaries")
    _json(stop, "one JSON object")
    _json(actions.add_parser("status", help="the same as `basisctl status`"), "one JSON object")
    logs = actions.add_parser("logs", help="print the end of its log")
    logs.add_argument("-n", "--lines", type=count(0), default=40, metavar="N", help="how many lines (default: 40)")
    logs.add_argument("-f", "--follow", action="store_true", help="go on printing what is logged, until Ctrl-C")


def _pocket(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = actions.add_parser("install", help="fetch the small local model; says what it downloads and its licence")
    install.add_argument("--yes", action="store_true", help="don't ask before downloading")
    actions.add_parser("status", help="say whether it is installed and usable")


def _connect(parser: ArgumentParser) -> None:
    parser.add_argument("provider", choices=PROVIDERS, metavar="PROVIDER", help="one of: " + " ".join(PROVIDERS))
    parser.add_argument("--model", metavar="ID", help="the provider's name of a model")
    parser.add_argument(
        "--base-url", metavar="URL", help="of a compatible endpoint: https://host/v1; '' for the provider's own"
    )
    parser.add_argument("--wire", choices=WIRES, metavar="WIRE", help="what it speaks: " + " ".join(WIRES))


def _key_owner(text: str) -> str:
    """A provider that may have a key. What else was typed may be the key itself, so it is not repeated."""
    if text not in (*KEYED, *LOCAL_SERVERS):
        raise ArgumentTypeError(
            f"it is one of {', '.join((*KEYED, *LOCAL_SERVERS))}; a key is asked for, and never given here"
        )
    return text


def _auth(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    login = actions.add_parser("login", help="store a key, asked for unseen or read from standard input")
    login.add_argument("provider", nargs="?", type=_key_owner, metavar="PROVIDER", help="whose key it is")
    login.add_argument("--base-url", metavar="URL", help="the endpoint it belongs to; it is sent nowhere else")
    login.add_argument("--no-verify", action="store_true", help="store it without trying it")
    login.add_argument("--in-file", action="store_true", help="keep it in a private file, not in the keyring")
    status = actions.add_parser("status", help="say where each key comes from")
    logout = actions.add_parser("logout", help="forget a stored key")
    logout.add_argument("provider", nargs="?", type=_key_owner, metavar="PROVIDER", help="whose key it is")
    logout.add_argument("--base-url", metavar="URL", help="the endpoint it belongs to")
    for action in (login, status, logout):
        _json(action, "one JSON object")
        _no_start(action)


def _models(parser: ArgumentParser) -> None:
    parser.add_argument("--provider", choices=PROVIDERS, metavar="NAME", help="of this provider only")
    parser.add_argument("--refresh", action="store_true", help="ask the providers again, whatever is known")
    _directory(parser)
    _json(parser, "one JSON object")
    _no_start(parser)


def _rules(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    listing = actions.add_parser("list", help="show them, in the order in which they are asked (default)")
    remove = actions.add_parser("remove", help="forget one")
    remove.add_argument("number", type=count(1), metavar="N", help="its number in the list")
    explain = actions.add_parser("explain", help="say what would become of a call, and which rule or guard decides it")
    explain.add_argument("tool", metavar="TOOL", help="the tool's name, e.g. spawn")
    explain.add_argument(
        "input", nargs="?", default="{}", metavar="INPUT", help="its input as JSON; other text is its `input` field"
    )
    for action in (parser, listing, remove, explain):
        # Said ahead of the action or behind it: a default of the action would undo what was said ahead.
        absent: dict[str, Any] = {} if action is parser else {"default": SUPPRESS}
        action.add_argument("-s", "--session", metavar="ID", help="in this session; `last` is the newest", **absent)
        action.add_argument("-C", dest="directory", metavar="DIR", help="the workspace (default: here)", **absent)
        action.add_argument("--json", action="store_true", help="print one JSON object and nothing else", **absent)
        action.add_argument("--no-start", action="store_true", help="fail when no daemon is running", **absent)


COMMANDS: dict[str, tuple[str, Callable[[ArgumentParser], None]]] = {
    "run": ("send a prompt and print the answer as it comes", _run),
    "attach": ("watch a session live and answer its questions; Ctrl-C only leaves", _attach),
    "sessions": ("list the conversations of this workspace, newest first", _sessions),
    "show": ("print a conversation", _show),
    "asks": ("list the questions that wait for a person", _asks),
    "approve": ("answer a question: yes", _approve),
    "deny": ("answer a question: no", _deny),
    "rules": ("list and forget remembered answers, and see which one decides a call", _rules),
    "stop": ("end a turn at its next round boundary; its work is kept", _stop),
    "cancel": ("abandon a turn and roll it back", _stop),
    "resume": ("carry an interrupted turn on", _resume),
    "status": ("say whether the daemon runs and what it is doing", _status),
    "daemon": ("start, stop or look at the daemon", _daemon),
    "pocket": ("the small local model that needs no key", _pocket),
    "connect": ("choose the model provider for all workspaces", _connect),
    "auth": ("store and forget keys, and see where each comes from", _auth),
    "models": ("list the models that can be used", _models),
}

EPILOG = """\
exit codes: 0 ok, 1 failed, 2 wrong usage, 3 a bound or a stop request ended the turn, 4 something needed approval and
nobody was there to be asked, 5 no daemon, 130 Ctrl-C

`basisctl COMMAND --help` says more."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. Argument errors and `--help` leave by `SystemExit`."""
    args = parse(sys.argv[1:] if argv is None else argv)
    module = import_module(f"basisctl.commands.{args.command}")
    from basis_client.errors import ClientError
    from basisctl.opening import Usage
    from basisctl.screen import OutputGone

    try:
        return module.main(args)
    except Usage as error:
        return _refuse(args, str(error), "usage", error.hint, exit_codes.USAGE)
    except ClientError as error:
        code = exit_codes.UNREACHABLE if error.is_unreachable else exit_codes.FAILED
        return _refuse(args, error.message, error.kind, error.hint, code)
    except OutputGone as gone:
        return exit_codes.FAILED if gone.args else exit_codes.BROKEN_PIPE
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED


def parse(argv: list[str]) -> Namespace:
    name = argv[0] if argv else ""
    if name in COMMANDS:
        summary, add_arguments = COMMANDS[name]
        description = summary[0].upper() + summary[1:] + "."
        parser = ArgumentParser(prog=f"basisctl {name}", description=description, formatter_class=_plain)
        add_arguments(parser)
        return parser.parse_args(argv[1:], Namespace(command=name))
    parser = _overview()
    parser.parse_args(argv)
    parser.print_usage(sys.stderr)
    raise SystemExit(exit_codes.USAGE)


def _overview() -> ArgumentParser:
    """What `basisctl --help` shows, and what refuses an unknown command."""
    lines = "\n".join(f"  {name:<10}{summary}" for name, (summary, _) in COMMANDS.items())
    parser = ArgumentParser(
        prog="basisctl",
        usage="basisctl [-h] [-V] COMMAND …",
        description=f"Talk to the basis daemon.\n\ncommands:\n{lines}",
        epilog=EPILOG,
        formatter_class=_raw,
    )
    from basis_client.handshake import VERSION

    parser.add_argument("-V", "--version", action="version", version=f"basisctl {VERSION}")
    parser.add_argument("command", nargs="?", choices=COMMANDS, help=SUPPRESS)
    return parser


def _refuse(args: Namespace, message: str, kind: str, hint: str | None, code: int) -> int:
    """Say what went wrong and what to do: for a person, or with `--json` as one object."""
    from basisctl.screen import OutputGone, Screen
    from basisctl.visible import visible

    screen = Screen(os.environ)
    if getattr(args, "json", False):
        import json

        error = {"error": message, "code": kind} | ({"next": hint} if hint else {})
        try:
            screen.answer(json.dumps(error) + "\n")
        except OutputGone:
            return exit_codes.BROKEN_PIPE
        return code
    screen.line(f"basisctl: {visible(message)}" + (f"\nnext: {visible(hint)}" if hint else ""))
    return code
