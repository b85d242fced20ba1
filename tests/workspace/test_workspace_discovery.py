"""One spelling for a directory, and the layers conventions are looked for in."""

import os
from pathlib import Path

import pytest

from basis_daemon.errors import ContextError, WorkspaceMissing, WorkspaceNotADirectory, WorkspaceUnresolvable
from basis_daemon.workspace.discovery import Inherit, Source, canonical_root, chosen_global_dir, distinct, layers


def test_a_link_and_its_target_are_one_root(tmp_path: Path) -> None:
    """WS-20, WS-26: every spelling of a directory comes to the same path."""
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)

    assert canonical_root(link) == canonical_root(real) == canonical_root(f"{tmp_path}/real/../link/.")


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)

    assert canonical_root("here") == Path(os.path.realpath(tmp_path)) / "here"


def test_each_way_of_not_being_a_directory_has_its_own_error(tmp_path: Path) -> None:
    """OP-4."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    cases: list[tuple[str, type[ContextError]]] = [
        ("nothing", WorkspaceMissing),
        ("file", WorkspaceNotADirectory),
        ("file/below", WorkspaceNotADirectory),
        ("loop", WorkspaceUnresolvable),
        ("nul\0byte", WorkspaceUnresolvable),
    ]
    for name, expected in cases:
        with pytest.raises(expected) as caught:
            canonical_root(tmp_path / name)
        assert name.split("\0")[0] in str(caught.value)
        assert str(caught.value).isprintable() or "\0" in name


def test_a_directory_whose_name_is_no_utf8_is_refused_with_a_reason(tmp_path: Path) -> None:
    """OP-4: no client could be told its name."""
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(name)

    with pytest.raises(WorkspaceUnresolvable, match="UTF-8") as caught:
        canonical_root(name)
    str(caught.value).encode("utf-8")


def test_layers_go_from_the_global_directory_over_the_outermost_ancestor_to_the_root(tmp_path: Path) -> None:
    """CX-2: weakest first; the number is the distance from the root."""
    root, outer = tmp_path / "a" / "b", tmp_path / "global"

    assert layers(root, outer, walk_parents=True, ceiling=tmp_path) == [
        Source(outer, "global"),
        Source(tmp_path, "ancestor:2"),
        Source(tmp_path / "a", "ancestor:1"),
        Source(root, "workspace"),
    ]


def test_without_a_ceiling_the_walk_starts_at_the_file_system_root(tmp_path: Path) -> None:
    """CX-2."""
    found = layers(tmp_path, None, walk_parents=True)

    assert found[0] == Source(Path("/"), f"ancestor:{len(tmp_path.parents)}")


def test_conventions_that_name_programs_do_not_walk_to_parents(tmp_path: Path) -> None:
    """2.11 a: by default only the root and the global directory are looked at."""
    assert [source.scope for source in layers(tmp_path, None)] == ["workspace"]


def test_one_file_reached_twice_is_mentioned_once_under_its_first_label(tmp_path: Path) -> None:
    """DI-3."""
    real = tmp_path / "real"
    real.write_text("x")
    (tmp_path / "link").symlink_to(real)

    assert distinct([Source(tmp_path / "link", "global"), Source(real, "workspace")]) == [
        Source(tmp_path / "link", "global")
    ]


def test_a_convention_may_switch_its_global_half_off_or_name_another(tmp_path: Path) -> None:
    """DI-5."""
    assert chosen_global_dir(Inherit.GLOBAL_DIR, tmp_path) == tmp_path
    assert chosen_global_dir(None, tmp_path) is None
    assert chosen_global_dir(tmp_path / "own", tmp_path) == tmp_path / "own"
