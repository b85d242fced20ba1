"""A real daemon process on a data directory of its own: started, connected to, killed and started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.raw_client import RawClient

START_S = 20.0


class DaemonProcess:
    """One data directory and, most of the time, a daemon process on it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.socket = data / "run" / "daemon.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it can be connected to."""
        self.data.mkdir(mode=0o700, exist_ok=True)
        with (self.data / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "basis_daemon", "--foreground"],
                env=os.environ | {"BASIS_DATA_DIR": str(self.data)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.said()
            try:
                RawClient(self.socket).die()
            except OSError:
                # There is nothing to wait on before it listens; the poll below is that wait.
                self._wait_a_moment()
            else:
                return
        pytest.fail(f"no daemon within {START_S} s: {self.said()}")

    def connect(self, name: str = "stranger") -> RawClient:
        client = RawClient(self.socket, name=name)
        client.initialize()
        return client

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self) -> str:
        """What it wrote, for the message of a failed test."""
        files = [self.data / "output.txt", self.data / "log" / "daemon.log"]
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in files if file.is_file())

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(START_S)

    def _wait_a_moment(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(0.01)
        except subprocess.TimeoutExpired:
            return
