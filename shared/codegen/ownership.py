"""The ownership list: every module with the first sentence of its docstring, folder by folder.

Reads the source, imports nothing. A module that says nothing is a fault of that module, and shows as an empty cell.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDERS = (
    "shared/basis_protocol",
    "shared/codegen",
    "basis_daemon",
    "clients/basis_client",
    "clients/basisctl",
    "clients/basis_acp",
    "tests/support",
)

INTRODUCTION = """\
# Who owns what

<!-- Generated from the modules' own docstrings; do not edit. `make gen` writes it again. -->

Every module with its first sentence; the rest of its docstring says what it leaves alone. [How it is
built](../explanation/architecture.md) tells how the folders fit together.
"""


def render(root: Path) -> str:
    """The page for the checkout at `root`."""
    return "\n".join([INTRODUCTION, *(section for folder in FOLDERS for section in _folder(root, root / folder))])


def _folder(root: Path, folder: Path) -> Iterator[str]:
    modules = sorted(path for path in folder.glob("*.py"))
    if not modules:
        return
    yield f"## `{folder.relative_to(root).as_posix()}/`\n"
    rows = [f"| `{path.name}` | {sentence} |" for path in modules if (sentence := _first_sentence(path)) is not None]
    yield "| module | owns |\n| --- | --- |\n" + "".join(f"{row}\n" for row in rows)
    for below in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("_")):
        yield from _folder(root, below)


def _first_sentence(path: Path) -> str | None:
    """`None` for an empty file: a package that imports nothing by itself."""
    source = path.read_text("utf-8")
    if not source.strip():
        return None
    paragraph = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")
