"""The shape of the tree: where packages are, what files are called, and what must not be written anywhere."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TOP_LEVEL = {
    *(".ci", ".github", ".gitignore", ".gitattributes", ".editorconfig"),
    *("basis_daemon", "clients", "docs", "editors", "shared", "tests"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md"),
    *("constraints.txt", "pyproject.toml"),
}

FOLDERS_ONLY = ("shared", "clients", "editors", "tests")
"""Folders that must never become import packages: a second copy of a module would break `isinstance` in silence."""

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "misc", "common", "data"}

MACHINE_PATHS = re.compile(r"(?<![\w.$}])/(?:root|work|opt/pypi|tmp/brief)(?![\w.])[/\w]*")
INDEX_HOSTS = re.compile(r"(?:pypi|pythonhosted|npmjs|debian)\.(?:org|com|net)|(?:extra-)?index-url", re.IGNORECASE)
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def tracked() -> list[Path]:
    """Files of the project: what git tracks or would track, else everything that is not a cache."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=30)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def hits(pattern: re.Pattern[str]) -> list[str]:
    here = Path(__file__)
    return [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked()
        if path != here
        for match in pattern.finditer(text_of(path))
    ]


def test_the_top_level_is_the_agreed_one() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} - TOP_LEVEL == set()


@pytest.mark.parametrize("folder", FOLDERS_ONLY)
def test_a_folder_is_not_a_package(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


def test_no_file_mentions_a_machine_it_was_written_on() -> None:
    assert hits(MACHINE_PATHS) == []


def test_no_file_names_a_package_index() -> None:
    assert hits(INDEX_HOSTS) == []


def test_no_file_leaves_a_note_that_something_is_unfinished() -> None:
    assert hits(UNFINISHED) == []


def test_modules_are_named_for_what_they_own() -> None:
    vague = [str(path.relative_to(ROOT)) for path in tracked() if path.suffix == ".py" and path.stem in VAGUE_NAMES]

    assert vague == []


def test_test_modules_have_unique_names() -> None:
    """They are collected without packages, so a second file of the same name would hide the first."""
    names = Counter(path.name for path in tracked() if path.name.startswith("test_") and path.suffix == ".py")

    assert [name for name, count in names.items() if count > 1] == []


def test_every_module_says_what_it_owns() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.suffix == ".py"
        and (text := text_of(path)).strip()
        and not text.lstrip().startswith(('"""', 'r"""', "#!"))
    ]

    assert silent == []


def test_no_source_file_is_a_heap() -> None:
    """About 200 lines is usual. Past 450 there is a second job in the file."""
    source = [path for path in tracked() if path.suffix == ".py" and "tests" not in path.relative_to(ROOT).parts]
    long = {str(path.relative_to(ROOT)): count for path in source if (count := text_of(path).count("\n")) > 450}

    assert long == {}
