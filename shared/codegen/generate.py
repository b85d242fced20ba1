"""Writes every generated file, or with `--check` only compares and names those that are stale.

Owns the list of outputs. `python -m codegen.generate [--check]`.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from codegen import golden, json_schema, lua, markdown, typescript
from codegen.error_kinds import error_kinds
from codegen.reading import protocol

ROOT = Path(__file__).resolve().parents[2]


def outputs() -> Iterator[tuple[Path, str]]:
    """Every generated file with what it should hold."""
    model = protocol()
    yield ROOT / "shared/schema/basis.schema.json", json_schema.render(model)
    yield ROOT / "editors/vscode/src/protocol.gen.ts", typescript.render(model)
    yield ROOT / "editors/nvim/lua/basis/protocol_gen.lua", lua.render(model)
    yield ROOT / "docs/reference/protocol.md", markdown.render(model, error_kinds(ROOT / "basis_daemon"))
    for name, text in golden.render().items():
        yield ROOT / "shared/golden" / name, text


def stale() -> list[str]:
    """Names of generated files that are missing, differ from what would be written now, or are nobody's any more."""
    wanted = dict(outputs())
    wrong = [path for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text]
    left_over = [path for path in (ROOT / "shared/golden").glob("*.json") if path not in wanted]
    return [str(path.relative_to(ROOT)) for path in sorted([*wrong, *left_over])]


def write() -> None:
    for name in stale():
        (ROOT / name).unlink(missing_ok=True)
    for path, text in outputs():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8", newline="\n")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="codegen.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file is stale")
    if not parser.parse_args(arguments).check:
        write()
        return 0
    names = stale()
    for name in names:
        print(f"stale: {name} (run `make gen`)", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
