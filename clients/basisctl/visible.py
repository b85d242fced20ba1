"""Makes text from models, tools and files safe to print: what would steer a terminal or mislead the eye is shown.

Owns the decision which characters are harmless. Nothing that came over the wire reaches a terminal, a pipe or a file
without passing through here: a pipe's reader may print it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def visible(text: str) -> str:
    """Return `text` with every control, direction and invisible character replaced by a visible name.

    Newlines and tabs stay, everything printable stays, and so do the joiners that emoji and Indic scripts need. A C0
    control becomes its picture (ESC: ␛), anything else its code point (`<U+202E>`).
    """
    return text if text.isascii() and text.isprintable() else text.translate(_SHOWN)


def one_line(text: str) -> str:
    """`visible`, with line breaks and tabs shown too: for text that must not take more than its line."""
    return visible(text).replace("\n", "⏎").replace("\t", " ")


def _code_points(*ranges: tuple[int, int]) -> Iterable[int]:
    for first, last in ranges:
        yield from range(first, last + 1)


_SHOWN: dict[int, str] = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)}
_SHOWN[0x7F] = "␡"
_SHOWN.update(
    (code, f"<U+{code:04X}>")
    for code in _code_points(
        (0x80, 0x9F),  # C1: 0x9B alone starts an escape sequence on many terminals
        (0xAD, 0xAD),  # soft hyphen
        (0x61C, 0x61C), (0x200E, 0x200F), (0x202A, 0x202E), (0x2066, 0x2069),  # direction
        (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180E, 0x180E), (0x200B, 0x200B), (0x2028, 0x2029),  # invisible
        (0x2060, 0x2064), (0x206A, 0x206F), (0x3164, 0x3164), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF9, 0xFFFB),
        (0xE0000, 0xE007F),  # tags: a whole invisible alphabet
    )
)  # fmt: skip
