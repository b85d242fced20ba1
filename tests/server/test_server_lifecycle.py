"""Starting and ending the daemon: one a user, strangers kept out, ended in order (protocol.md 1, DM-14, DM-22)."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.daemon import DaemonProcess, OpenSession
from support.model_server import Gate, ModelServer, calls, says, slow, tool

ANOTHER_RUNS = 75


def test_fifty_started_at_once_end_on_one_daemon(stopped_daemon: DaemonProcess) -> None:
    """A kernel-released lock decides, never a pid (DM-14)."""
    started = [stopped_daemon.spawn() for _ in range(50)]
    try:
        stopped_daemon.wait_until_it_answers()
        deadline = time.monotonic() + 30
        while sum(process.poll() is None for process in started) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        alive = [process for process in started if process.poll() is None]

        assert len(alive) == 1
        assert [process.returncode for process in started if process is not alive[0]] == [ANOTHER_RUNS] * 49
        assert stopped_daemon.connect().call("basis/daemon/status")["pid"] == alive[0].pid
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_a_socket_left_behind_by_a_kill_is_no_obstacle(daemon: DaemonProcess) -> None:
    daemon.kill()
    assert Path(daemon.socket).exists()
    with socket.socket(socket.AF_UNIX) as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(daemon.socket)

    daemon.start()

    assert daemon.connect().call("basis/daemon/ping")


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["socket", "lock", "everything"])
def test_a_daemon_nobody_can_find_ends_and_makes_room(daemon: DaemonProcess, gone: str) -> None:
    """What cleaners of temporary directories take must not leave a daemon that holds the lock and answers nobody."""
    match gone:
        case "socket":
            Path(daemon.socket).unlink()
        case "lock":
            (daemon.data / "daemon.lock").unlink()
        case _:
            shutil.rmtree(daemon.data)

    assert daemon.process is not None and daemon.process.wait(20) == 0

    assert daemon.start().connect().call("basis/daemon/ping")


def test_another_data_directory_does_not_take_the_socket_of_a_running_daemon(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    other = DaemonProcess(tmp_path / "other", socket=Path(daemon.socket))

    process = other.spawn()
    _, errors = process.communicate(timeout=20)

    assert process.returncode == 1
    assert b"another data directory" in errors
    assert daemon.connect().call("basis/daemon/ping")


def test_everything_it_makes_is_private(daemon: DaemonProcess, model: ModelServer, open_session: OpenSession) -> None:
    """DM-22, ST-31: directories 0700, files 0600."""
    model.script(calls(tool("write", {"path": "b.txt", "content": "x"})))
    client = daemon.connect()
    session_id = open_session(client)
    block = {"type": "text", "text": "write"}
    client.call("basis/session/prompt", {"sessionId": session_id, "input": [block]})
    client.events_until("ask_opened")

    modes: dict[str, int] = {}
    for directory, _, files in os.walk(daemon.data):
        for path in (Path(directory), *(Path(directory) / name for name in files)):
            modes[str(path.relative_to(daemon.data))] = stat.S_IMODE(path.lstat().st_mode)

    assert modes["."] == modes["asks"] == modes["run"] == modes["log"] == 0o700
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_another_user_is_turned_away(daemon: DaemonProcess) -> None:
    """protocol.md 1: the peer's uid is checked at accept, whatever the socket's mode."""
    for path in (Path(daemon.socket), *Path(daemon.socket).parents):
        if path.stat().st_mode & 0o777 == 0o700 or path == Path(daemon.socket):
            path.chmod(0o777)
    program = (
        "import os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])\n"
        "try: sys.exit(0 if s.recv(1) == b'' else 1)\n"
        "except ConnectionError: sys.exit(0)\n"
    )

    stranger = subprocess.run([sys.executable, "-c", program, daemon.socket], timeout=20, check=False)

    assert stranger.returncode == 0
    assert daemon.connect().call("basis/daemon/ping")
    assert '"turned away another user"' in daemon.log


def test_a_directory_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    place.mkdir(mode=0o777)
    place.chmod(0o777)

    process = DaemonProcess(tmp_path / "data", socket=place / "daemon.sock").spawn()
    _, errors = process.communicate(timeout=20)

    assert process.returncode == 1
    assert b"can be written by other users" in errors


def test_a_file_that_is_no_socket_is_not_replaced_by_one(tmp_path: Path) -> None:
    place = tmp_path / "notes.txt"
    place.write_text("precious")

    process = DaemonProcess(tmp_path / "data", socket=place).spawn()
    _, errors = process.communicate(timeout=20)

    assert process.returncode == 1
    assert b"is no socket and is left alone" in errors and place.read_text() == "precious"


def test_a_socket_path_of_the_longest_kind_can_be_bound(clean_environment: Path) -> None:
    """107 bytes on Linux: a temporary name must not need more than the name itself."""
    directory = clean_environment / "s"
    path = directory / ("x" * (107 - len(str(directory)) - 1))
    daemon = DaemonProcess(clean_environment / "data", socket=path)

    try:
        assert daemon.start().connect().call("basis/daemon/ping")
    finally:
        daemon.close()


def test_a_client_is_accepted_long_before_it_is_answered(stopped_daemon: DaemonProcess) -> None:
    """Bind first, import after (architecture.md 5). Figures are the bench's matter; this is the order of things."""
    process = stopped_daemon.process = stopped_daemon.spawn()
    early: socket.socket | None = None
    while early is None:
        assert process.poll() is None
        early = socket.socket(socket.AF_UNIX)
        try:
            early.connect(stopped_daemon.socket)
        except OSError:
            early.close()
            early = None
    early.settimeout(20)

    body = b'{"jsonrpc":"2.0","id":1,"method":"basis/daemon/ping"}'
    early.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    assert b"-32002" in early.recv(4096)
    early.close()


def test_stop_is_answered_and_then_the_daemon_ends(daemon: DaemonProcess) -> None:
    client = daemon.connect()
    watcher = daemon.connect(name="watcher")
    watcher.call("basis/daemon/subscribe")

    assert client.call("basis/daemon/stop", {"mode": "now"}) == {}

    assert watcher.next_notification("basis/daemon/event")["kind"] == "stopping"
    assert client.is_closed_by_daemon()
    assert daemon.process is not None and daemon.process.wait(20) == 0
    assert not Path(daemon.socket).exists()


def test_a_drain_waits_for_the_round_boundary(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """protocol.md 3: `drain` waits for round boundaries; what was committed stays."""
    gate = Gate()
    model.script(slow(calls(tool("read", {"path": "a.txt"})), gate=gate, before=0), says("afterwards"))
    client = daemon.connect()
    session_id = open_session(client)
    block = {"type": "text", "text": "read"}
    client.call("basis/session/prompt", {"sessionId": session_id, "input": [block]})
    gate.wait_arrival()

    client.call("basis/daemon/stop", {"mode": "drain"})
    refused = client.refusal("basis/session/prompt", {"sessionId": session_id, "input": [block]})
    gate.open()
    finished = client.events_until("run_finished")[-1]["event"]

    assert refused["data"]["kind"] == "busy"
    assert finished["status"] == "ok"
    assert daemon.process is not None and daemon.process.wait(20) == 0
    late = daemon.start().connect(name="late")
    items = late.call("basis/session/history", {"sessionId": session_id})["items"]
    assert [item["kind"] for item in items] == ["user", "tool"]


def test_sigterm_leaves_a_question_standing(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path, environment: dict[str, str]
) -> None:
    """A turn that waits for a person is not waited for: it is interrupted, and answered later."""
    model.script(calls(tool("write", {"path": "b.txt", "content": "x"})), says("done"))
    client = daemon.connect()
    session_id = open_session(client)
    block = {"type": "text", "text": "write"}
    client.call("basis/session/prompt", {"sessionId": session_id, "input": [block]})
    ask = client.events_until("ask_opened")[-1]["event"]["ask"]

    assert daemon.terminate() == 0
    closing = client.events_until("run_finished")[-1]["event"]
    late = daemon.start().connect(name="late")
    late.call("basis/workspace/open", {"path": str(repo), "env": environment})
    assert late.call("basis/ask/list")["asks"] == [ask]
    late.call("basis/session/attach", {"sessionId": session_id})
    late.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})

    assert closing["status"] == "interrupted"
    assert late.events_until("run_finished")[-1]["event"]["status"] == "ok"
    assert (repo / "b.txt").exists()


def test_commands_are_told_about_their_own_session_and_no_other(
    stopped_daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """DM-10, protocol.md 6: whoever started the daemon leaves no trace in its children."""
    stopped_daemon._env = {"BASIS_TASK_ID": "task-of-somebody", "BASIS_SESSION_ID": "other", "STARTER": "yes"}  # pyright: ignore
    daemon = stopped_daemon.start()
    model.script(calls(tool("spawn", {"input": "!env; pwd"})), says("done"))
    client = daemon.connect()
    session_id = open_session(client, config={"mode": "always"})
    block = {"type": "text", "text": "env"}
    client.call("basis/session/prompt", {"sessionId": session_id, "input": [block]})
    client.events_until("run_finished")

    [result] = model.requests[1].tool_results.values()

    assert f"BASIS_SESSION_ID={session_id}" in result
    assert f"BASIS_SOCKET={daemon.socket}" in result
    for absent in ("task-of-somebody", "=other", "STARTER", "key-of-the-tests"):
        assert absent not in result


def test_no_credential_is_written_anywhere(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession
) -> None:
    """protocol.md 8, DM-23: the canary key is in no file and no answer."""
    model.script(says("hello"))
    client = daemon.connect()
    session_id = open_session(client)
    block = {"type": "text", "text": "hi"}
    client.call("basis/session/prompt", {"sessionId": session_id, "input": [block]})
    events = client.events_until("run_finished")
    answers: list[Any] = [client.call("basis/daemon/status"), client.call("basis/workspace/list"), events]
    daemon.kill()

    files = [path for path in daemon.data.rglob("*") if path.is_file()]

    assert len(files) > 3
    assert [path for path in files if b"key-of-the-tests" in path.read_bytes()] == []
    assert "key-of-the-tests" not in str(answers)


@pytest.mark.parametrize(
    ("arguments", "code", "says_what"),
    [
        (["--version"], 0, "basis-daemon 0."),
        (["--help"], 0, "--data-dir"),
        (["--frobnicate"], 2, "unknown argument --frobnicate"),
        (["--log-level", "loud"], 2, "--log-level must be one of"),
        (["--socket"], 2, "--socket needs a value"),
        (["stop"], 2, "unknown argument stop"),
    ],
)
def test_the_command_line_says_what_it_takes(
    clean_environment: Path, arguments: list[str], code: int, says_what: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "basis_daemon", *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert ran.returncode == code
    assert says_what in ran.stdout + ran.stderr


def test_flags_name_the_places(clean_environment: Path) -> None:
    daemon = DaemonProcess(clean_environment / "unused", socket=clean_environment / "unused.sock")
    data, path = clean_environment / "d", clean_environment / "r" / "s"
    daemon.process = daemon.spawn(f"--data-dir={data}", "--socket", str(path), "--foreground")
    daemon.data, daemon.socket = data, str(path)

    try:
        daemon.wait_until_it_answers()
        status = daemon.connect().call("basis/daemon/status")

        assert (status["dataDir"], status["socket"]) == (str(data), str(path))
    finally:
        daemon.close()
