"""PV-9…PV-12: streamed answers and whole ones are two forms of the same."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.messages import (
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
    user,
)
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    BlockStopped,
    HostedUpdate,
    MessageDelta,
    MessageStopped,
    ProviderEvent,
    Request,
    ResponseStarted,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.collecting import answer_of, collect, events_of, send
from basis_daemon.runtime.providers.errors import MalformedStream, StreamCut
from basis_daemon.runtime.providers.scripted import ScriptedProvider, text
from basis_daemon.runtime.providers.streamed import StreamedMessage

pytestmark = pytest.mark.anyio

WORDS = st.text(max_size=20)
JSON: Any = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS, st.lists, max_leaves=5)
PROVENANCE = st.none() | st.builds(
    Provenance, WORDS, WORDS, st.sampled_from(["anthropic_signed", "open_ai_encrypted", "gemini_thought"])
)
BLOCKS: Any = st.one_of(
    st.builds(Text, WORDS.filter(bool)),
    st.builds(
        Thinking, WORDS, st.none() | WORDS, st.none() | WORDS, st.none() | WORDS, PROVENANCE, redacted=st.booleans()
    ),
    st.builds(
        ToolUse,
        WORDS,
        WORDS,
        st.dictionaries(WORDS, JSON, max_size=3),
        item_id=st.none() | WORDS,
        signature=st.none() | WORDS,
        provenance=PROVENANCE,
    ),
    st.builds(ToolUse, WORDS, WORDS, st.just({}), st.sampled_from(["{oops", "[1]", "nope"])),
    st.builds(HostedToolSearch, WORDS, st.none() | WORDS, st.none() | WORDS),
    st.builds(HostedWebSearch, WORDS, st.none() | WORDS, JSON),
    st.builds(ImageGeneration, WORDS, st.none() | WORDS, st.none() | WORDS, JSON),
)


async def streamed(events: Iterable[ProviderEvent]) -> AsyncIterator[ProviderEvent]:
    for event in events:
        yield event


def collected(events: Iterable[ProviderEvent]) -> StreamedMessage:
    answer = StreamedMessage()
    for event in events:
        answer.apply(event)
    return answer


@given(st.lists(BLOCKS, max_size=4))
def test_answer_streamed_and_collected_again_is_the_same(blocks: list[Any]) -> None:
    """PV-12, PV-10: for every kind of block a model says."""
    message = Message("assistant", blocks)
    answer = answer_of(message)
    assert answer.complete and answer.message() == message
    again = collected(events_of(answer))
    assert again.complete and again.message() == message


def test_what_is_told_about_an_answer_survives_too() -> None:
    """PV-9, PV-12"""
    usage = TokenUsage(1, 2, total_tokens=3)
    answer = collected(
        [
            ResponseStarted("r1", "m"),
            BlockStarted(0, "text"),
            TextDelta(0, "a"),
            BlockStopped(0),
            MessageDelta("end_turn", usage),
            MessageStopped(),
        ]
    )
    again = collected(events_of(answer))
    assert (again.response_id, again.model, again.stop_reason, again.usage) == ("r1", "m", "end_turn", usage)


@pytest.mark.parametrize("block", [ToolResult("c1", "a"), Image(url="https://h.example/p.png")])
def test_blocks_no_model_says_are_not_streamed(block: Any) -> None:
    with pytest.raises(ValueError, match="no model says"):
        answer_of(Message("assistant", [block]))


async def test_request_can_be_sent_for_its_whole_answer() -> None:
    """PV-9"""
    provider = ScriptedProvider([text("hello")])
    assert (await send(provider, Request("m", [user("x")]))).message() == assistant("hello")


WEB = HostedWebSearch("ws_1")


@pytest.mark.parametrize(
    "events",
    [
        [TextDelta(0, "a")],
        [BlockStopped(0)],
        [BlockStarted(0, "text"), ThinkingDelta(0, "a")],
        [BlockStarted(0, "text"), ToolInputDelta(0, "a")],
        [HostedUpdate(0, WEB), TextDelta(0, "a")],
        [BlockStarted(0, "text"), HostedUpdate(0, WEB)],
        [HostedUpdate(0, WEB), BlockStopped(0), HostedUpdate(0, WEB)],
        [BlockStarted(0, "text"), MessageStopped()],
        [BlockStarted(0, "text"), BlockStarted(0, "text")],
    ],
)
async def test_stream_that_contradicts_itself_is_malformed(events: list[ProviderEvent]) -> None:
    """PV-11"""
    with pytest.raises(MalformedStream, match="contradicts itself"):
        await collect(streamed(events))


async def test_stream_that_just_ends_is_cut() -> None:
    """PV-11"""
    with pytest.raises(StreamCut):
        await collect(streamed([BlockStarted(0, "text"), BlockStopped(0)]))
