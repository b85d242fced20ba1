"""Feeds one wire's mapper a scripted stream without a network, for what only odd servers send.

Owns no shapes: tests give the JSON. Conversations over real sockets are in `tests/contract/`.
"""

from typing import Any

import msgspec

from basis_daemon.runtime.messages import user
from basis_daemon.runtime.providers.base import ProviderEvent, Request
from basis_daemon.runtime.providers.definition import ProviderDefinition
from basis_daemon.runtime.providers.encoded import EncodedMessages
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.sse import SseParser
from basis_daemon.runtime.providers.streamed import StreamedMessage
from basis_daemon.runtime.providers.wire import Wire

TARGET = Target("Odd", "odd", "http://127.0.0.1:1", "v1/x", "x", True)


def stream(wire: Wire, definition: ProviderDefinition, *events: Any, done: bool = True) -> list[ProviderEvent]:
    """What the mapper makes of `events`, one network read each; bytes go in as they are, others as `data:` lines."""
    parser = SseParser()
    mapper = wire.map_stream(Request("m", [user("x")]), definition, TARGET)
    mapped: list[ProviderEvent] = []
    for event in events:
        chunk = event if isinstance(event, bytes) else b"data: %b\n\n" % msgspec.json.encode(event)
        mapped += mapper.feed(parser.feed(chunk))
        if mapper.is_complete:
            return mapped
    return mapped + mapper.finish(marked=done)


def collected(events: list[ProviderEvent]) -> StreamedMessage:
    """The answer; fails on events that contradict themselves."""
    streamed = StreamedMessage()
    for event in events:
        streamed.apply(event)
    assert streamed.complete
    return streamed


def body(wire: Wire, definition: ProviderDefinition, request: Request) -> dict[str, Any]:
    """The request as it goes out."""
    return msgspec.json.decode(wire.build_body(request, definition, EncodedMessages()))
