"""The pages: what they link to is there, what they tell people to type exists."""

import re
from pathlib import Path

import pytest

from basisctl.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def anchors(page: Path) -> set[str]:
    """What a link into a page can name: its headings, as they are usually spelled in links, and explicit ids."""
    text = page.read_text("utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    spelled = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return spelled | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead: list[str] = []
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text("utf-8")):
        place = page.parent / target if target else page
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            dead.append(f"{target}#{anchor}")

    assert dead == []


def test_commands_in_the_pages_exist() -> None:
    named = {
        word for page in PAGES for word in re.findall(r"^\s*basisctl ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)
    }

    assert named - set(COMMANDS) == set()
    assert named >= {"run", "sessions", "approve"}


def test_make_targets_in_the_pages_exist() -> None:
    named = {word for page in PAGES for word in re.findall(r"`make ([a-z]+)`", page.read_text("utf-8"))}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    assert named - targets == set()


def test_contributing_fits_one_page() -> None:
    assert (ROOT / "CONTRIBUTING.md").read_text("utf-8").count("\n") <= 60
