"""One connection, seen from the other end of a real socket: framing, handshake, errors (protocol.md 1, 2, 8)."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from support.daemon import DaemonProcess
from support.raw_client import RawClient


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One daemon for all of these: what one client does to it must not show to the next."""
    home = tmp_path_factory.mktemp("wire")
    daemon = DaemonProcess(home / "data", env={"HOME": str(home)})
    yield daemon.start()
    assert daemon.is_running, daemon.log
    daemon.close()


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def test_a_client_is_told_who_the_daemon_is_and_what_it_serves(daemon: DaemonProcess) -> None:
    """protocol.md 2: version, pid, instance, limits, features."""
    client = daemon.dial()

    hello = client.initialize()

    assert hello["protocolVersion"] == 1
    assert hello["daemon"]["pid"] == daemon.pid
    assert hello["daemon"]["instanceId"]
    assert hello["limits"]["maxFrameBytes"] == 64 * 1024 * 1024
    assert "basis/session/prompt" in hello["features"]


def test_no_common_version_names_both_ranges_and_the_upgrade(daemon: DaemonProcess) -> None:
    """protocol.md 2: the error `protocol_version`."""
    client = daemon.dial()
    hello = {"protocolVersions": [7, 8], "client": {"name": "future"}}

    error = client.refusal("initialize", {"capabilities": {"experimental": {"basis": hello}}})

    assert error["data"]["kind"] == "protocol_version"
    assert "1" in error["message"] and "7 to 8" in error["message"]
    assert "upgrade" in error["data"]["hint"]


def test_an_unreadable_hello_names_the_field(daemon: DaemonProcess) -> None:
    client = daemon.dial()

    error = client.refusal("initialize", {"capabilities": {"experimental": {"basis": {"client": {"name": "x"}}}}})

    assert error["code"] == -32602
    assert error["data"]["details"]["field"] == "protocolVersions"


def test_nothing_is_answered_before_initialize(daemon: DaemonProcess) -> None:
    """-32002 (protocol.md 2)."""
    client = daemon.dial()

    assert client.refusal("basis/daemon/ping")["code"] == -32002


def test_initialize_twice_is_refused(daemon: DaemonProcess) -> None:
    client = daemon.connect()

    assert client.refusal("initialize", {})["code"] == -32600


def test_ping_is_answered(daemon: DaemonProcess) -> None:
    client = daemon.connect()

    assert client.call("basis/daemon/ping")["now"].endswith("Z")


@pytest.mark.parametrize("params", ["absent", "null"])
def test_params_may_be_left_out(daemon: DaemonProcess, params: str) -> None:
    """vscode-jsonrpc leaves `params` out, others send null."""
    client = daemon.connect()
    message = {"jsonrpc": "2.0", "id": 77, "method": "basis/daemon/ping"} | (
        {"params": None} if params == "null" else {}
    )

    client.send(message)

    assert "now" in client.answer(77)["result"]


def test_wrong_params_are_refused_by_the_name_of_the_field(daemon: DaemonProcess) -> None:
    """protocol.md 8: -32602 naming the field."""
    client = daemon.connect()

    missing = client.refusal("basis/session/attach", {})
    wrong = client.refusal("basis/session/attach", {"sessionId": "x", "afterSeq": -1})
    positional = client.answer(
        _send(client, {"jsonrpc": "2.0", "id": "p", "method": "basis/daemon/ping", "params": [1]})
    )

    assert [missing["code"], wrong["code"], positional["error"]["code"]] == [-32602] * 3
    assert missing["data"]["details"]["field"] == "sessionId"
    assert wrong["data"]["details"]["field"] == "afterSeq"


def test_unknown_fields_are_ignored(daemon: DaemonProcess) -> None:
    """protocol.md 2: always, on both sides."""
    client = daemon.connect()

    assert client.call("basis/daemon/ping", {"colour": "blue", "class": 1, "a-b": 2})


@pytest.mark.parametrize("method", ["basis/session/undo", "basis/nothing", "frobnicate"])
def test_what_is_not_served_is_not_found(daemon: DaemonProcess, method: str) -> None:
    client = daemon.connect()

    assert client.refusal(method)["code"] == -32601


def test_invalid_json_is_answered_and_the_connection_goes_on(daemon: DaemonProcess) -> None:
    """-32700 with a null id; framing still holds, so nothing else is lost."""
    client = daemon.connect()

    client.send_bytes(frame(b'{"jsonrpc": '))

    assert client.answer(None)["error"]["code"] == -32700
    assert client.call("basis/daemon/ping")


def test_invalid_utf8_is_a_parse_error(daemon: DaemonProcess) -> None:
    client = daemon.connect()

    client.send_bytes(frame(b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}'))
    client.send_bytes(
        frame(b'{"jsonrpc":"2.0","id":"u","method":"basis/session/detach","params":{"sessionId":"\xff"}}')
    )

    assert client.answer(None)["error"]["code"] == -32700
    assert client.answer("u")["error"]["code"] in (-32602, -32700)
    assert client.call("basis/daemon/ping")


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","id":"u","method":"basis/daemon/ping","params":{"unknown":"\xff"}}',
        b'{"jsonrpc":"2.0","id":"u","method":"textDocument/hover","params":{"textDocument":"\xff"}}',
    ],
)
def test_invalid_utf8_anywhere_is_answered_where_the_id_can_be_known(daemon: DaemonProcess, message: bytes) -> None:
    """protocol.md 1."""
    client = daemon.connect()

    client.send_bytes(frame(message))

    assert client.answer("u")["error"]["code"] == -32700
    assert client.call("basis/daemon/ping")


@pytest.mark.parametrize("nested", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000])
def test_deep_nesting_is_answered_and_the_connection_goes_on(daemon: DaemonProcess, nested: bytes) -> None:
    """protocol.md 1."""
    client = daemon.connect()

    client.send_bytes(frame(b'{"jsonrpc":"2.0","id":1,"method":"basis/daemon/ping","params":{"x":%b}}' % nested))

    assert client.answer(None)["error"]["code"] == -32700
    assert client.call("basis/daemon/ping")


@pytest.mark.parametrize(
    ("body", "request_id"),
    [
        (b"[]", None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"basis/daemon/ping"}]', None),
        (b"3", None),
        (b'"text"', None),
        (b'{"jsonrpc":"1.0","id":9,"method":"basis/daemon/ping"}', 9),
        (b'{"id":9,"method":"basis/daemon/ping"}', 9),
        (b'{"jsonrpc":"2.0","id":9,"method":5}', 9),
        (b'{"jsonrpc":"2.0","id":null,"method":"basis/daemon/ping"}', None),
        (b'{"jsonrpc":"2.0","id":{},"method":"basis/daemon/ping"}', None),
        (b'{"jsonrpc":"2.0"}', None),
    ],
)
def test_what_is_no_request_gets_one_error(daemon: DaemonProcess, body: bytes, request_id: int | None) -> None:
    """-32600, with the id where it can be known; a batch is refused with one error."""
    client = daemon.connect()

    client.send_bytes(frame(body))

    assert client.answer(request_id)["error"]["code"] == -32600
    assert client.call("basis/daemon/ping")


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"Content-Length: many\r\n\r\n",
        b"Content-Length: -5\r\n\r\n",
        b"no colon here\r\n\r\n",
        b"\x00" * 20_000,
        b"Content-Length: 99999999999\r\n\r\n",
    ],
)
def test_garbage_ends_its_own_connection_only(daemon: DaemonProcess, garbage: bytes) -> None:
    """protocol.md 1: nothing a client sends can end the daemon or disturb another client."""
    bystander = daemon.connect()
    client = daemon.dial()

    client.send_bytes(garbage)

    assert client.answer(None)["error"]["code"] == -32700
    assert client.is_closed_by_daemon()
    assert bystander.call("basis/daemon/ping")


def test_a_frame_over_the_limit_is_refused_before_it_is_read(daemon: DaemonProcess) -> None:
    """protocol.md 1: 64 MiB."""
    client = daemon.connect()

    client.send_bytes(b"Content-Length: %d\r\n\r\n{" % (64 * 1024 * 1024 + 1))

    assert "larger than the limit" in client.answer(None)["error"]["message"]
    assert client.is_closed_by_daemon()


def test_half_a_message_and_gone_disturbs_nobody(daemon: DaemonProcess) -> None:
    bystander = daemon.connect()
    client = daemon.dial()

    client.send_bytes(b'Content-Length: 500\r\n\r\n{"jsonrpc"')
    client.socket.close()

    assert bystander.call("basis/daemon/ping")


def test_an_unfinished_message_takes_no_memory_once_its_client_is_gone(daemon: DaemonProcess) -> None:
    """Not even until the garbage collector runs, which counts objects and not their size."""
    watcher = daemon.connect()
    before = watcher.call("basis/daemon/status")

    for _ in range(4):
        client = daemon.dial()
        client.send_bytes(b"Content-Length: 60000000\r\n\r\n" + b"[" * 50_000_000)
        client.die()
    deadline = time.monotonic() + 10
    while (now := watcher.call("basis/daemon/status"))["counts"]["clients"] > before["counts"]["clients"]:
        assert time.monotonic() < deadline

    assert now["memoryBytes"] < before["memoryBytes"] + 100_000_000


def test_a_message_may_come_byte_by_byte(daemon: DaemonProcess) -> None:
    client = daemon.connect()

    for byte in frame(b'{"jsonrpc":"2.0","id":5,"method":"basis/daemon/ping"}'):
        client.send_bytes(bytes([byte]))

    assert "result" in client.answer(5)


def test_a_burst_of_requests_is_answered_one_for_one(daemon: DaemonProcess) -> None:
    client = daemon.connect()
    messages = [{"jsonrpc": "2.0", "id": f"b{n}", "method": "basis/daemon/ping"} for n in range(2000)]

    client.send_bytes(b"".join(frame(json.dumps(message).encode()) for message in messages))

    assert all("result" in client.answer(message["id"]) for message in messages)


@pytest.mark.parametrize("goodbye", [("shutdown", "exit"), ("exit",)])
def test_exit_ends_one_connection_and_nothing_else(daemon: DaemonProcess, goodbye: tuple[str, ...]) -> None:
    """protocol.md 1: `shutdown`/`exit` end that connection."""
    bystander = daemon.connect()
    client = daemon.connect()

    if "shutdown" in goodbye:
        assert client.call("shutdown") is None
        assert client.refusal("basis/daemon/ping")["code"] == -32600
    client.send({"jsonrpc": "2.0", "method": "exit"})

    assert client.is_closed_by_daemon()
    assert bystander.call("basis/daemon/ping")


def test_an_id_in_flight_can_not_be_used_again(daemon: DaemonProcess) -> None:
    client = daemon.connect()
    wait = {"jsonrpc": "2.0", "id": 1, "method": "basis/workspace/open", "params": {"path": "/nonexistent"}}

    client.send_bytes(frame(json.dumps(wait).encode()) * 2)
    answers = [client.receive() for _ in range(2)]

    assert sorted(answer["error"]["code"] for answer in answers) == [-32803, -32600]


def test_one_slow_request_keeps_nobody_waiting(daemon: DaemonProcess) -> None:
    """Requests run in tasks of their own; a ping behind one is answered first."""
    client = daemon.connect()
    slow = client.request("basis/workspace/open", {"path": "/"})

    client.call("basis/daemon/ping")

    assert client.answer(slow)


def test_a_client_that_never_reads_is_let_go(daemon: DaemonProcess) -> None:
    """protocol.md 1: the outbox is bounded, and nobody else is kept waiting."""
    bystander = daemon.connect()
    client = daemon.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.socket.settimeout(20)
    pings = frame(b'{"jsonrpc":"2.0","id":1,"method":"basis/daemon/ping"}') * 500_000

    with pytest.raises(ConnectionError):
        client.send_bytes(pings)

    started = time.monotonic()
    assert bystander.call("basis/daemon/ping")
    assert time.monotonic() - started < 2
    assert "doesn't read what it is sent" in daemon.log


@pytest.mark.parametrize("method", ["basis/session/new", "basis/session/list", "basis/model/list"])
def test_a_relative_path_is_refused_by_the_name_of_its_field(daemon: DaemonProcess, method: str) -> None:
    """protocol.md 8."""
    error = daemon.connect().refusal(method, {"workspace": "some/where"})

    assert error["code"] == -32602
    assert error["data"]["details"]["field"] == "workspace"


@pytest.mark.parametrize("session_id", ["", "..", "../..", "/", "\0", "x" * 10_000, "\u00e9" * 100])
def test_what_can_be_no_sessions_id_is_deleted_like_any_other_that_is_not_there(
    daemon: DaemonProcess, session_id: str
) -> None:
    """protocol.md 3: deleting one that isn't there succeeds."""
    assert daemon.connect().call("basis/session/delete", {"sessionId": session_id}) == {}
    assert (daemon.data / "store").is_dir()


def test_relative_paths_are_invalid_params(daemon: DaemonProcess) -> None:
    """DM-8."""
    client = daemon.connect()

    error = client.refusal("basis/workspace/open", {"path": "some/where"})

    assert error["code"] == -32602
    assert "absolute" in error["message"]


def test_status_tells_version_places_and_counts(daemon: DaemonProcess) -> None:
    client = daemon.connect()
    daemon.connect()

    status = client.call("basis/daemon/status")

    assert status["pid"] == daemon.pid
    assert status["socket"] == daemon.socket
    assert status["counts"]["clients"] >= 2
    assert status["memoryBytes"] > 1_000_000


def _send(client: RawClient, message: dict[str, object]) -> object:
    client.send(message)
    return message["id"]
