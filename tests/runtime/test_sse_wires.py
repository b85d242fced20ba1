"""Every wire's stream under a hostile network: all chunkings, line ends, pings anywhere, cuts, broken bytes (PV-17)."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_daemon.runtime.messages import Text, Thinking, ToolUse, user
from basis_daemon.runtime.providers.base import ProviderEvent, Request
from basis_daemon.runtime.providers.definition import WireName
from basis_daemon.runtime.providers.errors import MalformedStream, ProviderError, StreamCut
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.registry import chat_completions_definition
from basis_daemon.runtime.providers.remote import WIRES
from basis_daemon.runtime.providers.sse import MAX_EVENT_BYTES, SseParser
from basis_daemon.runtime.providers.streamed import StreamedMessage
from support.model_server import STREAMS, calls, says, thinks, tool
from support.model_wires import Asked

PINGS = [b": ping\n\n", b":\n\n", b"id: 7\n\n", b"retry: 3000\n\n", b"event: ping\n\n", b"\n\n\n"]
NAMED_PING = b'event: ping\ndata: {"type": "ping"}\n\n'
TYPED = ("responses", "anthropic_messages")
"""Only wires whose events have a type can tell that they don't know it."""

TURN = (
    thinks("hm", "m ✓")
    + says("Grüße, ", "😀 Welt\r\n", "\n\ndata: no\n")
    + calls(tool("read", {"path": "ä.txt", "n": [1, {"x": None}]}, id="call_a", chunks=5), tool("ls", id="call_b"))
)
DEFINITION = chat_completions_definition("own", "https://h.example/")
TARGET = Target("Own", "own", "https://h.example:443", "v1/x", "x", False)


def events_of(wire: WireName) -> list[bytes]:
    """The stream, one piece for each event."""
    return [piece.data for piece in STREAMS[wire](Asked(1, {"model": "m", "stream": True}), TURN).pieces()]


def answer(wire: WireName, chunks: Iterable[bytes]) -> StreamedMessage:
    """What the wire makes of the network's reads, and what the loop makes of that. Raises as they do."""
    parser = SseParser()
    mapper = WIRES[wire].map_stream(Request("m", [user("x")]), DEFINITION, TARGET)
    streamed = StreamedMessage()
    for chunk in chunks:
        take(streamed, mapper.feed(parser.feed(chunk)))
        if mapper.is_complete or parser.is_done:
            break
    if not mapper.is_complete:
        take(streamed, mapper.finish(marked=parser.is_done))
    return streamed


def take(streamed: StreamedMessage, events: list[ProviderEvent]) -> None:
    for event in events:
        try:
            streamed.apply(event)
        except ValueError as error:
            raise MalformedStream(str(error)) from error


def cut_up(stream: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(stream) + 1) for place in places} | {0, len(stream)})
    return [stream[a:b] for a, b in pairwise(at)]


def parts(streamed: StreamedMessage) -> tuple[Any, ...]:
    return streamed.complete, streamed.message(), streamed.usage, streamed.stop_reason, streamed.response_id


PLACES = st.lists(st.integers(0, 1 << 20), max_size=60)


@pytest.mark.parametrize("wire", sorted(WIRES))
def test_every_wire_is_here(wire: WireName) -> None:
    streamed = answer(wire, events_of(wire))
    assert streamed.complete
    assert [type(block) for block in streamed.message().content] == [Thinking, Text, ToolUse, ToolUse]
    assert sorted(STREAMS) == sorted(WIRES)


@pytest.mark.parametrize("wire", sorted(WIRES))
@settings(deadline=None, max_examples=150)
@given(
    places=PLACES,
    pings=st.lists(st.tuples(st.integers(0, 1 << 10), st.sampled_from([*PINGS, NAMED_PING])), max_size=8),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    has_bom=st.booleans(),
)
def test_answer_is_the_same_however_it_travels(
    wire: WireName, places: list[int], pings: list[tuple[int, bytes]], end: bytes, has_bom: bool
) -> None:
    """PV-17: any chunking, any line end, a BOM, pings of every kind at any place between events."""
    events = events_of(wire)
    for place, ping in pings:
        if ping is not NAMED_PING or wire in TYPED:
            events.insert(place % (len(events) + 1), ping)
    stream = b"\xef\xbb\xbf" * has_bom + b"".join(events).replace(b"\n", end)
    assert parts(answer(wire, cut_up(stream, places))) == parts(answer(wire, events_of(wire)))


@pytest.mark.parametrize("wire", sorted(WIRES))
def test_one_byte_at_a_time_is_enough(wire: WireName) -> None:
    stream = b"".join(events_of(wire))
    assert parts(answer(wire, [bytes([byte]) for byte in stream])) == parts(answer(wire, events_of(wire)))


@pytest.mark.parametrize("wire", sorted(WIRES))
@settings(deadline=None, max_examples=200)
@given(length=st.integers(0, 1 << 20), places=PLACES)
def test_stream_cut_anywhere_is_known_to_be_cut(wire: WireName, length: int, places: list[int]) -> None:
    """PV-11, PV-55: it fails in a way that may be tried again, or everything that was said had come."""
    stream = b"".join(events_of(wire))
    stream = stream[: length % (len(stream) + 1)]
    try:
        streamed = answer(wire, cut_up(stream, places))
    except StreamCut:
        return
    assert streamed.complete and streamed.message() == answer(wire, events_of(wire)).message()


@pytest.mark.parametrize("wire", sorted(WIRES))
@settings(deadline=None, max_examples=300)
@given(
    damage=st.lists(
        st.tuples(
            st.integers(0, 1 << 20),
            st.integers(0, 40),
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from(
                    [b"null", b"[]", b"{}", b"-1", b'"', b"}", b"\n\n", b"1e999", b'"index":7', b"\xff", b"\x00"]
                ),
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    places=PLACES,
)
def test_damaged_stream_is_an_answer_or_a_failure_of_the_provider(
    wire: WireName, damage: list[tuple[int, int, bytes]], places: list[int]
) -> None:
    """PV-11, PV-16: whatever a broken server sends, nothing else is raised than what the loop knows."""
    stream = b"".join(events_of(wire))
    for place, length, new in damage:
        at = place % (len(stream) + 1)
        stream = stream[:at] + new + stream[at + length :]
    try:
        answer(wire, cut_up(stream, places))
    except ProviderError:
        return


# --- size -------------------------------------------------------------------------------------------------------------


def test_event_of_sixteen_mebibytes_passes_and_a_larger_one_does_not() -> None:
    """PV-17, D-22: in small reads, each looked at once; a parser that rescans would be at this for minutes."""
    head, data = b"data: ", b"x" * (MAX_EVENT_BYTES - 100)
    parser = SseParser()
    pieces = [head, *(data[at : at + 4096] for at in range(0, len(data), 4096)), b"\n\n"]
    assert [event for piece in pieces for event in parser.feed(piece)] == [(b"", data)]
    for piece in [head, *[b"y" * 65536] * 255]:
        parser.feed(piece)
    with pytest.raises(MalformedStream, match="larger than 16777216 bytes"):
        parser.feed(b"y" * 65536)
