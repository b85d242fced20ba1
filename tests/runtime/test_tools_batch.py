"""`files`: operations in order, each seeing those before it, all of them on disk or none."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basis_daemon.errors import PolicyDenied
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools import file_writes, text_files
from basis_daemon.runtime.tools.base import ToolError, lane_of
from basis_daemon.runtime.tools.batch import FilesTool
from basis_daemon.runtime.tools.batch_ops import MAX_OPERATIONS
from basis_daemon.runtime.tools.edit import EditTool
from basis_daemon.runtime.tools.file_writes import FileChange, StaleFile
from basis_daemon.runtime.tools.files import ReadTool
from basis_protocol.content import CallPreview, DiffPreview
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio

files, read, edit = FilesTool(), ReadTool(), EditTool()


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    root = tmp_path.resolve() / "repo"
    root.mkdir()
    return Caller(root)


def op(op: str, path: str = "", **fields: Json) -> Json:
    return {"op": op, **({"path": path} if path else {}), **fields}


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def test_operations_see_those_before_them_and_are_told_one_by_one(caller: Caller) -> None:
    """BT-4, BT-5: every operation once, over an overlay; the sections stand with a blank line between them."""
    (caller.root / "a.txt").write_text("one\ntwo\n")
    (caller.root / "old.bin").write_bytes(b"\0binary")

    output = await caller.call(
        files,
        operations=[
            op("create", "new/b.txt", content="alpha\nbeta\n"),
            op("replace", "new/b.txt", old="beta", new="gamma"),
            op("insert", "new/b.txt", anchor="alpha\n", position="after", content="middle\n"),
            op("read", "new/b.txt"),
            op("set", "a.txt", content="three\n"),
            op("move", **{"from": "a.txt", "to": "c.txt"}),
            op("delete", "old.bin"),
            op("list", ".", depth=2),
            op("search", ".", pattern="^(gam|thr)"),
            op("read", "c.txt", offset=1, limit=1),
        ],
    )

    assert output.content == (
        "created new/b.txt (11 bytes)\n\n"
        "replaced 1 passage in new/b.txt\n\n"
        "inserted after the anchor in new/b.txt (7 bytes)\n\n"
        "read new/b.txt\nL1: alpha\nL2: middle\nL3: gamma\n\n"
        "set a.txt (6 bytes)\n\n"
        "moved a.txt to c.txt\n\n"
        "deleted old.bin\n\n"
        "list .\n[file] c.txt\n[dir] new\n[file] new/b.txt\n\n"
        "search .\nc.txt:1: three\nnew/b.txt:3: gamma\n\n"
        "read c.txt\nL1: three"
    )
    assert tree(caller.root) == {"new/b.txt": b"alpha\nmiddle\ngamma\n", "c.txt": b"three\n"}


async def test_empty_answers_say_that_they_are(caller: Caller) -> None:
    (caller.root / "empty").touch()
    (caller.root / "dir").mkdir()
    output = await caller.call(
        files, operations=[op("read", "empty"), op("list", "dir"), op("search", ".", pattern="nothing")]
    )
    assert output.content == "read empty\n(no lines)\n\nlist dir\n(no entries)\n\nsearch .\n(no matches)"


async def test_person_is_shown_every_diff_and_rules_see_no_contents(caller: Caller) -> None:
    """TL-27, D-80, TL-42: paths, sizes and counters only."""
    (caller.root / "a.txt").write_text("secret old\n")
    (caller.root / "gone.txt").write_text("secret gone\n")
    prepared = await caller.prepare(
        files,
        operations=[
            op("create", "b.txt", content="secret new\n"),
            op("replace", "a.txt", old="old", new="young"),
            op("move", **{"from": "b.txt", "to": "d.txt"}),
            op("delete", "gone.txt"),
            op("read", "a.txt"),
        ],
    )

    assert prepared.structured_input == {
        "kind": "files",
        "working_directory": str(caller.root),
        "operations": [
            {"op": "create", "resolved_path": f"{caller.root}/b.txt", "bytes": 11},
            {"op": "replace", "resolved_path": f"{caller.root}/a.txt", "replacements": 1},
            {"op": "move", "resolved_from": f"{caller.root}/b.txt", "resolved_to": f"{caller.root}/d.txt"},
            {"op": "delete", "resolved_path": f"{caller.root}/gone.txt"},
            {"op": "read", "resolved_path": f"{caller.root}/a.txt", "offset": 1, "limit": 2000},
        ],
    }
    assert isinstance(prepared.preview, DiffPreview)
    patches = {Path(diff.path).name: diff.patch for diff in prepared.preview.files}
    assert patches == {
        "a.txt": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-secret old\n+secret young\n",
        "d.txt": "--- /dev/null\n+++ b/d.txt\n@@ -0,0 +1 @@\n+secret new\n",
        "gone.txt": "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-secret gone\n",
    }
    assert [diff.created for diff in prepared.preview.files] == [False, True, False]
    title = "files: create 1, replace 1, move 1, delete 1, read 1 (+2 −2 in a.txt, d.txt, gone.txt)"
    assert prepared.title == title
    assert tree(caller.root) == {"a.txt": b"secret old\n", "gone.txt": b"secret gone\n"}


async def test_moved_file_is_shown_as_moved_and_stays_the_same_file(caller: Caller) -> None:
    """Identity, mode and bytes that are no text go along."""
    (caller.root / "tool").write_bytes(b"#!/bin/sh\n\xff\0")
    (caller.root / "tool").chmod(0o751)
    before = (caller.root / "tool").stat()
    (caller.root / "sub").mkdir()

    output = await caller.call(files, operations=[op("move", **{"from": "tool", "to": "sub/deep/tool"})])

    after = (caller.root / "sub" / "deep" / "tool").stat()
    assert (after.st_ino, after.st_mode, after.st_nlink) == (before.st_ino, before.st_mode, 1)
    assert output.diff[0].patch == "rename from tool\nrename to sub/deep/tool\n"
    assert tree(caller.root) == {"sub/deep/tool": b"#!/bin/sh\n\xff\0"}


async def test_file_moved_and_then_edited_keeps_its_mode(caller: Caller) -> None:
    (caller.root / "run.sh").write_text("echo a\n")
    (caller.root / "run.sh").chmod(0o755)
    await caller.call(
        files,
        operations=[op("move", **{"from": "run.sh", "to": "go.sh"}), op("replace", "go.sh", old="a", new="b")],
    )
    assert (caller.root / "go.sh").stat().st_mode & 0o777 == 0o755
    assert tree(caller.root) == {"go.sh": b"echo b\n"}


async def test_files_can_change_places(caller: Caller) -> None:
    (caller.root / "a").write_bytes(b"A\0")
    (caller.root / "b").write_bytes(b"B\0")
    steps = [("a", "t"), ("b", "a"), ("t", "b")]
    await caller.call(files, operations=[op("move", **{"from": source, "to": target}) for source, target in steps])
    assert tree(caller.root) == {"a": b"B\0", "b": b"A\0"}


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (op("create", "kept", content="x"), "is there already; use set"),
        (op("set", "nope", content="x"), "there is no file .*nope; use create"),
        (op("replace", "kept", old="nope", new="x"), "old was not found"),
        (op("replace", "kept", old="e", new="x"), "old was found 2 times in .*kept, not 1 times"),
        (op("replace", "kept", old="k", new="x", expectedReplacements=2), "old was found once in .*kept, not 2"),
        (op("replace", "kept", old="keep", new="keep"), "are the same"),
        (
            op("insert", "kept", anchor="e", position="before", content="x"),
            "anchor was found 2 times .*say which `occurrence`",
        ),
        (op("insert", "kept", anchor="e", position="after", content="x", occurrence=3), "there is no occurrence 3"),
        (op("move", **{"from": "nope", "to": "x"}), "there is no file .*nope"),
        (op("move", **{"from": "kept", "to": "made"}), "is there already; delete it first"),
        (op("delete", "nope"), "there is no file .*nope"),
        (op("delete", "dir"), "is a directory"),
        (op("read", "nope"), "there is no file .*nope"),
        (op("read", "kept", offset=9), "offset 9 is past its end"),
        (op("list", "nope"), "there is no directory"),
        (op("search", ".", pattern="("), "is no regular expression"),
        (op("set", "../out", content="x"), "outside the write roots"),
        (op("read", "/etc/passwd"), "outside the read roots"),
    ],
)
async def test_one_operation_that_fails_leaves_everything_as_it_was(caller: Caller, last: Json, reason: str) -> None:
    """BT-4: and says which one it was and that nothing happened."""
    (caller.root / "dir").mkdir()
    (caller.root / "kept").write_text("keep\n")
    before = tree(caller.root)
    with pytest.raises((ToolError, PolicyDenied), match=rf"(?s)operation 2 .*{reason}.*[Nn]othing was changed"):
        await caller.execute(files, operations=[op("create", "made", content="new\n"), last])
    assert tree(caller.root) == before
    assert not list(caller.root.rglob(".basis-*"))


@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        ([], "at least one operation"),
        ("not json", "expected a list"),
        ([{"op": "erase", "path": "a"}], r"operations\[0\].op: expected one of read, list, search, create"),
        ([op("read", "a"), {"op": "read"}], r"operations\[1\].path: expected a string"),
        ([op("read", "a", offset=0)], r"offset: expected a whole number of at least 1"),
        ([op("create", "a")], r"operations\[0\].content: expected a string"),
        ([op("replace", "a", old="", new="x")], r"operations\[0\].old: must not be empty"),
        ([op("insert", "a", anchor="x", content="y")], r"position: expected before or after"),
        ([op("move", "a")], r"from: expected a string"),
        ([op("read", "a")] * (MAX_OPERATIONS + 1), "more than 200 at once"),
        (["read"], "expected an object"),
    ],
)
async def test_call_that_can_not_be_read_says_where(caller: Caller, operations: Json, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        await files.prepare(caller.context(files), {"operations": operations})
    with pytest.raises(ToolError, match=reason):
        await caller.execute(files, operations=operations)


async def test_other_spellings_are_understood(caller: Caller) -> None:
    """4.10: one operation by itself, JSON text, names from other tools."""
    await caller.call(files, operations='[{"op": "create", "file_path": "a", "contents": "x x\\n"}]')
    single = op("replace", "a", old_string="x", new_string="y", replace_all=True)
    await caller.call(files, operations=single)
    assert tree(caller.root) == {"a": b"y y\n"}


async def test_every_occurrence_is_replaced_where_that_is_asked_for(caller: Caller) -> None:
    """4.10: any number with replaceAll alone, and exactly so many with both."""
    (caller.root / "a").write_text("x x x\n")
    await caller.call(files, operations=[op("replace", "a", old="x", new="y", replaceAll=True)])
    await caller.call(files, operations=[op("replace", "a", old="y", new="z", expectedReplacements="3")])
    assert tree(caller.root) == {"a": b"z z z\n"}
    with pytest.raises(ToolError, match="found 3 times"):
        await caller.call(
            files, operations=[op("replace", "a", old="z", new="y", replaceAll=True, expectedReplacements=2)]
        )


async def test_insertion_takes_the_line_ends_of_the_file(caller: Caller) -> None:
    (caller.root / "a").write_bytes(b"one\r\ntwo\r\none\r\n")
    await caller.call(
        files,
        operations=[
            op("insert", "a", anchor="one\n", position="after", content="new\n", occurrence=2),
            op("insert", "a", anchor="two", position="before", content="before\n"),
        ],
    )
    assert (caller.root / "a").read_bytes() == b"one\r\nbefore\r\ntwo\r\none\r\nnew\r\n"


async def test_working_directory_moves_paths_and_grants_nothing(caller: Caller) -> None:
    """PO-10: it must be a working root, and what may be written stays what it was."""
    elsewhere = caller.root.parent / "elsewhere"
    for directory in (caller.root / "sub", elsewhere):
        directory.mkdir()
    caller.policy = RuntimePolicy.workspace_bounded(caller.root).with_allowed_working_root(elsewhere)

    await caller.call(files, workingDirectory="sub", operations=[op("create", "a", content="x")])
    assert tree(caller.root) == {"sub/a": b"x"}
    with pytest.raises(PolicyDenied, match="outside the write roots"):
        await caller.call(files, workingDirectory=str(elsewhere), operations=[op("create", "a", content="x")])
    with pytest.raises(PolicyDenied, match="outside the working roots"):
        await caller.call(files, workingDirectory="/", operations=[op("list", ".")])


async def test_batch_that_only_looks_runs_beside_others_without_effect(caller: Caller) -> None:
    """BT-4."""
    (caller.root / "a").write_text("x\n")
    looking: dict[str, Json] = {"operations": [op("read", "a"), op("list", "."), op("search", ".", pattern="x")]}
    changing: dict[str, Json] = {"operations": [op("read", "a"), op("delete", "a")]}

    prepared = await caller.prepare(files, **looking)

    assert (prepared.side_effect, prepared.execution) == ("none", "read_only_parallel")
    assert isinstance(prepared.preview, CallPreview)
    assert lane_of(files, files.spec, looking) == "read_only_parallel"
    for other in (changing, {}, {"operations": [1]}, {"operations": "x"}):
        assert lane_of(files, files.spec, other) == "exclusive_local_mutation"


# --- somebody else at the same time ----------------------------------------------------------------------------------


async def test_file_changed_since_it_was_read_is_not_changed_by_a_batch(caller: Caller) -> None:
    """The same memory of versions as the split tools': read here, edit there (BT-10)."""
    for name in ("a", "b"):
        (caller.root / name).write_text("x\n")
    await caller.call(files, operations=[op("read", "a"), op("read", "b")])
    (caller.root / "a").write_text("x y\n")
    for change in (op("replace", "a", old="x", new="z"), op("delete", "a"), op("set", "a", content="")):
        with pytest.raises(StaleFile, match="has changed on disk"):
            await caller.call(files, operations=[op("set", "b", content="z"), change])
        with pytest.raises(StaleFile, match="has changed on disk"):
            await caller.execute(files, operations=[op("read", "a"), change])
    with pytest.raises(StaleFile, match="has changed on disk"):
        await caller.call(edit, path="a", edits=[{"old_string": "x", "new_string": "z"}])
    assert tree(caller.root) == {"a": b"x y\n", "b": b"x\n"}

    await caller.call(read, path="a")
    await caller.call(files, operations=[op("replace", "a", old="x", new="z")])
    assert tree(caller.root)["a"] == b"z y\n"


async def test_unsaved_changes_in_an_editor_are_read_and_not_written_over(caller: Caller) -> None:
    (caller.root / "a").write_text("x\n")
    caller.unsaved[caller.root / "a"] = "unsaved\n"
    assert "L1: unsaved" in await caller.text(files, operations=[op("read", "a")])
    for change in (op("set", "a", content="y"), op("delete", "a"), op("move", **{"from": "a", "to": "b"})):
        with pytest.raises(ToolError, match="unsaved changes in an editor"):
            await caller.call(files, operations=[change])
    assert tree(caller.root) == {"a": b"x\n"}


async def test_denied_root_wins_in_any_order_of_operations(caller: Caller) -> None:
    """PO-3, invariant 4: both ends of a move, and what comes of moves."""
    (caller.root / ".git" / "hooks").mkdir(parents=True)
    (caller.root / "a").write_text("x")
    for operations in (
        [op("move", **{"from": "a", "to": ".git/hooks/post-commit"})],
        [op("create", "b", content="x"), op("move", **{"from": "b", "to": ".git/../.git/hooks/x"})],
        [op("create", ".git/hooks/pre-commit", content="x"), op("delete", ".git/hooks/pre-commit")],
    ):
        with pytest.raises(PolicyDenied, match="denied write root"):
            await caller.execute(files, operations=operations)
    assert tree(caller.root) == {"a": b"x"}


async def test_link_turned_after_the_answer_is_not_followed(caller: Caller) -> None:
    (caller.root / "a").write_text("x\n")
    (caller.root / "b").write_text("x\n")
    (caller.root / "link").symlink_to("a")
    operations: list[Json] = [op("replace", "link", old="x", new="y")]
    prepared = await caller.prepare(files, operations=operations)
    (caller.root / "link").unlink()
    (caller.root / "link").symlink_to("b")

    with pytest.raises(StaleFile, match="was agreed to as"):
        await files.execute(replace(caller.context(files), prepared=prepared), {"operations": operations})
    assert (caller.root / "a").read_text() == (caller.root / "b").read_text() == "x\n"


# --- all or nothing --------------------------------------------------------------------------------------------------


def test_exchange_that_fails_half_way_is_taken_back(tmp_path: Path) -> None:
    """BT-4: the fourth can't be made, since its name is taken by then; what was put, removed and moved comes back."""
    for name in ("put", "removed", "moved"):
        (tmp_path / name).write_text(name)
    before = tree(tmp_path)
    inodes = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    held = {name: text_files.read(tmp_path / name) for name in before}
    with pytest.raises(ToolError, match="created by somebody else just now"):
        file_writes.commit(
            [
                FileChange(tmp_path / "put", held["put"], b"new"),
                FileChange(tmp_path / "removed", held["removed"], None),
                FileChange(tmp_path / "there", None, b"moved", moved_from=tmp_path / "moved"),
                FileChange(tmp_path / "moved", held["moved"], None),
                FileChange(tmp_path / "deep" / "new", None, b"first"),
                FileChange(tmp_path / "deep" / "new", None, b"second"),
            ]
        )
    assert tree(tmp_path) == before
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == inodes


def test_nothing_is_begun_while_one_file_is_not_what_was_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    held = {name: text_files.read(tmp_path / name) for name in ("a", "b")}
    (tmp_path / "b").write_text("person")
    with pytest.raises(StaleFile):
        file_writes.commit([FileChange(tmp_path / name, held[name], b"agent") for name in ("a", "b")])
    assert tree(tmp_path) == {"a": b"a", "b": b"person"}


def test_file_moves_to_another_file_system_with_its_mode(tmp_path: Path) -> None:
    """Where no second name can be given it is copied, and taken back like everything else."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    with tempfile.TemporaryDirectory(dir=memory) as elsewhere:
        (tmp_path / "a").write_bytes(b"\0A")
        (tmp_path / "a").chmod(0o750)
        target = Path(elsewhere) / "b"

        def moves() -> list[FileChange]:
            held = text_files.read(tmp_path / "a")
            assert held is not None
            there = FileChange(target, None, held.data, moved_from=tmp_path / "a", permissions=held.status)
            return [there, FileChange(tmp_path / "a", held, None)]

        with pytest.raises(ToolError):
            file_writes.commit([*moves(), FileChange(target, None, b"twice")])
        assert (tree(tmp_path), tree(Path(elsewhere))) == ({"a": b"\0A"}, {})

        file_writes.commit(moves())

        assert (tree(tmp_path), tree(Path(elsewhere))) == ({}, {"b": b"\0A"})
        assert target.stat().st_mode & 0o777 == 0o750


def test_directories_made_for_nothing_are_removed(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="file name too long"):
        file_writes.commit(
            [
                FileChange(tmp_path / "new" / "dir" / "file", None, b"x"),
                FileChange(tmp_path / ("n" * 300), None, b"x"),
            ]
        )
    assert os.listdir(tmp_path) == []


KILLED = """
import os, sys
from pathlib import Path
from basis_daemon.runtime.tools import file_writes, text_files
from basis_daemon.runtime.tools.file_writes import FileChange

root, last = Path(sys.argv[1]), int(sys.argv[2])
steps = iter(range(100))
for name in ("rename", "link", "unlink"):
    def dying(*args, _call=getattr(os, name), **kwargs):
        if next(steps) == last:
            os._exit(9)
        return _call(*args, **kwargs)
    setattr(os, name, dying)
held = {name: text_files.read(root / name) for name in ("a", "b", "gone", "old")}
file_writes.commit([
    FileChange(root / "a", held["a"], b"A2"),
    FileChange(root / "gone", held["gone"], None),
    FileChange(root / "new", None, b"N"),
    FileChange(root / "there", None, b"O", moved_from=root / "old"),
    FileChange(root / "old", held["old"], None),
    FileChange(root / "b", held["b"], b"B2"),
])
"""


@pytest.mark.parametrize("last", range(20))
def test_process_killed_at_any_step_leaves_every_file_whole(tmp_path: Path, last: int) -> None:
    """BT-4, as far as renames go: each file is what it was or what it was to be, and nothing of the old is lost."""
    old = {"a": b"A1", "b": b"B1", "gone": b"G", "old": b"O"}
    for name, data in old.items():
        (tmp_path / name).write_bytes(data)
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(last)], check=False, timeout=30)

    left = tree(tmp_path)
    allowed = {"a": {b"A1", b"A2"}, "b": {b"B1", b"B2"}, "gone": {b"G"}, "old": {b"O"}, "new": {b"N"}, "there": {b"O"}}
    visible = {name: data for name, data in left.items() if not name.startswith(".basis-")}
    assert all(data in allowed[name] for name, data in visible.items())
    assert {"a", "b"} <= visible.keys() and ("old" in visible or "there" in visible)
    is_done = visible == {"a": b"A2", "b": b"B2", "new": b"N", "there": b"O"}
    assert is_done or set(old.values()) <= set(left.values())


names = st.sampled_from(["a", "b", "dir/c"])
texts = st.sampled_from(["", "x\n", "x y\nz", "x x\n"])


@st.composite
def operations(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["create", "set", "replace", "delete", "move"]))
    fields: dict[str, Any] = {"op": kind, ("from" if kind == "move" else "path"): draw(names)}
    if kind in ("create", "set"):
        fields["content"] = draw(texts)
    if kind == "replace":
        fields |= {"old": "x", "new": "yy", "replaceAll": True}
    if kind == "move":
        fields["to"] = draw(names)
    return fields


def expected(before: dict[str, str], batch: list[dict[str, Any]]) -> dict[str, str] | None:
    """What the batch makes of the files, worked out on a dictionary; `None` if it can't be carried out."""
    held = dict(before)
    for each in batch:
        path, target = each.get("path", each.get("from", "")), each.get("to", "")
        kind = each["op"]
        is_bad = (path in held) == (kind == "create") or (kind == "move" and target in held)
        if is_bad or (kind == "replace" and "x" not in held[path]):
            return None
        if kind in ("create", "set"):
            held[path] = each["content"]
        elif kind == "replace":
            held[path] = held[path].replace("x", "yy")
        elif kind == "delete":
            del held[path]
        else:
            held[target] = held.pop(path)
    return held


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.dictionaries(names, texts), batch=st.lists(operations(), min_size=1, max_size=6))
async def test_any_batch_is_carried_out_whole_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, str], batch: list[dict[str, Any]]
) -> None:
    """BT-4, against a model of the file system."""
    caller = Caller(tmp_path_factory.mktemp("batch").resolve())
    for name, text in before.items():
        (caller.root / name).parent.mkdir(exist_ok=True)
        (caller.root / name).write_text(text)
    wanted = expected(before, batch)
    try:
        await caller.call(files, operations=batch)
    except ToolError:
        assert wanted is None
        wanted = before
    assert tree(caller.root) == {name: text.encode() for name, text in (wanted or {}).items()}
