"""The rehearsal provider at the provider seam: what it understands, what it says, that it repeats itself exactly."""

from typing import Any

import pytest

from basis_daemon.runtime.messages import Message, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.providers.base import ProviderEvent, Request, TextDelta, TokenUsage, ToolDefinition
from basis_daemon.runtime.providers.rehearsal import RehearsalProvider
from basis_daemon.runtime.providers.rehearsal_script import parse
from basis_daemon.runtime.providers.streamed import StreamedMessage

pytestmark = pytest.mark.anyio

ALL = ("edit", "read", "spawn", "write")


async def ask(messages: list[Message], tools: tuple[str, ...] = ALL) -> tuple[Message, list[ProviderEvent]]:
    request = Request("rehearsal", messages, tools=[ToolDefinition(name, "", {}) for name in tools])
    events = [event async for event in RehearsalProvider().stream(request)]
    streamed = StreamedMessage()
    for event in events:
        streamed.apply(event)
    assert streamed.complete
    assert streamed.usage == TokenUsage(input_tokens=0, output_tokens=0)
    assert streamed.stop_reason == ("tool_use" if streamed.message().tool_uses() else "end_turn")
    return streamed.message(), events


async def converse(prompt: str, *results: str | tuple[str, bool], before: tuple[Message, ...] = ()) -> list[Message]:
    """A turn in which the calls get `results` (with `True`: as an error), one a round. Returns all its messages."""
    messages = [*before, user(prompt)]
    for result in results:
        said, _ = await ask(messages)
        (call,) = said.tool_uses()
        content, is_error = result if isinstance(result, tuple) else (result, False)
        messages += [said, Message("user", [ToolResult(call.id, content, is_error)])]
    messages.append((await ask(messages))[0])
    return messages


def calls(messages: list[Message]) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.input) for message in messages for call in message.tool_uses()]


EDITS = {"path": "src/app.py", "edits": [{"old_string": "8080", "new_string": "9000"}]}


@pytest.mark.parametrize(
    ("prompt", "tool", "input"),
    [
        ("!make test", "spawn", {"input": "!make test"}),
        ("  !ls -la  ", "spawn", {"input": "!ls -la"}),
        ("!@box uname", "spawn", {"input": "!@box uname"}),
        ("read README.md", "read", {"path": "README.md"}),
        ("Read  'odd", "read", {"path": "'odd"}),
        ('read "two words.txt"', "read", {"path": "two words.txt"}),
        ("read `src/übung.py`", "read", {"path": "src/übung.py"}),
        ("write note.txt: buy bread", "write", {"path": "note.txt", "content": "buy bread"}),
        ("write note.txt:tight", "write", {"path": "note.txt", "content": "tight"}),
        ("write note.txt:   three blanks", "write", {"path": "note.txt", "content": "  three blanks"}),
        ("write time.txt: at 10:30 -> now", "write", {"path": "time.txt", "content": "at 10:30 -> now"}),
        ('write "a: b.txt": x', "write", {"path": "a: b.txt", "content": "x"}),
        ("write empty.txt:", "write", {"path": "empty.txt", "content": ""}),
        ("write 名前.txt: 猫 🐈", "write", {"path": "名前.txt", "content": "猫 🐈"}),
        ("write a: <<END\nif x:\n    y\n\nEND", "write", {"path": "a", "content": "if x:\n    y\n\n"}),
        ("edit src/app.py: 8080 -> 9000", "edit", EDITS),
        ("edit src/app.py:8080->9000", "edit", EDITS),
        ("edit a: x -> y -> z", "edit", {"path": "a", "edits": [{"old_string": "x", "new_string": "y -> z"}]}),
        ("edit a: gone ->", "edit", {"path": "a", "edits": [{"old_string": "gone", "new_string": ""}]}),
        (
            "edit a: `f() -> int` -> ` f() -> str`",
            "edit",
            {"path": "a", "edits": [{"old_string": "f() -> int", "new_string": " f() -> str"}]},
        ),
    ],
)
async def test_a_line_becomes_the_call_it_describes(prompt: str, tool: str, input: dict[str, Any]) -> None:
    """local-model.md 4: exact, no guessing."""
    said, _ = await ask([user(prompt)])
    assert [(call.name, call.input) for call in said.tool_uses()] == [(tool, input)]
    assert not said.text()


@pytest.mark.parametrize(
    "prompt",
    [
        "hello",
        "",
        "!",
        "read",
        "read a.txt and tell me what it says",
        "write note.txt",
        "edit a.txt: only this",
        "edit a.txt: -> new",
        "edit a.txt: same -> same",
        "write a.txt: <<END\nnever ends",
        "read a.txt\nthen do something clever",
    ],
)
async def test_anything_else_gets_one_honest_sentence_and_no_call(prompt: str) -> None:
    """local-model.md 4: never prose that could pass for a model's; one line not understood means nothing is done."""
    said, _ = await ask([user(prompt)])
    assert not said.tool_uses()
    assert said.text().startswith("No model is connected. I understand: `!command`, `read PATH`,")
    assert "To connect a real model" in said.text()


async def test_the_line_that_was_not_understood_is_named() -> None:
    said, _ = await ask([user("read a.txt\nmake it nicer")])
    assert "`make it nicer`" in said.text() and "Nothing was done" in said.text()


async def test_who_embeds_it_says_how_to_connect() -> None:
    provider = RehearsalProvider(lambda: "Ask Ann.")
    events = [event async for event in provider.stream(Request("rehearsal", [user("hi")]))]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)).endswith("Ask Ann.")


async def test_several_lines_are_done_one_call_a_round_in_order() -> None:
    turn = await converse("read a.txt\n\nwrite b.txt: two\n!ls", "L1: one", "wrote b.txt", "a.txt\nb.txt")
    assert calls(turn) == [
        ("read", {"path": "a.txt"}),
        ("write", {"path": "b.txt", "content": "two"}),
        ("spawn", {"input": "!ls"}),
    ]
    assert turn[-1].text() == (
        "`read a.txt`: done: L1: one\n`write b.txt`: done: wrote b.txt\n`!ls`: done:\n```\na.txt\nb.txt\n```"
    )


async def test_after_a_refusal_it_gives_the_reason_and_does_nothing_more() -> None:
    """A refusal's reason is what the answer quotes; steps that were to follow are named and left undone."""
    turn = await converse("write a.txt: x\n!rm a.txt", ("Tool execution denied: not on a Friday", True))
    assert calls(turn) == [("write", {"path": "a.txt", "content": "x"})]
    assert "did not work: Tool execution denied: not on a Friday" in turn[-1].text()
    assert "Not done after that: `!rm a.txt`." in turn[-1].text()


async def test_a_long_result_is_quoted_in_part() -> None:
    turn = await converse("read big.txt", "\n".join(f"L{number}: {'x' * 10}" for number in range(1, 40)))
    assert "L12: " in turn[-1].text() and "L13: " not in turn[-1].text() and "27 more lines" in turn[-1].text()
    assert len(turn[-1].text()) < 500


async def test_a_call_without_output_is_told_without_any() -> None:
    turn = await converse("!true", "")
    assert turn[-1].text() == "`!true`: done, with no output."


async def test_only_the_last_message_counts() -> None:
    """Steps of an earlier turn are never taken up again, whatever became of it."""
    before = (user("read old.txt\nread older.txt"), assistant(ToolUse("x", "read", {"path": "old.txt"})))
    result = Message("user", [ToolResult("x", "L1: old")])
    turn = await converse("read new.txt", "L1: new", before=(*before, result))
    assert calls(turn[3:]) == [("read", {"path": "new.txt"})]
    assert "old" not in turn[-1].text()


async def test_a_replayed_round_asks_for_the_same_call_under_the_same_id() -> None:
    """An answer to a question that stood open over a restart must find its call again."""
    messages = (await converse("read a.txt\nread a.txt", "L1: one"))[:3]
    first, again = await ask(messages), await ask(messages)
    assert first == again
    assert first[0].tool_uses()[0].id == again[0].tool_uses()[0].id


async def test_call_ids_of_a_conversation_are_all_different() -> None:
    first = await converse("!date\n!date", "1", "2")
    second = await converse("!date\n!date", "3", "4", before=tuple(first))
    ids = [call.id for message in second for call in message.tool_uses()]
    assert len(ids) == 4 and len(set(ids)) == 4


async def test_calls_somebody_else_made_in_the_turn_do_not_count_as_steps() -> None:
    """A turn that began with another provider and was resumed with this one."""
    messages = [
        user("read a.txt"),
        assistant(ToolUse("m-1", "grep", {"pattern": "a"})),
        Message("user", [ToolResult("m-1", "a.txt")]),
    ]
    said, _ = await ask(messages)
    assert [call.name for call in said.tool_uses()] == ["read"]


async def test_a_tool_that_is_not_offered_is_not_called() -> None:
    said, _ = await ask([user("!ls")], tools=("read",))
    assert not said.tool_uses()
    assert said.text() == "`!ls` was not done: there is no `spawn` tool in this conversation."


async def test_its_words_arrive_in_several_pieces() -> None:
    _, events = await ask([user("hello")])
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert 2 <= len(pieces) <= 5


async def test_it_is_a_provider_with_one_model_and_no_limits() -> None:
    provider = RehearsalProvider()
    (model,) = await provider.list_models()
    assert (provider.id, provider.label, model.provider) == ("rehearsal", "Rehearsal - no model", "rehearsal")
    assert provider.scope() is provider and not provider.limits.always_ask
    await provider.aclose()


def test_windows_line_ends_change_nothing() -> None:
    script = parse("read a.txt\r\nwrite b.txt: <<X\r\none\r\nX\r\n")
    assert [step.input for step in script.steps] == [{"path": "a.txt"}, {"path": "b.txt", "content": "one\n"}]
