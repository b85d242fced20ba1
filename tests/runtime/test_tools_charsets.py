"""Bytes in, the same bytes out: whatever a file is encoded in, what nobody edits stays as it is."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from basis_daemon.runtime.tools import charsets, text_files
from basis_daemon.runtime.tools.base import ToolError
from basis_daemon.runtime.tools.edit import EditTool, WriteTool
from basis_daemon.runtime.tools.edits import Edit, apply_edits
from basis_daemon.runtime.tools.files import ReadTool
from support.tool_calls import Caller

pytestmark = pytest.mark.anyio

read, write, edit = ReadTool(), WriteTool(), EditTool()


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    root = tmp_path.resolve() / "repo"
    root.mkdir()
    return Caller(root)


def declare(root: Path, charset: str, glob: str = "*") -> None:
    (root / ".editorconfig").write_text(f"root = true\n\n[{glob}]\nindent_style = space\ncharset = {charset}\n")


# --- what a file is believed to be -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "encoding"),
    [
        ("a.txt", "naïve café – “quoted”, 5 €\n".encode("cp1252"), "cp1252"),
        ("a.txt", "naïve café\n".encode(), "utf-8"),
        ("a.py", "# -*- coding: koi8-r -*-\n# привет\n".encode("koi8-r"), "koi8-r"),
        ("a.py", "#!/usr/bin/python\n# vim: fileencoding=cp1251\nx = 'привет'\n".encode("cp1251"), "cp1251"),
        ("a.el", ";; -*- coding: latin-1-unix -*-\n; é\n".encode("latin1"), "iso8859-1"),
        ("a.xml", "<?xml version='1.0' encoding='windows-1251'?>\n<a>привет</a>".encode("cp1251"), "cp1251"),
        ("a.html", "<html><meta charset=Shift_JIS><p>日本語".encode("shift_jis"), "shift_jis"),
        ("a.html", "<meta charset=gb2312><p>镕".encode("gbk"), "gbk"),
        ("a.html", "<meta charset=iso-8859-1><p>“é”".encode("cp1252"), "cp1252"),
        ("a.css", '@charset "iso-8859-15";\na::after { content: "€" }'.encode("iso8859-15"), "iso8859-15"),
    ],
)
async def test_file_is_read_in_the_encoding_it_is_in(caller: Caller, name: str, data: bytes, encoding: str) -> None:
    """By what it says of itself, by being UTF-8, or by its looks."""
    (caller.root / name).write_bytes(data)
    found = charsets.decode(data, name)
    assert (found.encoding, found.text.encode(found.encoding)) == (encoding, data)

    last = found.text.splitlines()[-1]
    assert last in await caller.text(read, path=name)
    await caller.call(edit, path=name, edits=[{"old_string": last, "new_string": last + " x"}])

    ending = b"\n" if data.endswith(b"\n") else b""
    assert (caller.root / name).read_bytes() == data.removesuffix(b"\n") + b" x" + ending


async def test_project_says_what_a_file_is_in(caller: Caller) -> None:
    """`charset` of the nearest .editorconfig, where the bytes leave it open."""
    declare(caller.root, "koi8-r", "*.{txt,md}")
    file = caller.root / "docs" / "a.txt"
    file.parent.mkdir()
    file.write_bytes("первая\r\nвторая\r\n".encode("koi8-r"))

    assert "L2: вторая" in await caller.text(read, path="docs/a.txt")
    await caller.call(edit, path="docs/a.txt", edits=[{"old_string": "вторая", "new_string": "третья"}])

    assert file.read_bytes() == "первая\r\nтретья\r\n".encode("koi8-r")


async def test_nearer_editorconfig_holds_over_an_outer_one(caller: Caller) -> None:
    declare(caller.root, "cp1251")
    (caller.root / "web").mkdir()
    (caller.root / "web" / ".editorconfig").write_text("[*]\ncharset = unset\n")
    (caller.root / "web" / "a").write_bytes("слово".encode("cp1251"))

    with pytest.raises(ToolError, match="nothing says what else it is"):
        await caller.call(read, path="web/a")


async def test_utf_8_text_is_that_whatever_the_project_says(caller: Caller) -> None:
    """A declaration over many files is wrong for some; bytes that are UTF-8 and not ASCII are no accident."""
    declare(caller.root, "latin1")
    (caller.root / "a").write_text("zażółć\n")
    await caller.call(edit, path="a", edits=[{"old_string": "zażółć", "new_string": "gęślą jaźń"}])
    assert (caller.root / "a").read_text() == "gęślą jaźń\n"


async def test_utf_16_without_a_mark_is_read_where_the_project_says_so(caller: Caller) -> None:
    declare(caller.root, "utf-16le", "*.strings")
    file = caller.root / "a.strings"
    file.write_bytes("à = b\nc = d\n".encode("utf-16-le"))
    await caller.call(edit, path="a.strings", edits=[{"old_string": "c = d", "new_string": "c = ∂"}])
    assert file.read_bytes() == "à = b\nc = ∂\n".encode("utf-16-le")


# --- what is new in it -----------------------------------------------------------------------------------------------


async def test_characters_the_encoding_lacks_are_named_and_nothing_is_changed(caller: Caller) -> None:
    file = caller.root / "a.txt"
    file.write_bytes("café\nbar\n".encode("cp1252"))

    with pytest.raises(ToolError, match=r"cp1252, which lacks '→' \(U\+2192\), 'ł' \(U\+0142\); nothing was changed"):
        await caller.call(edit, path="a.txt", edits=[{"old_string": "bar", "new_string": "→ bał →"}])

    assert file.read_bytes() == "café\nbar\n".encode("cp1252")


async def test_ascii_file_gets_new_characters_in_what_it_says_it_is_in(caller: Caller) -> None:
    (caller.root / "a.py").write_bytes(b"# coding: latin-1\nname = 'x'\n")
    (caller.root / "b.txt").write_bytes(b"plain\n")
    (caller.root / "c.txt").write_bytes(b"plain\n")

    await caller.call(edit, path="a.py", edits=[{"old_string": "'x'", "new_string": "'é'"}])
    await caller.call(edit, path="b.txt", edits=[{"old_string": "plain", "new_string": "é"}])
    declare(caller.root, "latin1")
    await caller.call(edit, path="c.txt", edits=[{"old_string": "plain", "new_string": "é"}])

    assert (caller.root / "a.py").read_bytes() == b"# coding: latin-1\nname = '\xe9'\n"
    assert (caller.root / "b.txt").read_bytes() == "é\n".encode()
    assert (caller.root / "c.txt").read_bytes() == b"\xe9\n"


@pytest.mark.parametrize(
    ("charset", "data"),
    [
        ("latin1", b"\xe9\n"),
        ("utf-8-bom", b"\xef\xbb\xbf\xc3\xa9\n"),
        ("utf-16be", b"\xfe\xff\0\xe9\0\n"),
        ("no-such-charset", b"\xc3\xa9\n"),
    ],
)
async def test_new_file_is_encoded_as_the_project_says(caller: Caller, charset: str, data: bytes) -> None:
    declare(caller.root, charset)
    await caller.call(write, path="new.txt", content="é\n")
    assert (caller.root / "new.txt").read_bytes() == data


async def test_new_text_is_in_the_encoding_it_says_it_is_in(caller: Caller) -> None:
    page = '<?xml version="1.0" encoding="ISO-8859-1"?>\n<p>é</p>\n'
    await caller.call(write, path="a.xml", content=page)
    assert (caller.root / "a.xml").read_bytes() == page.encode("latin1")


# --- what is left alone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.txt", "日本語テキスト。".encode("shift_jis"), "nothing says what else it is"),
        ("a.txt", "Ελληνικά γράμματα".encode("iso8859-7"), "nothing says what else it is"),
        ("a.py", b"# coding: utf-8\nx = '\xe9'\n", "says it is utf-8 text, but isn't (byte 21)"),
        ("a.py", b"# coding: iso-2022-jp\nx = '\x1b$B8l\x1b(B'\n", "'iso-2022-jp', an encoding that is neither"),
        ("a.bin", bytes(range(256)), "binary file of 256 bytes"),
        ("a.txt", "a".encode("utf-32"), "UTF-32 text"),
    ],
)
async def test_what_can_not_be_decoded_is_refused_and_never_written(
    caller: Caller, name: str, data: bytes, reason: str
) -> None:
    """Refused with its reason by reading, editing and writing alike; no byte of it is changed."""
    (caller.root / name).write_bytes(data)
    for call in (
        caller.execute(read, path=name),
        caller.execute(edit, path=name, edits=[{"old_string": "x", "new_string": "y"}]),
        caller.execute(write, path=name, content="new"),
    ):
        with pytest.raises(ToolError) as refusal:
            await call
        assert reason in str(refusal.value)
    assert (caller.root / name).read_bytes() == data


# --- any file, any edit ----------------------------------------------------------------------------------------------

ENCODINGS = ("utf-8", "utf-8 bom", "utf-16-le bom", "utf-16-be bom", "cp1252", "koi8-r", "shift_jis", "gb18030")
alphabets = {"cp1252": "aé–€\t ", "koi8-r": "aпЖ\t ", "shift_jis": "a日本ソ表\t ", "gb18030": "a镕𝒳é\t "}
line_ends = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[str]]:
    """An encoding, and lines with their ends."""
    encoding = draw(st.sampled_from(ENCODINGS))
    alphabet = alphabets.get(encoding, "aé日“😀\u2028\x0c\t ")
    lines = draw(st.lists(st.tuples(st.text(alphabet, max_size=8), line_ends), min_size=1, max_size=10))
    texts = [text + end for text, end in lines]
    if draw(st.booleans()):
        texts[-1] = texts[-1].rstrip("\r\n")
    return encoding, texts


def stored(encoding: str, text: str) -> bytes:
    codec, _, mark = encoding.partition(" ")
    return (charsets.BOMS[codec] if mark else b"") + text.encode(codec)


def is_utf_8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(file=files(), data=st.data())
def test_untouched_lines_keep_every_byte(tmp_path: Path, file: tuple[str, list[str]], data: st.DataObject) -> None:
    """BT-7, D-68: for any content, encoding, mark, mix of line ends and edits, what stands before and after what is
    replaced is byte for byte what it was; reading and writing without an edit changes nothing."""
    encoding, lines = file
    at = data.draw(st.integers(0, len(lines)))
    new = data.draw(st.text("xyz\n", max_size=6))
    before, after = "".join(lines[:at]), "".join(lines[at:])
    assume(new != "MARK" and not (before.endswith("\r") and new.startswith("\n")))
    (tmp_path / ".editorconfig").write_text(f"root = true\n[*]\ncharset = {encoding.split()[0]}\n")
    text = before + "MARK" + after
    raw = stored(encoding, text)
    assume(encoding.startswith("utf") or raw.isascii() or not is_utf_8(raw))

    found = text_files.decode(raw, tmp_path / "file")
    assert (found.text, found.encode(found.text)) == (text, raw)
    changed, count = apply_edits(found.text, [Edit("MARK", new)])
    result = found.encode(changed)

    assert count == 1
    assert result.startswith(stored(encoding, before)) and result.endswith(stored(encoding.split()[0], after))
    middle = changed[len(before) : len(changed) - len(after)]
    assert middle.replace("\r\n", "\n") == new


@given(data=st.binary(max_size=60), name=st.sampled_from(["a", "a.py", "a.html"]))
def test_whatever_is_read_as_text_is_written_back_as_it_was(data: bytes, name: str) -> None:
    """No bytes are decoded that encoding would not give again."""
    try:
        found = charsets.decode(data, name)
    except charsets.NotText:
        return
    assert found.bom + found.text.encode(found.encoding) == data
