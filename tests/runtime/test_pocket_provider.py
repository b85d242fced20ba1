"""The pocket provider's limits and failures, with a scripted process in the model's place: real pipes, real sockets."""

import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.processes import ProcessTable
from basis_daemon.runtime.messages import Message, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.providers.base import ProviderEvent, Request, TextDelta, TokenUsage, ToolDefinition
from basis_daemon.runtime.providers.errors import InvalidRequest, ProviderError, UnsupportedCapability
from basis_daemon.runtime.providers.pocket import PocketProvider, PocketStuck, is_installed
from basis_daemon.runtime.providers.pocket_launch import PocketUnavailable
from basis_daemon.runtime.providers.pocket_server import PocketCrashed, PocketServer
from basis_daemon.runtime.providers.streamed import StreamedMessage
from basis_protocol.pocket import INTRODUCTION, SMOLLM2, has_model

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="unix sockets only")]

STAND_IN = Path(__file__).parents[1] / "support" / "pocket_stand_in.py"
OFFERED = ("read", "spawn", "write")
MODEL_FILE = b"not really a model"
MODEL = replace(SMOLLM2, file="model.gguf", size_bytes=len(MODEL_FILE), sha256=hashlib.sha256(MODEL_FILE).hexdigest())


class Pocket:
    """A provider on a scripted process, and what that was asked."""

    def __init__(self, folder: Path, script: list[Any], idle_s: float = 60.0) -> None:
        self.script = folder / "script.json"
        self.script.write_text(json.dumps(script))
        self.models = folder / "models"
        path = MODEL.path(self.models)
        path.parent.mkdir(parents=True)
        path.write_bytes(MODEL_FILE)
        self.processes = ProcessTable()
        self.server = PocketServer(
            MODEL,
            path,
            processes=self.processes,
            idle_s=idle_s,
            command=(sys.executable, "-P", str(STAND_IN), str(self.script)),
        )
        self.provider = PocketProvider(self.models, model=MODEL, server=self.server)

    @property
    def asked(self) -> list[dict[str, Any]]:
        path = Path(f"{self.script}.asked")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def events(self, *messages: Message | str, tools: tuple[str, ...] = OFFERED) -> list[ProviderEvent]:
        said = [user(message) if isinstance(message, str) else message for message in messages]
        request = Request(MODEL.id, said, tools=[ToolDefinition(name, "", {}) for name in tools])
        return [event async for event in self.provider.stream(request)]

    async def ask(self, *messages: Message | str, tools: tuple[str, ...] = OFFERED) -> Message:
        streamed = StreamedMessage()
        for event in await self.events(*messages, tools=tools):
            streamed.apply(event)
        assert streamed.complete
        return streamed.message()


@asynccontextmanager
async def pocket(folder: Path, *script: Any, idle_s: float = 60.0) -> AsyncIterator[Pocket]:
    with anyio.fail_after(20):
        scene = Pocket(folder, list(script), idle_s)
        try:
            yield scene
        finally:
            await scene.provider.aclose()
            assert await scene.processes.running() == []


def action(tool: str, **fields: str) -> str:
    return json.dumps({"tool": tool, **fields})


def after(call: ToolUse, result: str, *, is_error: bool = False) -> tuple[Message, Message]:
    return assistant(call), Message("user", [ToolResult(call.id, result, is_error)])


# --- actions become calls --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "said", "name", "input"),
    [
        ("What is in notes.txt?", action("read", path="notes.txt"), "read", {"path": "notes.txt"}),
        (
            "Create hi.txt saying hello",
            action("write", path="hi.txt", content="hello"),
            "write",
            {"path": "hi.txt", "content": "hello"},
        ),
        ("Run make test", action("run", command="make test"), "spawn", {"input": "!make test"}),
    ],
)
async def test_an_action_becomes_the_call_of_our_tool(
    tmp_path: Path, prompt: str, said: str, name: str, input: dict[str, str]
) -> None:
    async with pocket(tmp_path, said) as on:
        message = await on.ask(prompt)
    assert [(call.name, call.input) for call in message.tool_uses()] == [(name, input)]
    assert not message.text()


async def test_an_answer_is_passed_on_while_it_is_written(tmp_path: Path) -> None:
    """Its text is taken out of the JSON piece by piece, escapes and all."""
    text = 'A "list" of\nthings: ä, 猫, 🐈 \\ end.'
    async with pocket(tmp_path, {"text": action("answer", text=text), "pieces": 40}) as on:
        events = await on.events("What is a list?")
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(pieces) == text and len(pieces) > 5


async def test_usage_is_what_the_process_reports(tmp_path: Path) -> None:
    async with pocket(tmp_path, action("answer", text="Yes.")) as on:
        streamed = StreamedMessage()
        for event in await on.events("Is it?"):
            streamed.apply(event)
    assert (streamed.usage, streamed.model) == (TokenUsage(input_tokens=7, output_tokens=3), MODEL.id)


# --- limits ----------------------------------------------------------------------------------------------------------


def schema_of(asked: dict[str, Any]) -> dict[str, dict[str, Any]]:
    actions = asked["response_format"]["json_schema"]["schema"]["anyOf"]
    return {each["properties"]["tool"]["const"]: each["properties"] for each in actions}


async def test_the_model_can_pick_only_from_the_persons_words(tmp_path: Path) -> None:
    """local-model.md 4: limits in code, not in the prompt."""
    async with pocket(tmp_path, action("read", path="a.txt")) as on:
        await on.ask("Compare a.txt and src/b.py, then run `make test`")
        actions = schema_of(on.asked[0])
    assert actions["read"]["path"] == {"enum": ["a.txt", "src/b.py"]}
    assert actions["run"]["command"] == {"enum": ["make test"]}
    assert "answer" not in actions, "a file that is named is read before anything is said about it"


async def test_without_a_file_in_the_words_there_is_nothing_to_read_or_write(tmp_path: Path) -> None:
    async with pocket(tmp_path, action("answer", text="Hm.")) as on:
        await on.ask("What is a river?")
        assert set(schema_of(on.asked[0])) == {"run", "answer"}


async def test_tools_that_are_not_offered_are_not_choices(tmp_path: Path) -> None:
    async with pocket(tmp_path, action("answer", text="Hm.")) as on:
        await on.ask("Read a.txt", tools=())
        assert set(schema_of(on.asked[0])) == {"answer"}


@pytest.mark.parametrize(
    "said",
    [
        action("read", path="/etc/passwd"),
        action("write", path="a.txt", content="something else"),
        action("run", command="rm -rf /"),
        action("delete", path="a.txt"),
    ],
)
async def test_what_is_not_in_the_persons_words_is_refused_before_anybody_is_asked(tmp_path: Path, said: str) -> None:
    """The schema is not trusted: the same is checked again."""
    async with pocket(tmp_path, said) as on:
        with pytest.raises(PocketStuck, match="nothing was done"):
            await on.ask("Read a.txt and say hello")


def test_the_loops_limits_are_the_tight_ones() -> None:
    limits = PocketProvider(Path("/nowhere")).limits
    assert (limits.max_tool_calls_per_round, limits.max_rounds) == (1, 5)
    assert limits.always_ask and limits.new_files_only and limits.tools == {"read", "write", "spawn"}
    assert "often gets facts wrong" in INTRODUCTION and "can't edit code" in INTRODUCTION


async def test_too_many_words_are_refused_before_the_process_is_started(tmp_path: Path) -> None:
    async with pocket(tmp_path, "unused") as on:
        with pytest.raises(InvalidRequest, match="2000 bytes"):
            await on.ask("word " * 1000)
        with pytest.raises(UnsupportedCapability):
            await on.ask(Message("user", []))
        assert on.server.child is None


# --- the second round ------------------------------------------------------------------------------------------------


READ = ToolUse("c1", "read", {"path": "a.conf"})


async def test_a_file_that_was_read_is_answered_from(tmp_path: Path) -> None:
    """Without line numbers, which confuse it."""
    async with pocket(tmp_path, "a.conf sets the port to 80.") as on:
        message = await on.ask("Which port is in a.conf?", *after(READ, "L1: port = 80\nL2: host = x"))
        question = on.asked[0]["messages"][-1]["content"]
    assert message.text() == "a.conf sets the port to 80."
    assert question == "Text of a.conf:\nport = 80\nhost = x\nQuestion: Which port is in a.conf?\nAnswer:"
    assert "response_format" not in on.asked[0]


async def test_of_a_long_file_the_model_sees_the_beginning_and_says_so(tmp_path: Path) -> None:
    long = "\n".join(f"L{number}: {'x' * 60}" for number in range(1, 200))
    async with pocket(tmp_path, "It has many x.") as on:
        message = await on.ask("What is in a.conf?", *after(READ, long))
        assert len(on.asked[0]["messages"][-1]["content"]) < 3200
    assert message.text() == "It has many x.\n\n(The pocket model was shown only the beginning of a.conf.)"


@pytest.mark.parametrize(
    ("call", "result", "is_error", "told"),
    [
        (ToolUse("c", "write", {"path": "a", "content": "x"}), "created a", False, "`write a`: done: created a"),
        (ToolUse("c", "spawn", {"input": "!ls"}), "a\nb", False, "`!ls`: done:\n```\na\nb\n```"),
        (ToolUse("c", "spawn", {"input": "!ls"}), "Tool execution denied: no", True, "work: Tool execution denied: no"),
        (READ, "there is no file a.conf", True, "`read a.conf`: did not work: there is no file a.conf"),
        (READ, "(no lines)", False, "`read a.conf`: done: (no lines)"),
    ],
)  # fmt: skip
async def test_anything_else_is_told_as_it_is_without_the_model(
    tmp_path: Path, call: ToolUse, result: str, is_error: bool, told: str
) -> None:
    async with pocket(tmp_path, "unused") as on:
        message = await on.ask("do it", *after(call, result, is_error=is_error))
        assert told in message.text() and on.server.child is None


async def test_only_the_last_words_and_their_result_are_looked_at(tmp_path: Path) -> None:
    async with pocket(tmp_path, action("answer", text="Hello.")) as on:
        await on.ask("SECRET old words", assistant("Old answer."), "hello")
    assert "SECRET" not in json.dumps(on.asked) and on.asked[0]["messages"][-1]["content"] == "hello"


# --- stuck -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "turn",
    [
        {"text": '{"tool": "answer", "text": "2.5.3.1.x.x.x', "finish": "length"},
        '{"tool": "answer"',
        "I can do that!",
        "",
        action("answer", text=""),
    ],
)
async def test_a_reply_that_is_no_action_is_told_as_stuck_not_as_an_answer(tmp_path: Path, turn: Any) -> None:
    """local-model.md 4."""
    async with pocket(tmp_path, turn) as on:
        with pytest.raises(PocketStuck, match="the pocket model got stuck") as caught:
            await on.ask("What is it?")
    assert not caught.value.is_transient and "connect a real model" in (caught.value.hint or "")


@pytest.mark.parametrize("turn", [{"text": "It says " + "8." * 50, "finish": "length"}, "  \n"])
async def test_an_endless_or_empty_reading_is_told_as_stuck(tmp_path: Path, turn: Any) -> None:
    async with pocket(tmp_path, turn) as on:
        with pytest.raises(PocketStuck):
            await on.ask("Which port is in a.conf?", *after(READ, "L1: port = 80"))


# --- the process -----------------------------------------------------------------------------------------------------


async def test_it_starts_with_the_first_question_and_ends_on_close(tmp_path: Path) -> None:
    async with pocket(tmp_path, action("answer", text="One."), action("answer", text="Two.")) as on:
        assert on.server.child is None
        await on.ask("one?")
        child = on.server.child
        await on.ask("two?")
        assert child is not None and on.server.child is child
        assert [row.what for row in await on.processes.running()] == ["pocket"]
        await on.provider.aclose()
        assert not alive(child.pid)
        with pytest.raises(PocketUnavailable, match="closed"):
            await on.ask("three?")


async def test_an_idle_process_is_ended_and_the_next_question_starts_another(tmp_path: Path) -> None:
    async with pocket(tmp_path, action("answer", text="One."), action("answer", text="Two."), idle_s=0.05) as on:
        await on.ask("one?")
        assert on.server.child is None or await on.server.child.wait(10)
        assert (await on.ask("two?")).text() == "Two."
        assert on.asked[0]["pid"] != on.asked[1]["pid"] and on.asked[0]["key"] != on.asked[1]["key"]


async def test_a_crash_before_anything_was_said_is_made_good_once(tmp_path: Path) -> None:
    async with pocket(tmp_path, {"text": "", "die": "before"}, action("answer", text="Back.")) as on:
        assert (await on.ask("one?")).text() == "Back."


async def test_a_second_crash_is_an_error_and_the_next_question_works_again(tmp_path: Path) -> None:
    dying = {"text": "", "die": "before"}
    async with pocket(tmp_path, dying, dying, action("answer", text="Back.")) as on:
        with pytest.raises(PocketCrashed, match="ended unexpectedly") as caught:
            await on.ask("one?")
        assert not caught.value.is_transient
        assert (await on.ask("again?")).text() == "Back."


async def test_a_crash_in_the_middle_of_an_answer_is_an_error(tmp_path: Path) -> None:
    """What was shown can't be taken back, so it isn't asked again behind anybody's back."""
    async with pocket(tmp_path, {"text": action("answer", text="Half an answer"), "die": "after"}) as on:
        with pytest.raises(PocketCrashed):
            await on.ask("one?")
        assert len(on.asked) == 1


async def test_several_questions_at_once_share_one_process(tmp_path: Path) -> None:
    async with pocket(tmp_path, *[action("answer", text="Yes.")] * 5) as on:
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(on.ask, f"question {number}?")
        assert len({asked["pid"] for asked in on.asked}) == 1


async def test_text_that_does_not_fit_is_a_plain_refusal(tmp_path: Path) -> None:
    refusal = {"status": 400, "message": "request (6031 tokens) exceeds the available context size (4096 tokens)"}
    async with pocket(tmp_path, refusal) as on:
        with pytest.raises(InvalidRequest, match="too much text"):
            await on.ask("long?")


async def test_any_other_refusal_is_told_in_its_own_words(tmp_path: Path) -> None:
    async with pocket(tmp_path, {"status": 500, "message": "out of luck"}) as on:
        with pytest.raises(ProviderError, match="out of luck"):
            await on.ask("what?")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"error": "engine", "text": "libgomp.so.1: cannot open shared object file"},
            ("libgomp.so.1", "apt install libgomp1"),
        ),
        ({"error": "engine", "text": "No module named 'x'"}, ("engine can't be loaded", "pip install xllamacpp")),
        ({"error": "model", "text": "bad magic"}, ("bad magic", "basisctl pocket install")),
    ],
)  # fmt: skip
async def test_a_process_that_can_not_start_says_what_is_missing(
    tmp_path: Path, answer: dict[str, str], expected: tuple[str, str]
) -> None:
    async with pocket(tmp_path, {"start": answer}) as on:
        with pytest.raises(PocketUnavailable) as caught:
            await on.ask("one?")
    assert expected[0] in str(caught.value) and expected[1] in (caught.value.hint or "")


async def test_a_model_file_that_was_changed_is_not_run(tmp_path: Path) -> None:
    """Same length, other content."""
    async with pocket(tmp_path, "unused") as on:
        MODEL.path(on.models).write_bytes(MODEL_FILE[::-1])
        assert await anyio.to_thread.run_sync(has_model, on.models, MODEL)
        with pytest.raises(PocketUnavailable, match="not the one it should be"):
            await on.ask("one?")


async def test_a_model_that_is_not_there_is_named_with_the_command_that_gets_it(tmp_path: Path) -> None:
    async with pocket(tmp_path, "unused") as on:
        MODEL.path(on.models).unlink()
        assert not await anyio.to_thread.run_sync(is_installed, on.models, MODEL)
        with pytest.raises(PocketUnavailable, match="not installed") as caught:
            await on.ask("one?")
    assert "basisctl pocket install" in (caught.value.hint or "")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
