"""What an adapter of a wire consists of: three functions, in the same order in every adapter's file.

Owns the shape, and the batching of events that all mappers share. Adapters: `openai_responses.py`, `openai_chat.py`,
`anthropic.py`, `gemini.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from basis_daemon.runtime.providers.base import (
    ModelInfo,
    ProviderEvent,
    Request,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.definition import ProviderDefinition, WireName
from basis_daemon.runtime.providers.encoded import EncodedMessages
from basis_daemon.runtime.providers.errors import MalformedStream
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.sse import SseEvent


class StreamMapper(Protocol):
    """Turns one answer's SSE events into provider events. Raises `ProviderError` kinds for what the wire reports."""

    is_complete: bool
    """Whether `MessageStopped` was given out: nothing that follows matters."""

    def feed(self, events: list[SseEvent]) -> list[ProviderEvent]:
        """What `events`, which came in one network read, amount to; deltas of one block are merged."""
        ...

    def finish(self, *, marked: bool) -> list[ProviderEvent]:
        """The body ended, by `[DONE]` if `marked`. Raises `StreamCut` when the answer isn't complete with that."""
        ...


@dataclass(frozen=True, slots=True)
class ModelPage:
    """One page of a list of models; `next_query` asks for the next one, `None` when there is none."""

    models: list[ModelInfo]
    next_query: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Wire:
    """One adapter: where it posts, and its three functions."""

    name: WireName
    path: Callable[[Request], str]
    """Below the base URL; may carry a query."""
    models_path: str
    models_query: Mapping[str, str]
    build_body: Callable[[Request, ProviderDefinition, EncodedMessages], bytes]
    """Last come the messages that this conversation's earlier requests had encoded: see `EncodedMessages.of`."""
    map_stream: Callable[[Request, ProviderDefinition, Target], StreamMapper]
    read_models: Callable[[bytes, ProviderDefinition], ModelPage]


def newest_first(models: list[ModelInfo]) -> list[ModelInfo]:
    """By age, newest first; those of unknown age last, by id (RT-30)."""
    return sorted(models, key=lambda model: (model.created_at is None, -(model.created_at or 0), model.id))


def json_text(value: object) -> str:
    """The JSON of something out of an event. Raises `MalformedStream` for what could just be read and no more."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError as error:
        raise MalformedStream("the provider's stream holds a value that is nested too deeply") from error


MAX_COUNT = 2**53
"""Tokens beyond this are no count, and more than every reader of our events can take."""


def count(value: object) -> int | None:
    """A count of tokens as a server has it; unknown where it is none, which is no reason to lose an answer (2.6)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_COUNT:
        return None
    return int(value)


Delta = type[TextDelta] | type[ThinkingDelta] | type[ToolInputDelta]


class Batch:
    """Collects the events of one network read; neighbouring deltas of a block become one, which keeps tokens cheap."""

    __slots__ = ("_events", "_index", "_kind", "_pieces")

    def __init__(self) -> None:
        self._events: list[ProviderEvent] = []
        self._kind: Delta = TextDelta
        self._index = -1
        self._pieces: list[str] = []

    def delta(self, kind: Delta, index: int, text: str) -> None:
        """Add text to block `index`; a block has one kind of delta."""
        if index != self._index:
            self._flush()
            self._kind, self._index = kind, index
        self._pieces.append(text)

    def add(self, event: ProviderEvent) -> None:
        self._flush()
        self._events.append(event)

    def take(self) -> list[ProviderEvent]:
        """The events since the last call."""
        self._flush()
        events, self._events = self._events, []
        return events

    def _flush(self) -> None:
        if self._pieces:
            self._events.append(self._kind(self._index, "".join(self._pieces)))
            self._pieces.clear()
        self._index = -1
