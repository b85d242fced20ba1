"""What every test stands on: a clean environment, a closed network, a loop that must not be blocked.

Owns nothing that a single area needs; such fixtures live beside their tests or in `tests/support/`.
"""

import ipaddress
import os
import sys
import traceback
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import blockbuster.blockbuster as blockbuster_module
import pytest

from support.daemon import DaemonProcess
from support.loop_exemptions import MAY_BLOCK
from support.model_server import ModelServer

SCANNED_PACKAGES = ("basis_daemon", "basis_protocol", "basis_client")
"""Packages whose code runs on an event loop."""

SECRET_ENDINGS = ("_API_KEY", "_TOKEN", "_SECRET", "_BASE_URL", "_PROXY")
STEERING_PREFIXES = ("BASIS_", "XDG_", "OLLAMA_", "LM_STUDIO_", "LLAMA_", "OPENAI_", "ANTHROPIC_", "GIT_")


class NetworkIsClosed(AssertionError):
    """A test reached for something outside this machine. Not an `OSError`, so that no code mistakes it for one."""


def _is_local(host: object) -> bool:
    if host is None or isinstance(host, int):
        return True
    name = host.decode() if isinstance(host, bytes) else str(host)
    if name in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _close_network(event: str, args: tuple[object, ...]) -> None:
    """Audit hook: only unix sockets and loopback addresses may be spoken to. Hooks stay for the process's life."""
    match event, args:
        case (("socket.connect" | "socket.sendto"), (_, (host, *_))):
            pass
        case (("socket.getaddrinfo" | "socket.gethostbyname"), (host, *_)):
            pass
        case _:
            return
    if not _is_local(host):
        raise NetworkIsClosed(f"{event} to {host!r}: tests stay on this machine")


sys.addaudithook(_close_network)


@pytest.fixture
def anyio_backend() -> str:
    """asyncio is the loop; anyio's plugin runs the async tests on it."""
    return "asyncio"


@pytest.fixture(autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the person running the tests shows through: no key, no setting, another home.

    Returns the temporary home. `BASIS_DATA_DIR` is `<home>/data`; its path is short enough for a socket.
    """
    for name in list(os.environ):
        if name.upper().endswith(SECRET_ENDINGS) or name.startswith(STEERING_PREFIXES):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    places = {"HOME": home, "USERPROFILE": home, "BASIS_DATA_DIR": home / "data"}
    for name in ("CONFIG_HOME", "DATA_HOME", "STATE_HOME", "CACHE_HOME", "RUNTIME_DIR"):
        places[f"XDG_{name}"] = home / name.lower()
    places["XDG_RUNTIME_DIR"].mkdir(mode=0o700)
    for name, path in places.items():
        monkeypatch.setenv(name, str(path))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A Tester")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tester@example.invalid")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    # The person's own keyring is not for tests: keys then go into a file of the temporary data directory.
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return home


@pytest.fixture(scope="session")
def loop_guard() -> blockbuster_module.BlockBuster:
    guard = blockbuster_module.BlockBuster([name for name in SCANNED_PACKAGES if find_spec(name)])
    for file, functions, _ in MAY_BLOCK:
        for function in guard.functions.values():
            function.can_block_in(file, functions)
    return guard


def _where_ours() -> str:
    """The innermost line of our own code on the stack."""
    places = [
        entry for entry in traceback.extract_stack() if any(f"/{name}/" in entry.filename for name in SCANNED_PACKAGES)
    ]
    return f"in {places[-1].name} ({places[-1].filename}:{places[-1].lineno})" if places else ""


@pytest.fixture(autouse=True)
def unblocked_loop(
    request: pytest.FixtureRequest, loop_guard: blockbuster_module.BlockBuster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fails a test in which our own code blocks the event loop it runs on, even when the error was swallowed."""
    if request.node.get_closest_marker("anyio") is None:
        yield
        return
    seen: list[str] = []

    class BlockedLoop(blockbuster_module.BlockingError):
        def __init__(self, func: str) -> None:
            super().__init__(func)
            seen.append(f"{func} {_where_ours()}")

    monkeypatch.setattr(blockbuster_module, "BlockingError", BlockedLoop)
    loop_guard.activate()
    try:
        yield
    finally:
        loop_guard.deactivate()
    if seen:
        pytest.fail("the event loop was blocked (tests/support/loop_exemptions.py):\n" + "\n".join(sorted(set(seen))))


@pytest.fixture
def stopped_daemon(clean_environment: Path, request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    """A daemon's places, with nothing running on them yet. Its log is shown when the test fails."""
    daemon = DaemonProcess(clean_environment / "data")
    yield daemon
    daemon.close()
    request.node.add_report_section("call", "daemon.log", daemon.log[-20_000:])


@pytest.fixture
def daemon(stopped_daemon: DaemonProcess) -> DaemonProcess:
    return stopped_daemon.start()


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """A scripted model that daemons reach over HTTP."""
    with ModelServer() as server:
        yield server
