"""The blocking connection, byte by byte."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from basis_client.blocking import Connection
from basis_client.cursor import GAP, NEXT, OLD, Cursor
from basis_client.errors import ClientError
from basis_client.handshake import VERSION
from basis_protocol.framing import MAX_FRAME_BYTES, Decoder, encode


class Peer:
    """The other end of a connection, in a thread when it has to answer."""

    def __init__(self, own: socket.socket) -> None:
        self.socket = own
        self._decoder = Decoder()
        self._bodies: list[bytes] = []

    def read(self) -> dict[str, Any]:
        while not self._bodies:
            self._bodies += self._decoder.feed(self.socket.recv(65536))
        message: dict[str, Any] = json.loads(self._bodies.pop(0))
        return message

    def send(self, **message: object) -> None:
        self.socket.sendall(encode(json.dumps({"jsonrpc": "2.0", **message}).encode()))

    def answer_with(self, *chunks: bytes) -> threading.Thread:
        """Read one request, then send `chunks` one by one."""

        def work() -> None:
            self.read()
            for chunk in chunks:
                self.socket.sendall(chunk)

        thread = threading.Thread(target=work)
        thread.start()
        return thread


@pytest.fixture
def pair() -> Iterator[tuple[Connection, Peer]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    theirs.settimeout(10)
    connection = Connection(ours)
    yield connection, Peer(theirs)
    connection.close()
    theirs.close()


def _frame(**message: object) -> bytes:
    return encode(json.dumps({"jsonrpc": "2.0", **message}).encode())


def test_answer_is_found_between_notifications_cut_anywhere(pair: tuple[Connection, Peer]) -> None:
    """Byte by byte, with notifications before and after: none is lost, each keeps its place."""
    connection, peer = pair
    stream = (
        _frame(method="basis/session/event", params={"seq": 1, "text": "ü€𝄞"})
        + _frame(id=1, result={"now": "x"})
        + _frame(method="basis/session/event", params={"seq": 2})
    )
    thread = peer.answer_with(*(stream[at : at + 1] for at in range(len(stream))))

    assert connection.request("basis/daemon/ping") == {"now": "x"}
    assert connection.take(5.0) == ("basis/session/event", {"seq": 1, "text": "ü€𝄞"})
    assert connection.take(5.0) == ("basis/session/event", {"seq": 2})
    assert connection.take(0.0) is None
    thread.join()


def test_answer_to_an_earlier_request_is_not_taken_for_this_one(pair: tuple[Connection, Peer]) -> None:
    """After a timeout the connection stays usable: the late answer is dropped."""
    connection, peer = pair
    with pytest.raises(ClientError) as caught:
        connection.request("slow", timeout_s=0.01)
    assert caught.value.kind == "timed_out"
    peer.read()
    thread = peer.answer_with(_frame(id=1, result={"late": True}), _frame(id=2, result={"late": False}))

    assert connection.request("quick", timeout_s=5.0) == {"late": False}
    thread.join()


def test_request_of_the_daemon_is_answered_with_an_error(pair: tuple[Connection, Peer]) -> None:
    """An LSP server may ask things of its client; unanswered, it would wait."""
    connection, peer = pair
    peer.send(id="s-1", method="window/showMessageRequest", params={})

    assert connection.take(0.2) is None
    answer = peer.read()
    assert answer["id"] == "s-1" and answer["error"]["code"] == -32601


def test_error_without_data_is_still_an_error(pair: tuple[Connection, Peer]) -> None:
    connection, peer = pair
    thread = peer.answer_with(_frame(id=1, error={"code": -32603, "message": "broken"}))

    with pytest.raises(ClientError, match="broken") as caught:
        connection.request("x")
    thread.join()
    assert (caught.value.code, caught.value.kind, caught.value.hint) == (-32603, "error", None)


@pytest.mark.parametrize("error", [None, "text", [], {}, {"data": "x"}, {"code": "y", "data": {"details": 3}}])
def test_strange_error_does_not_break_its_reader(error: object) -> None:
    assert str(ClientError.from_wire(error))


def test_end_of_the_connection_comes_after_what_had_arrived(pair: tuple[Connection, Peer]) -> None:
    connection, peer = pair
    peer.send(method="basis/session/event", params={"seq": 1})
    peer.socket.close()

    assert connection.take(5.0) == ("basis/session/event", {"seq": 1})
    with pytest.raises(ClientError) as caught:
        connection.take(5.0)
    assert caught.value.kind == "connection_lost"


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 200 OK\r\n\r\n", b"Content-Length: 3\r\n\r\n{x}", b"x" * 9000])
def test_garbage_is_recognised(garbage: bytes, pair: tuple[Connection, Peer]) -> None:
    connection, peer = pair
    peer.socket.sendall(garbage)

    with pytest.raises(ClientError) as caught:
        connection.take(5.0)
    assert caught.value.kind == "bad_peer"


def test_message_over_the_limit_is_refused_before_it_is_sent(pair: tuple[Connection, Peer]) -> None:
    connection, _ = pair

    with pytest.raises(ClientError) as caught:
        connection.request("basis/session/prompt", {"text": "x" * MAX_FRAME_BYTES})
    assert caught.value.kind == "too_large" and not caught.value.is_unreachable


def test_daemon_that_does_not_read_is_not_waited_for_for_ever(pair: tuple[Connection, Peer]) -> None:
    connection, _ = pair

    with pytest.raises(ClientError) as caught:
        connection.request("basis/session/prompt", {"text": "x" * 10_000_000}, timeout_s=0.05)
    assert caught.value.kind == "timed_out"


def test_text_that_is_no_unicode_is_sent_as_replaced(pair: tuple[Connection, Peer]) -> None:
    """A lone surrogate can't be said in UTF-8, and msgspec refuses its escape."""
    connection, peer = pair
    connection.notify("x", {"text": "a\udce9b"})

    assert peer.read()["params"]["text"] == "a?b"


def test_cursor_tells_next_old_and_missing_apart() -> None:
    cursor = Cursor(3)

    assert [cursor.take(seq) for seq in (4, 4, 2, 6, 5, 6)] == [NEXT, OLD, OLD, GAP, NEXT, NEXT]
    assert cursor.seen == 6


def test_version_is_the_distributions() -> None:
    from importlib.metadata import version

    assert version("basis-daemon") == VERSION
