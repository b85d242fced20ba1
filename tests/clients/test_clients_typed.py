"""`basisctl run --schema`: an answer for a program."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command_line import basisctl
from support.fake_daemon import FakeDaemon
from support.model_server import ModelServer, calls, says, tool

SCHEMA = {"type": "object", "properties": {"bugs": {"type": "array"}}, "required": ["bugs"]}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Iterator[ModelServer]:
    """A scripted model, and the daemon that the test's command starts for it."""
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        yield server
        basisctl("daemon", "stop", "--now", cwd=workspace)


@pytest.fixture
def schema(workspace: Path) -> str:
    (workspace / "bugs.json").write_text(json.dumps(SCHEMA))
    return "bugs.json"


def gives(value: dict[str, Any]) -> Any:
    """A turn that answers through whichever answering tool is offered."""
    return lambda request: (
        says("here it is")
        + calls(*[tool(name, value) for name in request.tool_names if name.startswith("basis_terminal_")])
    )


def test_the_value_alone_is_printed(model: ModelServer, workspace: Path, schema: str) -> None:
    """CL-35, AG-45: whatever the model did and said on the way."""
    model.script(says("let me look") + calls(tool("ls", {})), gives({"bugs": ["off by one"]}))

    done = basisctl("run", "--schema", schema, "which bugs?", cwd=workspace)

    assert (done.returncode, json.loads(done.stdout)) == (0, {"bugs": ["off by one"]})
    assert "let me look" not in done.stdout + done.stderr


def test_no_value_is_a_failed_turn(model: ModelServer, workspace: Path, schema: str) -> None:
    """AG-47: nothing on stdout, and the exit code says so."""
    model.script(says("I'd rather talk"))
    done = basisctl("run", "--schema", schema, "which bugs?", cwd=workspace)
    assert (done.returncode, done.stdout) == (1, "") and "without the answer" in done.stderr


@pytest.mark.parametrize(
    ("content", "options", "word"),
    [(None, (), "can't read"), ("{", (), "not JSON"), ("[]", (), "no JSON schema"), ("{}", ("--json",), "--json")],
)
def test_a_schema_that_is_none_is_refused_ahead_of_everything(
    fake_daemon: FakeDaemon, workspace: Path, content: str | None, options: tuple[str, ...], word: str
) -> None:
    if content is not None:
        (workspace / "s.json").write_text(content)
    done = basisctl("run", "--schema", "s.json", *options, "go", cwd=workspace)
    assert done.returncode == 2 and word in done.stdout + done.stderr and fake_daemon.requests == []
