"""The rehearsal provider: no model, always there, does exactly what is written.

Carries out `!command`, `read PATH`, `write PATH: text` and `edit PATH: old -> new` (`rehearsal_script.py`) through the
same loop, tools and questions as any provider, so that the whole way of a prompt can be seen, scripted and tested with
nothing installed. Deterministic, does no I/O, and never says anything that could pass for a model's words: only what it
did, or that no model is connected.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass

import msgspec

from basis_daemon.runtime.messages import Message, Text, ToolResult
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    BlockStopped,
    Limits,
    MessageDelta,
    MessageStopped,
    ModelInfo,
    ProviderEvent,
    Request,
    ResponseStarted,
    TextDelta,
    TokenUsage,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.rehearsal_script import UNDERSTOOD, Script, Step, parse
from basis_daemon.runtime.providers.retelling import retell, shortened

ID = "rehearsal"
LABEL = "Rehearsal - no model"
MODEL = ModelInfo(ID, ID, display_name=LABEL)

NO_MODEL = f"No model is connected. I understand: {UNDERSTOOD}."
HOW_TO_CONNECT = "To connect a real model, run `basisctl auth login PROVIDER`, or see `basisctl connect --help`."

DELTAS = 4
"""Pieces an answer comes in, so that whoever watches sees it arrive."""


class RehearsalProvider:
    """Implements `Provider`. Holds nothing between requests: what was done is read from the conversation, so a round
    that is replayed after a restart asks for the same call under the same id.

    `how_to_connect` is asked for the sentence that ends an answer to anything it doesn't understand.
    """

    id = ID
    label = LABEL
    limits = Limits()

    def __init__(self, how_to_connect: Callable[[], str] = lambda: HOW_TO_CONNECT) -> None:
        self._how_to_connect = how_to_connect

    async def stream(self, request: Request) -> AsyncGenerator[ProviderEvent]:
        yield ResponseStarted(model=MODEL.id)
        for event in self._answer(request):
            yield event
            # Lets others run, and a cancellation in, between two pieces.
            await asyncio.sleep(0)
        yield MessageStopped()

    async def list_models(self) -> list[ModelInfo]:
        return [MODEL]

    def scope(self) -> "RehearsalProvider":
        return self

    async def aclose(self) -> None:
        return

    def _answer(self, request: Request) -> Iterator[ProviderEvent]:
        at, words = _last_words(request.messages)
        script = parse(words)
        if not script.steps:
            return _say(self._no_model(script))
        done = _done(script, request.messages[at:])
        step = script.steps[len(done)] if len(done) < len(script.steps) else None
        if step is None or any(each.result.is_error for each in done):
            return _say(_report(script, done))
        if step.tool not in {tool.name for tool in request.tools}:
            return _say("\n\n".join(filter(None, (_report(script, done), _not_offered(step)))))
        return _call(step, _call_id(request.messages, step))

    def _no_model(self, script: Script) -> str:
        if script.not_understood is None:
            return f"{NO_MODEL} {self._how_to_connect()}"
        line = shortened(script.not_understood, 120)
        return f"{NO_MODEL} This is none of them: `{line}`. Nothing was done. {self._how_to_connect()}"


@dataclass(frozen=True, slots=True)
class _Done:
    """A step that was carried out, or tried."""

    step: Step
    result: ToolResult


def _last_words(messages: list[Message]) -> tuple[int, str]:
    """Where the last message of a person stands, and what it says. What came before it counts no more."""
    for index in range(len(messages) - 1, -1, -1):
        texts = [block.text for block in messages[index].content if isinstance(block, Text)]
        if messages[index].role == "user" and texts:
            return index, "\n".join(texts)
    return len(messages), ""


def _done(script: Script, messages: list[Message]) -> list[_Done]:
    """The steps that have a result, in order. Calls that are not the script's are somebody else's: passed over."""
    calls = [call for message in messages if message.role == "assistant" for call in message.tool_uses()]
    results = {
        block.tool_use_id: block for message in messages for block in message.content if isinstance(block, ToolResult)
    }
    done: list[_Done] = []
    for call in calls:
        step = script.steps[len(done)] if len(done) < len(script.steps) else None
        if step is not None and (call.name, call.input) == (step.tool, step.input) and call.id in results:
            done.append(_Done(step, results[call.id]))
    return done


def _call_id(messages: list[Message], step: Step) -> str:
    """Unique in a conversation, and the same whenever the same round is asked for again."""
    digest = hashlib.blake2b(msgspec.json.encode((step.tool, step.input)), digest_size=4).hexdigest()
    return f"rehearsal-{len(messages)}-{digest}"


# --- what it says ----------------------------------------------------------------------------------------------------


def _report(script: Script, done: list[_Done]) -> str:
    """Every step that was tried with what came of it, and those that were left out."""
    lines = [retell(each.step.title, each.result.as_text(), is_error=each.result.is_error) for each in done]
    left = [step.title for step in script.steps[len(done) :]] if done and done[-1].result.is_error else []
    if left:
        lines.append(f"Not done after that: {', '.join(f'`{title}`' for title in left)}.")
    return "\n".join(lines)


def _not_offered(step: Step) -> str:
    return f"`{step.title}` was not done: there is no `{step.tool}` tool in this conversation."


# --- how it is streamed ----------------------------------------------------------------------------------------------


def _say(text: str) -> Iterator[ProviderEvent]:
    yield BlockStarted(0, "text")
    for piece in _pieces(text):
        yield TextDelta(0, piece)
    yield BlockStopped(0)
    yield MessageDelta("end_turn", TokenUsage(input_tokens=0, output_tokens=0))


def _call(step: Step, call_id: str) -> Iterator[ProviderEvent]:
    yield BlockStarted(0, "tool_use", id=call_id, name=step.tool)
    yield ToolInputDelta(0, msgspec.json.encode(step.input).decode())
    yield BlockStopped(0)
    yield MessageDelta("tool_use", TokenUsage(input_tokens=0, output_tokens=0))


def _pieces(text: str) -> Iterator[str]:
    """`text` in a few pieces, divided before words."""
    words = re.findall(r"\s*\S+|\s+\Z", text)
    size = max(1, -(-len(words) // DELTAS))
    for start in range(0, len(words), size):
        yield "".join(words[start : start + size])
