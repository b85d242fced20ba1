"""The stage of the demonstration: a temporary repository, a private daemon, terminals to type in.

Owns everything that has to be gone afterwards and makes sure that it is. Knows nothing of the play: see `demo.py`.
"""

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent

LONGEST_STEP_S = 60.0
"""Bounds every wait. Each step takes a second or so; the pocket model takes a few on a busy machine."""

KEPT_VARIABLES = ("LANG", "LC_ALL", "TZ")
"""What is taken over from the shell this runs in, beside PATH. No key is among it."""

FILES = {
    "README.md": "# Weather station\n\nReads a sensor and serves the last value on a port.\n",
    "server.py": 'PORT = 8000\n\n\ndef address() -> str:\n    return f"http://localhost:{PORT}"\n',
    "check.py": 'import server\n\nassert server.address().endswith(":9000"), server.address()\nprint("check passed")\n',
}


class Stop(Exception):
    """The demonstration can't go on; the text says why."""


class Stage:
    """The temporary folder and what lives in it. `clear()` ends and removes all of it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="basis-demo-"))
        self._started = time.monotonic()
        self._terminals: list[Terminal] = []
        self.repository = self._folder / "weather-station"
        self.data = self._folder / "data"
        self.done: list[str] = []
        self.environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | {
            "BASIS_CONFIG_DIR": str(self._folder / "config"),
            "BASIS_DATA_DIR": str(self.data),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "HOME": str(self._folder),
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TERM": "dumb",
        }

    def make_repository(self) -> None:
        self.repository.mkdir()
        for name, text in FILES.items():
            (self.repository / name).write_text(text)
        person = ("-c", "user.name=Demo", "-c", "user.email=demo@example.invalid")
        for command in (
            ["init", "-q", "-b", "main"],
            ["add", "."],
            [*person, "commit", "-q", "-m", "A weather station"],
        ):
            subprocess.run(["git", *command], cwd=self.repository, env=self.environment, check=True)

    def lend_pocket_model(self, models: Path) -> None:
        """The model was downloaded when the environment was made; here it is linked to. It need not be there."""
        self.data.mkdir(mode=0o700, exist_ok=True)
        (self.data / "models").symlink_to(models)

    def read(self, name: str) -> str:
        return (self.repository / name).read_text()

    def note(self, fact: str) -> None:
        """Remember something that was shown and checked, for the summary."""
        self.done.append(fact)

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    # --- commands -----------------------------------------------------------------------------------------------------

    def basisctl(self, *arguments: str, show: bool = True) -> str:
        """Run one command as a person would; returns what it printed. Raises `Stop` when it fails."""
        if show:
            print_command(arguments)
        command = subprocess.run(
            [BIN / "basisctl", *arguments],
            cwd=self.repository,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if show else subprocess.PIPE,
            text=True,
            timeout=LONGEST_STEP_S,
            check=False,
        )
        if show:
            print(indented(command.stdout), flush=True)
        if command.returncode != 0:
            said = command.stdout + (command.stderr or "")
            raise Stop(f"`basisctl {' '.join(arguments)}` ended with {command.returncode}:\n{said}")
        return command.stdout

    def newest_session(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.basisctl("sessions", "--json", show=False).splitlines()[0])
        return found

    def daemon_pid(self) -> int:
        return int(json.loads(self.basisctl("status", "--json", show=False))["pid"])

    # --- the end ------------------------------------------------------------------------------------------------------

    def opened(self, terminal: "Terminal") -> None:
        self._terminals.append(terminal)

    def log_tail(self) -> str:
        log = self.data / "log" / "daemon.log"
        return "The end of the daemon's log:\n" + log.read_text(errors="replace")[-2000:] if log.is_file() else ""

    def clear(self) -> None:
        """End the terminals and the daemon and remove the folder, however far the play has come."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for terminal in self._terminals:
            terminal.close()
        with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
            subprocess.run(
                [BIN / "basisctl", "daemon", "stop", "--now"],
                env=self.environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LONGEST_STEP_S,
                check=False,
            )
        while left := processes_of(self.data):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                until_dead(pid)
        shutil.rmtree(self._folder, ignore_errors=True)


class Terminal:
    """`basisctl` in a terminal of its own, shown as it writes. A context manager: leaving it ends the command."""

    def __init__(self, stage: Stage, *arguments: str) -> None:
        print_command(arguments)
        self._screen, inside = pty.openpty()
        try:
            self._process = subprocess.Popen(
                [BIN / "basisctl", *arguments],
                cwd=stage.repository,
                env=stage.environment,
                stdin=inside,
                stdout=inside,
                stderr=inside,
                start_new_session=True,
            )
        finally:
            os.close(inside)
        self._unread = ""
        self._at_line_start = True
        self._ends_in_question = False
        stage.opened(self)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for(self, text: str) -> None:
        """Show what comes until `text` has been written; each piece of output satisfies one wait only."""
        deadline = time.monotonic() + LONGEST_STEP_S
        while text not in self._unread:
            if not self._show_more(deadline):
                raise Stop(f"the terminal ended before it showed {text!r}")
        self._unread = self._unread.partition(text)[2]

    def aside(self, text: str) -> None:
        """Tell the audience something in the middle of what the terminal shows."""
        print(("" if self._at_line_start else "\n") + f"\n   {text}\n", flush=True)
        self._at_line_start = True

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def finish(self) -> None:
        """Show the rest, and wait for the command's own end. Raises `Stop` unless it ended well."""
        deadline = time.monotonic() + LONGEST_STEP_S
        while self._show_more(deadline):
            pass
        status = self._process.wait(LONGEST_STEP_S)
        if not self._at_line_start:
            print(flush=True)
        if status != 0:
            raise Stop(f"the command in the terminal ended with {status}")

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            os.close(self._screen)

    def _show_more(self, deadline: float) -> bool:
        """Show one piece of output. Returns false at its end; raises `Stop` when none comes in time."""
        ready, _, _ = select.select([self._screen], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise Stop(f"nothing more was written within {LONGEST_STEP_S:.0f} s")
        try:
            data = os.read(self._screen, 65536)
        except OSError:  # how Linux tells that nobody has the terminal open any more
            return False
        text = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "")
        self._unread += text
        for line in text.splitlines(keepends=True):
            self._show(line)
        return bool(data)

    def _show(self, line: str) -> None:
        """Print a line or a piece of one. A question that is drawn again right below itself is left as it stands."""
        is_question = "[y] yes" in line
        if self._ends_in_question and (is_question or (line == "\n" and self._at_line_start)):
            return
        self._ends_in_question = is_question or (self._ends_in_question and line == "\n")
        print(("  | " if self._at_line_start else "") + line, end="", flush=True)
        self._at_line_start = line.endswith("\n")


def until_dead(pid: int) -> None:
    """Wait until a process that is not our child is gone. Raises `Stop` when it stays."""
    deadline = time.monotonic() + LONGEST_STEP_S
    while is_alive(pid):
        if time.monotonic() > deadline:
            raise Stop(f"process {pid} did not end")
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """A zombie that nobody has collected yet is dead for our purposes."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:  # no /proc here
        return True
    return state not in ("Z", "X")


def processes_of(data: Path) -> list[int]:
    """Every process that works on a data directory: the daemon, even one that is only just starting, its children."""
    if not Path("/proc/self/environ").exists():
        return [pid for pid in [pid_in_lock(data)] if pid is not None]
    wanted = f"BASIS_DATA_DIR={data}".encode()
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


def pid_in_lock(data: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        pid = int(json.loads((data / "daemon.lock").read_text())["pid"])
        return pid if is_alive(pid) else None
    return None


def print_command(arguments: tuple[str, ...]) -> None:
    words = [f'"{word}"' if re.search(r"[^\w./:=-]", word) else word for word in arguments]
    print(f"\n  $ basisctl {' '.join(words)}", flush=True)


def indented(text: str, mark: str = "  | ") -> str:
    return "\n".join(f"{mark}{line}".rstrip() for line in text.rstrip().splitlines())
