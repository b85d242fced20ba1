"""A provider that says what a test tells it to: for those who embed the runtime and test their own code.

Owns the script and the record of what was asked (TE-2…TE-4). Everything around it is the real runtime. It is never
offered by a shipped configuration: whoever wants it registers an instance.
"""

import asyncio
import copy
import itertools
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from basis_daemon.errors import RunFailure
from basis_daemon.runtime.messages import Json
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
    ThinkingDelta,
    TokenUsage,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.errors import ProviderError


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call. Without an `id` it gets `tool-1`, `tool-2`, … in its turn. `raw` replaces the encoded input."""

    name: str
    input: dict[str, Json] = field(default_factory=dict[str, Json])
    id: str | None = None
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One answer: thinking, then text in these chunks, then calls; then `failure` is raised, if there is one.

    `delay_s` passes first. A turn that is `pending` never ends by itself: it waits to be cancelled.
    """

    chunks: tuple[str, ...] = ()
    calls: tuple[ScriptedCall, ...] = ()
    thinking: str = ""
    failure: ProviderError | None = None
    usage: TokenUsage | None = None
    stop_reason: str | None = None
    delay_s: float = 0.0
    pending: bool = False


def text(*chunks: str, usage: TokenUsage | None = None) -> ScriptedTurn:
    """An answer in words, in one delta for each chunk."""
    return ScriptedTurn(chunks=chunks, usage=usage)


def tool_calls(*calls: ScriptedCall, saying: str = "") -> ScriptedTurn:
    """An answer that asks for tools, with words before them if given."""
    return ScriptedTurn(chunks=(saying,) if saying else (), calls=calls)


def failure(error: ProviderError, *, after: Sequence[str] = ()) -> ScriptedTurn:
    """A request that fails, having streamed `after`."""
    return ScriptedTurn(chunks=tuple(after), failure=error)


class ScriptExhausted(RunFailure, AssertionError):
    """TE-4: more was asked of the provider than the test had written down. The turn fails with it and its report says
    so. Not a `ProviderError`: never retried."""

    kind = "script_exhausted"

    def __init__(self, index: int, written: int) -> None:
        super().__init__(f"request {index + 1} came, but the script has only {written} turn(s)")
        self.index = index


class ScriptedProvider:
    """Implements `Provider`: answers the n-th request with the n-th turn, whoever asks."""

    limits = Limits()

    def __init__(
        self, turns: Sequence[ScriptedTurn] = (), *, id: str = "scripted", model: ModelInfo | None = None
    ) -> None:
        self.id = id
        self.label = f"Scripted ({id})"
        self.model = model or ModelInfo("mock-model", id)
        self._turns = list(turns)
        self._requests: list[Request] = []
        self._overrun: ScriptExhausted | None = None

    def push(self, turn: ScriptedTurn) -> None:
        """Add a turn at the end."""
        self._turns.append(turn)

    def recorded_requests(self) -> list[Request]:
        """Every request so far, in order, as it was when it came (TE-3)."""
        return copy.deepcopy(self._requests)

    def assert_exhausted(self) -> None:
        """Raises `AssertionError` if turns were left unused, `ScriptExhausted` if there were too few."""
        if self._overrun is not None:
            raise self._overrun
        left = len(self._turns) - len(self._requests)
        if left > 0:
            raise AssertionError(f"{left} of {len(self._turns)} scripted turn(s) were never asked for")

    async def stream(self, request: Request) -> AsyncGenerator[ProviderEvent]:
        index = len(self._requests)
        self._requests.append(copy.deepcopy(request))
        if index >= len(self._turns):
            self._overrun = ScriptExhausted(index, len(self._turns))
            raise self._overrun
        turn = self._turns[index]
        yield ResponseStarted(f"response-{index + 1}", self.model.id)
        await asyncio.sleep(turn.delay_s)
        for event in _events(turn):
            yield event
        if turn.pending:
            await asyncio.get_running_loop().create_future()
        if turn.failure is not None:
            raise turn.failure
        reason = turn.stop_reason or ("tool_use" if turn.calls else "end_turn")
        yield MessageDelta(reason, turn.usage)
        yield MessageStopped()

    async def list_models(self) -> list[ModelInfo]:
        return [self.model]

    def scope(self) -> "ScriptedProvider":
        return self

    async def aclose(self) -> None:
        return


def _events(turn: ScriptedTurn) -> Iterator[ProviderEvent]:
    index = itertools.count()
    if turn.thinking:
        at = next(index)
        yield from (BlockStarted(at, "thinking"), ThinkingDelta(at, turn.thinking), BlockStopped(at))
    if turn.chunks:
        at = next(index)
        yield BlockStarted(at, "text")
        yield from (TextDelta(at, chunk) for chunk in turn.chunks)
        if turn.failure is None:
            yield BlockStopped(at)
    for number, call in enumerate(turn.calls, 1):
        at = next(index)
        raw = call.raw if call.raw is not None else msgspec.json.encode(call.input).decode()
        yield BlockStarted(at, "tool_use", id=call.id or f"tool-{number}", name=call.name)
        yield ToolInputDelta(at, raw)
        yield BlockStopped(at)
