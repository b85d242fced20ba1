"""Every listed behaviour is shown by a test, and every test that names one names one of the list."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

from interaction.behaviours import BEHAVIOURS

TESTS = Path(__file__).resolve().parents[1]


@cache
def shown() -> dict[str, list[str]]:
    """Behaviour id → names of the tests that are marked with it, read from the source of every test module."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    match decorator:
                        case ast.Call(func=ast.Name(id="behaviour"), args=[ast.Constant(value=str(name))]):
                            found[name].append(f"{path.name}::{node.name}")
                        case _:
                            pass
    return found


def test_every_behaviour_is_shown_by_a_test() -> None:
    assert [entry.id for entry in BEHAVIOURS if entry.id not in shown()] == []


def test_every_marked_test_shows_a_listed_behaviour() -> None:
    listed = {entry.id for entry in BEHAVIOURS}

    assert {name: tests for name, tests in shown().items() if name not in listed} == {}


def test_no_behaviour_is_listed_twice() -> None:
    ids = [entry.id for entry in BEHAVIOURS]

    assert len(set(ids)) == len(ids)
    assert all(entry.sentence.endswith(".") and entry.source for entry in BEHAVIOURS)
