"""Real daemon processes for tests: private data directory and socket, killed and restarted at will.

Owns starting, waiting and ending. What a test says to the daemon goes through a client.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support.raw_client import RawClient

START_TIMEOUT_S = 20.0

OpenSession = Callable[..., str]
"""What the fixture `open_session` of the server's tests is: opens the repository with a client, makes a session,
attaches to it and returns its id."""


class DaemonProcess:
    """One data directory and the daemon on it. `env` is the daemon's whole environment but for the places."""

    def __init__(self, data: Path, *, env: dict[str, str] | None = None, socket: Path | None = None) -> None:
        self.data = data
        self.socket = str(socket or data / "run" / "daemon.sock")
        self.process: subprocess.Popen[bytes] | None = None
        self._env = env or {}
        self._clients: list[RawClient] = []

    @property
    def log(self) -> str:
        """Everything the daemon has logged; what a failing test wants to show."""
        path = self.data / "log" / "daemon.log"
        return path.read_text() if path.exists() else ""

    @property
    def pid(self) -> int:
        assert self.process is not None, "the daemon was not started"
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def set_environment(self, **variables: str) -> None:
        """What the next start finds in its environment besides."""
        self._env.update(variables)

    def spawn(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start one more daemon process on these places; it may find that there is one."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "basis_daemon", "--log-level", "debug", *arguments],
            env={
                "PATH": os.environ["PATH"],
                "HOME": os.environ["HOME"],
                "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
                **self._env,
                "BASIS_DATA_DIR": str(self.data),
                "BASIS_SOCKET": self.socket,
            },
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def start(self) -> "DaemonProcess":
        """Start the daemon and return once it answers."""
        self._close_pipes()
        self.process = self.spawn()
        self.wait_until_it_answers()
        return self

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with RawClient(self.socket, timeout_s=START_TIMEOUT_S) as client:
                    client.initialize(name="starter")
                return
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline or (self.process is not None and self.process.poll() is not None):
                    raise AssertionError(f"the daemon did not start:\n{self._errors()}\n{self.log}") from None
                # The only thing to watch before the socket exists is its absence.
                time.sleep(0.005)

    def connect(self, **hello: object) -> RawClient:
        """A new client that has said hello; closed when the test ends."""
        client = self.dial()
        client.initialize(**hello)  # type: ignore[arg-type]
        return client

    def dial(self) -> RawClient:
        """A new connection on which nothing was said yet."""
        client = RawClient(self.socket)
        self._clients.append(client)
        return client

    def kill(self) -> None:
        """SIGKILL: nothing of the daemon gets to run any more."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._close_pipes()

    def terminate(self, timeout_s: float = 20.0) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout_s)
        self._close_pipes()
        return code

    def restart(self) -> "DaemonProcess":
        """Kill it and start another one on the same data."""
        self.kill()
        return self.start()

    def close(self) -> None:
        """End everything of this test."""
        for client in self._clients:
            client.socket.close()
        if self.process is not None and self.process.poll() is None:
            self.kill()
        self._close_pipes()

    def _errors(self) -> str:
        if self.process is None or self.process.stderr is None or self.process.poll() is None:
            return ""
        return self.process.stderr.read().decode(errors="replace")

    def _close_pipes(self) -> None:
        if self.process is not None and self.process.stderr is not None:
            self.process.stderr.close()
