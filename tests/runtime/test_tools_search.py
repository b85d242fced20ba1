"""`grep` and `glob` on real trees, with and without git."""

import asyncio
import dataclasses
import os
import subprocess
import threading
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basis_daemon.errors import PolicyDenied
from basis_daemon.runtime.tools import charsets, grep_scan, nofollow
from basis_daemon.runtime.tools.base import ToolError
from basis_daemon.runtime.tools.grep_scan import Found, Search, Tally
from basis_daemon.runtime.tools.search import GlobTool, GrepTool
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio

grep, glob = GrepTool(), GlobTool()


def git(root: Path, *arguments: str) -> None:
    subprocess.run(("git", *arguments), cwd=root, check=True, capture_output=True)


def fill(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture(params=["git", "plain"])
def caller(request: pytest.FixtureRequest, tmp_path: Path) -> Caller:
    """The same tree inside a git work tree and outside one; searches must not tell the difference."""
    root = tmp_path.resolve() / "repo"
    root.mkdir()
    fill(
        root,
        {
            "src/app.py": "import os\n\ndef main():\n    return needle()\n",
            "src/deep/util.py": "# Needle\nneedle = 1\n",
            "README.md": "a needle here\r\nand none\r\n",
            ".hidden": "needle",
            ".github/ci.yml": "needle",
            "build/out.js": "needle",
            "src/gen.txt": "needle",
            "src/kept.txt": "needle",
            "logs/a.log": "needle",
            "notes.tmp": "needle",
            ".gitignore": "build/\n*.log\n",
            "src/.gitignore": "*.txt\n!kept.txt\n",
            ".ignore": "*.tmp\n",
        },
    )
    if request.param == "git":
        git(root, "init", "-q")
        git(root, "add", "README.md", "src/app.py")
        git(root, "commit", "-qm", "x")
    return Caller(root)


@pytest.fixture
def plain(tmp_path: Path) -> Caller:
    root = tmp_path.resolve() / "plain"
    root.mkdir()
    return Caller(root)


async def test_lines_are_found_in_tracked_and_new_files_only(caller: Caller) -> None:
    """BT-6, D-67: no hidden entry, nothing ignored by nested rules or by `.ignore`."""
    assert await caller.text(grep, pattern="needle") == (
        "README.md:1: a needle here\nsrc/app.py:4:     return needle()\nsrc/deep/util.py:2: needle = 1\n"
        "src/kept.txt:1: needle"
    )


async def test_ignored_and_hidden_files_are_found_on_request_but_for_gits_own(caller: Caller) -> None:
    found = await caller.text(glob, pattern="**", include_ignored=True)

    assert {"build/out.js", ".hidden", ".github/ci.yml", "logs/a.log", "notes.tmp"} <= set(found.splitlines())
    assert ".git/" not in found


async def test_directory_named_on_purpose_is_searched_though_it_is_ignored(caller: Caller) -> None:
    assert await caller.text(grep, pattern="needle", path="build") == "build/out.js:1: needle"
    assert await caller.text(grep, pattern="needle", path=".github") == ".github/ci.yml:1: needle"
    assert await caller.text(grep, pattern="needle", path=".hidden") == ".hidden:1: needle"


async def test_files_are_found_by_name_and_by_path(caller: Caller) -> None:
    assert await caller.text(glob, pattern="*.py") == "src/app.py\nsrc/deep/util.py"
    assert await caller.text(glob, pattern="src/*.py") == "src/app.py"
    assert await caller.text(glob, pattern="*.py", path="src/deep") == "src/deep/util.py"
    assert await caller.text(glob, pattern=f"{caller.root}/src/**/*.py") == "src/app.py\nsrc/deep/util.py"
    assert await caller.text(glob, pattern="*.rs") == "(no files)"


async def test_search_can_be_narrowed_and_widened(caller: Caller) -> None:
    assert await caller.text(grep, pattern="NEEDLE", ignore_case=True, glob="*.py") == (
        "src/app.py:4:     return needle()\nsrc/deep/util.py:1: # Needle\nsrc/deep/util.py:2: needle = 1"
    )
    assert await caller.text(grep, pattern="needle()", literal=True) == "src/app.py:4:     return needle()"
    assert await caller.text(grep, pattern=r"^def (\w+)\(\):$") == "src/app.py:3: def main():"
    assert await caller.text(grep, pattern="nothing like it") == "(no matches)"


async def test_lines_around_a_match_are_shown(caller: Caller) -> None:
    assert await caller.text(grep, pattern="def", context=1, path="src/app.py") == (
        "src/app.py-2- \nsrc/app.py:3: def main():\nsrc/app.py-4-     return needle()"
    )


async def test_match_may_run_over_lines_when_asked(caller: Caller) -> None:
    assert await caller.text(grep, pattern=r"main.*?needle", multiline=True) == (
        "src/app.py:3: def main():\nsrc/app.py:4:     return needle()"
    )
    assert await caller.text(grep, pattern=r"main.*?needle") == "(no matches)"


async def test_limit_ends_the_search_and_says_so(caller: Caller) -> None:
    text = await caller.text(grep, pattern="needle", limit=2)
    assert text.splitlines()[2:] == ["[stopped at 2 matches; narrow the search or raise `limit`]"]
    assert (await caller.text(glob, pattern="**", limit=1)).splitlines()[1:] == ["[more files; the first 1 are listed]"]


async def test_deleted_but_tracked_file_is_not_there(caller: Caller) -> None:
    (caller.root / "README.md").unlink()

    assert "README" not in await caller.text(grep, pattern="needle")
    assert "README" not in await caller.text(glob, pattern="*")


async def test_unsaved_editor_text_is_searched(caller: Caller) -> None:
    caller.unsaved = {caller.root / "README.md": "typed needle\n"}

    assert "README.md:1: typed needle" in await caller.text(grep, pattern="needle")
    assert "README.md:1: typed needle" in await caller.text(grep, pattern="ne+dle")


async def test_one_bad_file_never_ends_a_search(caller: Caller) -> None:
    """BT-6, D-66: binary, too large, FIFOs, links out, link cycles: skipped and counted."""
    root = caller.root
    (root / "bin.dat").write_bytes(b"needle\0")
    (root / "latin.txt2").write_bytes(b"needle \xe9")
    (root / "utf16.md").write_bytes("needle ä\n".encode("utf-16"))
    (root / "big.dat").touch()
    os.truncate(root / "big.dat", 11 * 1024 * 1024)
    os.mkfifo(root / "fifo")
    (root / "out").symlink_to("/etc")
    (root / "outfile").symlink_to("/etc/passwd")
    (root / "cycle").symlink_to(".")
    with anyio.fail_after(20):
        for pattern in ("needle", "ne+dle", "root:"):
            text = await caller.text(grep, pattern=pattern)
            assert "/etc" not in text and "outfile" not in text and "cycle" not in text
    assert "utf16.md:1: needle ä" in await caller.text(grep, pattern="ne+dle")
    assert "[files skipped: 1 not text, 1 larger than 10 MiB]" in await caller.text(grep, pattern="ne+dle")
    assert "outfile" not in await caller.text(glob, pattern="*")


async def test_text_in_other_encodings_is_searched_as_it_reads(caller: Caller) -> None:
    """Recognised, declared in the file, or declared by the project; what nothing explains is counted."""
    fill(caller.root, {"ru/.editorconfig": "[*.txt]\ncharset = koi8-r\n"})
    (caller.root / "ru" / "a.txt").write_bytes("раз\r\nдва слова\r\n".encode("koi8-r"))
    (caller.root / "b.py").write_bytes("# coding: cp1251\n# два слова\n".encode("cp1251"))
    (caller.root / "c.txt").write_bytes("déjà vu – “x”\n".encode("cp1252"))
    (caller.root / "d.txt").write_bytes("два слова\n".encode("koi8-r"))
    for literal, words, western in ((True, "два слова", "déjà vu –"), (False, "д.*а$", "d.j. +vu")):
        text = await caller.text(grep, pattern=words, literal=literal)
        assert text == "b.py:2: # два слова\nru/a.txt:2: два слова\n[files skipped: 1 not text]"
        assert "c.txt:1: déjà vu – “x”" in await caller.text(grep, pattern=western, literal=literal)


async def test_places_outside_are_refused(caller: Caller) -> None:
    (caller.root / "out").symlink_to("/etc")
    for path in ("..", "/etc", "out"):
        for tool in (grep, glob):
            with pytest.raises(PolicyDenied, match="outside the read roots"):
                await caller.call(tool, pattern="*", path=path)
    with pytest.raises(ToolError, match="no directory"):
        await caller.call(grep, pattern="x", path="nope")


async def test_expression_that_would_never_end_is_ended(plain: Caller) -> None:
    """A pattern must not stop the daemon: it is matched in a process that can be ended."""
    fill(plain.root, {"a": "needle\n", "b": "a" * 5000 + "\n", "c": "needle\n"})
    with anyio.move_on_after(1) as scope:
        await plain.call(grep, pattern=r"^(a|aa)+b$")
    assert scope.cancelled_caught
    assert await plain.text(grep, pattern="needle") == "a:1: needle\nc:1: needle"


@pytest.mark.parametrize("pattern", ["(", "*a", "[z-a]", "(?P<x", "a{2,1}", "(" * 500])
async def test_bad_expression_is_explained(plain: Caller, pattern: str) -> None:
    fill(plain.root, {"a": "x"})
    with pytest.raises(ToolError, match="no regular expression"):
        await plain.call(grep, pattern=pattern)


@pytest.mark.parametrize("pattern", ["(?i)X", r"\d\d", "^", "$", "", "[[x]", "[x||b]"])
async def test_odd_but_valid_expressions_are_matched(plain: Caller, pattern: str) -> None:
    fill(plain.root, {"a": "x 12\n"})

    assert await plain.text(grep, pattern=pattern) == "a:1: x 12"


@pytest.mark.parametrize("pattern", ["[[a]", "[a||b]", "[a&&b]", "a{100000}"])
async def test_odd_but_valid_expressions_that_match_nothing_say_so(plain: Caller, pattern: str) -> None:
    fill(plain.root, {"a": "x 12\n"})

    assert await plain.text(grep, pattern=pattern) == "(no matches)"


async def test_long_line_is_shown_round_its_match(plain: Caller) -> None:
    fill(plain.root, {"a.js": "x" * 10_000 + "needle" + "y" * 10_000})

    text = await plain.text(grep, pattern="needle")
    assert "needle" in text and len(text) < 600


async def test_repositories_inside_are_searched_too(plain: Caller) -> None:
    """A submodule, a nested clone, and one whose directory was replaced by a link out."""
    root = plain.root
    outside = root.parent / "outside"
    for place in (root, root / "nested", root / "sub", outside):
        place.mkdir(exist_ok=True)
        git(place, "init", "-q")
        fill(place, {f"{place.name}.txt": "needle", ".gitignore": "skipped\n", "skipped": "needle"})
        git(place, "add", f"{place.name}.txt")
        git(place, "commit", "-qm", "x")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},gone")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},led")
    (root / "led").symlink_to(outside)

    assert await plain.text(grep, pattern="needle") == (
        "nested/nested.txt:1: needle\nplain.txt:1: needle\nsub/sub.txt:1: needle"
    )


async def test_looking_at_a_repository_runs_nothing_of_it(plain: Caller) -> None:
    """FP-11: not its file system monitor, not its hooks, not a `git` that lies in it."""
    root = plain.root
    git(root, "init", "-q")
    fill(root, {"a.txt": "needle", "bin/git": "#!/bin/sh\ntouch $PWD/pwned\n", "evil.sh": "#!/bin/sh\ntouch pwned\n"})
    (root / "bin/git").chmod(0o755)
    (root / "evil.sh").chmod(0o755)
    git(root, "config", "core.fsmonitor", str(root / "evil.sh"))
    git(root, "config", "core.hooksPath", str(root / "bin"))
    plain.environment = {"PATH": f"{root}/bin:bin:.:{plain.environment['PATH']}", "GIT_DIR": "/nonexistent"}
    (root / "pwned").unlink(missing_ok=True)

    assert await plain.text(grep, pattern="needle") == "a.txt:1: needle"
    assert not (root / "pwned").exists()


async def test_without_git_the_tree_is_walked(plain: Caller) -> None:
    git(plain.root, "init", "-q")
    fill(plain.root, {"a.txt": "needle", "b.log": "needle", ".gitignore": "*.log"})
    plain.environment = {"PATH": "/nonexistent"}

    assert await plain.text(grep, pattern="needle") == "a.txt:1: needle"


async def test_names_of_any_kind_are_found(plain: Caller) -> None:
    names = ["ünïcode ☃.txt", "with space.txt", "-dash.txt", "q'\"uote.txt", "tab\tname.txt", "new\nline.txt"]
    for name in names:
        fill(plain.root, {name: "needle"})
    fill(plain.root, {os.fsdecode(b"bad\xff.txt"): "needle"})
    for use_git in (False, True):
        if use_git:
            git(plain.root, "init", "-q")
        for pattern in ("needle", "need+le"):
            assert len((await plain.text(grep, pattern=pattern)).splitlines()) == 7
        assert len((await plain.text(glob, pattern="*.txt")).splitlines()) == 7


async def test_cancelled_search_stops_working(plain: Caller) -> None:
    """Not only the call: the thread behind it too, before the call is over."""
    fill(plain.root, {f"{number}.txt": "" for number in range(50)})
    loop, scope = asyncio.get_running_loop(), anyio.CancelScope()
    cancelled = threading.Event()
    seen: list[Path] = []

    def cancel() -> None:
        scope.cancel()
        loop.call_later(0.05, cancelled.set)

    def overlay(path: Path) -> str | None:
        seen.append(path)
        loop.call_soon_threadsafe(cancel)
        assert cancelled.wait(5)
        return None

    with scope:
        await grep.execute(dataclasses.replace(plain.context(grep), overlay=overlay), {"pattern": "text"})
    assert scope.cancelled_caught
    assert len(seen) == 1


def scanned(search: Search) -> tuple[list[Found], Tally]:
    tally = Tally()
    opener = nofollow.Opener()
    try:
        return list(grep_scan.scan(search, opener.open, charsets.text_of, tally, is_stopped=lambda: False)), tally
    finally:
        opener.close()


patterns = st.sampled_from(
    [
        "a",
        "b|c",
        "^a",
        "a$",
        "[^b]",
        "[^b]c",
        r"\s",
        r"\sa",
        "a?b",
        "x",
        r"\ba\b",
        "^$",
        "a.c",
        "(?=a)b?",
        r"a\Z",
        "[^x]*b",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(text=st.text(alphabet="abc \n", max_size=30), pattern=patterns)
def test_quick_search_finds_the_lines_a_slow_one_finds(tmp_path: Path, text: str, pattern: str) -> None:
    """Searching the whole text and then single lines is the same as searching every line."""
    compiled = grep_scan.compiled(Search(pattern, []))
    expected = (
        [n for n, line in enumerate(text.removesuffix("\n").split("\n"), 1) if compiled.search(line)] if text else []
    )
    found, _ = scanned(Search(pattern, ["/x"], texts={0: text}, limit=1000))

    assert [number for one in found for number, is_match, _ in one.lines if is_match] == expected


@pytest.mark.parametrize(
    ("pattern", "tame"),
    [
        ("needle", True), ("foo|bar|baz|qux|a|b", True), (r"def main\(\):", True), (r"\bFoo\b", True), ("[A-Z]x", True),
        ("a*", False), ("(a|b)+", False), ("a{3}", False), ("x{", True), ("(a?b?c?d?e?)", False), ("a?b?c?d?e?", False),
        (r"(a)\1", False), ("(?=a)", False), ("[[a]", False), ("(a|b)(a|b)(a|b)(a|b)(a|b)", False),
    ],
)  # fmt: skip
def test_only_harmless_expressions_are_matched_in_the_daemon(pattern: str, tame: bool) -> None:
    assert grep_scan.is_tame(Search(pattern, [])) is tame
