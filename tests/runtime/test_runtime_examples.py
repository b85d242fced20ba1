"""The page about the runtime tells the truth: its programs run, and so does every snippet."""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

import basis_daemon
from basis_daemon import testing
from basis_protocol.events import PermissionRequested
from support.model_requests import ModelRequest
from support.model_server import ModelServer, calls, says, tool
from support.model_turns import Reply

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "howto" / "runtime.md").read_text(encoding="utf-8")

CALLS: dict[str, Any] = {
    "Write note.txt.": tool("write", {"path": "note.txt", "content": "x"}),
    "Write hello in capitals.": tool("uppercase", {"text": "hello"}),
    "Take three coins.": tool("take_coins", {"count": 3}),
    "List the keys.": tool("ls", {"path": "keys"}),
    "Review the plan.": None,
}
"""The first thing a model answers to these prompts; all else, and then, is a word."""

REVIEW: dict[str, Any] = {"verdict": "good", "problems": []}


def snippets() -> Sequence[str]:
    """Every Python block of the page."""
    return re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def answer(request: ModelRequest) -> Reply:
    prompt = request.prompt
    if prompt not in CALLS or request.tool_results:
        return says("Done.")
    return calls(CALLS[prompt] or tool(request.tool_names[0], REVIEW))


@pytest.mark.anyio
@pytest.mark.parametrize("code", snippets(), ids=lambda code: re.sub(r"\W+", "-", code[:40]))
async def test_a_snippet_of_the_page_runs(tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {name: getattr(basis_daemon, name) for name in dir(basis_daemon) if name[0].isalpha()}
    names |= {name: getattr(testing, name) for name in ("MockRuntime", "ScriptedCall")}
    names |= {"asyncio": asyncio, "os": os, "Any": Any, "dataclass": dataclass}
    names |= {"PermissionRequested": PermissionRequested}
    source = "async def snippet(directory, builder):\n" + textwrap.indent(code, "    ")
    exec(compile(source, str(DOCS / "howto/runtime.md"), "exec"), names)
    with anyio.fail_after(20):
        async with ModelServer(respond=answer, models=["my-model"]) as server:
            monkeypatch.setenv("MODEL_URL", server.base_url)
            monkeypatch.setenv("MODEL_KEY", "key")
            builder = basis_daemon.Runtime.builder().with_openai_compatible("mine", server.base_url, "key")
            await names["snippet"](tmp_path, builder.with_model("my-model").with_ephemeral_history())


def test_the_program_with_one_prompt_runs() -> None:
    """Its tool is called and its answer printed; a wrong model, or none, is told in words."""
    with ModelServer(calls(tool("clock", {})), says("Noon."), models=["small"]) as server:
        environment = {**os.environ, "MODEL_URL": server.base_url, "MODEL_KEY": "key"}
        done = run_example("one_prompt.py", "What time is it?", environment=environment)
        lost = run_example("one_prompt.py", "What time is it?", environment={**os.environ, "MODEL_URL": "nonsense"})

    assert done.returncode == 0 and "Noon." in done.stdout and done.stderr == ""
    assert re.match(r"\d{4}-\d\d-\d\dT", server.requests[-1].tool_results.popitem()[1])
    assert lost.returncode == 1 and lost.stderr.startswith("error: ") and "Traceback" not in lost.stderr


def test_the_test_to_start_from_passes() -> None:
    program = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(DOCS / "examples/test_shouter.py"))
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, cwd=DOCS)
    assert done.returncode == 0, done.stdout + done.stderr


def run_example(name: str, *arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    program = (sys.executable, str(DOCS / "examples" / name), *arguments)
    return subprocess.run(program, capture_output=True, text=True, timeout=30, env=environment)
