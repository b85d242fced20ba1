"""Replacing passages of a text: what is found, what is refused, and that every other byte stays (BT-7)."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from basis_daemon.runtime.tools.base import ToolError
from basis_daemon.runtime.tools.edits import Edit, apply_edits, first_difference


def edited(text: str, *edits: tuple[str, str], everywhere: bool = False) -> str:
    return apply_edits(text, [Edit(old, new, everywhere) for old, new in edits])[0]


def test_passages_are_matched_against_the_original() -> None:
    """One edit's result is not another's passage."""
    assert edited("a b c", ("a", "b"), ("b", "x")) == "b x c"


def test_every_occurrence_is_replaced_only_when_asked() -> None:
    assert apply_edits("x y x", [Edit("x", "z", everywhere=True)]) == ("z y z", 2)
    with pytest.raises(ToolError, match=r"found 2 times \(lines 1, 3\)"):
        edited("x\ny\nx\n", ("x", "z"))


@pytest.mark.parametrize(
    ("text", "edits", "reason"),
    [
        ("abc", [("", "x")], "is empty"),
        ("abc", [("b", "b")], "are the same"),
        ("abc", [("x", "y")], "was not found"),
        ("aaa", [("aa", "b")], "found 2 times"),
        ("abcd", [("abc", "x"), ("cd", "y")], "overlap in line 1"),
        ("abc", [("a", "x"), ("q", "y")], "old_string of edit 2 was not found"),
        ("a\n  b\n", [("b\n  c", "x")], "line 2 has its first line"),
        ("“a”", [("“a”\n\n", "x")], "not found"),
    ],
)
def test_doubtful_edits_are_refused_with_the_reason(text: str, edits: list[tuple[str, str]], reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        edited(text, *edits)


def test_edit_that_leaves_the_text_as_it_was_is_refused() -> None:
    """A no-op is an error."""
    with pytest.raises(ToolError, match="change nothing"):
        edited("“a”\n", ('"a"', "“a”"))


def test_file_with_crlf_is_edited_in_its_own_line_ends() -> None:
    """D-68: the model writes plain newlines."""
    assert edited("one\r\ntwo\r\nthree\r\n", ("one\ntwo", "1\n2\nmore")) == "1\r\n2\r\nmore\r\nthree\r\n"
    assert edited("one\ntwo\n", ("one\r\ntwo", "1\r\n2")) == "1\n2\n"


def test_untouched_lines_of_a_mixed_file_keep_their_own_ends() -> None:
    """BT-7: also those inside the passage that the edit repeats."""
    text = "a\r\nb\nc\r\nd\ne\r\n"
    assert edited(text, ("b\nc\nd\n", "b\nX\nd\n")) == "a\r\nb\nX\nd\ne\r\n"
    assert edited(text, ("a\nb\nc\n", "a\nnew\nb\nc\n")) == "a\r\nnew\r\nb\nc\r\nd\ne\r\n"
    assert edited(text, ("d", "D")) == "a\r\nb\nc\r\nD\ne\r\n"


def test_line_end_can_be_taken_away_or_added() -> None:
    assert edited("a\r\nb\r\n", ("a\n", "a ")) == "a b\r\n"
    assert edited("a\r\nb", ("b", "b\n")) == "a\r\nb\r\n"
    assert edited("a", ("a", "a\nb\n")) == "a\nb\n"


def test_passage_is_found_in_spite_of_typography_and_trailing_blanks() -> None:
    """BT-7's second pass: compatibility forms, quotes, dashes, blanks at line ends; whole lines only."""
    text = "start\nsay(“hi” – he said)  \n\tﬁne\u00a0day\nend\n"
    assert edited(text, ('say("hi" - he said)\n\tfine day', "gone")) == "start\ngone\nend\n"


def test_lines_a_forgiving_match_keeps_stay_as_they_were() -> None:
    """BT-7: the edit repeats a line in ASCII; the file's own spelling of it stays."""
    text = "# “Title”  \r\nvalue = 1\t\r\n# – end –\r\n"
    result = edited(text, ('# "Title"\nvalue = 1\n# - end -', '# "Title"\nvalue = 2\n# - end -'))
    assert result == "# “Title”  \r\nvalue = 2\r\n# – end –\r\n"


def test_forgiving_match_must_be_unique_and_keeps_indentation() -> None:
    with pytest.raises(ToolError, match="found 2 times"):
        edited("a “x”\na ”x“\n", ('a "x"', "y"))
    with pytest.raises(ToolError, match="not found"):
        edited("    a “x”\n", ('a "x"\n', "y\n"))


def test_last_line_without_an_end_is_matched_by_a_passage_with_one() -> None:
    assert edited("a\nb", ("b\n", "c\n")) == "a\nc"
    assert edited("a\nb", ("b\n", "")) == "a\n"


def test_blank_passage_matches_no_line_by_forgiveness() -> None:
    with pytest.raises(ToolError, match="not found"):
        edited("a\n\nb\n", ("  \n  \n", "x"))


def test_first_changed_line_is_told() -> None:
    assert first_difference("a\nb\nc", "a\nx\nc") == 2
    assert first_difference("a", "a\nb") == 2
    assert first_difference("", "x") == 1


line_ends = st.sampled_from(["\n", "\r\n"])
words = st.text(alphabet="ab “–\t\u2028\x0c\r😀", max_size=6).filter(lambda text: not text.endswith("\r"))
lines = st.lists(st.tuples(words, line_ends), min_size=1, max_size=12)


@given(lines=lines, at=st.integers(0, 11), count=st.integers(1, 4), new=st.text(alphabet="xyz\n", max_size=12))
def test_lines_outside_the_passage_keep_every_byte(lines: list[tuple[str, str]], at: int, count: int, new: str) -> None:
    """BT-7, whatever the mix of line ends, blanks and separators that are no line ends."""
    assume(at < len(lines))
    before = "".join(text + end for text, end in lines[:at])
    passage = "UNIQUE " + "".join(text + "\n" for text, _ in lines[at : at + count])
    stored = "UNIQUE " + "".join(text + end for text, end in lines[at : at + count])
    after = "".join(text + end for text, end in lines[at + count :])
    assume(new != passage)

    result = edited(before + stored + after, (passage, new))

    assert result.startswith(before) and result.endswith(after)
    middle = result[len(before) : len(result) - len(after)]
    assert middle.replace("\r\n", "\n") == new


@given(
    text=st.text(alphabet="ab“\r\n ", max_size=40),
    old=st.text(alphabet='ab"“\r\n ', max_size=8),
    new=st.text(max_size=8),
)
def test_any_edit_is_made_or_refused(text: str, old: str, new: str) -> None:
    try:
        result, count = apply_edits(text, [Edit(old, new)])
    except ToolError:
        return
    assert count == 1 and result != text
