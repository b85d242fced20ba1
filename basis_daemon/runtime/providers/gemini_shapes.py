"""What the generateContent wire streams, as far as it is read: typed, so that decoding skips the rest.

Owns the shapes of incoming chunks. Every field may be missing or null: compatible servers leave out what they please.
"""

from typing import Any

import msgspec


class Called(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    args: Any = None


class Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: Called | None = None


class Content(msgspec.Struct):
    parts: list[Part] | None = None


class Candidate(msgspec.Struct, rename="camel"):
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None


class Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class Counts(msgspec.Struct, rename="camel"):
    """Tokens so far. Thoughts and the results of the vendor's own tools are beside `candidates` and `prompt`.

    Counts are anything here, and read with `wire.count`.
    """

    prompt_token_count: Any = None
    candidates_token_count: Any = None
    total_token_count: Any = None
    cached_content_token_count: Any = None
    thoughts_token_count: Any = None
    tool_use_prompt_token_count: Any = None


class Failure(msgspec.Struct):
    """Of any shape: an error that can't be read would hide what went wrong."""

    code: Any = None
    status: Any = None
    message: Any = None


class Chunk(msgspec.Struct, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: Counts | None = None
    prompt_feedback: Feedback | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: Failure | str | int | float | bool | list[Any] | None = None
