"""How ids become names of files (ST-11, ST-30)."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.store.names import encode_name


@pytest.mark.parametrize("plain", ["agent-17a-1f", "A.b_c-9", "a", "con-1", "lpt", "x", "xy-1", "a..b", "z" * 200])
def test_a_harmless_id_is_its_own_name(plain: str) -> None:
    """A person finds a session's directory by its id."""
    assert encode_name(plain) == plain


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("", "x-"),
        (".", "x-2e"),
        ("..", "x-2e2e"),
        ("a/b", "x-612f62"),
        ("a\0", "x-6100"),
        ("x-61", "x-782d3631"),
        ("X-61", "x-582d3631"),
        ("ü", "x-c3bc"),
        ("\udce9", "x-edb3a9"),
        ("a b", "x-612062"),
        ("nul", "x-6e756c"),
        ("Com1.txt", "x-436f6d312e747874"),
        ("dot.", "x-646f742e"),
        ("line\n", "x-6c696e650a"),
    ],
)
def test_any_other_id_becomes_hex(id: str, name: str) -> None:
    """Separators, dots, reserved names and what looks encoded already are all spelled out."""
    assert encode_name(id) == name


def test_a_long_id_ends_in_a_digest() -> None:
    """File systems allow 255 bytes; ids that differ only far behind still have names of their own."""
    one, other = encode_name("l" * 999 + "a"), encode_name("l" * 999 + "b")
    assert one != other
    assert len(one) == len(other) <= 200


@given(st.lists(st.text(), unique=True, max_size=20))
def test_no_two_ids_share_a_name_and_none_leaves_its_directory(ids: list[str]) -> None:
    """Names are single, visible path components of plain characters."""
    names = [encode_name(id) for id in ids]
    assert len(set(names)) == len(ids)
    for name in names:
        assert name == os.path.basename(name)
        assert name.isascii() and not name.startswith(".") and 0 < len(name) <= 200
