"""Finding the daemon, and starting one: single flight, stale sockets, and errors that say what to do."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from basis_client.blocking import open_connection
from basis_client.connect import NEVER, connect, has_died
from basis_client.errors import ClientError
from basis_client.handshake import Hello
from basis_protocol import address
from support.command_line import COMMAND, WAIT_S, basisctl
from support.fake_daemon import FakeDaemon, NoAnswer, Refusal


@pytest.fixture
def no_daemon_is_left(workspace: Path) -> Iterator[None]:
    """Ends whatever daemon the test's clients have started."""
    yield
    basisctl("daemon", "stop", "--now", cwd=workspace)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a program in the place of `python -m basis_daemon`."""

    def put(program: str) -> None:
        package = tmp_path / "stand_in" / "basis_daemon"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(program)
        monkeypatch.setenv("PYTHONPATH", str(package.parent))

    return put


@pytest.mark.usefixtures("no_daemon_is_left")
def test_first_client_starts_a_daemon_and_the_next_finds_it(workspace: Path) -> None:
    """The daemon goes on when its starter has ended, in a session of its own and with `/` as its directory."""
    first = basisctl("daemon", "start", "--json", cwd=workspace)
    second = basisctl("daemon", "start", "--json", cwd=workspace)

    started, found = json.loads(first.stdout), json.loads(second.stdout)
    assert (started["state"], found["state"]) == ("started", "running")
    assert started["daemon"]["instanceId"] == found["daemon"]["instanceId"]
    pid = started["daemon"]["pid"]
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


@pytest.mark.slow
@pytest.mark.usefixtures("no_daemon_is_left")
def test_fifty_clients_at_once_start_one_daemon(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are served, by the same daemon, and only one interpreter is started for it."""
    counted = tmp_path / "started.txt"
    spy = tmp_path / "spy"
    spy.mkdir()
    note = f"open({str(counted)!r}, 'a').write('one\\n')"
    (spy / "sitecustomize.py").write_text(f"import sys\nif 'basis_daemon' in sys.orig_argv: {note}\n")
    monkeypatch.setenv("PYTHONPATH", str(spy))

    command = [*COMMAND, "daemon", "start", "--json"]
    clients = [subprocess.Popen(command, cwd=workspace, stdout=subprocess.PIPE, text=True) for _ in range(50)]
    answers = [json.loads(client.communicate(timeout=WAIT_S)[0]) for client in clients]

    assert {client.returncode for client in clients} == {0}
    assert len({answer["daemon"]["instanceId"] for answer in answers}) == 1
    assert counted.read_text() == "one\n"


@pytest.mark.usefixtures("no_daemon_is_left")
def test_socket_of_a_killed_daemon_is_no_obstacle(workspace: Path) -> None:
    """A path that refuses means that nobody listens: a new daemon is started in the old one's place."""
    first = json.loads(basisctl("daemon", "start", "--json", cwd=workspace).stdout)
    os.kill(first["daemon"]["pid"], signal.SIGKILL)

    second = json.loads(basisctl("daemon", "start", "--json", cwd=workspace).stdout)

    assert second["state"] == "started"
    assert second["daemon"]["instanceId"] != first["daemon"]["instanceId"]


@pytest.mark.usefixtures("no_daemon_is_left")
def test_daemon_does_not_inherit_keys_or_tasks(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """protocol.md 6: nothing depends on the environment of whoever started the daemon."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    monkeypatch.setenv("BASIS_TASK_ID", "a-task")
    started = json.loads(basisctl("daemon", "start", "--json", cwd=workspace).stdout)

    environment = Path(f"/proc/{started['daemon']['pid']}/environ").read_bytes()
    assert b"canary" not in environment
    assert b"BASIS_TASK_ID" not in environment
    assert b"HOME=" in environment


def test_no_start_fails_at_once(workspace: Path) -> None:
    done = basisctl("sessions", "--no-start", cwd=workspace)

    assert done.returncode == 5
    assert "no daemon is running" in done.stderr
    assert "next: start one: basisctl daemon start" in done.stderr


def test_daemon_that_dies_while_starting_is_quoted(workspace: Path, stand_in) -> None:
    """The error shows the log's last lines, names the log and says what to do; escapes in the log stay harmless."""
    stand_in("import sys\nprint('first')\nsys.exit('\\x1b[31mthe disk is \\x07full')")

    done = basisctl("run", "hello", cwd=workspace)

    assert done.returncode == 5
    assert "the daemon ended while starting (exit status 1)" in done.stderr
    assert f"the end of {address.log_path()}:" in done.stderr
    assert "  ␛[31mthe disk is ␇full" in done.stderr
    assert "-m basis_daemon" in done.stderr


def test_daemon_that_dies_after_it_was_connected_to_is_quoted(workspace: Path, stand_in) -> None:
    """The socket is bound before anything is imported: a broken installation fails later, and is told at once."""
    program = (
        "import os, socket, sys\n"
        "path = os.environ['BASIS_DATA_DIR'] + '/run/daemon.sock'\n"
        "os.makedirs(os.path.dirname(path), exist_ok=True)\n"
        "listening = socket.socket(socket.AF_UNIX)\n"
        "if os.path.exists(path): os.unlink(path)\n"
        "listening.bind(path)\n"
        "listening.listen()\n"
        "listening.accept()[0].recv(1)\n"
        "import no_such_module\n"
    )
    stand_in(program)

    done = basisctl("run", "hello", cwd=workspace)

    assert done.returncode == 5
    assert "the daemon ended while starting (exit status 1)" in done.stderr
    assert "No module named 'no_such_module'" in done.stderr


def test_daemon_that_is_killed_while_starting_is_reported(workspace: Path, stand_in) -> None:
    stand_in("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")

    done = basisctl("run", "--json", "hello", cwd=workspace)

    assert done.returncode == 5
    error = json.loads(done.stdout)
    assert error["code"] == "daemon_unreachable"
    assert "signal 9" in error["error"] and "it said nothing in" in error["error"]


def test_daemon_that_never_listens_is_given_up_on(stand_in) -> None:
    """The wait is bounded, and says where to look."""
    stand_in("import sys\nprint('thinking', flush=True)\nsys.stdin.read()\nimport time\ntime.sleep(5)")

    with pytest.raises(ClientError, match="nothing answers at") as caught:
        connect(timeout_s=1.0)

    assert caught.value.is_unreachable
    assert "thinking" in str(caught.value)


def test_another_daemon_that_is_about_to_listen_is_waited_for(stand_in) -> None:
    """A start that finds the lock taken is no failure: whoever holds it will listen soon."""
    path = address.socket_path()
    late = (
        "import os, socket, sys, time\n"
        f"path = {str(path)!r}\n"
        "mark = os.path.join(os.environ['BASIS_DATA_DIR'], 'tried')\n"
        "if not os.path.exists(mark):\n"
        "    open(mark, 'w').close()\n"
        "    sys.exit(75)\n"
        "os.makedirs(os.path.dirname(path), exist_ok=True)\n"
        "listening = socket.socket(socket.AF_UNIX)\n"
        "listening.bind(path)\n"
        "listening.listen()\n"
        "listening.accept()\n"
        "time.sleep(0.2)\n"
    )
    stand_in(late)

    found = connect(timeout_s=WAIT_S)
    found.answered()
    found.socket.close()


def test_unusable_data_directory_is_named(workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BASIS_DATA_DIR", str(tmp_path / "file"))

    done = basisctl("run", "hello", cwd=workspace)

    assert done.returncode == 5
    assert f"can't write to {tmp_path / 'file'}" in done.stderr
    assert "BASIS_DATA_DIR" in done.stderr


def test_relative_data_directory_is_refused(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASIS_DATA_DIR", "here")

    done = basisctl("run", "hello", cwd=workspace)

    assert done.returncode == 5
    assert "must be an absolute path" in done.stderr


def test_whatever_else_listens_there_is_not_mistaken_for_a_daemon(fake_daemon: FakeDaemon, workspace: Path) -> None:
    def chatter(connection, params) -> None:
        connection.send_raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        raise Refusal("error", "never read")

    fake_daemon.handlers["initialize"] = chatter

    done = basisctl("sessions", cwd=workspace)

    assert done.returncode == 5
    assert "does not speak the basis protocol" in done.stderr


def test_daemon_of_another_version_says_how_to_go_on(fake_daemon: FakeDaemon, workspace: Path) -> None:
    def refuse(*_: object) -> None:
        raise Refusal("protocol_version", "this daemon speaks basis protocol 2 to 3", hint="upgrade basisctl")

    fake_daemon.handlers["initialize"] = refuse

    done = basisctl("sessions", cwd=workspace)

    assert done.returncode == 5
    assert done.stderr == "basisctl: this daemon speaks basis protocol 2 to 3\nnext: upgrade basisctl\n"


def test_daemon_that_goes_away_during_the_handshake_is_tried_again(fake_daemon: FakeDaemon) -> None:
    """It was just ending, or just overloaded: the next attempt is answered."""
    initialize = fake_daemon.handlers["initialize"]
    attempts = iter(("gone", "busy"))

    def falter(connection, params):
        match next(attempts, None):
            case "gone":
                connection.cut()
            case "busy":
                refusal = Refusal("overloaded", "too many requests")
                refusal.error["code"] = -32001
                raise refusal
            case _:
                pass
        return initialize(connection, params)

    fake_daemon.handlers["initialize"] = falter

    connection = open_connection(Hello("test", kind="cli"), start=NEVER)
    connection.close()

    assert len(fake_daemon.asked("initialize")) == 3
    assert connection.daemon["instanceId"] == "fake"


def test_death_and_a_proper_end_are_told_apart(fake_daemon: FakeDaemon) -> None:
    """A killed daemon leaves its socket's path; one that ends takes it away."""
    fake_daemon.die()
    died = has_died()
    fake_daemon.path.unlink()

    assert (died, has_died()) == (True, False)


def test_long_data_directory_still_has_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """protocol.md 1: a path the platform can't bind is shortened by a digest, alike for every side."""
    monkeypatch.setenv("BASIS_DATA_DIR", str(tmp_path / ("d" * 120)))
    path = address.socket_path()
    path.parent.mkdir(exist_ok=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        try:
            connect(start=NEVER).socket.close()
        finally:
            path.unlink()


def test_hot_path_imports_nothing_slow(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """`basisctl run` is answered in a tenth of a second because these stay out of it (stack.md 2)."""
    run = (
        "import sys; from basisctl.cli import main; code = main(['run', 'hello']); print(*sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", run], cwd=workspace, capture_output=True, text=True, timeout=WAIT_S)

    assert done.returncode == 0
    loaded = set(done.stdout.splitlines()[-1].split())
    slow = {"asyncio", "msgspec", "typing", "dataclasses", "pathlib", "subprocess", "threading", "shutil", "tempfile"}
    assert not loaded & (slow | {"logging", "rich", "hashlib", "random", "inspect", "datetime", "urllib", "termios"})
    assert not any(name.startswith("basis_daemon") for name in loaded)


def test_ctrl_c_before_anything_was_sent_leaves_at_once(fake_daemon: FakeDaemon, workspace: Path) -> None:
    """With nothing to cancel, a daemon that doesn't answer is left by the first Ctrl-C, without a traceback."""

    def hang(*_: object) -> None:
        raise NoAnswer

    fake_daemon.handlers["basis/workspace/open"] = hang
    run = subprocess.Popen(
        [*COMMAND, "run", "hello"], cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    fake_daemon.wait_for("basis/workspace/open")
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=WAIT_S)

    assert run.returncode == 130
    assert "Traceback" not in err
    assert fake_daemon.asked("basis/session/prompt") == []
