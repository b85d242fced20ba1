"""Whole answers out of streamed ones, and the other way round (PV-9, PV-11, PV-12).

Owns neither vocabulary: `base.py` has the events, `messages.py` the blocks.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator

import msgspec

from basis_daemon.runtime.messages import (
    ContentBlock,
    HostedToolSearch,
    HostedWebSearch,
    Image,
    ImageGeneration,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    BlockStopped,
    HostedUpdate,
    MessageDelta,
    MessageStopped,
    Provider,
    ProviderEvent,
    Request,
    ResponseStarted,
    TextDelta,
    ThinkingDelta,
    ThinkingSealed,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.errors import MalformedStream, StreamCut
from basis_daemon.runtime.providers.streamed import StreamedMessage


async def send(provider: Provider, request: Request) -> StreamedMessage:
    """The whole answer to `request`. Raises what `Provider.stream` and `collect` raise."""
    return await collect(provider.stream(request))


async def collect(events: AsyncIterator[ProviderEvent]) -> StreamedMessage:
    """The answer that `events` amount to; closes them at the end.

    Raises `MalformedStream` where they contradict themselves (PV-11) and `StreamCut` when they end ahead of its end.
    """
    answer = StreamedMessage()
    try:
        async for event in events:
            try:
                answer.apply(event)
            except ValueError as error:
                raise MalformedStream(f"the provider's stream contradicts itself: {error}") from error
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    if not answer.complete:
        raise StreamCut("the provider's stream ended in the middle of the answer")
    return answer


def events_of(answer: StreamedMessage) -> Iterator[ProviderEvent]:
    """Events that amount to `answer` again, a block at a time.

    Raises `ValueError` for blocks no model says: results of tools, and images that it has not made.
    """
    yield ResponseStarted(answer.response_id, answer.model)
    for index, block in enumerate(answer.message().content):
        yield from _block(index, block)
        yield BlockStopped(index)
    yield MessageDelta(answer.stop_reason, answer.usage)
    yield MessageStopped()


def answer_of(message: Message) -> StreamedMessage:
    """`message` as the answer of a provider that told nothing else about it."""
    answer = StreamedMessage()
    for index, block in enumerate(message.content):
        for event in (*_block(index, block), BlockStopped(index)):
            answer.apply(event)
    answer.apply(MessageStopped())
    return answer


def _block(index: int, block: ContentBlock) -> Iterator[ProviderEvent]:
    match block:
        case Text(text):
            yield BlockStarted(index, "text")
            yield TextDelta(index, text)
        case Thinking(text):
            yield BlockStarted(index, "thinking")
            yield ThinkingDelta(index, text)
            yield ThinkingSealed(
                index, block.signature, block.encrypted_content, block.id, block.provenance, block.redacted
            )
        case ToolUse(id, name):
            yield BlockStarted(index, "tool_use", id, name, block.item_id, block.signature, block.provenance)
            yield ToolInputDelta(index, block.malformed or msgspec.json.encode(block.input).decode())
        case HostedToolSearch() | HostedWebSearch() | ImageGeneration():
            yield HostedUpdate(index, block)
        case Image() | ToolResult():
            raise ValueError(f"no model says a block of kind {type(block).__name__}")
