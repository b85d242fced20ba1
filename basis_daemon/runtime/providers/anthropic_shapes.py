"""What the Messages wire streams, as far as it is read: typed, so that decoding skips the rest.

Owns the shapes of incoming events. Every field may be missing or null: compatible servers leave out what they please.
"""

from typing import Any

import msgspec

Json = Any


class ErrorShape(msgspec.Struct):
    """Of any shape: an error that can't be read would hide what went wrong."""

    type: Any = None
    message: Any = None


OddError = str | int | float | bool | list[Any]
"""An error that is no object."""


# Counts are anything here, and read with `wire.count`.


class OutputDetails(msgspec.Struct):
    thinking_tokens: Any = None


class UsageShape(msgspec.Struct):
    """Counts so far, each replacing the one before. What came from and went to the cache is beside `input_tokens`."""

    input_tokens: Any = None
    output_tokens: Any = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    output_tokens_details: OutputDetails | None = None


class MessageShape(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: UsageShape | None = None


class BlockShape(msgspec.Struct):
    """A block as it begins; most of them are empty then."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    input: Json = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    tool_use_id: str | None = None
    content: Json = None


class StopDetails(msgspec.Struct):
    category: str | None = None
    explanation: str | None = None


class DeltaShape(msgspec.Struct):
    """A piece of a block, or what is known of the message at its end."""

    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class MessagesEvent(msgspec.Struct):
    """Any event of the stream; which fields count depends on `type`."""

    type: str = ""
    index: int = 0
    delta: DeltaShape | None = None
    content_block: BlockShape | None = None
    message: MessageShape | None = None
    usage: UsageShape | None = None
    error: ErrorShape | OddError | None = None


class TypedOnly(msgspec.Struct):
    """An event of which only the type is read."""

    type: str = ""
