"""Arguments: what is understood, what is refused, and what the help says."""

from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from basisctl import exit_codes
from basisctl.cli import COMMANDS, duration_s, parse
from support.command_line import basisctl


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), (" 2h ", 7200), ("1d", 86400), ("4294967295s", 4294967295)]
)
def test_duration_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    """CL-5."""
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("10", "no unit"),
        ("s", "whole number"),
        ("1.5h", "whole number"),
        ("-1s", "whole number"),
        ("٣s", "whole number"),
        ("10w", "unknown unit"),
        ("0s", "longer than nothing"),
        ("4294967296s", "longer than 4294967295"),
        ("49711d", "longer than 4294967295"),
    ],
)
def test_duration_that_makes_no_sense_says_why(text: str, problem: str) -> None:
    """CL-5: a distinct error each for empty, no number, no unit, unknown unit, zero and too large."""
    with pytest.raises(ArgumentTypeError, match=problem):
        duration_s(text)


def test_bare_call_prints_usage_and_fails(workspace: Path) -> None:
    """CL-3."""
    done = basisctl(cwd=workspace)

    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: basisctl" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["run"],
        ["run", "x", "--tool-budget", "-1"],
        ["run", "x", "--token-budget", "0"],
        ["run", "x", "--approve", "maybe"],
        ["run", "x", "-C", "/does/not/exist"],
        ["daemon"],
        ["connect", "nobody"],
        ["connect", "openai", "--base-url", "ftp://x"],
        ["connect", "openai", "--model", " "],
    ],
)
def test_wrong_usage_is_refused_before_anything_is_sent(arguments: list[str], workspace: Path) -> None:
    """workspace.md 11.2: exit code 2."""
    done = basisctl(*arguments, cwd=workspace)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr


def test_every_command_is_in_the_help_and_explains_itself(workspace: Path) -> None:
    overview = basisctl("--help", cwd=workspace).stdout
    for name, (summary, _) in COMMANDS.items():
        assert f"  {name} " in overview and summary in overview
        with pytest.raises(SystemExit) as left:
            parse([name, "--help"])
        assert left.value.code == 0
    assert "exit codes:" in overview


def test_prompt_that_looks_like_an_option_can_be_sent() -> None:
    assert parse(["run", "--json", "--", "--help", "me"]).prompt == ["--help", "me"]


def test_exit_codes_are_documented() -> None:
    """The page for people lists exactly the codes there are."""
    page = (Path(__file__).parents[2] / "docs" / "howto" / "basisctl.md").read_text()
    table = page.partition("| exit code |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.count("|") > 2]
    listed = {int(word) for cell in cells for word in cell.split(",") if word.strip().isdecimal()}

    assert listed == {value for name, value in vars(exit_codes).items() if name.isupper()}
