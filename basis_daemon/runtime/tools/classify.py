"""Says what a shell line seems to do, for the person who is asked about it (runtime.md 5.4).

A heuristic over the words of the line: every simple command is judged and the worst verdict stands. It is shown, never
enforced: a program can do what its name doesn't say.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from basis_daemon.runtime.tools.known_programs import (
    BY_SEVERITY,
    CLAUSES,
    DOWNLOADERS,
    GIT_OPTIONS_WITH_VALUE,
    HARMLESS_OUTPUTS,
    IN_PLACE,
    INTERPRETERS,
    KEYWORDS,
    NETWORK_GIT,
    PROGRAM_DIRECTORIES,
    PROGRAMS,
    READ_ONLY_GIT,
    SHELLS,
    STEERING_VARIABLES,
    SYSTEM_DIRECTORIES,
    WRAPPERS,
)
from basis_daemon.runtime.tools.shell_lines import SimpleCommand, Unreadable, simple_commands
from basis_protocol.content import Classification

MAX_DEPTH = 8
"""Commands that run commands that run commands."""

FORK_BOMB = "looks like a fork bomb"

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_FUNCTION = re.compile(r"([:\w]{1,20})\s{0,5}\(\)\s{0,5}\{([^}]{0,200})")
_DISK = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|disk|mmcblk)")


def classify(command: str) -> Classification:
    """The worst intent of any simple command of the line, and what a person should look at twice. Never raises."""
    warnings = list(_warnings_of_text(command))
    try:
        commands = simple_commands(command)
    except Unreadable as reason:
        return Classification(intent="unknown", warnings=[*warnings, f"the command could not be read: {reason}"])
    verdict = _Verdict(warnings)
    verdict.judge_all(commands, 0)
    if FORK_BOMB in warnings:
        verdict.at_least("destructive")
    return Classification(intent=verdict.intent, warnings=list(dict.fromkeys(verdict.warnings)))


class _Verdict:
    """Collects what is found; the worst intent stands."""

    def __init__(self, warnings: list[str]) -> None:
        self.warnings = warnings
        self.intent = "read_only"

    def judge_all(self, commands: Sequence[SimpleCommand], depth: int) -> None:
        for command in commands:
            self._judge_outputs(command.outputs)
            self._judge_variables(command.words)
            words = _without_prefix(command.words)
            if words:
                self._judge(words, depth)
            if _program(command) in INTERPRETERS and any(_program(one) in DOWNLOADERS for one in _feeding(command)):
                self.warnings.append("runs what it downloads")

    def at_least(self, intent: str) -> None:
        if BY_SEVERITY.index(intent) > BY_SEVERITY.index(self.intent):
            self.intent = intent

    def _judge_outputs(self, outputs: Iterable[str]) -> None:
        for target in outputs:
            if target not in HARMLESS_OUTPUTS:
                self.at_least("write")
                self._warn_of_places([target], writes=True)
            if _DISK.match(target):
                self.at_least("destructive")
                self.warnings.append(f"writes to a disk: {target}")

    def _judge_variables(self, words: Iterable[str]) -> None:
        for word in words:
            if _ASSIGNMENT.match(word) and word.startswith(STEERING_VARIABLES):
                self.at_least("unknown")
                self.warnings.append(f"changes which programs run: {word.partition('=')[0]}")

    def _judge(self, words: Sequence[str], depth: int) -> None:
        name, arguments = _name(words[0]), list(words[1:])
        intent = _intent(name, arguments)
        self.at_least(intent)
        self.warnings += _warnings_of(name, arguments)
        self._warn_of_places(arguments, writes=intent in ("write", "destructive", "system_admin"))
        for inner in _inner_commands(name, arguments):
            self._judge_inner(inner, depth + 1)

    def _judge_inner(self, inner: str | list[str], depth: int) -> None:
        if depth > MAX_DEPTH:
            self.at_least("unknown")
            self.warnings.append("the command could not be read: it nests too deeply")
        elif isinstance(inner, str):
            try:
                self.judge_all(simple_commands(inner), depth)
            except Unreadable as reason:
                self.at_least("unknown")
                self.warnings.append(f"the command could not be read: {reason}")
        elif words := _without_prefix(inner):
            self._judge(words, depth)

    def _warn_of_places(self, arguments: Iterable[str], *, writes: bool) -> None:
        for argument in arguments:
            place = argument.partition("=")[2] if argument.startswith(("--", "of=", "if=")) else argument
            if ".." in place.split("/"):
                self.warnings.append(f"leads out of a directory: {place}")
            if place.startswith(("~", "$HOME", "${HOME}")):
                self.warnings.append(f"names the home directory: {place}")
            if writes and place.startswith(SYSTEM_DIRECTORIES) and place not in HARMLESS_OUTPUTS:
                self.warnings.append(f"touches a system directory: {place}")


def _feeding(command: SimpleCommand) -> Iterable[SimpleCommand]:
    """The commands before this one in its pipe."""
    while command.fed_by is not None:
        command = command.fed_by
        yield command


def _program(command: SimpleCommand) -> str:
    """The name of what a command runs in the end."""
    words = _without_prefix(command.words)
    for _ in range(MAX_DEPTH):
        if not words or _name(words[0]) not in WRAPPERS:
            break
        name = _name(words[0])
        words = _without_prefix(_wrapped(words[1:], WRAPPERS[name], skip_first=name == "timeout"))
    return _name(words[0]) if words else ""


def _name(word: str) -> str:
    """What a program is known by: its name, if it is the system's. `./ls` is not `ls`."""
    directory, _, name = word.rpartition("/")
    return name if directory in PROGRAM_DIRECTORIES else word


def _without_prefix(words: Sequence[str]) -> list[str]:
    """The words from the command's name on: no keywords, no assignments. Empty for a clause without a command."""
    rest = list(words)
    while rest and (rest[0] in KEYWORDS or _ASSIGNMENT.match(rest[0])):
        rest.pop(0)
    return [] if rest and rest[0] in CLAUSES else rest


def _intent(name: str, arguments: Sequence[str]) -> str:
    if name == "git":
        return _git_intent(arguments)
    if name.startswith("mkfs"):
        return "destructive"
    if name == "dd" and any(_DISK.match(argument.removeprefix("of=")) for argument in arguments):
        return "destructive"
    if name == "find":
        return "destructive" if "-delete" in arguments else "read_only"
    if name in IN_PLACE and _has_flag(arguments, *IN_PLACE[name]):
        return "write"
    if name == "awk" and any("system" in argument or ">" in argument or "|" in argument for argument in arguments):
        return "unknown"
    if name in WRAPPERS and name not in ("sudo", "doas", "nohup", "nice"):
        return "read_only"
    return PROGRAMS.get(name, "unknown")


def _git_intent(arguments: Sequence[str]) -> str:
    subcommand, rest = _git_subcommand(arguments)
    if subcommand is None:
        return "read_only"
    if subcommand in NETWORK_GIT:
        return "network"
    if _has_flag(arguments[: arguments.index(subcommand)], "c", "--exec-path", "--config-env"):
        return "unknown"
    if (subcommand == "clean" and _has_flag(rest, "f", "--force")) or (subcommand == "reset" and "--hard" in rest):
        return "destructive"
    if subcommand in ("branch", "tag", "remote", "stash", "config", "bisect") and _changes(subcommand, rest):
        return "write"
    return "read_only" if subcommand in READ_ONLY_GIT else "write"


def _git_subcommand(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        takes_value = rest.pop(0) in GIT_OPTIONS_WITH_VALUE
        if takes_value and rest:
            rest.pop(0)
    return (rest[0], rest[1:]) if rest else (None, [])


def _changes(subcommand: str, arguments: Sequence[str]) -> bool:
    """Whether a subcommand that can only look is told to change something."""
    plain = [argument for argument in arguments if not argument.startswith("-")]
    match subcommand:
        case "stash":
            return not plain or plain[0] not in ("list", "show")
        case "remote":
            return bool(plain) and plain[0] not in ("show", "get-url")
        case "config":
            return len(plain) > 1 or any(flag in arguments for flag in ("--unset", "--unset-all", "--edit", "-e"))
        case "bisect":
            return bool(plain) and plain[0] not in ("log", "view", "visualize")
        case _:
            is_listing = any(flag in arguments for flag in ("-l", "--list", "--contains", "--merged", "--no-merged"))
            return not is_listing and (bool(plain) or _has_flag(arguments, "dDmMcC", "--delete", "--move", "--copy"))


def _has_flag(arguments: Iterable[str], letters: str, *long: str) -> bool:
    return any(
        argument.partition("=")[0] in long
        or (argument[:1] == "-" and argument[:2] != "--" and any(one in argument for one in letters))
        for argument in arguments
    )


def _inner_commands(name: str, arguments: Sequence[str]) -> list[str | list[str]]:
    """Commands that a command is told to run: as a line, or as words."""
    if name in SHELLS:
        return [line for flag, line in pairwise(arguments) if re.fullmatch(r"-[a-z]*c", flag)]
    if name == "eval":
        return [" ".join(arguments)]
    if name == "find":
        return _executed_by_find(arguments)
    if name == "su":
        return [line for flag, line in pairwise(arguments) if flag in ("-c", "--command")]
    if name in WRAPPERS:
        words = _wrapped(arguments, WRAPPERS[name], skip_first=name == "timeout")
        return [words] if words else []
    return []


def _executed_by_find(arguments: Sequence[str]) -> list[str | list[str]]:
    starts = [index for index, argument in enumerate(arguments) if argument in ("-exec", "-execdir", "-ok", "-okdir")]
    return [list(arguments[index + 1 :]) for index in starts]


def _wrapped(arguments: Sequence[str], with_value: frozenset[str], *, skip_first: bool) -> list[str]:
    rest = list(arguments)
    while rest and (rest[0].startswith("-") or _ASSIGNMENT.match(rest[0])):
        option = rest.pop(0)
        if option == "--":
            break
        if option in with_value and rest:
            rest.pop(0)
    return rest[1:] if skip_first else rest


def _warnings_of(name: str, arguments: Sequence[str]) -> Iterable[str]:
    for rule in _RULES:
        warning = rule(name, arguments)
        if warning is not None:
            yield warning


def _rm(name: str, arguments: Sequence[str]) -> str | None:
    if name != "rm" or not _has_flag(arguments, "rR", "--recursive"):
        return None
    everything = [one for one in arguments if one.rstrip("/*") in ("", "~", ".", "..", "$HOME", "${HOME}") and one]
    if everything:
        return f"removes everything below {everything[0]}"
    return "removes directories without asking" if _has_flag(arguments, "f", "--force") else None


def _disk_tools(name: str, arguments: Sequence[str]) -> str | None:
    if name.startswith("mkfs") or name in ("shred", "wipefs"):
        return f"{name} destroys what it is given"
    if name == "dd" and any(argument.startswith(("if=", "of=")) for argument in arguments):
        return "dd copies raw data"
    return None


def _open_permissions(name: str, arguments: Sequence[str]) -> str | None:
    modes = {"777", "0777", "000", "0000", "a+rwx"} & set(arguments)
    if name == "chmod" and modes and _has_flag(arguments, "R", "--recursive"):
        return f"sets mode {modes.pop()} on everything below"
    return None


def _other_user(name: str, arguments: Sequence[str]) -> str | None:
    return "runs as another user" if name in ("sudo", "doas", "su") else None


def _lost_work(name: str, arguments: Sequence[str]) -> str | None:
    if name != "git":
        return None
    subcommand, rest = _git_subcommand(arguments)
    if subcommand == "push" and (_has_flag(rest, "f", "--force") or any(one.startswith("+") for one in rest)):
        return "overwrites the remote's history"
    if (subcommand == "reset" and "--hard" in rest) or (subcommand == "clean" and _has_flag(rest, "f", "--force")):
        return f"git {subcommand} discards uncommitted work"
    return None


_RULES: tuple[Callable[[str, Sequence[str]], str | None], ...] = (
    _rm,
    _disk_tools,
    _open_permissions,
    _other_user,
    _lost_work,
)


def _warnings_of_text(command: str) -> Iterable[str]:
    for name, body in _FUNCTION.findall(command):
        if f"{name}|{name}" in body.replace(" ", ""):
            yield FORK_BOMB
    hidden = {char for char in command if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co")}
    if hidden:
        yield f"holds invisible characters: {', '.join(sorted(f'U+{ord(char):04X}' for char in hidden)[:5])}"
