"""PV-17: server-sent events, however the network cuts them."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_daemon.runtime.providers.errors import MalformedStream
from basis_daemon.runtime.providers.sse import SseEvent, SseParser


def parse(*chunks: bytes, max_event_bytes: int = 1 << 20) -> list[SseEvent]:
    parser = SseParser(max_event_bytes=max_event_bytes)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def by_the_book(stream: bytes) -> list[SseEvent]:
    """The format's rules followed letter by letter, on the whole stream at once."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[SseEvent] = []
    name, data = b"", None
    for line in text.split(b"\n")[:-1]:
        if not line:
            if data == b"[DONE]":
                break
            if data is not None:
                events.append((name, data))
            name, data = b"", None
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data = value if data is None else data + b"\n" + value
        elif field == b"event" and b":" in line:
            name = value
    return events


PIECES = st.sampled_from(
    [
        b"data: x",
        b"data:x",
        b"data",
        b"data:",
        b"data:  two",
        b'data: {"a":"\xc3\xa4"}',
        b"data: [DONE]",
        b"event: named",
        b"event:n",
        b": comment",
        b"id: 7",
        b"retry: 5",
        b"unknown: x",
        b"database: no",
        b"\xef\xbb\xbf",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\r\r", b""])
STREAMS = st.lists(st.tuples(PIECES, ENDS), max_size=12).map(lambda parts: b"".join(a + b for a, b in parts))


@settings(deadline=None, max_examples=400)
@given(stream=STREAMS, cuts=st.lists(st.integers(0, 200), max_size=30), with_bom=st.booleans())
def test_every_chunking_gives_the_events_of_the_whole(stream: bytes, cuts: list[int], with_bom: bool) -> None:
    stream = b"\xef\xbb\xbf" * with_bom + stream
    at = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    chunks = [stream[a:b] for a, b in pairwise(at)]
    assert parse(*chunks) == by_the_book(stream)


@settings(deadline=None)
@given(stream=STREAMS)
def test_one_byte_at_a_time_gives_the_events_of_the_whole(stream: bytes) -> None:
    assert parse(*(stream[i : i + 1] for i in range(len(stream)))) == by_the_book(stream)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_have_a_name_and_joined_data(end: bytes) -> None:
    lines = [b"\xef\xbb\xbfevent: greeting", b"data: one", b": a comment", b"data: two", b"", b"data: three", b"", b""]
    assert parse(end.join(lines)) == [(b"greeting", b"one\ntwo"), (b"", b"three")]


def test_done_is_noted_and_is_the_end() -> None:
    parser = SseParser()
    assert parser.feed(b"data: x\n\ndata: [DO") == [(b"", b"x")]
    assert not parser.is_done
    assert parser.feed(b"NE]\n\ndata: y\n\n") == [] and parser.is_done
    assert parser.feed(b"data: z\n\n") == []


def test_event_without_its_blank_line_is_never_given_out() -> None:
    assert parse(b'data: {"cut":', b'"off"}\n') == []


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_event_beyond_the_cap_is_refused_whatever_its_pieces(size: int) -> None:
    """16 MiB in the product; 10 kB here."""
    stream = b"data: " + b"x" * 20_000
    with pytest.raises(MalformedStream, match="larger than 10000 bytes"):
        parse(*(stream[i : i + size] for i in range(0, len(stream), size)), max_event_bytes=10_000)


def test_event_beyond_the_cap_is_refused_when_it_comes_whole_or_in_many_lines() -> None:
    with pytest.raises(MalformedStream):
        parse(b"data: " + b"x" * 20_000 + b"\n\n", max_event_bytes=10_000)
    with pytest.raises(MalformedStream):
        parse(b"data: x\n" * 20_000, max_event_bytes=10_000)


def test_any_number_of_small_events_passes_below_the_cap() -> None:
    chunk = b"data: 0123456789\n\n" * 100
    assert len(parse(*[chunk] * 50, max_event_bytes=1000)) == 5000
