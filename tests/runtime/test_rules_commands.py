"""Rules about command lines, attacked: what a pattern allows is never more than what a shell would run (ADR 10)."""

import os
import re
import shlex
import shutil
import stat
import subprocess
from itertools import dropwhile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from basis_daemon.runtime.approvals import ApprovalAnswer, offers_for, pattern_for, rule_for
from basis_daemon.runtime.rule_lookup import CallData, command_glob, find
from basis_daemon.runtime.rules import OperationDenied, RememberedRule, canonical_data
from basis_daemon.runtime.session_rules import call_data
from basis_daemon.runtime.tools.base import CallPreparation
from basis_daemon.runtime.tools.command_lines import mentioned_commands, plain_commands, spelled, suggested
from basis_protocol.content import CommandPreview

SHELLS = [shell for shell in (shutil.which("sh"), shutil.which("bash"), shutil.which("dash")) if shell]
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
PROGRAMS = ("git", "rm", "ls", "pytest", "sudo")

FRAGMENTS = st.sampled_from(
    (
        *PROGRAMS,
        *(" ", "  ", "\t", " ", " "),
        *("status", "-rf", "x", "a.txt", "-c", "~", "*", "?", "[a]", "2", "1", "!", "%", "^", ":"),
        *(";", "&&", "||", "|", "\n", ";;", "&", "|&", ";&"),
        *(">", "<", ">>", "<<", "2>&1", ">&2", ">/dev/null", "2> /dev/null", "</dev/null", "&>/dev/null", "<>", ">|"),
        *("$(", ")", "`", "${", "}", "$IFS", "$X", "$((", "))", "(", "{", "<(", "=("),
        *("\\", "\\\n", '"', "'", "$'", '\\"', "#", " #", "\r", "\v", "\f", "\0"[:0], "\u00a0", "\u2028", "\u200b"),
        *(
            "A=1",
            "PATH=.",
            "if",
            "then",
            "fi",
            "do",
            "done",
            "while",
            "time",
            "exec",
            "eval",
            "function",
            "[[",
            "coproc",
        ),
    )
)
WORDS = st.sampled_from(
    (*PROGRAMS, "'a b'", '"c d"', "a'b'", "-x", "*", "~", "A=1", "2>&1", ">/dev/null", "if", "time", "!")
)
JOINTS = st.sampled_from((*" " * 8, "; ", " && ", " || ", " | ", "\n", " & ", "", " >", " $", "\\"))
LINES = st.lists(FRAGMENTS, max_size=10).map("".join) | st.lists(st.tuples(WORDS, JOINTS), max_size=8).map(
    lambda pairs: "".join(part for pair in pairs for part in pair)
)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of programs that only write down how they were called."""
    directory = tmp_path_factory.mktemp("bin")
    for name in PROGRAMS:
        program = directory / name
        # A file for each, as the programs of a pipe write at once.
        program.write_text(f'#!/bin/sh\nprintf "%s\\0" {name} "$@" > "{directory}/log.$$"\n')
        program.chmod(stat.S_IRWXU)
    return directory


def ran(recorder: Path, shell: str, line: str, cwd: Path) -> list[list[str]]:
    """Every one of the recorded programs that `shell` started for `line`, with its arguments."""
    subprocess.run(
        [shell, "-c", line],
        cwd=cwd,
        env={"PATH": str(recorder), "HOME": "~"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )
    calls: list[list[str]] = []
    for log in recorder.glob("log.*"):
        calls.append(log.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1])
        log.unlink()
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(line=LINES)
@example(line="git status; rm -rf ~")
@example(line="git status\nrm x")
@example(line="git status && ls 2>&1 | pytest >/dev/null")
@example(line="git 'a b' \"c d\" a'b'\"c\"")
@example(line="git status\r\nrm x")
@example(line="git 12>&1")
@example(line="git status 2>&1>x")
def test_a_plain_line_runs_its_commands_and_nothing_else(
    recorder: Path, tmp_path_factory: pytest.TempPathFactory, shell: str, line: str
) -> None:
    """What the strict reader says of a line is the whole truth, as told by the shells themselves: no program runs that
    it did not name, with other arguments than it named, and no file is written."""
    plain = plain_commands(line)
    if plain is None:
        return
    cwd = tmp_path_factory.mktemp("cwd")

    calls = ran(recorder, shell, line, cwd)

    # What is assigned ahead of a command belongs to its spelling, but is none of its arguments.
    named = {spelled(list(dropwhile(ASSIGNMENT.match, shlex.split(one)))) for one in plain}
    assert {spelled(call) for call in calls} <= named
    assert os.listdir(cwd) == []


@given(LINES)
def test_reading_a_line_never_fails(line: str) -> None:
    plain_commands(line)
    mentioned_commands(line)
    suggested(line)


# --- patterns over calls


def prepared(line: str, *, target: str = "local") -> CallPreparation:
    """A command as the spawn tool prepares it."""
    return CallPreparation(
        structured_input={"mode": "command", "body": line, "cwd": "/repo", "target": target},
        preview=CommandPreview(command=line, cwd="/repo", target=target),
        side_effect="process",
        execution="exclusive_local_mutation",
        title=f"run {line}",
        remember_pattern=f'{{"body":"*","cwd":"*","mode":"command","target":"{target}"}}',
        covered="every command",
        command_key="body",
    )


def call(line: str, *, target: str = "local") -> CallData:
    preparation = prepared(line, target=target)
    return call_data("spawn", preparation.structured_input, "body")


def allows(pattern: str | None, line: str) -> bool:
    return find(call(line), [RememberedRule("spawn", True, pattern)]).allow is True


STATUS = '{"body":"git status*","cwd":"*","mode":"command","target":"local"}'

HIDING_PLACES = (
    "git status; rm -rf ~",
    "git status && rm -rf ~",
    "git status || rm -rf ~",
    "git status | rm -rf ~",
    "git status & rm -rf ~",
    "git status\nrm -rf ~",
    "git status $(rm -rf ~)",
    "git status `rm -rf ~`",
    'git status "$(rm -rf ~)"',
    "git status > ~/.bashrc",
    "git status >> ~/.bashrc",
    "git status 2>x",
    "git status <(rm -rf ~)",
    "git status >(rm -rf ~)",
    "git status $X",
    "git status ${X:-$(rm -rf ~)}",
    "git status {a,b}",
    "git status \\; rm -rf ~",
    "git status <<E\n$(rm -rf ~)\nE",
    "X=1 git status",
    "PATH=/tmp:$PATH git status",
    "PATH=/tmp; git status",
    "if git status; then rm -rf ~; fi",
    "sudo git status",
    "(git status; rm -rf ~)",
    "git status # harmless",
    "git status\r\nrm -rf ~",
    "! git status",
    "time git status",
    "eval 'git status; rm -rf ~'",
    "rm -rf ~; git status",
)


@pytest.mark.parametrize(
    "pattern", [STATUS, '{"body":"git status*', "*git status*", '*"body":"git status*"*', "{*git*}"]
)
@pytest.mark.parametrize("line", HIDING_PLACES)
def test_nothing_hides_behind_an_allowed_command(pattern: str, line: str) -> None:
    """AP-19, AP-21: a wildcard in an allowing pattern stands for arguments, never for another command."""
    if pattern.startswith("*git") or pattern == "{*git*}":
        # A pattern that is about nothing but a name in the command allows commands of which each holds that name.
        assert not allows(pattern, line) or all("git" in one for one in plain_commands(line) or ())
    else:
        assert not allows(pattern, line)


@pytest.mark.parametrize(
    "line",
    [
        "git status",
        "git status -s",
        "git status 2>&1",
        "git status >/dev/null 2>&1",
        "git  status",
        "'git' status -- 'a b'",
    ],
)
def test_an_allowed_command_may_have_any_arguments(line: str) -> None:
    assert allows(STATUS, line)


@given(st.lists(FRAGMENTS, max_size=8).map("".join))
def test_no_line_is_allowed_for_a_part_of_it(tail: str) -> None:
    """However a line goes on: allowed by `git status *` are only lines of which every command is a `git status`."""
    line = f"git status {tail}"
    if allows(STATUS.replace("status*", "status *"), line):
        plain = plain_commands(line)
        assert plain is not None
        assert all(one == "git status" or one.startswith("git status ") for one in plain)


def test_a_line_is_allowed_by_several_rules_together_and_told_which_ranks_last() -> None:
    rules = [
        RememberedRule("spawn", True, STATUS, scope="project"),
        RememberedRule("spawn", True, '*"body":"tail *"*', scope="global"),
    ]
    found = find(call("git status | tail -5"), rules, with_losers=True)
    assert found.allow and found.rule == rules[1]
    assert [loser.why for loser in found.losers] == ["it covers a part of the line only: git status"]

    left = find(call("git status | head -5"), rules)
    assert left.allow is None and left.uncovered == ("head -5",)


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf x",
        "cd a && rm -rf x",
        "sudo rm -rf x",
        "env A=1 rm -rf x",
        "sh -c 'cd a; rm -rf x'",
        "echo $(rm -rf x)",
        "/bin/rm -rf x",
        "find . -exec rm -rf {} +",
        "ls > x; rm -rf x",
        "A=1 rm -rf x",
        'bash -lc "sudo rm -rf x"',
        "eval rm -rf x",
        "ls | xargs -n1 rm -rf",
    ],
)
def test_a_denied_command_is_found_wherever_it_stands(line: str) -> None:
    """A denial reads generously, also in lines the strict reader gives up on, and beats the bare allow (AP-20)."""
    denial = RememberedRule("spawn", False, '*"body":"rm *"*', "not here")
    found = find(call(line), [RememberedRule("spawn", True), denial])
    assert found.allow is False and found.rule == denial


@pytest.mark.parametrize("line", ["ls", "git rm-index", "echo rm x", "grep rm file"])
def test_a_denial_is_not_about_words_that_are_no_command(line: str) -> None:
    assert find(call(line), [RememberedRule("spawn", False, '*"body":"rm *"*')]).allow is None


@pytest.mark.parametrize("line", HIDING_PLACES)
def test_whole_line_rules_take_any_line(line: str) -> None:
    """The bare tool, `*` alone as the command, and exactly this line: nothing can hide in them."""
    assert allows(None, line)
    assert allows('{"body":"*","cwd":"*","mode":"command","target":"local"}', line)
    assert allows(canonical_data(prepared(line).structured_input), line) or "*" in line or "?" in line


@given(LINES, LINES)
def test_an_exact_line_covers_no_other(one: str, other: str) -> None:
    if "*" in one or "?" in one or one == other:
        return
    pattern = canonical_data({**prepared("x").structured_input, "body": one})
    # The same command in another spelling is the same line.
    assert not allows(pattern, other) or set(plain_commands(other) or ()) == {one.rstrip(" ")}


def test_a_command_on_another_target_is_not_covered() -> None:
    """AP-30, SP-25."""
    found = find(call("git status", target="prod"), [RememberedRule("spawn", True, STATUS)])
    assert found.allow is None


# --- what is offered


@pytest.mark.parametrize(
    ("line", "covered"),
    [
        ("git status -s", "`git status …`"),
        ("git log", "`git log …`"),
        ("git push --force", "exactly `git push --force`"),
        ("git -c core.pager=x log", "exactly `git -c core.pager=x log`"),
        ("pytest -q tests", "`pytest …`"),
        ("npm run lint -- --fix", "`npm run lint …`"),
        ("npm install x", "exactly `npm install x`"),
        ("rm -rf build", "exactly `rm -rf build`"),
        ("python x.py", "exactly `python x.py`"),
        ("git status && rm x", "exactly `git status && rm x`"),
        ("git log > x", "exactly `git log > x`"),
        ("rm *.pyc", None),
        ("ls *.pyc", "`ls …`"),
    ],
)
def test_what_lasts_is_offered_for_little(line: str, covered: str | None) -> None:
    """AP-21: the words say what is covered, and the pattern covers the call."""
    offers = offers_for("spawn", prepared(line), has_project=True)

    assert {offer.scope: offer.covered for offer in offers} == {
        "session": "every command",
        **({} if covered is None else {"project": covered, "global": covered}),
    }
    for offer in offers:
        assert allows(offer.pattern, line)


@given(LINES)
def test_every_offer_covers_the_call_and_what_lasts_no_other_command(line: str) -> None:
    for offer in offers_for("spawn", prepared(line), has_project=True):
        assert allows(offer.pattern, line)
        if offer.scope != "session":
            assert not allows(offer.pattern, f"{line}; rm -rf ~")
            assert not allows(offer.pattern, f"{line} > x")


def test_a_project_is_offered_only_where_there_is_one() -> None:
    """SE-20."""
    assert [offer.scope for offer in offers_for("spawn", prepared("ls"), has_project=False)] == ["session", "global"]


@pytest.mark.parametrize("pattern", ["git log *", '*"body":"git log *"*', "git*", "git log -?"])
def test_a_pattern_given_with_an_answer_is_kept_if_it_covers_the_call(pattern: str) -> None:
    """SE-23: for a command the pattern may be simply one over the command."""
    preparation = prepared("git log -3")
    offers = offers_for("spawn", preparation, has_project=True)

    rule = rule_for(ApprovalAnswer(True, "project", pattern=pattern), "spawn", preparation, offers)

    assert rule is not None and rule.scope == "project"
    assert find(call("git log -5"), [rule]).allow
    assert find(call("git log -5; ls"), [rule]).allow is None


@pytest.mark.parametrize(
    ("line", "pattern"), [("git log", "ls*"), ("git log > x", "git log*"), ("git log; ls", "git *")]
)
def test_a_pattern_that_does_not_cover_the_call_is_refused(line: str, pattern: str) -> None:
    """SE-16: nothing is kept that would not do what the person thinks it does."""
    preparation = prepared(line)
    offers = offers_for("spawn", preparation, has_project=True)
    with pytest.raises(OperationDenied, match="does not cover"):
        rule_for(ApprovalAnswer(True, "global", pattern=pattern), "spawn", preparation, offers)


@given(st.text(max_size=20))
def test_a_command_in_a_pattern_is_escaped_as_the_call_is(command: str) -> None:
    preparation = prepared("x")
    pattern = pattern_for(command, preparation)
    assert command_glob(pattern, "body") is not None
    if command and not set(command) & set("*?"):
        assert allows(pattern, command)
