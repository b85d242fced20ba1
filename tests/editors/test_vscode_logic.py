"""What the VS Code extension does without an editor: its types, its own tests, and the rules it shares with Python."""

import json
import os
from pathlib import Path

import pytest

from basis_protocol import address
from support import vscode

pytestmark = pytest.mark.skipif(
    vscode.missing_tools(window=False) is not None, reason=vscode.missing_tools(window=False) or ""
)

TSC = "node_modules/typescript/bin/tsc"


@pytest.fixture(scope="module")
def compiled() -> Path:
    """The extension's modules and tests as plain JavaScript."""
    done = vscode.run_node(TSC, "-p", ".")
    assert done.returncode == 0, done.stdout
    return vscode.EXTENSION / "out"


def test_the_webview_has_no_type_errors() -> None:
    done = vscode.run_node(TSC, "-p", "src/webview")
    assert done.returncode == 0, done.stdout


def test_the_extensions_own_tests_pass(compiled: Path) -> None:
    tests = sorted(str(path) for path in (compiled / "test").glob("*.test.js"))
    done = vscode.run_node("--test", "--test-force-exit", *tests)
    assert tests
    assert done.returncode == 0, done.stdout[-8000:]


def test_both_sides_look_for_the_daemon_in_the_same_place(compiled: Path, tmp_path: Path) -> None:
    """Named, beside a data directory, in the runtime directory, in a home; too long to bind in each of them."""
    runtime = tmp_path / "run"
    runtime.mkdir()
    home = {"HOME": str(tmp_path)}
    environments: list[dict[str, str]] = [
        home,
        {**home, "XDG_RUNTIME_DIR": str(runtime)},
        {**home, "XDG_RUNTIME_DIR": str(tmp_path / "absent")},
        {**home, "XDG_DATA_HOME": "/data/home"},
        {**home, "BASIS_DATA_DIR": "/data"},
        {**home, "BASIS_SOCKET": " /a//b/../c.sock "},
        {**home, "BASIS_DATA_DIR": f"/{'ä' * 60}"},
        {**home, "BASIS_SOCKET": f"/{'long/' * 40}d.sock", "XDG_RUNTIME_DIR": str(runtime)},
    ]
    script = (
        "const {findSocket} = require('./out/src/core/address.js');"
        "console.log(JSON.stringify(JSON.parse(process.argv[1]).map((each) => findSocket(each))))"
    )
    done = vscode.run_node("-e", script, json.dumps(environments))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [address.find_socket(each) for each in environments]


def test_the_package_holds_the_extension_and_nothing_else() -> None:
    """No source, no map, no package of somebody else; small enough to be loaded at once."""
    import zipfile

    with zipfile.ZipFile(vscode.package()) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
        manifest = json.loads(archive.read("extension/package.json"))
    assert {"extension/package.json", "extension/dist/extension.js", "extension.vsixmanifest"} <= names
    assert not [name for name in names if "node_modules" in name or name.endswith((".ts", ".map"))]
    assert "dependencies" not in manifest
    assert os.path.getsize(vscode.VSIX) < 200_000


def test_the_lockfile_names_no_registry() -> None:
    """Whoever installs uses the registry they have."""
    lock = json.loads((vscode.EXTENSION / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
