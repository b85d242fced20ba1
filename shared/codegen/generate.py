"""Writes every generated file, or with `--check` only compares and names those that are stale.

Owns the list of outputs. `python -m codegen.generate [--check]`.
"""

import argparse
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from codegen import golden, json_schema, lua, markdown, ownership, typescript
from codegen.error_kinds import error_kinds
from codegen.reading import protocol

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = "shared/golden"


def outputs() -> Iterator[tuple[str, str]]:
    """Every generated file (below the root) with what it should hold."""
    model = protocol()
    yield "shared/schema/basis.schema.json", json_schema.render(model)
    yield "editors/vscode/src/protocol.gen.ts", typescript.render(model)
    yield "editors/nvim/lua/basis/protocol_gen.lua", lua.render(model)
    yield "docs/reference/protocol.md", markdown.render(model, error_kinds(ROOT / "basis_daemon"))
    yield "docs/reference/modules.md", ownership.render(ROOT)
    for name, text in golden.render().items():
        yield f"{GOLDEN}/{name}", text


@cache
def _wanted() -> dict[str, str]:
    return dict(outputs())


def stale(root: Path = ROOT) -> list[str]:
    """Generated files that are missing, differ from what would be written now, or are nobody's any more."""
    wanted = _wanted()
    wrong = [name for name, text in wanted.items() if not _holds(root / name, text)]
    present = {f"{GOLDEN}/{path.name}" for path in (root / GOLDEN).glob("*.json")}
    return sorted([*wrong, *(present - wanted.keys())])


def write(root: Path = ROOT) -> None:
    """Make every generated file what it should be; files that are right are not touched."""
    wanted = _wanted()
    for name in stale(root):
        path = root / name
        if name not in wanted:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[name], "utf-8", newline="\n")


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text("utf-8") == text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="codegen.generate", description="Write what is made from basis_protocol.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to write into")
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.root)
        return 0
    names = stale(options.root)
    for name in names:
        print(f"stale: {name} (run `make gen`)", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
