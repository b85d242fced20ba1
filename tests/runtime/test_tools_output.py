"""How much of a result the model gets, and which part (runtime.md 4.8)."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.output import shorten

DEFAULT = RuntimePolicy()


def limited(max_bytes: int, max_lines: int = 2000) -> RuntimePolicy:
    return DEFAULT.with_max_tool_result_bytes(max_bytes).with_max_tool_result_lines(max_lines)


def test_text_within_both_limits_is_left_alone() -> None:
    text = "x" * 25 + "\n"
    assert shorten(text * 1900, DEFAULT).text == text * 1900
    assert not shorten(text * 1900, DEFAULT).is_cut


def test_long_text_keeps_whole_lines_of_its_beginning_and_end() -> None:
    """TL-34, D-63: the marker counts both windows and ends with the note."""
    lines = [f"line {number}" for number in range(1, 5001)]
    shortened = shorten("\n".join(lines) + "\n", DEFAULT, note="kept as r1")

    head, marker, tail = re.fullmatch(r"(.*)\n(\[truncated: .*?\])\n(.*)", shortened.text, re.DOTALL).groups()  # type: ignore[union-attr]
    assert shortened.is_cut
    assert head.split("\n") == lines[:1000] and tail.split("\n") == lines[-1000:]
    assert marker.startswith("[truncated: showing 2000 of 5000 lines;") and marker.endswith("kept as r1]")


def test_one_overlong_line_is_cut_between_characters() -> None:
    shortened = shorten("ä" * 100_000, DEFAULT)

    head, marker, tail = shortened.text.split("\n")
    assert set(head) == set(tail) == {"ä"}
    assert "showing 1 of 1 lines" in marker
    assert len(shortened.text.encode()) <= DEFAULT.max_tool_result_bytes


@pytest.mark.parametrize("policy", [limited(255), limited(50_000, 3)], ids=["bytes", "lines"])
def test_small_limit_puts_everything_in_the_head(policy: RuntimePolicy) -> None:
    """TL-34."""
    text = "".join(f"line {number}\n" for number in range(1000))
    shown, marker = shorten(text, policy).text.rsplit("\n", 1)

    assert text.startswith(shown)
    assert marker.startswith("[truncated: ")


def test_structured_result_is_whole_or_not_there() -> None:
    """TL-35: a fragment of JSON would mislead."""
    small, large = {"a": [1, 2]}, {"a": ["x" * 1000] * 100}

    assert msgspec.json.decode(shorten(small, DEFAULT).text) == small
    marked = shorten(large, DEFAULT, note="kept as r1")
    assert marked.is_cut
    assert re.fullmatch(r"\[truncated: structured result of \d+ bytes, 1 lines left out; kept as r1\]", marked.text)


@given(
    text=st.text(alphabet="aä😀\n", max_size=3000),
    max_bytes=st.integers(256, 2000),
    max_lines=st.integers(4, 50),
)
def test_shortened_text_fits_and_consists_of_the_original(text: str, max_bytes: int, max_lines: int) -> None:
    """TL-34, invariant 15."""
    shortened = shorten(text, limited(max_bytes, max_lines))

    assert len(shortened.text.encode()) <= max_bytes
    if not shortened.is_cut:
        assert shortened.text == text
        return
    assert shortened.text.count("\n") <= max_lines
    head, _, rest = shortened.text.partition("[truncated: ")
    assert text.startswith(head.removesuffix("\n"))
    assert text.removesuffix("\n").endswith(rest.partition("]")[2].removeprefix("\n"))
