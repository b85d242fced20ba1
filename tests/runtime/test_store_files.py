"""The store's files: where they are, what they hold, and what is refused (runtime.md 7.3, workspace.md 8)."""

import asyncio
import json
import os
import resource
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from basis_daemon.errors import BasisError, CorruptStore, LegacyStore, NoSuchSession, StoreError
from basis_daemon.runtime.store.base import EntryAdded, LeafMoved, Store
from basis_daemon.runtime.store.files import FileStore
from support.store_disks import FaultyDisk
from support.stored import prompted, said, stored


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store"


@pytest.fixture
def store(root: Path) -> Iterator[FileStore]:
    store = FileStore(root)
    yield store
    store.close()


@pytest.fixture
def log_path(store: FileStore, root: Path) -> Path:
    """The log of a conversation with two entries, closed and synced."""
    log = store.create(stored())
    log.append(EntryAdded(said(0)))
    log.append(EntryAdded(said(1)))
    asyncio.run(log.sync())
    log.close()
    return root / "agents/agent-1/transcript.jsonl"


# --- layout ----------------------------------------------------------------------------------------------------------


def test_nothing_is_created_ahead_of_the_first_conversation(store: Store, root: Path) -> None:
    """Making a store, listing, asking and forgetting leave the disk as it was (ST-12, ST-26)."""
    assert list(store.list()) == []
    assert store.record("agent-1") is None
    store.forget("agent-1")
    with pytest.raises(NoSuchSession):
        store.open("agent-1")
    assert not root.parent.exists()

    store.prepare()
    assert os.listdir(root) == []


def test_files_are_where_the_page_says_and_private(store: Store, root: Path) -> None:
    """Directories are 0700 and files 0600 whatever the umask (ST-31)."""
    before = os.umask(0)
    try:
        log = store.create(stored())
        log.append(EntryAdded(said(0)))
        asyncio.run(log.sync())
    finally:
        os.umask(before)

    found = {str(path.relative_to(root.parent)): path.stat().st_mode & 0o777 for path in root.rglob("*")}
    assert found == {
        "store/agents": 0o700,
        "store/agents/agent-1": 0o700,
        "store/agents/agent-1/agent.json": 0o600,
        "store/agents/agent-1/transcript.jsonl": 0o600,
        "store/leases": 0o700,
        "store/leases/agent-1.lock": 0o600,
    }
    assert root.stat().st_mode & 0o777 == 0o700
    assert log.directory == root / "agents/agent-1" == store.directory("agent-1")
    log.close()


def test_the_files_are_plain_json_with_a_schema(log_path: Path) -> None:
    """A person can read them; one line is one append (ST-6)."""
    record = json.loads((log_path.parent / "agent.json").read_bytes())
    header, *lines = [json.loads(line) for line in log_path.read_text().splitlines()]

    assert (record["schema"], record["record"]["runtime_identifier"]) == (1, "basis:/repo")
    assert header == {"record": "log", "schema": 1}
    assert [line["entry"]["id"] for line in lines] == ["entry-0", "entry-1"]


def test_what_is_appended_together_is_one_line(store: Store, root: Path) -> None:
    """So that a crash inside the write can't keep a part of it."""
    log = store.create(stored())
    log.append(prompted("t"), EntryAdded(said(0)))
    log.close()

    _, line = (root / "agents/agent-1/transcript.jsonl").read_text().splitlines()
    assert [part["record"] for part in json.loads(line)] == ["prompt", "entry"]


def test_a_long_life_costs_no_more_per_append(store: Store, root: Path) -> None:
    """Appending never rewrites: the log grows by the line, and nothing else on disk grows with it."""
    log = store.create(stored())
    sizes: list[int] = []
    for number in range(300):
        log.append(EntryAdded(said(number, "text")))
        sizes.append((root / "agents/agent-1/transcript.jsonl").stat().st_size)
    asyncio.run(log.sync())
    log.close()

    growth = [after - before for before, after in pairwise(sizes[10:])]
    assert max(growth) - min(growth) <= 4  # the digits of its id and its parent's
    assert sorted(os.listdir(root / "agents/agent-1")) == ["agent.json", "transcript.jsonl"]
    assert (root / "agents/agent-1/agent.json").stat().st_size < 1000


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["runtime.sqlite", "runtime-0123abcd.sqlite"])
def test_a_directory_of_version_0_6_is_refused_and_left_alone(store: Store, root: Path, name: str) -> None:
    """The error names the file and the ways forward; nothing is put beside it (ST-18, ST-21…ST-23)."""
    root.mkdir(parents=True)
    (root / name).write_bytes(b"SQLite format 3")

    for refused in (
        store.prepare,
        store.list,
        lambda: store.create(stored()),
        lambda: store.open("agent-1"),
        lambda: store.peek("agent-1"),
        lambda: store.record("agent-1"),
        lambda: store.forget("agent-1"),
    ):
        with pytest.raises(LegacyStore, match=name) as error:
            refused()
        assert error.value.hint is not None and "move the directory aside" in error.value.hint
    assert os.listdir(root) == [name]


def test_a_place_that_is_no_directory_is_refused(store: Store, root: Path) -> None:
    """The error names the operation and the path (ST-28)."""
    root.parent.mkdir()
    root.write_text("a file")

    for refused in (store.prepare, store.list, lambda: store.create(stored())):
        with pytest.raises(StoreError, match=str(root)):
            refused()


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_newer_log_is_refused_by_number(store: Store, log_path: Path) -> None:
    """Its further lines may be anything: only the number is read (ST-6)."""
    log_path.write_text('{"record":"log","schema":7,"more":1}\n{"record":"unheard of"}\n')

    with pytest.raises(CorruptStore, match=r"transcript\.jsonl has schema 7; this version reads up to 1"):
        store.peek("agent-1")
    assert [record.id for record in store.list()] == ["agent-1"]


@pytest.mark.parametrize("name", ["agent.json", "agent.json.new"])
def test_a_newer_record_is_refused_by_number(store: Store, log_path: Path, name: str) -> None:
    """Not taken for a torn one, and not for an absent one (ST-6)."""
    (log_path.parent / name).write_text('{"schema":3,"record":{"shape":"other"}}')

    for refused in (store.record, store.peek, store.open):
        with pytest.raises(CorruptStore, match="schema 3; this version reads up to 1"):
            refused("agent-1")
    with pytest.raises(CorruptStore):
        store.create(stored())


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", "malformed|truncated"), ('{"schema":1}', "record"), ('{"schema":"one"}', "schema"), ("null", "object")],
)
def test_an_unreadable_record_is_named(store: Store, log_path: Path, text: str, problem: str) -> None:
    """Loading raises; its file isn't changed, nor is it made anew (ST-29)."""
    path = log_path.parent / "agent.json"
    path.write_text(text)

    for refused in (store.record, store.peek, store.open, lambda agent_id: store.create(stored(agent_id))):
        with pytest.raises(CorruptStore, match=f"agent.json: .*({problem})"):
            refused("agent-1")
    assert path.read_text() == text


def test_a_record_of_another_conversation_is_refused(store: Store, root: Path, log_path: Path) -> None:
    """A directory that was copied by hand is not taken for a second conversation of the same id."""
    os.rename(log_path.parent, root / "agents/agent-2")

    with pytest.raises(CorruptStore, match="holds session agent-1"):
        store.open("agent-2")
    assert list(store.list()) == []
    assert store.record("agent-1") is None


def test_one_unreadable_record_hides_no_other(
    store: Store, root: Path, log_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left out with a warning; strays in the directory are not even that (ST-29)."""
    broken = store.create(stored("agent-2"))
    broken.close()
    store.close()
    (root / "agents/agent-2/agent.json.new").unlink(missing_ok=True)
    (root / "agents/agent-2/agent.json").write_text("{")
    (root / "agents/half-removed").mkdir()
    (root / "agents/stray").write_text("x")

    assert [record.id for record in store.list()] == ["agent-1"]
    assert [record.getMessage() for record in caplog.records if "agent-2/agent.json" in record.getMessage()]
    assert len(caplog.records) == 1


# --- the log ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tail", [b'{"record":"entry","ent', b'{"record":"leaf","entry_id":null}', b"\0" * 500, b"\xff"]
)
def test_half_a_line_at_the_end_is_not_read_and_cut_off_by_the_next_append(
    store: Store, log_path: Path, tail: bytes
) -> None:
    """Only a line whose end is there was ever promised. Opening alone writes nothing (ST-9)."""
    whole = log_path.read_bytes()
    log_path.write_bytes(whole + tail)

    conversation, log = store.open("agent-1")
    assert len(conversation.transcript) == 2
    assert log_path.read_bytes() == whole + tail

    log.append(EntryAdded(said(2)))
    log.close()
    assert log_path.read_bytes().startswith(whole)
    assert len(store.peek("agent-1").transcript) == 3


@pytest.mark.parametrize("tail", [b"", b'{"record":"lo'])
def test_a_log_that_died_in_its_first_line_begins_again(store: Store, log_path: Path, tail: bytes) -> None:
    """An empty or torn beginning is an empty conversation."""
    log_path.write_bytes(tail)

    conversation, log = store.open("agent-1")
    assert len(conversation.transcript) == 0
    log.append(EntryAdded(said(0)))
    log.close()
    assert len(store.peek("agent-1").transcript) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{oops\n", "malformed"),
        (b'{"record":"unheard of"}\n', "unheard of"),
        (b'{"record":"leaf"}\n', "entry_id"),
        (b'{"record":"entry","entry":{"id":"e","kind":"user_turn","message":7}}\n', "message"),
        (b'{"record":"result","turn_id":"t","tool_use_id":"c","content":' + b"[" * 5000 + b"\n", "recursion"),
        (b"\0" * 100 + b"\n", "malformed|character"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(store: Store, log_path: Path, line: bytes, problem: str) -> None:
    """Anything but half a line at the end is corruption; nothing is changed, the list still shows it (ST-9)."""
    first, second, third = log_path.read_bytes().splitlines(keepends=True)
    broken = first + second + line + third
    log_path.write_bytes(broken)

    with pytest.raises(CorruptStore, match=rf"transcript\.jsonl, line 3: .*({problem})") as refused:
        store.open("agent-1")

    assert refused.value.details == {"path": str(log_path), "line": 3}
    assert log_path.read_bytes() == broken
    assert [record.id for record in store.list()] == ["agent-1"]


def test_a_bad_line_far_into_a_long_log_is_found(store: Store, log_path: Path) -> None:
    """Long logs are decoded in pieces; the line number counts on through them."""
    log = store.open("agent-1")[1]
    for number in range(2, 5000):
        log.append(EntryAdded(said(number)))
    log.close()
    with log_path.open("ab") as file:
        file.write(b"oops\n")

    with pytest.raises(CorruptStore, match="line 5002"):
        store.peek("agent-1")


def test_a_line_longer_than_what_is_read_at_once_is_read(store: Store, log_path: Path) -> None:
    """There is no limit to one line but that of the file."""
    log = store.open("agent-1")[1]
    log.append(EntryAdded(said(2, "long " * 300_000)))
    log.append(EntryAdded(said(3)))
    log.close()

    assert [len(entry.message.text()) for entry in store.peek("agent-1").transcript] == [9, 9, 1_500_000, 9]


@pytest.mark.parametrize(
    "record",
    [LeafMoved("entry-9"), EntryAdded(said(5)), EntryAdded(msgspec.structs.replace(said(5), parent_id="entry-5"))],
    ids=["unknown leaf", "missing parent", "its own parent"],
)
def test_an_active_path_that_leads_nowhere_is_corruption(
    store: Store, log_path: Path, record: LeafMoved | EntryAdded
) -> None:
    """An entry that is missing, or its own ancestor, is named (AG-40)."""
    log = store.open("agent-1")[1]
    log.append(record)
    log.close()

    with pytest.raises(CorruptStore, match=r"transcript\.jsonl: .*entry"):
        store.open("agent-1")
    assert store.record("agent-1") is not None


def test_a_broken_path_that_was_left_again_is_no_hindrance(store: Store, log_path: Path) -> None:
    """Only the active path has to hold together."""
    log = store.open("agent-1")[1]
    log.append(EntryAdded(said(5)))
    log.append(LeafMoved("entry-1"))
    log.close()

    assert store.peek("agent-1").transcript.leaf_id == "entry-1"


def test_a_conversation_that_is_full_stays_readable(root: Path) -> None:
    """An append that would make the log unloadable is refused, and nothing larger is loaded (ST-31)."""
    store = FileStore(root, max_file_bytes=2000)
    log = store.create(stored())
    for number in range(10):
        log.append(EntryAdded(said(number)))
    with pytest.raises(StoreError, match="is full") as refused:
        log.append(EntryAdded(said(10, "long" * 500)))
    assert refused.value.hint == "start a new session"
    log.close()
    assert len(store.peek("agent-1").transcript) == 10

    with pytest.raises(StoreError, match="larger than the 1000 bytes"):
        FileStore(root, max_file_bytes=1000).peek("agent-1")
    store.close()


# --- creating and removing -------------------------------------------------------------------------------------------


def test_what_a_crash_left_of_a_creation_is_no_conversation(store: Store, root: Path) -> None:
    """A directory without a record is ignored, and what lies in it does not show up in a new one (ST-7)."""
    directory = root / "agents/agent-1"
    directory.mkdir(parents=True)
    (directory / "transcript.jsonl").write_text('{"record":"log","schema":1}\n{"record":"leaf","entry_id":"e"}\n')
    (directory / ".agent.json.tmp").write_text("{")
    (directory / "agent.json.new").write_bytes(bytes(300))
    (directory / "events.jsonl").write_text("somebody else's")

    assert store.record("agent-1") is None
    assert list(store.list()) == []
    log = store.create(stored())
    log.append(EntryAdded(said(0)))
    log.close()
    assert len(store.peek("agent-1").transcript) == 1
    assert (directory / "events.jsonl").exists()


def test_a_torn_newer_record_gives_way_to_the_one_before(store: Store, log_path: Path) -> None:
    """After a power cut the unsynced file may be empty or zeros: the synced one counts (ST-8)."""
    for torn in (b"", bytes(200), b'{"schema":1,"rec'):
        (log_path.parent / "agent.json.new").write_bytes(torn)
        assert store.record("agent-1") == stored()
    log = store.open("agent-1")[1]
    log.append(EntryAdded(said(2)))
    asyncio.run(log.sync())
    log.save(stored(name="later"))
    asyncio.run(log.sync())
    log.close()
    assert json.loads((log_path.parent / "agent.json").read_bytes())["record"]["name"] == "later"


def test_a_newer_record_of_a_killed_process_is_kept_by_the_next(store: FileStore, root: Path) -> None:
    """It was saved, if not synced: the next owner reads it and syncs it with its first own."""
    log = store.create(stored())
    log.close()
    store.close()
    directory = root / "agents/agent-1"
    assert os.listdir(directory) == ["agent.json.new"]

    conversation, log = store.open("agent-1")
    assert conversation.record == stored()
    log.append(EntryAdded(said(0)))
    asyncio.run(log.sync())
    log.close()
    assert sorted(os.listdir(directory)) == ["agent.json", "transcript.jsonl"]


def test_forgetting_removes_whatever_lies_with_the_conversation(store: Store, root: Path, log_path: Path) -> None:
    """Journals, results and leftovers go with it; only the lock file stays, for it is never removed (ST-19)."""
    (log_path.parent / "events.jsonl").write_text("x")
    (log_path.parent / "results").mkdir()
    (log_path.parent / "results/r.txt").write_text("x")

    store.forget("agent-1")

    assert os.listdir(root / "agents") == []
    assert os.listdir(root / "leases") == ["agent-1.lock"]


def test_forgetting_does_not_follow_links(store: Store, root: Path, log_path: Path, tmp_path: Path) -> None:
    """A directory that is a link goes as a link; so do links inside one (ST-30)."""
    outside = tmp_path / "outside"
    os.rename(log_path.parent, outside)
    os.symlink(outside, root / "agents/agent-1")
    assert store.record("agent-1") is not None
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    other = store.create(stored("agent-2"))
    other.close()
    os.symlink(precious, root / "agents/agent-2/results")

    store.forget("agent-1")
    store.forget("agent-2")

    assert os.listdir(root / "agents") == []
    assert (outside / "transcript.jsonl").exists()
    assert (precious / "file").exists()


@pytest.mark.parametrize("at", ["unlink", "remove_tree", "sync"])
def test_a_removal_cut_short_is_finished_by_the_next(root: Path, at: str) -> None:
    """The record goes first: half a removal is no half conversation (ST-7)."""
    disk = FaultyDisk()
    store = FileStore(root, disk=disk)
    log = store.create(stored())
    log.append(EntryAdded(said(0)))
    asyncio.run(log.sync())
    log.close()

    def fail(name: str, path: str) -> None:
        if name == at:
            raise OSError(5, "broken")

    disk.fault = fail
    with pytest.raises(StoreError, match="could not remove"):
        store.forget("agent-1")
    later = FileStore(root)
    assert (later.record("agent-1") is not None) == (at == "unlink")

    later.forget("agent-1")
    assert os.listdir(root / "agents") == []
    store.close()


def test_a_log_that_is_a_link_is_not_written_through(store: Store, log_path: Path, tmp_path: Path) -> None:
    """Whoever can put a link there gets no file of the person's appended to."""
    victim = tmp_path / "victim"
    os.rename(log_path, victim)
    os.symlink(victim, log_path)
    before = victim.read_bytes()

    log = store.open("agent-1")[1]
    with pytest.raises(StoreError, match="append"):
        log.append(EntryAdded(said(2)))
    log.close()
    assert victim.read_bytes() == before


# --- many of them ----------------------------------------------------------------------------------------------------


def test_an_open_conversation_at_rest_holds_one_descriptor(store: FileStore) -> None:
    """A thousand idle sessions must not need more files than a process may open."""

    def held() -> int:
        return len(os.listdir("/dev/fd"))

    logs = [store.create(stored(f"agent-{number}")) for number in range(20)]
    for log in logs:
        log.append(EntryAdded(said(0)))
    store.close()
    before = held()
    for log in logs:
        log.close()
    assert before - held() == len(logs)


def test_running_out_of_descriptors_is_said(store: FileStore) -> None:
    """The error names the limit to raise; what is open goes on."""
    log = store.create(stored())
    log.append(EntryAdded(said(0)))
    asyncio.run(log.sync())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(StoreError) as refused:
            store.create(stored("agent-2"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert isinstance(refused.value, BasisError)
    log.append(EntryAdded(said(1)))
    assert len(store.peek("agent-1").transcript) == 2
    log.close()
