"""`read` and `ls` on real files."""

import os
import socket
from pathlib import Path

import anyio
import pytest

from basis_daemon.errors import BasisError, PolicyDenied
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.base import ToolError
from basis_daemon.runtime.tools.files import LsTool, ReadTool
from basis_daemon.runtime.tools.text_files import MAX_FILE_BYTES
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio

read, ls = ReadTool(), LsTool()


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    root = tmp_path.resolve() / "repo"
    root.mkdir()
    return Caller(root)


async def refused(caller: Caller, **input: object) -> str:
    with anyio.fail_after(5), pytest.raises((ToolError, PolicyDenied)) as error:
        await caller.call(read, **input)
    return str(error.value)


async def test_lines_come_numbered(caller: Caller) -> None:
    (caller.root / "a.txt").write_text("one\n\nthree")

    assert await caller.text(read, path="a.txt") == "L1: one\nL2: \nL3: three"


async def test_part_of_a_file_says_how_to_read_on(caller: Caller) -> None:
    (caller.root / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))

    text = await caller.text(read, path="a.txt", offset=4, limit=2)
    assert text == "L4: 4\nL5: 5\n[lines 4 to 5 of 10; read on with offset 6]"
    assert await caller.text(read, path="a.txt", offset=10) == "L10: 10"
    assert "offset 11 is past its end" in await refused(caller, path="a.txt", offset=11)


async def test_page_fits_the_result_limit_so_that_nothing_is_cut_from_its_middle(caller: Caller) -> None:
    (caller.root / "a.txt").write_text("".join(f"{'x' * 100}\n" for _ in range(1500)))

    text = await caller.text(read, path="a.txt")
    assert len(text.encode()) <= RuntimePolicy().max_tool_result_bytes
    assert text.splitlines()[-1].startswith("[lines 1 to 4")


async def test_overlong_line_is_shown_in_part(caller: Caller) -> None:
    (caller.root / "a.js").write_text("x" * 100_000)

    text = await caller.text(read, path="a.js")
    assert text.endswith("[line of 100000 characters cut here]") and len(text) < 3000


async def test_empty_file_has_no_lines(caller: Caller) -> None:
    (caller.root / "a.txt").touch()

    assert await caller.text(read, path="a.txt") == "(no lines)"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\xef\xbb\xbfh\xc3\xa4\r\nb\r\n", "L1: hä\nL2: b"),
        ("hä\r\nb\n".encode("utf-16"), "L1: hä\nL2: b"),
        (b"\xfe\xff" + "hä".encode("utf-16-be"), "L1: hä"),
        (b"a\x0cb\xe2\x80\xa8c\n", "L1: a\x0cb\u2028c"),
    ],
    ids=["mark and crlf", "utf-16", "utf-16 big endian", "separators that end no line"],
)
async def test_encodings_with_a_mark_are_read(caller: Caller, data: bytes, shown: str) -> None:
    (caller.root / "a.txt").write_bytes(data)

    assert await caller.text(read, path="a.txt") == shown


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("слово".encode("koi8-r"), r"is not UTF-8 text (byte 0)"),
        (b"a\0b", "binary file of 3 bytes"),
        (b"\x89PNG\r\n\x1a\n\0\0", "binary file"),
        ("a".encode("utf-32"), "UTF-32"),
        (b"\xff\xfea", "begins like UTF-16-LE text, but isn't (byte 0)"),
    ],
)
async def test_what_is_not_such_text_is_refused_by_its_reason(caller: Caller, data: bytes, reason: str) -> None:
    (caller.root / "a").write_bytes(data)

    assert reason in await refused(caller, path="a")


async def test_huge_file_is_refused_without_reading_it(caller: Caller) -> None:
    """BT-9, invariant 15: a sparse file of a terabyte."""
    (caller.root / "big").touch()
    os.truncate(caller.root / "big", 1 << 40)

    assert f"more than the {MAX_FILE_BYTES}" in await refused(caller, path="big")


async def test_missing_file_and_directory_are_told_apart(caller: Caller) -> None:
    (caller.root / "dir").mkdir()

    assert "there is no file" in await refused(caller, path="nope/x")
    assert "is a directory" in await refused(caller, path="dir")


async def test_special_files_are_refused_without_being_opened(caller: Caller) -> None:
    """PO-9, invariant 3: opening a FIFO would wait for a writer."""
    os.mkfifo(caller.root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(caller.root / "sock"))
        assert "a device, pipe or socket" in await refused(caller, path="fifo")
        assert "a device, pipe or socket" in await refused(caller, path="sock")


async def test_device_is_refused_even_inside_the_roots(caller: Caller) -> None:
    caller.policy = RuntimePolicy().with_allowed_read_root(Path("/dev"))

    assert "a device, pipe or socket" in await refused(caller, path="/dev/zero")


async def test_link_is_followed_inside_and_refused_outside(caller: Caller) -> None:
    (caller.root / "a").write_text("a")
    (caller.root / "in").symlink_to("a")
    (caller.root / "out").symlink_to("/etc/passwd")

    assert await caller.text(read, path="in") == "L1: a"
    assert "outside the read roots" in await refused(caller, path="out")


async def test_unsaved_editor_text_is_what_is_read(caller: Caller) -> None:
    """The agent sees what the person sees; also a file that was never saved."""
    (caller.root / "a").write_text("saved")
    caller.unsaved = {caller.root / "a": "typed\n", caller.root / "new": "fresh"}

    note = "[as an editor has it, with unsaved changes]"
    assert await caller.text(read, path="a") == f"L1: typed\n{note}"
    assert await caller.text(read, path="new") == f"L1: fresh\n{note}"


@pytest.mark.parametrize("name", ["ünïcode ☃.txt", "with space", "-dash", "new\nline", "a'b\"c", "…"])
async def test_any_name_can_be_read(caller: Caller, name: str) -> None:
    (caller.root / name).write_text("x")

    assert await caller.text(read, path=name) == "L1: x"


@pytest.mark.parametrize("input", [{"path": 5}, {"path": "a", "offset": 0}, {"path": "a", "limit": True}, {}])
async def test_impossible_input_is_an_error_for_the_model(caller: Caller, input: dict[str, object]) -> None:
    with pytest.raises(BasisError):
        await caller.execute(read, **input)


async def test_directory_is_listed_with_hidden_and_ignored_entries(caller: Caller) -> None:
    (caller.root / ".gitignore").write_text("*.log")
    (caller.root / "x.log").touch()
    (caller.root / "src").mkdir()
    (caller.root / "src" / "a.py").touch()
    (caller.root / "link").symlink_to("/etc")
    os.mkfifo(caller.root / "pipe")

    expected = "[file] .gitignore\n[link] link -> /etc\n[other] pipe\n[dir] src\n[file] x.log"
    assert await caller.text(ls) == expected
    assert "[dir] src\n[file] src/a.py\n" in await caller.text(ls, path=".", depth=3)
    assert await caller.text(ls, path="src") == "[file] a.py"


async def test_long_listing_is_cut_and_says_so(caller: Caller) -> None:
    for number in range(5):
        (caller.root / f"f{number}").touch()

    assert await caller.text(ls, limit=2) == "[file] f0\n[file] f1\n[more entries; the first 2 are listed]"


async def test_empty_missing_and_foreign_directories_are_told_apart(caller: Caller) -> None:
    assert await caller.text(ls) == "(no entries)"
    (caller.root / "f").touch()
    for path, reason in (("nope", "no directory"), ("f", "use read"), ("..", "outside the read roots")):
        with pytest.raises((ToolError, PolicyDenied), match=reason):
            await caller.call(ls, path=path)


async def test_link_cycle_does_not_trap_a_deep_listing(caller: Caller) -> None:
    (caller.root / "d").mkdir()
    (caller.root / "d" / "up").symlink_to("..")

    assert await caller.text(ls, depth=20) == "[dir] d\n[link] d/up -> .."


async def test_names_that_are_no_text_are_listed_all_the_same(caller: Caller) -> None:
    (caller.root / os.fsdecode(b"bad\xff\nname")).touch()

    assert await caller.text(ls) == "[file] bad\ufffd\ufffdname"
