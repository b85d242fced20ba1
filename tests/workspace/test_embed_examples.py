"""The page about embedding tells the truth: its program runs, and so does every snippet."""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import basis_daemon
from support.model_server import ModelServer, says
from support.sdk import scene
from support.workspaces import sample_repository

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "howto" / "embed.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"## ([^\n]+)\n|```python\n(.*?)```", PAGE, re.DOTALL)


def snippets() -> list[Any]:
    """Every Python block of the page, named by the heading it stands under."""
    found: list[Any] = []
    heading = ""
    for title, code in SNIPPETS:
        heading = title or heading
        if code:
            found.append(pytest.param(code, id=f"{heading} {len(found)}".replace(" ", "-")))
    return found


@pytest.mark.anyio
@pytest.mark.parametrize("code", snippets())
async def test_a_snippet_of_the_page_runs(tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {name: getattr(basis_daemon, name) for name in dir(basis_daemon) if name[0].isupper()}
    names |= {"asyncio": asyncio, "Any": Any}
    source = "async def snippet(directory, workspace):\n" + textwrap.indent(code, "    ")
    exec(compile(source, str(DOCS / "howto/embed.md"), "exec"), names)
    async with scene(tmp_path, says("Done."), says("Done.")) as on:
        monkeypatch.setenv("BASIS_BASE_URL", on.server.base_url)
        monkeypatch.setenv("BASIS_API_KEY", "key")
        await names["snippet"](on.repo, on.workspace)


def run_example(directory: Path, *arguments: str, answers: str = "", **environment: str) -> str:
    """Run the example program and return what it printed; it must end well."""
    done = subprocess.run(
        [sys.executable, str(DOCS / "examples/embed.py"), str(directory), *arguments],
        input=answers,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_example_works_without_any_model(tmp_path: Path) -> None:
    """With nothing configured it rehearses, asks before it writes, and can be carried on."""
    repo = sample_repository(tmp_path / "repo")

    refused = run_example(repo, "write note.txt: remember", answers="n\n")
    assert not (repo / "note.txt").exists()
    allowed = run_example(repo, "write note.txt: remember", answers="y\n")

    assert "rehearsal" in refused and "allow it?" in allowed
    assert (repo / "note.txt").read_text().strip() == "remember"


def test_the_example_carries_a_conversation_on(tmp_path: Path) -> None:
    """The second process knows what was said in the first."""
    repo = sample_repository(tmp_path / "repo")
    with ModelServer(says("Seven."), says("Eight."), models=["scripted"]) as server:
        environment = {"BASIS_BASE_URL": server.base_url, "BASIS_API_KEY": "key"}
        first = run_example(repo, "Three plus four?", **environment)
        (agent_id,) = re.findall(r"--resume (\S+)\]", first)
        second = run_example(repo, "--resume", agent_id, "Plus one?", **environment)

    assert "Seven." in first and "Eight." in second
    assert [text for _, text in server.requests[1].conversation] == ["Three plus four?", "Seven.", "Plus one?"]


def test_importing_the_package_loads_nothing() -> None:
    """The exports are lazy: only the package itself is imported."""
    code = "import sys, basis_daemon; print([m for m in sys.modules if m.startswith(('basis', 'httpx', 'anyio'))])"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "['basis_daemon']"


def test_every_export_exists_and_an_unknown_name_does_not() -> None:
    for name in ("Workspace", "Runtime", "RunSpec", "AllowAll", "BudgetPool"):
        assert getattr(basis_daemon, name).__name__ == name
    assert set(basis_daemon._HOME_OF) <= set(dir(basis_daemon))  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(AttributeError, match="Nothing"):
        _ = basis_daemon.Nothing  # type: ignore[attr-defined]


def test_the_version_is_the_distributions() -> None:
    import tomllib

    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]
    assert basis_daemon.__version__ == project["version"]
