"""The real pocket model in its real process. Asserts that what it says can be used and that limits hold, not that it is
good; one prompt is pinned, because at temperature 0 the same file gives the same answer.

Runs where the model is installed: `basisctl pocket install` and the extra `pocket`.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from basis_daemon.runtime.messages import Message, ToolResult, user
from basis_daemon.runtime.providers.base import Request, TextDelta, ToolDefinition
from basis_daemon.runtime.providers.pocket import PocketProvider, PocketStuck, is_installed
from basis_daemon.runtime.providers.streamed import StreamedMessage
from basis_protocol.address import data_dir
from basis_protocol.pocket import SMOLLM2

PLACES = (Path(sys.prefix) / "pocket-models", data_dir(os.environ) / "models")
"""Where the model may be: the demonstration's, the person's own. Looked at before a test hides the environment."""

MODELS = next((place for place in PLACES if is_installed(place)), None)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(MODELS is None, reason="the pocket model is not installed: basisctl pocket install"),
]


@asynccontextmanager
async def pocket() -> AsyncIterator[PocketProvider]:
    assert MODELS is not None
    provider = PocketProvider(MODELS)
    with anyio.fail_after(55):
        try:
            yield provider
        finally:
            await provider.aclose()


async def ask(provider: PocketProvider, *messages: Message) -> tuple[Message, int]:
    """The answer, and in how many pieces its text came."""
    tools = [ToolDefinition(name, "", {}) for name in ("read", "spawn", "write")]
    streamed = StreamedMessage()
    pieces = 0
    async for event in provider.stream(Request(SMOLLM2.id, list(messages), tools=tools)):
        pieces += isinstance(event, TextDelta)
        streamed.apply(event)
    assert streamed.complete and streamed.usage.output_tokens
    return streamed.message(), pieces


async def test_a_question_about_a_file_is_a_call_and_then_an_answer_from_it() -> None:
    """The pinned prompt: a real model, a real tool call, an answer that is right."""
    async with pocket() as provider:
        question = user("What port is in server.conf?")
        asked, _ = await ask(provider, question)
        (call,) = asked.tool_uses()
        assert (call.name, call.input) == ("read", {"path": "server.conf"})
        result = Message("user", [ToolResult(call.id, "L1: host = localhost\nL2: port = 8731\nL3: workers = 4\n")])
        answer, pieces = await ask(provider, question, asked, result)
    assert "8731" in answer.text() and pieces > 3


PROMPTS = (
    "Write a file called greeting.txt containing Hello world",
    "Run the command git status",
    "How do I deploy?",
    'Say "}{" and \\n and 猫 in naïve.txt',
    "Please change PORT to 9000 in src/config.py and then run the tests with `make test`",
)


async def test_whatever_it_says_is_an_answer_or_a_call_that_stands_in_the_words() -> None:
    """local-model.md 3: invented commands and paths are what it does wrong; the schema leaves it none."""
    async with pocket() as provider:
        for prompt in PROMPTS:
            try:
                said, _ = await ask(provider, user(prompt))
            except PocketStuck:
                continue
            assert bool(said.text()) != bool(said.tool_uses())
            for call in said.tool_uses():
                assert call.malformed is None
                assert all(value.removeprefix("!") in prompt for value in call.input.values())


@pytest.mark.skipif(sys.platform != "linux", reason="watches the process through a pidfd")
async def test_the_process_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    """No orphan keeps 250 MB, whatever happened to the daemon."""
    script = tmp_path / "owner.py"
    script.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from basis_daemon.runtime.messages import user\n"
        "from basis_daemon.runtime.providers.base import Request\n"
        "from basis_daemon.runtime.providers.pocket import PocketProvider\n"
        "from basis_daemon.runtime.providers.pocket_server import PocketServer\n"
        "from basis_protocol.pocket import SMOLLM2\n"
        "async def main():\n"
        "    server = PocketServer(SMOLLM2, SMOLLM2.path(Path(sys.argv[1])))\n"
        "    provider = PocketProvider(Path(sys.argv[1]), server=server)\n"
        "    async for _ in provider.stream(Request('m', [user('What is a river?')])): pass\n"
        "    print(server.child.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with anyio.fail_after(55):
        async with await anyio.open_process([sys.executable, str(script), str(MODELS)], stderr=None) as owner:
            assert owner.stdout is not None
            pid = int(await owner.stdout.receive())
            exited = os.pidfd_open(pid)
            try:
                owner.kill()
                await anyio.wait_readable(exited)
            finally:
                os.close(exited)


async def test_a_reader_that_leaves_frees_the_model_at_once() -> None:
    """PV-65: the connection is closed, and the next question is answered."""
    async with pocket() as provider:
        events = provider.stream(Request(SMOLLM2.id, [user("Explain recursion")]))
        async for event in events:
            if isinstance(event, TextDelta):
                break
        await events.aclose()
        await ask(provider, user("What is a river?"))
