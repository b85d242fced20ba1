"""What a fresh process loads: the wire contract stands alone, and starting never pays for what it does not use."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.daemon import DaemonProcess
from support.model_server import ModelServer, says

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL_MODULES = sorted(path.stem for path in (ROOT / "shared" / "basis_protocol").glob("[a-z]*.py"))

HEAVY = (
    "anthropic",
    "google",
    "httpx2",
    "jsonschema",
    "keyring",
    "lsprotocol",
    "mcp",
    "openai",
    "pygls",
    "rich",
    "xllamacpp",
)
"""Imported where first used, never at start (architecture.md 3)."""
VENDOR_SDKS = ("anthropic", "google", "openai")
"""Never imported at all."""


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a new interpreter has after `statement` and did not have before it."""
    program = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print('\\n'.join({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    return set(output.stdout.split())


def third_party(names: Iterable[str]) -> set[str]:
    return {
        name
        for name in names
        if name.lstrip("_") not in sys.stdlib_module_names and name not in sys.stdlib_module_names
    }


def test_the_protocol_stands_alone() -> None:
    """A client of any kind can use it: msgspec and the standard library, nothing of the daemon."""
    statement = "import " + ", ".join(f"basis_protocol.{name}" for name in PROTOCOL_MODULES)

    # msgspec picks up typing_extensions where it is installed; it does not need it.
    assert third_party(loaded_by(statement)) - {"typing_extensions"} == {"basis_protocol", "msgspec"}


@pytest.mark.parametrize("module", ["address", "framing"])
def test_what_a_first_byte_needs_is_standard_library_only(module: str) -> None:
    assert third_party(loaded_by(f"import basis_protocol.{module}")) == {"basis_protocol"}


@pytest.mark.parametrize("module", ["basis_client.connect", "basis_client.blocking", "basisctl.__main__"])
def test_the_command_line_reaches_the_daemon_without_slow_imports(module: str) -> None:
    """The way to the first byte is the standard library, and not the slow parts of that."""
    loaded = loaded_by(f"import {module}")

    assert (
        loaded & {"msgspec", "asyncio", "anyio", "rich", "basis_daemon", "pathlib", "subprocess", "tempfile"} == set()
    )


def test_importing_the_embedding_package_loads_nothing_heavy() -> None:
    assert loaded_by("import basis_daemon") & {*HEAVY, "anyio", "asyncio", "msgspec"} == set()


def test_the_core_can_be_used_without_any_transport() -> None:
    """`from basis_daemon import Runtime, Workspace` works with no server and no editor protocol."""
    loaded = loaded_by("from basis_daemon import Runtime, Workspace, RunSpec")

    assert loaded & set(HEAVY) == set()


class TracedDaemon:
    """A daemon that writes down what it imports."""

    def __init__(self, data: Path, directory: Path, **env: str) -> None:
        self._trace = directory / "imports.txt"
        self._daemon = DaemonProcess(data)
        self._env = os.environ | {"BASIS_DATA_DIR": str(data), **env}

    def __enter__(self) -> DaemonProcess:
        with self._trace.open("wb") as file:
            self._daemon.process = subprocess.Popen(
                [sys.executable, "-X", "importtime", "-m", "basis_daemon", "--foreground"],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
            )
        self._daemon.wait_until_it_answers()
        return self._daemon

    def __exit__(self, *_: object) -> None:
        self._daemon.close()

    @property
    def imported(self) -> set[str]:
        """Top-level modules, for good."""
        return {line.rpartition("|")[2].strip().partition(".")[0] for line in self._trace.read_text().splitlines()}


def test_a_daemon_that_answers_has_loaded_nothing_heavy(clean_environment: Path, tmp_path: Path) -> None:
    """Providers, schemas, keyrings and the like wait until somebody needs them: a cold start is short."""
    traced = TracedDaemon(clean_environment / "data", tmp_path)
    with traced as daemon:
        daemon.connect().call("basis/daemon/status")

    assert "msgspec" in traced.imported
    assert traced.imported & set(HEAVY) == set()


def test_no_vendors_sdk_is_loaded_even_where_one_is_installed(
    clean_environment: Path, tmp_path: Path, model: ModelServer
) -> None:
    """Answers are read by our own wires: starting, opening a workspace and a whole turn import no SDK."""
    for name in VENDOR_SDKS:
        (tmp_path / "installed" / name).mkdir(parents=True)
        (tmp_path / "installed" / name / "__init__.py").touch()
    (tmp_path / "repo").mkdir()
    workspace = {"path": str(tmp_path / "repo")}
    environment = {"PATH": os.environ["PATH"], "BASIS_BASE_URL": model.base_url, "BASIS_API_KEY": "key-of-the-tests"}
    model.script(says("hello"))
    traced = TracedDaemon(clean_environment / "data", tmp_path, PYTHONPATH=str(tmp_path / "installed"))
    with traced as daemon:
        client = daemon.connect()
        client.call("basis/workspace/open", {**workspace, "env": environment})
        session_id = client.call("basis/session/new", {"workspace": workspace["path"]})["sessionId"]
        client.call("basis/session/attach", {"sessionId": session_id})
        text = {"type": "text", "text": "hi"}
        client.call("basis/session/prompt", {"sessionId": session_id, "input": [text]})
        assert client.event_of_type("run_finished")["event"]["status"] == "ok"

    assert "httpx2" in traced.imported
    assert traced.imported & set(VENDOR_SDKS) == set()
