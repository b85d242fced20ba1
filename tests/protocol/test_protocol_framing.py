"""`basis_protocol.framing`: bytes in, bodies out, whatever the chunks look like."""

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_protocol.framing import MAX_FRAME_BYTES, MAX_HEADER_BYTES, Decoder, FramingError, encode

bodies = st.lists(st.binary(max_size=200), max_size=6)


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` in pieces, cut at `cuts` (taken modulo its length)."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


@given(bodies, st.lists(st.integers(min_value=0, max_value=5000), max_size=40))
def test_bodies_come_out_whole_and_in_order_whatever_the_chunks(sent: list[bytes], cuts: list[int]) -> None:
    decoder = Decoder()
    received = [body for chunk in chunked(b"".join(map(encode, sent)), cuts) for body in decoder.feed(chunk)]

    assert received == sent
    assert not decoder.is_mid_frame


@given(st.binary(min_size=1, max_size=60))
def test_one_byte_at_a_time_is_a_chunking_too(body: bytes) -> None:
    decoder = Decoder()
    received = [found for byte in encode(body) for found in decoder.feed(bytes([byte]))]

    assert received == [body]


@given(st.binary(max_size=400))
def test_garbage_is_an_error_or_waits_for_more_but_never_anything_else(garbage: bytes) -> None:
    """A client's garbage ends its connection only: the decoder raises nothing but `FramingError`."""
    with suppress(FramingError):
        Decoder().feed(garbage)


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length 5",
        b"Content-Type: application/vscode-jsonrpc",
        b"Content-Length: five",
        b"Content-Length: -1",
        b"Content-Length: 1e3",
        b"Content-Length: ",
        b"Content-Length: 9999999999999",
        b"",
    ],
)
def test_a_header_that_gives_no_length_is_refused(header: bytes) -> None:
    with pytest.raises(FramingError):
        Decoder().feed(header + b"\r\n\r\nhello")


def test_header_names_are_read_without_regard_to_case_and_order() -> None:
    frame = b"content-type: application/vscode-jsonrpc; charset=utf-8\r\nCONTENT-LENGTH:  2 \r\n\r\n{}"

    assert Decoder().feed(frame) == [b"{}"]


def test_a_frame_over_the_limit_is_refused_before_its_body_arrives() -> None:
    """64 MiB is the limit; one byte more is named in the error and nothing is buffered for it."""
    assert MAX_FRAME_BYTES == 64 * 1024 * 1024
    with pytest.raises(FramingError, match=str(MAX_FRAME_BYTES + 1)):
        Decoder().feed(b"Content-Length: %d\r\n\r\n" % (MAX_FRAME_BYTES + 1))


def test_a_frame_of_exactly_the_limit_is_awaited() -> None:
    decoder = Decoder()

    assert decoder.feed(b"Content-Length: %d\r\n\r\n" % MAX_FRAME_BYTES) == []
    assert decoder.is_mid_frame


def test_a_header_that_never_ends_is_refused() -> None:
    decoder = Decoder()
    decoder.feed(b"x" * MAX_HEADER_BYTES)
    with pytest.raises(FramingError, match="8 KiB"):
        decoder.feed(b"x")


def test_a_frame_cut_short_is_known_to_be_cut_short() -> None:
    decoder = Decoder()
    decoder.feed(encode(b"hello")[:-1])

    assert decoder.is_mid_frame


def test_a_smaller_limit_can_be_asked_for() -> None:
    with pytest.raises(FramingError):
        Decoder(max_frame_bytes=4).feed(encode(b"hello"))
