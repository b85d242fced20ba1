"""The scripted provider that ships for those who test their own code against the real runtime."""

import anyio
import pytest

from basis_daemon.runtime.messages import Message, user
from basis_daemon.runtime.providers import scripted
from basis_daemon.runtime.providers.base import Request, TextDelta, TokenUsage
from basis_daemon.runtime.providers.errors import RetryableError
from basis_daemon.runtime.providers.scripted import ScriptedCall, ScriptedProvider, ScriptedTurn
from basis_daemon.runtime.providers.streamed import StreamedMessage

pytestmark = pytest.mark.anyio


async def collect(provider: ScriptedProvider, prompt: str = "go") -> Message:
    streamed = StreamedMessage()
    async for event in provider.stream(Request(provider.model.id, [user(prompt)])):
        streamed.apply(event)
    assert streamed.complete
    return streamed.message()


async def watch(provider: ScriptedProvider, seen: list[str]) -> None:
    """Note every piece of text as it comes."""
    async for event in provider.stream(Request("mock-model", [user("go")])):
        seen += [event.text] if isinstance(event, TextDelta) else []


async def test_turns_are_given_in_order_and_every_request_is_kept() -> None:
    """TE-2, TE-3."""
    provider = ScriptedProvider(
        [
            scripted.tool_calls(ScriptedCall("read", {"path": "a"}), ScriptedCall("ls", id="mine"), saying="Looking."),
            scripted.text("All ", "done."),
        ]
    )
    first, second = await collect(provider, "one"), await collect(provider, "two")
    assert [(call.id, call.name) for call in first.tool_uses()] == [("tool-1", "read"), ("mine", "ls")]
    assert (first.text(), second.text()) == ("Looking.", "All done.")
    assert [request.messages[0].text() for request in provider.recorded_requests()] == ["one", "two"]
    provider.assert_exhausted()


async def test_a_request_too_many_fails_by_its_number() -> None:
    """TE-4: not a hang, and not something that is mistaken for a provider's failure."""
    provider = ScriptedProvider([scripted.text("only")])
    await collect(provider)
    with pytest.raises(scripted.ScriptExhausted, match="request 2 came, but the script has only 1 turn"):
        await collect(provider)


async def test_turns_left_over_are_told() -> None:
    """TE-4."""
    provider = ScriptedProvider([scripted.text("one"), scripted.text("two")])
    await collect(provider)
    with pytest.raises(AssertionError, match="1 of 2"):
        provider.assert_exhausted()


async def test_a_failure_comes_after_what_was_streamed() -> None:
    provider = ScriptedProvider([scripted.failure(RetryableError("later"), after=["half an "])])
    seen: list[str] = []
    with pytest.raises(RetryableError, match="later"):
        await watch(provider, seen)
    assert seen == ["half an "]


async def test_malformed_input_thinking_and_usage_can_be_scripted() -> None:
    turn = ScriptedTurn(thinking="hm", calls=(ScriptedCall("read", raw="{nope"),), usage=TokenUsage(input_tokens=3))
    streamed = StreamedMessage()
    async for event in ScriptedProvider([turn]).stream(Request("mock-model", [user("go")])):
        streamed.apply(event)
    assert streamed.message().tool_uses()[0].malformed == "{nope"
    assert streamed.usage == TokenUsage(input_tokens=3)


async def test_a_pending_turn_waits_to_be_cancelled() -> None:
    provider = ScriptedProvider([ScriptedTurn(chunks=("so far",), pending=True)])
    seen: list[str] = []
    with anyio.move_on_after(0.05) as scope:
        await watch(provider, seen)
    assert scope.cancelled_caught and seen == ["so far"]
