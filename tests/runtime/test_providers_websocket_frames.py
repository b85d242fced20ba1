"""PV-37, PV-38: the client's frames, held against a library that shares nothing with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol
from websockets.streams import StreamReader

from basis_daemon.runtime.providers.errors import MalformedStream
from basis_daemon.runtime.providers.websocket_frames import (
    BinaryMessage,
    Close,
    FrameParser,
    Message,
    Ping,
    TextMessage,
    close_frame,
    pong_frame,
    text_frame,
)

SIZES = (0, 1, 3, 125, 126, 127, 65_535, 65_536, 300_001)


def read(data: bytes) -> list[Frame]:
    """What a server makes of the client's bytes: masked frames, and nothing else."""
    reader = StreamReader()
    reader.feed_data(data)
    frames: list[Frame] = []
    while reader.buffer:
        parsing = Frame.parse(reader.read_exact, mask=True, max_size=None)
        try:
            while True:
                next(parsing)
        except StopIteration as done:
            frames.append(done.value)
    return frames


def from_server(*frames: Frame) -> bytes:
    return b"".join(frame.serialize(mask=False) for frame in frames)


@pytest.mark.parametrize("size", SIZES)
def test_server_reads_what_was_written_at_every_length_of_the_format(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    (frame,) = read(text_frame(data[:size]))
    assert (frame.opcode, bytes(frame.data), frame.fin) == (Opcode.TEXT, data[:size], True)


@given(st.lists(st.binary(max_size=300), max_size=5), st.binary(max_size=125))
def test_server_reads_any_text_and_any_answer_to_a_ping(texts: list[bytes], ping: bytes) -> None:
    frames = read(b"".join(map(text_frame, texts)) + pong_frame(ping) + close_frame(1001))
    assert [bytes(frame.data) for frame in frames] == [*texts, ping, b"\x03\xe9"]
    assert [frame.opcode for frame in frames[-2:]] == [Opcode.PONG, Opcode.CLOSE]


def test_masks_differ_from_frame_to_frame() -> None:
    assert len({text_frame(b"the same words") for _ in range(8)}) == 8


@given(st.data())
def test_messages_come_out_whole_however_they_were_cut(data: st.DataObject) -> None:
    """Fragmented by the server, with control frames between the parts, and cut anywhere by the network."""
    expected: list[Message] = []
    stream = b""
    for text in data.draw(st.lists(st.text(max_size=200), max_size=4)):
        parts = data.draw(st.integers(1, 4))
        encoded = text.encode()
        size = len(encoded) // parts + 1
        pieces = [encoded[at : at + size] for at in range(0, parts * size, size)]
        for number, piece in enumerate(pieces):
            opcode = Opcode.TEXT if number == 0 else Opcode.CONT
            stream += from_server(Frame(opcode, piece, fin=number == len(pieces) - 1))
            if number < len(pieces) - 1 and data.draw(st.booleans()):
                stream += from_server(Frame(Opcode.PING, b"p"), Frame(Opcode.PONG, b"unasked"))
                expected.append(Ping(b"p"))
        expected.append(TextMessage(encoded))
    parser = FrameParser()
    seen: list[Message] = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        seen += parser.feed(stream[:cut])
        stream = stream[cut:]
    assert seen == expected


@pytest.mark.parametrize("size", SIZES)
def test_long_messages_are_read_at_every_length_of_the_format(size: int) -> None:
    assert FrameParser().feed(from_server(Frame(Opcode.TEXT, b"x" * size))) == [TextMessage(b"x" * size)]


def test_close_tells_its_code_and_reason_or_that_there_was_none() -> None:
    server = ServerProtocol()
    frame = Frame(Opcode.CLOSE, (1012).to_bytes(2, "big") + "später".encode())
    assert FrameParser().feed(from_server(frame)) == [Close(1012, "später")]
    assert FrameParser().feed(from_server(Frame(Opcode.CLOSE, b""))) == [Close(1005, "")]
    assert server.close_code is None


def test_binary_message_is_told_apart() -> None:
    assert FrameParser().feed(from_server(Frame(Opcode.BINARY, b"\x00"))) == [BinaryMessage()]


@pytest.mark.parametrize(
    "data",
    [
        Frame(Opcode.TEXT, b"x").serialize(mask=True),
        Frame(Opcode.CONT, b"x").serialize(mask=False),
        from_server(Frame(Opcode.TEXT, b"x", fin=False), Frame(Opcode.TEXT, b"y")),
        bytes([0x80 | 0x40 | 1, 0]),
        bytes([0x80 | 3, 0]),
        bytes([0x80 | 11, 0]),
        bytes([9, 0]),
        bytes([0x80 | 9, 126, 0, 126]) + b"x" * 126,
        bytes([0x81, 127]) + (1 << 40).to_bytes(8, "big"),
    ],
    ids=[
        "masked",
        "no start",
        "two starts",
        "extension",
        "data kind",
        "control kind",
        "ping in parts",
        "long ping",
        "huge",
    ],
)
def test_frame_that_breaks_the_format_ends_everything(data: bytes) -> None:
    with pytest.raises(MalformedStream):
        FrameParser().feed(data)


def test_message_in_parts_is_bounded_as_a_whole() -> None:
    parser = FrameParser(max_message_bytes=10)
    parser.feed(from_server(Frame(Opcode.TEXT, b"x" * 6, fin=False)))
    with pytest.raises(MalformedStream, match="larger than 10 bytes"):
        parser.feed(from_server(Frame(Opcode.CONT, b"x" * 6)))
