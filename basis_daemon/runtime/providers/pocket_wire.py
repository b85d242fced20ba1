"""What the pocket model's process says over HTTP, as far as it is looked at.

Owns the shapes of its answers and what its refusals mean. Does no I/O.
"""

from typing import Any

import msgspec

from basis_daemon.runtime.providers.errors import InvalidRequest, ProviderError, bounded


class TokenDetails(msgspec.Struct):
    cached_tokens: int | None = None


class ChatUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta = msgspec.field(default_factory=Delta)
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One event of a streamed chat completion, as far as it is looked at."""

    choices: list[Choice] = []
    usage: ChatUsage | None = None
    error: Any = None


def refusal(status: int, body: bytes) -> ProviderError:
    text = bounded(_message(body), 300)
    if status == 400 and "context size" in text:
        return InvalidRequest(
            "this is too much text for the pocket model", hint="ask about something shorter, or connect a real model"
        )
    return ProviderError(f"the pocket model refused the request: {text}", status=status)


def chunk_of(event: bytes) -> Chunk:
    try:
        chunk = msgspec.json.decode(event, type=Chunk)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProviderError("the pocket model's process sent something that can't be read") from error
    if chunk.error is not None:
        raise ProviderError(f"the pocket model failed: {bounded(_message(event), 300)}")
    return chunk


def _message(body: bytes) -> str:
    try:
        answer: Any = msgspec.json.decode(body)
        return str(answer["error"]["message"])
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return body.decode("utf-8", "replace")
