"""Conversations by workspace, read and removed without a runtime."""

import os
from pathlib import Path

import pytest

from basis_daemon.errors import LeaseUnavailable, LegacyStore
from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.workspace.store import (
    PersistedSession,
    default_directory,
    forget_in,
    list_in,
    runtime_identifier,
)


def keep(directory: Path, agent_id: str, identifier: str, **fields: object) -> None:
    """Put one conversation into the store of `directory`."""
    store = FileStore(directory)
    record = AgentRecord(
        id=agent_id,
        runtime_identifier=identifier,
        name=agent_id.upper(),
        base_dir="/w",
        provider="openai",
        model="m",
        **fields,  # type: ignore[arg-type]
    )
    store.create(record).close()
    store.close()


def test_the_identifier_is_the_canonical_path_verbatim(tmp_path: Path) -> None:
    """ST-5: no escaping, and one tag for every spelling."""
    root = tmp_path / "Sp ace: ünï %41"
    root.mkdir()
    (tmp_path / "link").symlink_to(root)

    assert runtime_identifier(root) == f"basis:{os.path.realpath(root)}" == runtime_identifier(tmp_path / "link")


def test_a_deleted_repository_keeps_its_tag(tmp_path: Path) -> None:
    """ST-10: its rows remain listable."""
    gone = tmp_path / "gone"

    assert runtime_identifier(gone) == f"basis:{gone}"
    keep(tmp_path / "store", "agent-1", runtime_identifier(gone))
    assert [session.agent_id for session in list_in(tmp_path / "store", gone)] == ["agent-1"]


def test_the_default_place_is_the_data_directorys_store() -> None:
    """ST-16 as architecture.md 5 decides it: never the process's working directory."""
    assert default_directory({"BASIS_DATA_DIR": "/data"}) == Path("/data/store")


def test_a_list_shows_one_workspaces_conversations_most_recently_used_first(tmp_path: Path) -> None:
    """ST-7, ST-9, ST-24, ST-25, ST-26."""
    here = runtime_identifier(tmp_path)
    store = tmp_path / "store"
    keep(store, "old", here, created_at=10, updated_at=20, messages=4)
    keep(store, "new", here, created_at=11, updated_at=30)
    keep(store, "elsewhere", "basis:/elsewhere", updated_at=40)
    keep(store, "foreign", "default", updated_at=50)
    keep(store, "child", here, kind="subagent", updated_at=60)
    keep(store, "mate", here, kind="teammate", updated_at=70)

    assert list_in(store, tmp_path) == [
        PersistedSession("new", "NEW", 0, 11, 30),
        PersistedSession("old", "OLD", 4, 10, 20),
    ]


def test_looking_at_a_place_never_written_to_creates_nothing(tmp_path: Path) -> None:
    """ST-26, ST-27."""
    assert list_in(tmp_path / "store", tmp_path) == []
    forget_in(tmp_path / "store", "agent-1")

    assert not (tmp_path / "store" / "agents").exists()


def test_one_broken_record_does_not_hide_the_others(tmp_path: Path) -> None:
    """ST-29."""
    keep(tmp_path / "store", "good", runtime_identifier(tmp_path))
    keep(tmp_path / "store", "bad", runtime_identifier(tmp_path))
    for file in (tmp_path / "store/agents/bad").iterdir():
        file.write_text("{")

    assert [session.agent_id for session in list_in(tmp_path / "store", tmp_path)] == ["good"]


def test_forgetting_removes_for_good_and_may_be_repeated(tmp_path: Path) -> None:
    """ST-27."""
    store = tmp_path / "store"
    keep(store, "agent-1", runtime_identifier(tmp_path))

    forget_in(store, "agent-1")
    forget_in(store, "agent-1")

    assert list_in(store, tmp_path) == [] and not (store / "agents/agent-1").exists()


def test_an_id_cannot_name_anything_outside_the_store(tmp_path: Path) -> None:
    """Section 8, security: ids that come from clients."""
    victim = tmp_path / "victim"
    victim.mkdir()

    forget_in(tmp_path / "store", "../../victim")

    assert victim.is_dir()


def test_a_live_conversation_is_not_forgotten(tmp_path: Path) -> None:
    """ST-30, DM-13."""
    store = FileStore(tmp_path / "store")
    record = AgentRecord(
        id="agent-1", runtime_identifier="basis:/w", name="n", base_dir="/w", provider="openai", model="m"
    )
    log = store.create(record)

    with pytest.raises(LeaseUnavailable) as caught:
        forget_in(tmp_path / "store", "agent-1")
    assert caught.value.is_open_elsewhere
    log.close()
    store.close()


def test_a_database_of_an_old_version_is_refused_and_nothing_is_put_beside_it(tmp_path: Path) -> None:
    """ST-21, ST-22, ST-23."""
    (tmp_path / "runtime.sqlite").write_bytes(b"SQLite format 3\0")

    with pytest.raises(LegacyStore, match=r"runtime\.sqlite"):
        list_in(tmp_path, "/w")
    with pytest.raises(LegacyStore):
        forget_in(tmp_path, "agent-1")
    assert [path.name for path in tmp_path.iterdir()] == ["runtime.sqlite"]
