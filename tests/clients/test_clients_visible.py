"""What is harmless to print: a property of every character there is."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basisctl.visible import one_line, visible

HARMLESS_FORMAT = {"\u200c", "\u200d"}
"""Joiners: without them emoji and several scripts fall apart."""


def test_no_control_or_format_character_survives() -> None:
    """Over all of Unicode: controls, surrogates' neighbours, directions, invisibles, line separators, tags."""
    survivors = set()
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        is_dangerous = unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") and character not in "\n\t"
        if is_dangerous and visible(character) == character:
            survivors.add(character)
    # Signs that take their place in running text: Arabic number marks, hieroglyph and notation controls, shorthand.
    prepended = {"\u0600", "\u0601", "\u0602", "\u0603", "\u0604", "\u0605", "\u06dd", "\u070f", "\u0890", "\u0891"}
    prepended |= {"\u08e2", "\U000110bd", "\U000110cd"}
    prepended |= {chr(code) for code in range(0x13430, 0x13440)}
    prepended |= {chr(code) for code in (*range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B))}
    assert survivors - prepended == HARMLESS_FORMAT


@pytest.mark.parametrize("text", ["plain", "naïve café", "日本語", "👩‍👩‍👧", "هذا", "a\nb\tc", "क्‍ष"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_what_was_made_visible_stays_as_it_is(text: str) -> None:
    assert visible(visible(text)) == visible(text)


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


@given(st.text(), st.text())
def test_pieces_of_a_stream_are_made_visible_like_the_whole(one: str, other: str) -> None:
    """Deltas may be cut anywhere."""
    assert visible(one) + visible(other) == visible(one + other)
