"""The stable `kind` words of the daemon's errors, read from its source without importing it.

Owns finding them. What each means is the first paragraph of the exception class that carries it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = re.compile(r"^(?:[A-Z]{1,2}-\d+|\S+\.md [\d.]+)(?:: |\.$)")
"""The specification a docstring may start by naming: no use to a reader of the reference page."""

ROOT_CLASS = "BasisError"


def error_kinds(package: Path) -> dict[str, str]:
    """Every kind with its meaning, sorted. The root's own kind is left out: nothing raises it."""
    classes = {cls.name: cls for path in sorted(package.rglob("*.py")) for cls in _classes(path)}
    found: dict[str, str] = {}
    for cls in classes.values():
        kind = _kind(cls)
        if kind is not None and cls.name != ROOT_CLASS and _descends(cls, classes):
            meaning = SOURCE.sub("", (ast.get_docstring(cls) or "").split("\n\n")[0])
            found[kind] = found.get(kind) or meaning
    return dict(sorted(found.items()))


def _classes(path: Path) -> Iterator[ast.ClassDef]:
    tree = ast.parse(path.read_text("utf-8"))
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def _kind(cls: ast.ClassDef) -> str | None:
    for statement in cls.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="kind")], value=ast.Constant(value=str(kind))):
                return kind
            case ast.AnnAssign(target=ast.Name(id="kind"), value=ast.Constant(value=str(kind))):
                return kind
            case _:
                pass
    return None


def _descends(cls: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    if cls.name == ROOT_CLASS:
        return True
    names = [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in cls.bases]
    return any(_descends(classes[name], classes) for name in names if name in classes and name != cls.name)
