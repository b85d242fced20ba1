"""Attacks on what must hold whatever a model, a file or a server says, through the whole library (runtime.md app. C).

Others of the sixteen are attacked where they live; `invariant N` in a test's docstring says which one it is about.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from support.model_server import calls, fails, says, tool
from support.sdk import Person, files_below, say, scene

pytestmark = pytest.mark.anyio

KEY = "sk-canary-0001"
"""The key every scene sends."""


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A careless user: whatever is made without a mode is everybody's."""
    before = os.umask(0)
    yield
    os.umask(before)


async def test_key_is_in_nothing_that_is_kept_told_or_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariants 5 and 11: not when a command prints its environment, not when a server repeats the key in an error."""
    caplog.set_level("DEBUG")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    script = (
        calls(tool("spawn", {"input": "!env; cat /proc/$$/environ | tr '\\0' '\\n'"})),
        says("Nothing there."),
        fails(401, f"the key {KEY} is not valid"),
    )
    person = Person()
    async with scene(tmp_path, *script) as on:
        run = on.workspace.prepare()
        told = [await say(run, "Print the environment.", person), await say(run, "Again.", person)]
        run.close()
        shown = repr((on.workspace, on.workspace.runtime, on.workspace.runtime.defaults, person.asked))

    assert told[0].report.status == "ok" and told[1].report.status == "error"
    kept = b"".join(files_below(on.store).values())
    events = msgspec.json.encode([event for each in told for event in each.events])
    assert b"Nothing there." in kept
    for text in (kept, events, caplog.text.encode(), shown.encode(), (told[1].report.error or "").encode()):
        assert KEY.encode() not in text
    assert KEY in str(on.server.requests[0].headers)


@pytest.mark.usefixtures("open_umask")
async def test_what_is_kept_is_the_persons_alone(tmp_path: Path) -> None:
    """Invariant 13: conversations, leases and spilled results, under the most careless umask."""
    script = (calls(tool("spawn", {"input": "!seq 100000"})), says("Long."))
    async with scene(tmp_path, *script) as on:
        run = on.workspace.prepare()
        told = await say(run, "Count.")
        run.close()

    assert told.report.status == "ok"
    spilled = [
        name for name, data in files_below(on.store).items() if b"\n99999\n" in data and "transcript" not in name
    ]
    assert spilled
    assert not [path for path in (on.store, *on.store.rglob("*")) if path.lstat().st_mode & 0o077]


@pytest.mark.parametrize(
    ("call", "input"),
    [
        ("read", {"path": "../outside/secret"}),
        ("read", {"path": "way-out/secret"}),
        ("ls", {"path": "way-out"}),
        ("grep", {"pattern": "kept", "path": "."}),
        ("glob", {"pattern": "**/secret"}),
        ("write", {"path": "way-out/made", "content": "x"}),
        ("write", {"path": ".git/hooks/pre-commit", "content": "x"}),
        ("write", {"path": ".GIT/Hooks/pre-commit", "content": "x"}),
        ("write", {"path": "src/../.git/config", "content": "x"}),
        ("edit", {"path": "way-out/secret", "old_string": "kept", "new_string": "lost"}),
        ("read", {"path": "pipe"}),
        ("write", {"path": "pipe", "content": "x"}),
        ("read", {"path": "/dev/zero"}),
        ("read", {"path": "nowhere"}),
        ("write", {"path": "nowhere", "content": "x"}),
    ],
)
async def test_no_path_a_model_names_leads_out_or_hangs(tmp_path: Path, call: str, input: dict[str, object]) -> None:
    """Invariants 3, 4 and 15: neither above the root, through a link, into what git runs, nor into a special file;
    although every call is allowed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("kept\n")
    async with scene(tmp_path, calls(tool(call, input, id="attack")), says("I see.")) as on:
        (on.repo / "way-out").symlink_to(outside)
        (on.repo / "nowhere").symlink_to(tmp_path / "made")
        os.mkfifo(on.repo / "pipe")
        (on.repo / ".git" / "hooks").mkdir(parents=True, exist_ok=True)
        run = on.workspace.prepare()
        told = await say(run, "Do it.")
        run.close()

    assert told.report.status == "ok"
    assert "kept" not in on.server.requests[1].tool_results["attack"]
    assert files_below(outside) == {"secret": b"kept\n"}
    assert not (tmp_path / "made").exists()
    assert files_below(on.repo / ".git" / "hooks") == {}
