"""The pocket provider and the rehearsal in whole turns: real workspace, loop, tools and files.

Only the pocket model's process is scripted.
"""

import hashlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.runtime.permissions import ApprovalAnswer
from basis_daemon.runtime.providers.pocket import PocketProvider
from basis_daemon.runtime.providers.pocket_server import PocketServer
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.workspace.run import PreparedRun
from basis_daemon.workspace.workspace import Workspace
from basis_protocol.pocket import SMOLLM2
from support.sdk import Person, say
from support.workspaces import bounded, sample_repository

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="unix sockets only")]

STAND_IN = Path(__file__).parents[1] / "support" / "pocket_stand_in.py"
CONTENT = b"not really a model"
MODEL = replace(SMOLLM2, file="model.gguf", size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


@asynccontextmanager
async def conversation(folder: Path, *script: str) -> AsyncIterator[tuple[PreparedRun, Path]]:
    """A conversation in a sample repository, with a pocket model that replies with `script`."""
    repo = sample_repository(folder / "repo")
    path = MODEL.path(folder / "models")
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    lines = folder / "script.json"
    lines.write_text(json.dumps(script))
    server = PocketServer(MODEL, path, command=(sys.executable, "-P", str(STAND_IN), str(lines)))
    provider = PocketProvider(folder / "models", model=MODEL, server=server)
    runtime = Runtime.builder().with_ephemeral_history().with_provider_instance(provider).with_provider("pocket")
    with anyio.fail_after(30):
        async with await bounded(Workspace.builder(repo)).with_runtime_builder(runtime).open() as workspace:
            run = workspace.prepare()
            try:
                yield run, repo
            finally:
                run.close()
                await provider.aclose()


def action(tool: str, **fields: Any) -> str:
    return json.dumps({"tool": tool, **fields})


async def test_a_question_about_a_file_is_read_and_answered_without_asking_anybody(tmp_path: Path) -> None:
    async with conversation(tmp_path, action("read", path="README.md"), "It adds numbers.") as (run, _):
        person = Person()
        told = await say(run, "What is README.md about?", person)
    assert told.report.succeeded and told.report.final_message == "It adds numbers."
    assert person.asked == []
    assert (told.report.provider, told.report.model) == ("pocket", MODEL.id)


async def test_a_new_file_is_written_after_asking_even_when_everything_is_allowed(tmp_path: Path) -> None:
    """local-model.md 4: it ignores "auto-approve"."""
    async with conversation(tmp_path, action("write", path="new.txt", content="hello")) as (run, repo):
        run.mode = "always"
        person = Person()
        told = await say(run, "Create new.txt saying hello", person)
        assert (repo / "new.txt").read_text() == "hello"
    assert [asked.tool_name for asked in person.asked] == ["write"]
    assert "`write new.txt`: done" in (told.report.final_message or "")


async def test_a_file_that_is_there_is_not_replaced_and_nobody_is_asked(tmp_path: Path) -> None:
    """New files only: refused by the loop, whatever the person would have said."""
    async with conversation(tmp_path, action("write", path="README.md", content="hello")) as (run, repo):
        person = Person()
        before = (repo / "README.md").read_text()
        told = await say(run, "Write hello to README.md", person)
        assert (repo / "README.md").read_text() == before
    assert person.asked == []
    assert "only new files may be written here" in (told.report.final_message or "")


async def test_a_refused_command_is_told_with_its_reason(tmp_path: Path) -> None:
    async with conversation(tmp_path, action("run", command="touch x")) as (run, repo):
        person = Person(ApprovalAnswer(allow=False, reason="not today"))
        told = await say(run, "Run `touch x`", person)
        assert not (repo / "x").exists()
    assert told.report.succeeded and "did not work: Tool execution denied: not today" in (
        told.report.final_message or ""
    )


async def test_a_stuck_model_fails_the_turn_and_says_so(tmp_path: Path) -> None:
    async with conversation(tmp_path, "blah blah", action("answer", text="Yes.")) as (run, _):
        stuck = await say(run, "Is it?")
        again = await say(run, "Is it?")
    assert stuck.report.status == "error" and stuck.report.error is not None
    assert "got stuck" in str(stuck.report.error)
    assert again.report.final_message == "Yes."


async def test_the_rehearsal_does_several_steps_in_order_each_asked_for(tmp_path: Path) -> None:
    repo = sample_repository(tmp_path / "repo")
    runtime = Runtime.builder().with_ephemeral_history().with_provider("rehearsal")
    person = Person()
    steps = "read calculator.py\nedit calculator.py: a - b -> a + b\nwrite done.txt: yes\n!cat done.txt calculator.py"
    with anyio.fail_after(30):
        async with await bounded(Workspace.builder(repo)).with_runtime_builder(runtime).open() as workspace:
            run = workspace.prepare()
            told = await say(run, steps, person)
            run.close()
    assert told.report.succeeded
    assert [asked.tool_name for asked in person.asked] == ["edit", "write", "spawn"]
    assert (repo / "calculator.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert "yesdef add(a, b):\n    return a + b" in (told.report.final_message or "")
