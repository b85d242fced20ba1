"""The transcript's vocabulary (runtime.md 2.3)."""

import base64
from typing import get_args, get_type_hints

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.messages import (
    ContentBlock,
    HostedToolSearch,
    HostedWebSearch,
    Image,
    ImageGeneration,
    Message,
    Provenance,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    image_bytes,
    image_url,
    user,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_the_text_of_a_message_is_what_was_said_and_its_display_text_also_what_tools_gave() -> None:
    """PV-4: thinking and calls are in neither; a role no one knows is kept as it is."""
    message = Message(
        "critic", [Text("a"), Thinking("hm"), Text("b"), ToolResult("c1", {"n": 1}), ToolResult("c2", "")]
    )
    assert message.text() == "ab"
    assert message.display_text() == 'a\nb\n{"n":1}'
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_blocks_are_made_from_what_one_has_at_hand() -> None:
    """PV-6."""
    assert user("a", image_url("https://x.test/y.png")).content == [Text("a"), Image(url="https://x.test/y.png")]
    image = image_bytes("image/png", b"\x00\xff")
    assert (image.media_type, base64.b64decode(image.data or "")) == ("image/png", b"\x00\xff")


@given(st.text() | JSON)
def test_a_result_is_as_long_as_the_bytes_it_is_sent_as(content: object) -> None:
    """PV-7: UTF-8 of text, compact JSON of anything else."""
    expected = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
    assert ToolResult("c", content).byte_len == len(expected)


FORMATS = get_args(get_type_hints(Provenance)["format"])
PROVENANCES = st.none() | st.builds(Provenance, st.text(), st.text(), st.sampled_from(FORMATS))
WORDS = st.none() | st.text()
BLOCKS: dict[type[ContentBlock], st.SearchStrategy[ContentBlock]] = {
    Text: st.builds(Text, st.text()),
    Thinking: st.builds(Thinking, st.text(), WORDS, WORDS, WORDS, PROVENANCES, st.booleans()),
    Image: st.builds(Image, WORDS, WORDS, WORDS),
    ToolUse: st.builds(
        ToolUse, st.text(), st.text(), st.dictionaries(st.text(), JSON), WORDS, WORDS, WORDS, PROVENANCES
    ),
    ToolResult: st.builds(ToolResult, st.text(), st.text() | JSON, st.booleans()),
    HostedToolSearch: st.builds(HostedToolSearch, st.text(), WORDS, WORDS, st.lists(st.text()).map(tuple)),
    HostedWebSearch: st.builds(HostedWebSearch, st.text(), WORDS, JSON),
    ImageGeneration: st.builds(ImageGeneration, st.text(), WORDS, WORDS, JSON),
}


def test_every_kind_of_block_is_among_those_that_are_read_back() -> None:
    """PV-5"""
    assert set(BLOCKS) == set(get_args(ContentBlock))


@given(st.lists(st.one_of(*BLOCKS.values())))
def test_every_message_reads_back_as_it_was_written(blocks: list[ContentBlock]) -> None:
    """PV-5: each kind of block keeps all of its fields."""
    message = assistant(*blocks)
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message
