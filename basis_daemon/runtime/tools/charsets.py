"""Which characters a file's bytes are, decided so that writing them again gives the same bytes.

Owns the order in which a file is believed: its byte order mark, what it says of itself, UTF-8 where it is that, what
its project says (`editorconfig.py`), and at last the looks of Windows-1252. What none of these explains is no text:
nothing is guessed that could not be undone. Few modules of the standard library and no others: the search process,
which imports this file by itself, is started for every search.
"""

import codecs
import re
from collections.abc import Callable

HEAD_BYTES = 1024
"""Where a file says what it is, if it does."""

DETECTED = "cp1252"
"""The one encoding that is recognised by its looks."""

BOMS = {"utf-8": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
_UTF_32_BOMS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)

_MULTI_BYTE = frozenset(
    ("shift_jis", "cp932", "euc_jp", "euc_kr", "cp949", "gb2312", "gbk", "gb18030", "big5", "cp950", "johab")
)
"""Each character stands for itself in these, whatever went before. Others change state in the middle of a text, so that
changing one line could change what the next one means."""

_SINGLE_BYTE = re.compile(r"cp\d+|iso8859-\d+|koi8-[rut]|mac-\w+|ptcp154|kz1048|tis-620|hp-roman8")

_WIDER = {
    "iso8859-1": "cp1252",
    "gb2312": "gbk",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "cp950",
}
"""What is usually meant where the stated encoding lacks some of the bytes."""

_OTHER_NAMES = {"windows-31j": "cp932", "x-sjis": "shift_jis", "x-mac-roman": "mac-roman", "utf-8-bom": "utf-8"}
_PRINTED_ASCII = bytes(range(0x20, 0x7F)) + b"\t\r\n"

_UNPRINTED = re.compile(rb"[\x80-\x9f]")
"""No letters in ISO 8859-1; quotes, dashes and the euro in Windows-1252, which browsers read it as."""

_LETTERS = re.compile(rb"[\xc0-\xd6\xd8-\xf6\xf8-\xff\x8a\x8c\x8e\x9a\x9c\x9e\x9f]+")
_LONGEST_RUN = 2
"""Accented letters that stand side by side in a Western word; Greek and Cyrillic words consist of nothing else."""

_EMACS = re.compile(rb"-\*-.*?coding:[ \t]*([-\w.]+)")
_COMMENT = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_COMMENTED = (".py", ".pyw", ".pyi", ".rb", ".rake")
_XML = re.compile(rb"\s*<\?xml[^>]*?\bencoding\s*=\s*[\"']([-\w.:]+)")
_CSS = re.compile(rb'@charset "([-\w.:]+)";')
_META = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?([-\w.:]+)", re.IGNORECASE)
_PAGES = (".html", ".htm", ".xhtml", ".shtml")


class NotText(Exception):
    """What a file is instead, as the end of a sentence about it."""


class Decoded:
    """A text as it stands on disk: `bom + text.encode(encoding)` is its bytes again."""

    __slots__ = ("bom", "encoding", "text")

    def __init__(self, text: str, encoding: str, bom: bytes = b"") -> None:
        self.text = text
        self.encoding = encoding
        self.bom = bom


def decode(data: bytes, name: str, configured: Callable[[], str | None] = lambda: None) -> Decoded:
    """The text of a file called `name`. `configured` is asked only where the bytes leave it open. Raises `NotText`."""
    if data.startswith(_UTF_32_BOMS):
        raise NotText("is UTF-32 text; only UTF-8, UTF-16 and eight-bit encodings are read and written")
    for encoding, bom in BOMS.items():
        if data.startswith(bom):
            return Decoded(_strict(data[len(bom) :], encoding, f"begins like {encoding.upper()} text"), encoding, bom)
    if b"\0" in data:
        return _unmarked_utf_16(data, configured())
    stated = stated_in(data, name)
    if stated is not None:
        return _as_stated(data, stated)
    try:
        return Decoded(data.decode("utf-8"), "utf-8")
    except UnicodeDecodeError as error:
        return _legacy(data, configured(), error.start)


def text_of(data: bytes, name: str, configured: str | None) -> str | None:
    """The text alone, or `None` where there is none to read."""
    try:
        return decode(data, name, lambda: configured).text
    except NotText:
        return None


def usable(name: str | None) -> str | None:
    """The codec of an encoding that can be changed line by line, by any of its names; `None` for all others."""
    name = (name or "").lower()
    try:
        found = codecs.lookup(_OTHER_NAMES.get(name, name)).name
    except (LookupError, ValueError):
        return None
    if found in ("utf-8", "utf-16-le", "utf-16-be"):
        return found
    if found not in _MULTI_BYTE and _SINGLE_BYTE.fullmatch(found) is None:
        return None
    # EBCDIC and its like have no ASCII: none of what is looked for in a line would be found.
    return found if _PRINTED_ASCII.decode(found, "replace") == _PRINTED_ASCII.decode("ascii") else None


def stated_in(data: bytes, name: str) -> str | None:
    """The encoding a text says it is in, spelled as it says it: in a first line, or where its format has it."""
    head = data[:HEAD_BYTES]
    lines = head.split(b"\n", 2)[:2]
    patterns = [_EMACS.search, *([_COMMENT.match] if name.endswith(_COMMENTED) else [])]
    found = next((match for line in lines for pattern in patterns if (match := pattern(line))), None)
    found = found or _XML.match(head) or _CSS.match(head) or (_META.search(head) if name.endswith(_PAGES) else None)
    if found is None:
        return None
    stated = re.sub(r"-(unix|dos|mac)$", "", found[1].decode("ascii", "replace"))
    # Whoever could read the statement was not reading UTF-16, and plain ASCII says nothing about other characters.
    return None if stated.lower().startswith(("utf-16", "utf16", "us-ascii", "ascii")) else stated


def _strict(data: bytes, encoding: str, belief: str) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise NotText(f"{belief}, but isn't (byte {error.start}); it is neither shown nor changed") from error
    if "\0" in text:
        raise NotText(f"is a binary file of {len(data)} bytes; it can't be shown or changed as text")
    if encoding not in ("utf-8", "utf-16-le", "utf-16-be") and text.encode(encoding) != data:
        raise NotText(f"{belief}, and some of its bytes could not be written back as they are")
    return text


def _as_stated(data: bytes, stated: str) -> Decoded:
    encoding = usable(stated)
    if encoding is None:
        if data.isascii() and b"\x1b" not in data:
            return Decoded(data.decode("ascii"), "ascii")
        raise NotText(f"says it is in {stated!r}, an encoding that is neither read nor written here")
    return _wide_enough(data, encoding, f"says it is {stated} text")


def _wide_enough(data: bytes, encoding: str, belief: str) -> Decoded:
    """Decoded as `encoding`, or as what is usually meant by it. Raises `NotText` with what `encoding` lacks."""
    candidates = [encoding]
    while candidates[-1] in _WIDER:
        candidates.append(_WIDER[candidates[-1]])
    if encoding == "iso8859-1" and _UNPRINTED.search(data):
        candidates.reverse()
    failures: list[NotText] = []
    for candidate in candidates:
        try:
            return Decoded(_strict(data, candidate, belief), candidate)
        except NotText as failure:
            failures.append(failure)
    raise failures[0]


def _unmarked_utf_16(data: bytes, configured: str | None) -> Decoded:
    encoding = usable(configured)
    if encoding in ("utf-16-le", "utf-16-be"):
        return Decoded(_strict(data, encoding, f"is {encoding.upper()} text by .editorconfig"), encoding)
    raise NotText(f"is a binary file of {len(data)} bytes; it can't be shown or changed as text")


def _legacy(data: bytes, configured: str | None, first_bad: int) -> Decoded:
    encoding = usable(configured)
    if encoding is not None and not encoding.startswith("utf-"):
        return _wide_enough(data, encoding, f"is {configured} text by .editorconfig")
    if _looks_western(data):
        return Decoded(_strict(data, DETECTED, "looks like Windows-1252 text"), DETECTED)
    raise NotText(
        f"is not UTF-8 text (byte {first_bad}) and nothing says what else it is, so it is neither shown nor changed; "
        "`charset` in .editorconfig can say it, or a command convert it"
    )


def _looks_western(data: bytes) -> bool:
    """Whether the high bytes stand where Windows-1252 has its letters and signs in Western words."""
    if re.search(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f\x81\x8d\x8f\x90\x9d]", data):
        return False
    runs = [len(run) for run in _LETTERS.findall(data)]
    return sum(length for length in runs if length > _LONGEST_RUN) * 5 <= sum(runs)
