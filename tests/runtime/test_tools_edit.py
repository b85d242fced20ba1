"""`write` and `edit` on real files: what is shown, what is checked again, what stays."""

import os
import stat
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basis_daemon.errors import PolicyDenied
from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.base import Tool, ToolError
from basis_daemon.runtime.tools.edit import EditTool, WriteTool
from basis_daemon.runtime.tools.file_writes import StaleFile
from basis_daemon.runtime.tools.files import ReadTool
from basis_daemon.runtime.tools.text_files import MAX_FILE_BYTES
from basis_protocol.content import DiffPreview
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio

read, write, edit = ReadTool(), WriteTool(), EditTool()


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    root = tmp_path.resolve() / "repo"
    root.mkdir()
    return Caller(root)


async def refused(caller: Caller, tool: Tool, **input: Json) -> str:
    """The reason both halves of the call give: before anybody is asked, and when it would be made."""
    with anyio.fail_after(5), pytest.raises((ToolError, PolicyDenied)) as early:
        await caller.prepare(tool, **input)
    with anyio.fail_after(5), pytest.raises((ToolError, PolicyDenied)) as late:
        await caller.execute(tool, **input)
    assert str(early.value) == str(late.value)
    return str(late.value)


async def test_person_is_shown_the_diff_before_anything_is_written(caller: Caller) -> None:
    """AP-2, TL-27: the preview has the change; what rules see has no contents."""
    file = caller.root / "src" / "app.py"
    file.parent.mkdir()
    file.write_text("import os\n\n\ndef main():\n    pass\n")

    prepared = await caller.prepare(
        edit, path="src/app.py", edits=[{"old_string": "    pass", "new_string": "    run()\n    return 0"}]
    )

    assert file.read_text().endswith("pass\n")
    assert prepared.title == "edit src/app.py (+2 −1)"
    assert (prepared.side_effect, prepared.execution) == ("local_state", "exclusive_local_mutation")
    assert prepared.structured_input == {
        "kind": "file",
        "op": "edit",
        "resolved_path": str(file),
        "replacements": 1,
    }
    assert isinstance(prepared.preview, DiffPreview)
    (diff,) = prepared.preview.files
    assert diff.path == str(file) and not diff.created and not diff.truncated
    assert diff.patch == (
        "--- a/src/app.py\n+++ b/src/app.py\n@@ -2,4 +2,5 @@\n \n \n def main():\n"
        "-    pass\n+    run()\n+    return 0\n"
    )
    assert (diff.old, diff.new) == (file.read_text(), "import os\n\n\ndef main():\n    run()\n    return 0\n")


async def test_patch_shown_is_one_that_git_applies(caller: Caller) -> None:
    """What the person sees is what happens, line ends and missing last newline included."""
    file = caller.root / "a.txt"
    file.write_bytes(b"".join(b"line %d\r\n" % n for n in range(40)) + b"last")
    prepared = await caller.prepare(
        edit,
        path="a.txt",
        edits=[{"old_string": "line 3\n", "new_string": ""}, {"old_string": "last", "new_string": "last\nmore"}],
    )
    assert isinstance(prepared.preview, DiffPreview)
    applied = caller.root / "applied"
    applied.mkdir()
    (applied / "a.txt").write_bytes(file.read_bytes())
    (applied / "p.patch").write_bytes(prepared.preview.files[0].patch.encode())
    output = await caller.context(edit).run_command("cd applied && git apply --whitespace=nowarn p.patch")
    await caller.execute(
        edit,
        path="a.txt",
        edits=[{"old_string": "line 3\n", "new_string": ""}, {"old_string": "last", "new_string": "last\nmore"}],
    )

    assert output.succeeded, output.stderr
    assert (applied / "a.txt").read_bytes() == file.read_bytes()


async def test_new_file_is_shown_as_created(caller: Caller) -> None:
    prepared = await caller.prepare(write, path="new/dir/a.txt", content="one\ntwo\n")
    output = await caller.execute(write, path="new/dir/a.txt", content="one\ntwo\n")

    assert prepared.title == "write new/dir/a.txt (new file, +2 −0)"
    assert isinstance(prepared.preview, DiffPreview) and prepared.preview.files[0].created
    assert prepared.preview.files[0].patch.startswith("--- /dev/null\n+++ b/new/dir/a.txt\n@@ -0,0 +1,2 @@\n")
    assert output.content == "created new/dir/a.txt (8 bytes)"
    assert output.diff == tuple(prepared.preview.files)
    assert (caller.root / "new/dir/a.txt").read_text() == "one\ntwo\n"


async def test_edit_reports_count_place_and_diff(caller: Caller) -> None:
    """BT-8."""
    (caller.root / "a").write_text("x\ny\nx\n")
    output = await caller.call(edit, path="a", edits=[{"old_string": "x", "new_string": "z"}], replace_all=True)

    assert output.content == "replaced 2 passages in a"
    assert output.details == {
        "replaced": 2,
        "first_changed_line": 1,
        "diff": {"added": 2, "removed": 2, "truncated": False},
        "patch": output.diff[0].patch,
    }
    assert output.summary == "edit a (+2 −2)"
    assert output.diff[0].new == "z\ny\nz\n"


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o600, 0o4755])
async def test_permissions_stay(caller: Caller, mode: int) -> None:
    """BT-9, D-68."""
    file = caller.root / "a"
    file.write_text("x")
    file.chmod(mode)
    await caller.call(write, path="a", content="y")
    await caller.call(edit, path="a", edits=[{"old_string": "y", "new_string": "z"}])

    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert file.read_text() == "z"


async def test_read_only_file_is_refused(caller: Caller) -> None:
    """A file somebody protected isn't replaced just because its directory is writable."""
    (caller.root / "a").write_text("x")
    (caller.root / "a").chmod(0o444)
    with pytest.raises(ToolError, match="read-only"):
        await caller.call(write, path="a", content="y")

    assert (caller.root / "a").read_text() == "x"


async def test_nothing_but_the_file_remains_after_writing(caller: Caller) -> None:
    (caller.root / "a").write_text("x")
    await caller.call(write, path="a", content="y")
    await caller.call(write, path="b", content="y")

    assert sorted(os.listdir(caller.root)) == ["a", "b"]


@pytest.mark.parametrize("head", [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"])
async def test_mark_and_encoding_stay(caller: Caller, head: bytes) -> None:
    """BT-7."""
    encoding = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}[head]
    file = caller.root / "a"
    file.write_bytes(head + "äö\r\nb\r\n".encode(encoding))
    await caller.call(edit, path="a", edits=[{"old_string": "b", "new_string": "ü"}])
    assert file.read_bytes() == head + "äö\r\nü\r\n".encode(encoding)
    await caller.call(write, path="a", content="\ufeffnew\nlines\n")
    assert file.read_bytes() == head + "new\r\nlines\r\n".encode(encoding)


@pytest.mark.parametrize("data", [b"\xe1\xe2\xe3 \xe4\xe5\xe6", b"a\0b", b"\xff\xfe\0\0"])
async def test_what_is_not_text_is_neither_edited_nor_written_over(caller: Caller, data: bytes) -> None:
    (caller.root / "a").write_bytes(data)
    await refused(caller, edit, path="a", edits=[{"old_string": "a", "new_string": "b"}])
    await refused(caller, write, path="a", content="text")

    assert (caller.root / "a").read_bytes() == data


async def test_file_changed_since_it_was_read_is_not_written(caller: Caller) -> None:
    """Somebody else's change is not lost; reading again clears it."""
    file = caller.root / "a"
    file.write_text("one\n")
    await caller.call(read, path="a")
    file.write_text("one\nperson\n")

    for tool, input in (
        (write, {"content": "agent"}),
        (edit, {"edits": [{"old_string": "one", "new_string": "1"}]}),
    ):
        assert "has changed on disk since you last looked" in await refused(caller, tool, path="a", **input)
    assert file.read_text() == "one\nperson\n"
    await caller.call(read, path="a")
    await caller.call(edit, path="a", edits=[{"old_string": "one", "new_string": "1"}])
    assert file.read_text() == "1\nperson\n"


async def test_file_changed_while_the_person_was_thinking_is_not_written(caller: Caller) -> None:
    """5.7(e): what was agreed to is what runs, or nothing."""
    file = caller.root / "a"
    file.write_text("one\n")
    input: dict[str, Json] = {"path": "a", "edits": [{"old_string": "one", "new_string": "1"}]}
    await caller.prepare(edit, **input)
    file.write_text("zero\none\n")
    with pytest.raises(StaleFile):
        await caller.execute(edit, **input)
    await caller.prepare(write, path="new", content="agent")
    (caller.root / "new").write_text("person")
    with pytest.raises(StaleFile, match="has appeared"):
        await caller.execute(write, path="new", content="agent")

    assert file.read_text() == "zero\none\n"
    assert (caller.root / "new").read_text() == "person"


async def test_file_that_is_gone_is_noticed_and_can_be_made_again(caller: Caller) -> None:
    (caller.root / "a").write_text("x")
    await caller.call(read, path="a")
    (caller.root / "a").unlink()
    assert "is gone" in await refused(caller, write, path="a", content="y")
    with pytest.raises(ToolError, match="there is no file"):
        await caller.call(read, path="a")
    await caller.call(write, path="a", content="y")

    assert (caller.root / "a").read_text() == "y"


async def test_own_changes_are_known(caller: Caller) -> None:
    """Several edits in a row need no reading in between."""
    (caller.root / "a").write_text("1")
    for number in range(1, 5):
        await caller.call(edit, path="a", edits=[{"old_string": str(number), "new_string": str(number + 1)}])

    assert (caller.root / "a").read_text() == "5"


async def test_unsaved_changes_in_an_editor_are_not_put_in_conflict(caller: Caller) -> None:
    (caller.root / "a").write_text("saved")
    caller.unsaved = {caller.root / "a": "typed", caller.root / "new": "typed"}
    assert "unsaved changes" in await refused(caller, write, path="a", content="x")
    assert "unsaved changes" in await refused(caller, write, path="new", content="x")
    caller.unsaved = {caller.root / "a": "saved"}
    await caller.call(write, path="a", content="x")

    assert (caller.root / "a").read_text() == "x"


@pytest.mark.parametrize("path", ["../x", "/etc/x", ".git/hooks/pre-commit", ".git/config", "out/x", "dangling"])
async def test_places_that_may_not_be_written_are_refused_before_anybody_is_asked(caller: Caller, path: str) -> None:
    """Invariants 3 and 4, in both tools."""
    (caller.root / ".git").mkdir()
    (caller.root / "out").symlink_to(caller.root.parent)
    (caller.root / "dangling").symlink_to(caller.root.parent / "nowhere")
    await refused(caller, write, path=path, content="x")
    await refused(caller, edit, path=path, edits=[{"old_string": "a", "new_string": "b"}])

    assert os.listdir(caller.root.parent) == ["repo"]


async def test_read_only_policy_writes_nothing(caller: Caller) -> None:
    caller.policy = RuntimePolicy.read_only(caller.root)
    assert "read-only" in await refused(caller, write, path="a", content="x")


async def test_special_files_and_directories_are_never_replaced(caller: Caller) -> None:
    """BT-9, PO-9."""
    os.mkfifo(caller.root / "fifo")
    (caller.root / "dir").mkdir()
    assert "pipe" in await refused(caller, write, path="fifo", content="x")
    assert "directory" in await refused(caller, write, path="dir", content="x")
    assert stat.S_ISFIFO((caller.root / "fifo").stat().st_mode)


async def test_link_to_a_file_keeps_being_a_link(caller: Caller) -> None:
    (caller.root / "real").write_text("x")
    (caller.root / "link").symlink_to("real")
    await caller.call(write, path="link", content="y")

    assert (caller.root / "link").is_symlink()
    assert (caller.root / "real").read_text() == "y"


async def test_too_large_a_text_is_refused(caller: Caller) -> None:
    with pytest.raises(ToolError, match="more than"):
        await caller.call(write, path="a", content="x" * (MAX_FILE_BYTES + 1))
    assert os.listdir(caller.root) == []


async def test_half_a_surrogate_pair_is_refused(caller: Caller) -> None:
    assert "can't be written" in await refused(caller, write, path="a", content="\ud800")


async def test_large_change_is_shown_in_part_and_made_whole(caller: Caller) -> None:
    """A preview of megabytes helps nobody, and must not take minutes to work out."""
    old = "".join(f"old {n}\n" for n in range(100_000))
    new = "".join(f"new {n}\n" for n in range(100_000))
    (caller.root / "a").write_text(old)
    with anyio.fail_after(10):
        prepared = await caller.prepare(write, path="a", content=new)
        await caller.execute(write, path="a", content=new)

    assert isinstance(prepared.preview, DiffPreview)
    (diff,) = prepared.preview.files
    assert diff.truncated and len(diff.patch) <= 64 * 1024 and diff.old is None and diff.new is None
    assert prepared.title == "write a (+100000 −100000)"
    assert (caller.root / "a").read_text() == new


async def test_writing_the_same_again_touches_nothing(caller: Caller) -> None:
    (caller.root / "a").write_text("x\n")
    before = (caller.root / "a").stat()
    output = await caller.call(write, path="a", content="x\n")

    assert (caller.root / "a").stat().st_ino == before.st_ino
    assert output.diff[0].patch == ""


async def test_edit_of_a_missing_file_points_to_write(caller: Caller) -> None:
    assert "use write" in await refused(caller, edit, path="a", edits=[{"old_string": "a", "new_string": "b"}])


@pytest.mark.parametrize(
    "input",
    [
        {"old_string": "a", "new_string": "b"},
        {"oldText": "a", "newText": "b"},
        {"edits": {"old": "a", "new": "b"}},
        {"edits": '[{"old_string": "a", "new_string": "b"}]'},
        {"edits": '{"old_string": "a", "new_string": "b"}'},
        {"edits": [{"oldString": "a", "newString": "b", "replaceAll": True}]},
    ],
)
async def test_edits_come_in_many_shapes(caller: Caller, input: dict[str, Json]) -> None:
    """4.10: what models send."""
    (caller.root / "x").write_text("a")
    await caller.call(edit, file_path="x", **input)

    assert (caller.root / "x").read_text() == "b"


@pytest.mark.parametrize(
    "edits", [[], ["text"], "not json", [{"old_string": "a"}], [{"old_string": 1, "new_string": "b"}]]
)
async def test_shapeless_edits_are_an_error_for_the_model(caller: Caller, edits: Json) -> None:
    (caller.root / "x").write_text("a")
    with pytest.raises(ToolError):
        await caller.execute(edit, path="x", edits=edits)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(data=st.text(alphabet="ab\r\n“\ufeff😀\u2028", min_size=1, max_size=60))
async def test_what_was_written_is_what_is_on_disk(caller: Caller, data: str) -> None:
    caller.ledger = None
    (caller.root / "a").unlink(missing_ok=True)
    await caller.call(write, path="a", content=data)

    assert (caller.root / "a").read_bytes() == data.encode()
