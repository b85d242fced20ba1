"""`basis_protocol.methods`: the one table holds every method and event that was agreed on, and nothing else."""

import re
from pathlib import Path

import pytest

from basis_protocol.methods import METHODS, Direction
from codegen.reading import protocol

DESIGN = Path(__file__).resolve().parents[3] / "shared" / "design"
"""The agreed pages lie beside the checkout, where there are any."""


def page(name: str) -> str:
    path = DESIGN / name
    if not path.is_file():
        pytest.skip(f"the design page {name} is not beside this checkout")
    return path.read_text("utf-8")


def methods_in(table: str) -> set[str]:
    """Names in the first cells of a table; `basis/a/b`, `c` stands for basis/a/b and basis/a/c."""
    found: set[str] = set()
    for line in table.splitlines():
        if line.startswith("| `basis/"):
            prefix = ""
            for word in re.findall(r"`([^`]+)`", line.split("|")[1]):
                prefix = word.rpartition("/")[0] if word.startswith("basis/") else prefix
                found.add(word if word.startswith("basis/") else f"{prefix}/{word}")
    return found


def section(text: str, number: int) -> str:
    return text.split(f"\n## {number}. ")[1].split("\n## ")[0]


def test_every_agreed_request_is_in_the_table_and_no_other() -> None:
    """protocol.md 3."""
    agreed = methods_in(section(page("protocol.md"), 3))
    requests = {name for name, method in METHODS.items() if method.direction is Direction.CLIENT_TO_DAEMON}

    assert len(agreed) > 50
    assert requests == agreed


def test_every_agreed_notification_is_in_the_table_and_no_other() -> None:
    """protocol.md 4."""
    agreed = set(re.findall(r"`(basis/\w+/\w+)", section(page("protocol.md"), 4)))
    notifications = {name for name, method in METHODS.items() if method.is_notification}

    assert notifications == agreed


def test_every_agreed_event_has_its_type_and_no_other() -> None:
    """workspace.md 4.8 and the session-level ones of protocol.md 4."""
    table = page("workspace.md").split("### 4.8 Event stream")[1].split("\nEV-1")[0]
    agreed = {word for line in table.splitlines() if line.startswith("| `") for word in names_in(line.split("|")[1])}
    after = section(page("protocol.md"), 4).split("session-level ones:")[1].split("\n- ")[0]
    agreed |= {word for word in names_in(after) if "_" in word}
    known = {protocol().struct(name).tag for name in protocol().events}

    assert known == agreed


def names_in(text: str) -> list[str]:
    """The first word of everything in backticks."""
    return re.findall(r"`(\w+)[^`]*`", text)


def test_requests_have_a_result_and_notifications_have_none() -> None:
    for method in METHODS.values():
        assert method.is_notification == (method.direction is Direction.DAEMON_TO_CLIENT), method.name


def test_every_method_says_in_a_sentence_what_it_does() -> None:
    assert [name for name, method in METHODS.items() if not method.summary.endswith(".")] == []
