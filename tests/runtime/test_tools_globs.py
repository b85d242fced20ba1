"""Path globs (SE-22): which paths a pattern means, and that no pattern is slow."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.tools.base import ToolError
from basis_daemon.runtime.tools.globs import PathGlob


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", "src/deep/b.py"], ["a.pyc", "py"]),
        ("src/*.py", ["src/a.py"], ["src/b/a.py", "a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/b/c/a.py"], ["a.py", "src/a.txt"]),
        ("**/test_*.py", ["test_a.py", "x/y/test_b.py"], ["x/a.py"]),
        ("src/**", ["src/a", "src/b/c"], ["a", "srcs/a"]),
        ("**", ["a", "b/c"], []),
        ("**/x/**/y", ["x/y", "a/x/b/c/y", "x/x/y"], ["y", "x/y/z"]),
        ("*.{ts,tsx}", ["a.ts", "b/c.tsx"], ["a.js", "a.{ts,tsx}"]),
        ("{src,lib}/{a,b}.py", ["src/a.py", "lib/b.py"], ["src/c.py"]),
        ("{a,{b,c}}.x", ["a.x", "b.x", "c.x"], ["d.x"]),
        ("[ab]?.t", ["ax.t", "b1.t"], ["cx.t", "a.t"]),
        ("[!a].t", ["b.t"], ["a.t"]),
        ("[^a].t", ["b.t"], ["a.t"]),
        ("./a/*", ["a/b"], ["a"]),
        ("a{b", ["a{b"], ["ab"]),
        ("a.b", ["a.b"], ["axb"]),
        ("Makefile", ["Makefile", "x/Makefile"], ["makefile"]),
        ("src/", ["src"], ["src/a"]),
    ],
)
def test_pattern_matches_what_it_says(pattern: str, yes: list[str], no: list[str]) -> None:
    glob = PathGlob(pattern)
    assert [path for path in yes if not glob.matches(path)] == []
    assert [path for path in no if glob.matches(path)] == []


def test_patterns_that_stand_for_too_many_are_refused() -> None:
    """Invariant 15."""
    with pytest.raises(ToolError, match="more than 64"):
        PathGlob("{a,b}" * 20)
    with pytest.raises(ToolError, match="longer than"):
        PathGlob("a" * 1001)


@pytest.mark.parametrize("pattern", ["*a" * 100 + "b", "**/" * 100 + "b", "**/a/" * 80 + "b", "[" * 500])
def test_no_pattern_is_slow(pattern: str) -> None:
    """A pattern comes from a model; backtracking could take years."""
    glob = PathGlob(pattern)
    started = time.process_time()
    for path in ("a" * 255, "/".join("a" * 200), "/".join(["a" * 100] * 20)):
        glob.matches(path)
    assert time.process_time() - started < 1


@given(pattern=st.text(alphabet="a*?[]{},!/\\.", max_size=20), path=st.text(alphabet="ab/.", min_size=1, max_size=20))
def test_every_pattern_answers(pattern: str, path: str) -> None:
    try:
        glob = PathGlob(pattern)
    except ToolError:
        return
    assert glob.matches(path) in (True, False)


@given(path=st.lists(st.sampled_from(["a", "bc", "d.e"]), min_size=1, max_size=6))
def test_double_star_means_any_number_of_directories(path: list[str]) -> None:
    assert PathGlob("**/" + path[-1]).matches("/".join(path))
    assert PathGlob(path[0] + "/**/" + path[-1]).matches("/".join(path)) or len(path) == 1
    assert PathGlob("/".join(path)).matches("/".join(path))
