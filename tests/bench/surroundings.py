"""A daemon of our own for one measurement, and the few calls that measurements make.

Owns starting, asking and ending it. Blocking sockets on purpose: the measuring side must cost little.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


class Client:
    """A raw connection after the handshake."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        self._buffer = b""
        self._id = 0
        self.events: list[dict[str, Any]] = []
        hello = {
            "protocolVersions": [1],
            "client": {"name": "bench", "version": "0", "kind": "cli"},
            "can": {"approve": True},
        }
        self.call("initialize", {"processId": None, "capabilities": {"experimental": {"basis": hello}}})
        self.send({"jsonrpc": "2.0", "method": "initialized", "params": {}})

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """The result of a request; notifications that come first are kept in `events`."""
        self._id += 1
        self.send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        while True:
            message = self.receive()
            if message.get("id") == self._id and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def receive(self) -> dict[str, Any]:
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += self._read()
        header, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        length = int(header.split(b":")[1])
        while len(self._buffer) < length:
            self._buffer += self._read()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return json.loads(body)

    def _read(self) -> bytes:
        data = self.socket.recv(1 << 20)
        if not data:
            raise RuntimeError("the daemon closed the connection")
        return data

    def new_session(self, workspace: Path, env: dict[str, str], mode: str = "always") -> str:
        self.call("basis/workspace/open", {"path": str(workspace), "env": env})
        info = self.call("basis/session/new", {"workspace": str(workspace), "config": {"mode": mode}})
        return info["sessionId"]

    def run(self, session: str, text: str) -> dict[str, Any]:
        """Prompt and wait for the turn's end."""
        prompt = {"sessionId": session, "input": [{"type": "text", "text": text}]}
        turn = self.call("basis/session/prompt", prompt)["turnId"]
        outcome = self.call("basis/turn/wait", {"sessionId": session, "turnId": turn, "timeoutMs": 60000})
        if outcome["status"] != "ok":
            raise RuntimeError(f"the turn ended {outcome}")
        return outcome

    def close(self) -> None:
        self.socket.close()


class Daemon:
    """A daemon process on a data directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "s"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "BASIS_DATA_DIR": str(directory / "data"),
            "BASIS_SOCKET": str(self.socket),
            "BASIS_DETECT": "off",
        }
        command = [sys.executable, "-m", "basis_daemon", "--foreground", "--log-level", "error"]
        self.started_at = time.perf_counter()
        self.process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL)

    def connect(self) -> Client:
        """A client, as soon as there is something to connect to."""
        wait_for_socket(self.socket)
        return Client(self.socket)

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def cpu_s(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def wait_for_socket(path: Path) -> None:
    """Return when something accepts there; asks every half millisecond."""
    until = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < until:
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            probe.connect(str(path))
            return
        except OSError:
            time.sleep(0.0005)
        finally:
            probe.close()
    raise RuntimeError(f"nothing listens at {path}")


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """A short-lived directory with a short name."""
    directory = Path(tempfile.mkdtemp(prefix="bb"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def daemon() -> Iterator[tuple[Daemon, Path]]:
    """A running daemon and an empty workspace."""
    with place() as directory:
        workspace = directory / "repo"
        workspace.mkdir()
        running = Daemon(directory)
        try:
            yield running, workspace
        finally:
            running.end()


def python_floor_ms(repetitions: int) -> float:
    """Milliseconds of wall time of `python -c pass`, the least of them."""
    return min(wall_ms([sys.executable, "-c", "pass"]) for _ in range(repetitions))


def wall_ms(command: list[str], env: dict[str, str] | None = None) -> float:
    begin = time.perf_counter()
    result = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True)
    took = (time.perf_counter() - begin) * 1000
    if result.returncode:
        raise RuntimeError(f"{command} ended {result.returncode}: {result.stdout[-500:]!r} {result.stderr[-500:]!r}")
    return took
