"""The pocket provider: a very small real model on this machine, within limits that are code and not words in a prompt.

Owns how a turn becomes at most two questions to the model. First: which of four actions, one call at most. Then, once a
file was read: an answer from its text. What a command printed, what was written and what went wrong is told as it is,
without asking the model, which would get it wrong. Only the last message of a person and the results behind it are
looked at: nothing earlier fits. The limits that the loop keeps are in `LIMITS`; those on paths, commands and texts are
in `pocket_prompt.py`; the process is `pocket_server.py`'s.
"""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from basis_daemon.processes import ProcessTable
from basis_daemon.runtime.messages import Message, Text, ToolResult, ToolUse
from basis_daemon.runtime.providers import pocket_prompt as prompt
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
from basis_daemon.runtime.providers.errors import InvalidRequest, ProviderError, UnsupportedCapability
from basis_daemon.runtime.providers.pocket_json import Action, AnswerText, parse_action
from basis_daemon.runtime.providers.pocket_launch import CONTEXT_TOKENS
from basis_daemon.runtime.providers.pocket_server import IDLE_S, PocketServer
from basis_daemon.runtime.providers.pocket_wire import Chunk
from basis_daemon.runtime.providers.retelling import retell
from basis_protocol.pocket import SMOLLM2, PocketModel, has_engine, has_model

ID = "pocket"
LABEL = "Pocket model - SmolLM2-135M, on this machine"
LIMITS = Limits(
    max_tool_calls_per_round=1,
    max_rounds=5,
    always_ask=True,
    tools=frozenset({"read", "write", "spawn"}),
    new_files_only=True,
)


class PocketStuck(ProviderError):
    """The model gave nothing that can be used. Not an answer, and not worth trying again."""

    kind = "model_stuck"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the pocket model got stuck: {why}",
            hint="say it in fewer words, name the file or the command itself, or connect a real model with "
            "`basisctl connect`",
        )


def is_installed(models: Path, model: PocketModel = SMOLLM2) -> bool:
    """Whether engine and model are there. Loads neither; a few looks at the disk."""
    return has_model(models, model) and has_engine()


class PocketProvider:
    """Implements `Provider`. `models` is the directory `basisctl pocket install` fills; `processes` lists the child."""

    id = ID
    label = LABEL
    limits = LIMITS

    def __init__(
        self,
        models: Path,
        *,
        model: PocketModel = SMOLLM2,
        processes: ProcessTable | None = None,
        idle_s: float = IDLE_S,
        server: PocketServer | None = None,
    ) -> None:
        self._model = model
        self._server = server or PocketServer(model, model.path(models), processes=processes, idle_s=idle_s)

    async def stream(self, request: Request) -> AsyncGenerator[ProviderEvent]:
        turn = _LastTurn.of(request.messages)
        yield ResponseStarted(model=self._model.id)
        if turn.result is None:
            events = self._choose(request, turn)
        elif turn.was_read:
            events = self._answer_from(turn)
        else:
            events = _tell(turn)
        async with aclosing(events):
            async for event in events:
                yield event
        yield MessageStopped()

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(self._model.id, ID, display_name=self._model.name, context_window=CONTEXT_TOKENS)]

    def scope(self) -> "PocketProvider":
        return self

    async def aclose(self) -> None:
        await self._server.aclose()

    async def _choose(self, request: Request, turn: "_LastTurn") -> AsyncGenerator[ProviderEvent]:
        """Ask for one action. The text of an answer is passed on while it is written."""
        allowed = prompt.choices(turn.words, [tool.name for tool in request.tools])
        answer = AnswerText()
        reply = _Reply()
        said = 0
        async with aclosing(self._server.chat(prompt.choosing(turn.words, allowed))) as chunks:
            async for chunk in chunks:
                text = answer.feed(reply.take(chunk))
                if text and not said:
                    yield BlockStarted(0, "text")
                if text:
                    said += len(text)
                    yield TextDelta(0, text)
        action = parse_action(answer.written)
        if reply.stopped_by == "length" or action is None:
            raise PocketStuck("its reply came to no end")
        if action.tool == "answer":
            if not said:
                raise PocketStuck("its answer was empty")
            if said >= prompt.MAX_ANSWER_CHARS:
                yield TextDelta(0, " …")
            yield BlockStopped(0)
            yield MessageDelta("end_turn", reply.usage)
            return
        name, input = _call(action, allowed)
        yield BlockStarted(0, "tool_use", id=_call_id(request.messages, input), name=name)
        yield ToolInputDelta(0, msgspec.json.encode(input).decode())
        yield BlockStopped(0)
        yield MessageDelta("tool_use", reply.usage)

    async def _answer_from(self, turn: "_LastTurn") -> AsyncGenerator[ProviderEvent]:
        """Ask for an answer from what was read, and pass it on while it is written."""
        text, is_part = prompt.plain_text(turn.result_text)
        reply = _Reply()
        said = False
        yield BlockStarted(0, "text")
        async with aclosing(self._server.chat(prompt.reading(turn.words, turn.path, text))) as chunks:
            async for chunk in chunks:
                piece = reply.take(chunk)
                piece = piece if said else piece.lstrip()
                if piece:
                    said = True
                    yield TextDelta(0, piece)
        if not said or reply.stopped_by == "length":
            raise PocketStuck("its answer came to no end" if said else "its answer was empty")
        if is_part:
            yield TextDelta(0, f"\n\n(The pocket model was shown only the beginning of {turn.path}.)")
        yield BlockStopped(0)
        yield MessageDelta("end_turn", reply.usage)


async def _tell(turn: "_LastTurn") -> AsyncGenerator[ProviderEvent]:
    """Say what the call came to, as it is."""
    assert turn.result is not None
    yield BlockStarted(0, "text")
    yield TextDelta(0, retell(turn.title, turn.result_text, is_error=turn.result.is_error))
    yield BlockStopped(0)
    yield MessageDelta("end_turn", TokenUsage(input_tokens=0, output_tokens=0))


@dataclass(frozen=True, slots=True)
class _LastTurn:
    """A person's last words, and the call and result that followed, if any did."""

    words: str
    call: ToolUse | None = None
    result: ToolResult | None = None

    @classmethod
    def of(cls, messages: list[Message]) -> "_LastTurn":
        """Raises `InvalidRequest` for words that are too many, `UnsupportedCapability` where there are none."""
        calls: dict[str, ToolUse] = {}
        result: ToolResult | None = None
        words = ""
        for message in messages:
            texts = [block.text for block in message.content if isinstance(block, Text)]
            if message.role == "user" and texts:
                words, result = "\n".join(texts).strip(), None
            calls |= {call.id: call for call in message.tool_uses()}
            results = [block for block in message.content if isinstance(block, ToolResult)]
            # Steering may stand in the message of the results: what was said last is what counts.
            result = results[-1] if results and not texts else result
        if not words:
            raise UnsupportedCapability("the pocket model reads text only, and there is none")
        if len(words.encode()) > prompt.MAX_WORDS_BYTES:
            raise InvalidRequest(
                f"the pocket model takes at most {prompt.MAX_WORDS_BYTES} bytes of text at once",
                hint="say it in fewer words, or connect a real model with `basisctl connect`",
            )
        return cls(words, calls.get(result.tool_use_id) if result else None, result)

    @property
    def path(self) -> str:
        return str(self.call.input.get("path", "")) if self.call else ""

    @property
    def was_read(self) -> bool:
        """Whether the text of a file is there to be asked about."""
        is_text = self.result is not None and not self.result.is_error and self.result_text.strip() != "(no lines)"
        return is_text and self.call is not None and self.call.name == "read"

    @property
    def result_text(self) -> str:
        return self.result.as_text() if self.result else ""

    @property
    def title(self) -> str:
        if self.call is None:
            return "the call"
        return str(self.call.input["input"]) if "input" in self.call.input else f"{self.call.name} {self.path}"


class _Reply:
    """What the chunks of one reply say besides their text."""

    def __init__(self) -> None:
        self.stopped_by: str | None = None
        self.usage: TokenUsage | None = None

    def take(self, chunk: Chunk) -> str:
        """Note what `chunk` says and return its text."""
        if chunk.usage is not None:
            details = chunk.usage.prompt_tokens_details
            self.usage = TokenUsage(
                input_tokens=chunk.usage.prompt_tokens,
                output_tokens=chunk.usage.completion_tokens,
                cache_read_tokens=details.cached_tokens if details else None,
            )
        for choice in chunk.choices[:1]:
            self.stopped_by = choice.finish_reason or self.stopped_by
            return choice.delta.content or ""
        return ""


def _call(action: Action, allowed: prompt.Choices) -> tuple[str, dict[str, str]]:
    """The tool call an action stands for. Checks what the schema has forced already. Raises `PocketStuck`."""
    match action.tool:
        case "read" if action.path in allowed.paths and "read" in allowed.tools:
            return "read", {"path": action.path}
        case "write" if action.path in allowed.paths and action.content in allowed.texts and "write" in allowed.tools:
            return "write", {"path": action.path, "content": action.content}
        case "run" if action.command in allowed.commands and "spawn" in allowed.tools:
            return "spawn", {"input": f"!{action.command}"}
        case _:
            raise PocketStuck("it wanted to do something you had not named; nothing was done")


def _call_id(messages: list[Message], input: dict[str, str]) -> str:
    digest = hashlib.blake2b(msgspec.json.encode(input), digest_size=4).hexdigest()
    return f"pocket-{len(messages)}-{digest}"
