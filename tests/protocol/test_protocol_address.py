"""`basis_protocol.address`: every side works out the same places from the same environment."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_protocol.address import MAX_SOCKET_PATH_BYTES, NoDataDirectory, data_dir, log_path, socket_path

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the rules of the XDG base directories")


def test_a_named_data_directory_wins() -> None:
    """(CL-11)"""
    environ = {"BASIS_DATA_DIR": "/srv/basis", "XDG_DATA_HOME": "/xdg", "HOME": "/home/ada"}

    assert data_dir(environ) == Path("/srv/basis")
    assert log_path(environ) == Path("/srv/basis/log/daemon.log")


def test_a_relative_data_directory_is_refused_by_name() -> None:
    with pytest.raises(NoDataDirectory, match=r"BASIS_DATA_DIR.*'here'"):
        data_dir({"BASIS_DATA_DIR": "here"})


@linux_only
def test_without_a_name_the_platform_decides() -> None:
    assert data_dir({"HOME": "/home/ada"}) == Path("/home/ada/.local/share/basis")
    assert data_dir({"HOME": "/home/ada", "XDG_DATA_HOME": "/xdg"}) == Path("/xdg/basis")


@linux_only
def test_a_relative_xdg_directory_is_ignored() -> None:
    assert data_dir({"HOME": "/home/ada", "XDG_DATA_HOME": "xdg"}) == Path("/home/ada/.local/share/basis")


def test_with_no_home_at_all_the_error_says_what_to_set() -> None:
    with pytest.raises(NoDataDirectory, match="BASIS_DATA_DIR"):
        data_dir({})


def test_a_named_socket_wins_over_everything() -> None:
    environ = {"BASIS_SOCKET": "/run/my.sock", "BASIS_DATA_DIR": "/srv/basis"}

    assert socket_path(environ) == Path("/run/my.sock")


def test_a_named_data_directory_keeps_its_socket_inside() -> None:
    """Two data directories are two daemons, whatever the runtime directory is."""
    assert socket_path({"BASIS_DATA_DIR": "/srv/basis", "XDG_RUNTIME_DIR": "/run"}) == Path(
        "/srv/basis/run/daemon.sock"
    )


@linux_only
def test_the_runtime_directory_is_used_when_it_is_there(tmp_path: Path) -> None:
    environ = {"HOME": "/home/ada", "XDG_RUNTIME_DIR": str(tmp_path)}

    assert socket_path(environ) == tmp_path / "basis" / "daemon.sock"


@linux_only
def test_a_runtime_directory_that_is_not_there_is_not_used(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "gone")}
    if os.path.isdir(f"/run/user/{os.getuid()}"):
        pytest.skip("this login has a runtime directory of its own")

    assert socket_path(environ) == tmp_path / ".local/share/basis/run/daemon.sock"


@given(st.integers(min_value=1, max_value=400), st.sampled_from(["BASIS_SOCKET", "BASIS_DATA_DIR", "XDG_DATA_HOME"]))
def test_the_socket_can_always_be_bound_however_long_the_directory(length: int, name: str) -> None:
    environ = {"HOME": "/home/ada", name: "/" + "d" * length}

    assert len(os.fsencode(socket_path(environ))) <= MAX_SOCKET_PATH_BYTES


@linux_only
def test_the_socket_can_be_bound_below_a_long_runtime_directory(tmp_path: Path) -> None:
    runtime = tmp_path / ("r" * 120)
    runtime.mkdir()

    path = socket_path({"HOME": "/home/ada", "XDG_RUNTIME_DIR": str(runtime)})

    assert len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES


def test_a_path_that_was_shortened_still_differs_by_directory() -> None:
    """Shortened by a digest, never truncated: two long directories are two sockets, one is always the same."""
    one, other = ({"BASIS_DATA_DIR": "/" + "d" * 150 + end} for end in ("a", "b"))

    assert socket_path(one) != socket_path(other)
    assert socket_path(one) == socket_path(one)
