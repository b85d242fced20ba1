"""What a fresh process loads: the wire contract stands alone, and starting never pays for what it does not use."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.daemon import DaemonProcess

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


def test_a_daemon_that_answers_has_loaded_nothing_heavy(clean_environment: Path, tmp_path: Path) -> None:
    """Providers, schemas, keyrings and the like wait until somebody needs them: a cold start is short."""
    trace = tmp_path / "imports.txt"
    daemon = DaemonProcess(clean_environment / "data")
    with trace.open("wb") as file:
        daemon.process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "basis_daemon", "--foreground"],
            env=os.environ | {"BASIS_DATA_DIR": str(daemon.data)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
        )
    try:
        daemon.wait_until_it_answers()
        daemon.connect().call("basis/daemon/status")
    finally:
        daemon.close()

    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in trace.read_text().splitlines()}
    assert "msgspec" in imported
    assert imported & set(HEAVY) == set()
