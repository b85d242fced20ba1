"""What OpenAI's two wires stream, as far as it is read: typed, so that decoding skips the rest.

Owns the shapes of incoming events. Every field may be missing or null: compatible servers leave out what they please.
"""

from typing import Any

import msgspec

# Counts are anything here, and read with `wire.count`.


class CachedTokens(msgspec.Struct):
    """Both are inside the input's count. Writing is billed from GPT-5.6 on."""

    cached_tokens: Any = None
    cache_write_tokens: Any = None


class ReasoningTokens(msgspec.Struct):
    reasoning_tokens: Any = None


class ErrorShape(msgspec.Struct):
    """Of any shape: an error that can't be read would hide what went wrong."""

    message: Any = None
    code: Any = None
    type: Any = None
    param: Any = None


OddError = str | int | float | bool | list[Any]
"""An error that is no object."""


# --- Responses -------------------------------------------------------------------------------------------------------


class Part(msgspec.Struct):
    """A piece of an item's content or summary."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    encrypted_content: str | None = None
    content: list[Part] | None = None
    summary: list[Part] | None = None
    status: str | None = None
    action: Any = None
    result: Any = None
    revised_prompt: str | None = None
    output_format: str | None = None


class ResponseUsage(msgspec.Struct):
    input_tokens: Any = None
    output_tokens: Any = None
    total_tokens: Any = None
    input_tokens_details: CachedTokens | None = None
    output_tokens_details: ReasoningTokens | None = None


class Incomplete(msgspec.Struct):
    reason: str | None = None


class Response(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    error: ErrorShape | OddError | None = None
    incomplete_details: Incomplete | None = None
    output: list[Item] | None = None
    usage: ResponseUsage | None = None


class ResponsesEvent(msgspec.Struct):
    """Any event of the Responses stream; which fields count depends on `type`."""

    type: str = ""
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    item: Item | None = None
    response: Response | None = None
    error: ErrorShape | OddError | None = None
    code: Any = None
    message: Any = None
    status: Any = None
    status_code: Any = None
    headers: dict[str, Any] | None = None
    """Of an error over a websocket: what HTTP has outside the body (PV-38)."""


class TypedOnly(msgspec.Struct):
    """An event of which only the type is read."""

    type: str = ""


# --- chat/completions ------------------------------------------------------------------------------------------------


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: Function | None = None


class ChatDelta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallDelta] | None = None


class Choice(msgspec.Struct):
    delta: ChatDelta | None = None
    finish_reason: str | None = None


class ChatUsage(msgspec.Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    total_tokens: Any = None
    prompt_tokens_details: CachedTokens | None = None
    completion_tokens_details: ReasoningTokens | None = None


class ChatChunk(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: ChatUsage | None = None
    error: ErrorShape | OddError | None = None
