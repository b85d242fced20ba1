"""Remembered answers in a store: on disk and in memory alike, and what is particular about the file (SE-20 … SE-27)."""

import json
import multiprocessing
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from basis_daemon.errors import CorruptStore, StoreError
from basis_daemon.runtime.rule_lookup import find
from basis_daemon.runtime.rules import OperationDenied, RememberedRule, RuleOwner, RuleStore
from basis_daemon.runtime.session_rules import SessionAnswers, call_data
from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.runtime.store.files import FileStore
from basis_daemon.runtime.store.rules import FileRuleStore, VolatileRuleStore
from basis_daemon.runtime.store.volatile import VolatileStore
from support.store_disks import FaultyDisk

ANN = RuleOwner("agent-ann", "basis:/one")
BEN = RuleOwner("agent-ben", "basis:/one")
CAT = RuleOwner("agent-cat", "basis:/two")
DURABLE = ("session", "project", "global")


def rule(
    scope: Any = "project", *, allow: bool = True, pattern: str | None = None, tool: str = "write"
) -> RememberedRule:
    return RememberedRule(tool, allow, pattern, None if allow else "no", scope)


@pytest.fixture(params=["file", "memory"])
def rules(request: pytest.FixtureRequest, tmp_path: Path) -> RuleStore:
    return FileRuleStore(str(tmp_path / "store")) if request.param == "file" else VolatileRuleStore()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store" / "rules.json"


def on_disk(tmp_path: Path) -> FileRuleStore:
    return FileRuleStore(str(tmp_path / "store"))


# --- every store ---


def test_a_rule_reaches_as_far_as_its_scope(rules: RuleStore) -> None:
    """SE-20, D-89: session rules are an agent's, project rules a project's, global ones everybody's."""
    for scope in DURABLE:
        rules.upsert(ANN, rule(scope))

    assert [each.scope for each in rules.load(ANN)] == ["session", "project", "global"]
    assert [each.scope for each in rules.load(BEN)] == ["project", "global"]
    assert [each.scope for each in rules.load(CAT)] == ["global"]


def test_the_last_rule_at_an_address_is_the_only_one(rules: RuleStore) -> None:
    """SE-19, D-88: an upsert never makes a second row, whoever of the project writes it."""
    for owner in (ANN, BEN):
        rules.upsert(owner, rule("project"))
        rules.upsert(owner, rule("global"))
    rules.upsert(BEN, rule("project", allow=False))

    assert [(each.scope, each.allow) for each in rules.load(ANN)] == [("project", False), ("global", True)]


def test_saving_a_snapshot_replaces_the_sessions_own_rules_and_doubles_no_others(rules: RuleStore) -> None:
    """D-88: a subagent that saves what it inherited changes nothing for the project."""
    rules.upsert(ANN, rule("session", tool="old"))
    rules.upsert(BEN, rule("session", tool="bens"))
    rules.upsert(ANN, rule("project"))

    rules.save(ANN, (rule("session", tool="new"), rule("project"), rule("global"), rule("process", tool="live")))

    assert sorted((each.scope, each.tool_name) for each in rules.load(ANN)) == [
        ("global", "write"),
        ("project", "write"),
        ("session", "new"),
    ]
    assert ("session", "bens") in [(each.scope, each.tool_name) for each in rules.load(BEN)]


def test_revoking_takes_one_rule_and_says_whether_there_was_one(rules: RuleStore) -> None:
    """SE-25."""
    rules.upsert(ANN, rule("project", pattern="a*"))
    rules.upsert(ANN, rule("project"))

    assert rules.revoke(BEN, rule("project", pattern="a*").address)
    assert not rules.revoke(BEN, rule("project", pattern="a*").address)
    assert not rules.revoke(CAT, rule("project").address)
    assert rules.load(ANN) == (rule("project"),)


def test_clearing_takes_one_scope_of_one_owner(rules: RuleStore) -> None:
    """SE-25, AP-18."""
    for owner in (ANN, BEN, CAT):
        for scope in DURABLE:
            rules.upsert(owner, rule(scope))

    assert [rules.clear(ANN, "session"), rules.clear(ANN, "session"), rules.clear(ANN, "project")] == [1, 0, 1]
    assert [each.scope for each in rules.load(BEN)] == ["session", "global"]
    assert [each.scope for each in rules.load(CAT)] == ["session", "project", "global"]


def test_a_rule_for_a_project_needs_one_and_the_empty_name_is_one(rules: RuleStore) -> None:
    """SE-20."""
    nowhere, nameless = RuleOwner("agent-x"), RuleOwner("agent-x", "")
    with pytest.raises(OperationDenied, match="project"):
        rules.upsert(nowhere, rule("project"))
    rules.upsert(nameless, rule("project"))

    assert rules.load(nameless) == (rule("project"),)
    assert rules.load(nowhere) == () and rules.load(ANN) == ()


def test_answers_for_the_session_are_not_stored(rules: RuleStore) -> None:
    """SE-20, Appendix C 9."""
    with pytest.raises(OperationDenied, match="process"):
        rules.upsert(ANN, rule("process"))
    assert rules.load(ANN) == ()


def test_another_conversation_of_the_project_sees_a_change_at_once(rules: RuleStore) -> None:
    """SE-25, AP-20."""
    ann, ben = SessionAnswers(rules, ANN), SessionAnswers(rules, BEN)
    assert ben.find("write", {}).allow is None

    ann.remember_rule(rule("project"))
    assert ben.find("write", {}).allow is True
    ben.remember_rule(rule("project", allow=False))
    assert ann.find("write", {}).allow is False
    ben.revoke_rule(rule("project").address)
    assert ann.find("write", {}).allow is None


@pytest.mark.parametrize("make", [lambda path: FileStore(path), lambda path: VolatileStore()])
def test_removing_a_conversation_removes_its_own_rules(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    """ST-27."""
    store = make(tmp_path / "store")
    store.prepare()
    log = store.create(
        AgentRecord(id=ANN.agent_id, runtime_identifier="t", name="n", base_dir="/", provider="p", model="m")
    )
    log.close()
    for scope in DURABLE:
        store.rules.upsert(ANN, rule(scope))

    store.forget(ANN.agent_id)
    store.close()

    assert [each.scope for each in store.rules.load(ANN)] == ["project", "global"]


# --- the file ---


def test_nothing_is_written_before_the_first_rule_or_by_one_that_changes_nothing(tmp_path: Path, file: Path) -> None:
    rules = on_disk(tmp_path)
    assert rules.load(ANN) == () and rules.clear(ANN, "session") == 0 and not rules.revoke(ANN, rule().address)
    assert not file.parent.exists()

    rules.upsert(ANN, rule())
    before = file.stat()
    rules.upsert(ANN, rule())
    assert file.stat().st_ino == before.st_ino


def test_the_file_and_its_directory_are_the_persons_alone(tmp_path: Path, file: Path) -> None:
    """Appendix C 13, ST-31."""
    on_disk(tmp_path).upsert(ANN, rule())

    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()} == {
        "rules.json": 0o600,
        "rules.lock": 0o600,
    }
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_the_file_can_be_read_and_edited_by_a_person(tmp_path: Path, file: Path) -> None:
    rules = on_disk(tmp_path)
    rules.upsert(ANN, rule("project", allow=False, pattern='{"path":"é*'))

    written = json.loads(file.read_text())
    assert written == {
        "schema": 1,
        "rules": [
            {
                "rule": {
                    "key": {"tool_name": "write", "pattern": '{"path":"é*'},
                    "allow": False,
                    "scope": "project",
                    "reason": "no",
                },
                "project_id": "basis:/one",
            }
        ],
    }
    written["rules"][0]["rule"]["allow"] = True
    file.write_text(json.dumps(written))

    assert [each.allow for each in rules.load(BEN)] == [True]


DAMAGED = [
    b"",
    b"{",
    b"[]",
    b'{"schema": 1}',
    b'{"schema": 1, "rules": [{"rule": {"key": {"tool_name": "write"}, "allow": "yes", "scope": "global"}}]}',
    b'{"schema": 1, "rules": [{"rule": {"key": {"tool_name": "write"}, "allow": true, "scope": "everywhere"}}]}',
    b'{"schema": 1, "rules": [{"rule": {"key": {"tool_name": "write"}, "allow": true, "scope": "process"}}]}',
    b'{"schema": 1, "rules": [{"rule": {"key": {"tool_name": "write"}, "allow": true, "scope": "project"}}]}',
    b'{"schema": 2, "rules": []}',
    b"\xff\xfe",
    b'{"schema":1,"rules":' + b"[" * 100_000,
]


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_file_fails_everything_durable_and_is_never_reset(tmp_path: Path, file: Path, data: bytes) -> None:
    """SE-26: the error names the file; what is in it stays; answers for the session still work."""
    file.parent.mkdir()
    file.write_bytes(data)
    answers = SessionAnswers(on_disk(tmp_path), ANN)
    answers.remember(rule("process", tool="known"))

    for attempt in (
        lambda: answers.find("write", {}),
        lambda: answers.remember_rule(rule("global")),
        lambda: answers.revoke_rule(rule("global").address),
        lambda: answers.clear_scope("session"),
        answers.remembered_rules,
    ):
        with pytest.raises(CorruptStore, match=r"rules\.json"):
            attempt()
    assert file.read_bytes() == data
    assert answers.find("known", {}).allow is True


def test_a_corrected_file_is_used_at_once(tmp_path: Path, file: Path) -> None:
    """SE-26."""
    rules = on_disk(tmp_path)
    rules.upsert(ANN, rule())
    good = file.read_bytes()
    file.write_bytes(good[:-20])
    with pytest.raises(CorruptStore):
        rules.load(ANN)
    file.write_bytes(good)

    assert rules.load(ANN) == (rule(),)


def test_rows_of_older_versions_at_one_address_become_one(tmp_path: Path, file: Path) -> None:
    """SE-27: a denial wins, then a reason, then the first in the alphabet; order in the file means nothing."""

    def row(allow: bool, reason: str | None, session: str) -> dict[str, Any]:
        # Older versions noted the session of project rules, too.
        told = {"key": {"tool_name": "write"}, "allow": allow, "scope": "project", "reason": reason}
        return {"session_id": session, "project_id": "basis:/one", "rule": told}

    rows = [row(True, None, "s1"), row(False, None, "s2"), row(False, "b", "s3"), row(False, "a", "s4")]
    file.parent.mkdir()
    for order in (rows, rows[::-1], rows[2:] + rows[:2]):
        file.write_text(json.dumps({"schema": 1, "rules": order}))
        loaded = on_disk(tmp_path).load(ANN)
        assert [(each.allow, each.reason) for each in loaded] == [(False, "a")]


def test_a_rule_another_process_writes_meanwhile_is_not_lost(tmp_path: Path) -> None:
    """ST-14: four processes add fifty rules each; all of them are there."""
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        pool.starmap(_add_rules, [(str(tmp_path / "store"), name) for name in "abcd"])

    assert {each.tool_name for each in on_disk(tmp_path).load(ANN)} == {
        f"{name}{n}" for name in "abcd" for n in range(50)
    }


def _add_rules(root: str, name: str) -> None:
    rules = FileRuleStore(root)
    for n in range(50):
        rules.upsert(ANN, rule("project", tool=f"{name}{n}"))


def test_threads_share_one_store(tmp_path: Path) -> None:
    """SE-18."""
    rules = on_disk(tmp_path)
    threads = [
        threading.Thread(target=lambda n=n: [rules.upsert(ANN, rule("global", tool=f"{n}.{i}")) for i in range(10)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(on_disk(tmp_path).load(ANN)) == 40


@pytest.mark.parametrize("call", ["open", "write", "sync", "replace"])
def test_a_disk_that_refuses_leaves_what_was_there(tmp_path: Path, file: Path, call: str) -> None:
    """ST-28: the error names the file, the old rules stand, nothing is left lying about, and trying again works."""
    disk = FaultyDisk()
    rules = FileRuleStore(str(tmp_path / "store"), disk=disk)
    rules.upsert(ANN, rule("project"))
    before = file.read_bytes()

    def fault(name: str, path: str) -> None:
        if name == call and ("replace" in call or ".tmp-" in path):
            raise OSError(28, "No space left on device")

    disk.fault = fault
    with pytest.raises(StoreError, match=r"rules\.json"):
        rules.upsert(ANN, rule("global"))
    assert file.read_bytes() == before
    assert rules.load(ANN) == (rule("project"),)
    assert {path.name for path in file.parent.iterdir()} <= {"rules.json", "rules.lock"}

    disk.fault = lambda name, path: None
    rules.upsert(ANN, rule("global"))
    assert len(rules.load(ANN)) == 2


def test_a_store_that_is_read_only_can_be_read(tmp_path: Path) -> None:
    """D-90: clearing where there is nothing to clear writes nothing; answers for the session need no file at all."""
    on_disk(tmp_path).upsert(BEN, rule("session"))
    disk = FaultyDisk(lambda name, path: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    rules = FileRuleStore(str(tmp_path / "store"), disk=disk)
    answers = SessionAnswers(rules, ANN)

    assert answers.clear_scope("session") == 0
    answers.remember(rule("process"))
    assert answers.find("write", {}).allow is True
    with pytest.raises(StoreError):
        answers.remember_rule(rule("global"))


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path, file: Path) -> None:
    file.parent.mkdir()
    victim = tmp_path / "victim"
    os.symlink(victim, file.parent / "rules.lock")
    with pytest.raises(StoreError):
        on_disk(tmp_path).upsert(ANN, rule())
    assert not victim.exists()


def test_a_stored_rule_for_commands_reads_them_as_a_live_one_does(tmp_path: Path) -> None:
    rules = on_disk(tmp_path)
    rules.upsert(ANN, rule("project", pattern='*"body":"git log *"*', tool="spawn"))
    for line, allow in (("git log -3", True), ("git log; ls", None)):
        assert find(call_data("spawn", {"body": line}, "body"), rules.load(ANN)).allow is allow
