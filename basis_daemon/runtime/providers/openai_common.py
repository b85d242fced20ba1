"""What OpenAI's two wires spell alike: images, tool results, the list of models.

Owns nothing that one wire has alone.
"""

import re
from typing import Any

import msgspec

from basis_daemon.runtime.messages import ContentBlock, Image, Text, ToolResult
from basis_daemon.runtime.providers.base import ModelInfo
from basis_daemon.runtime.providers.definition import ProviderDefinition
from basis_daemon.runtime.providers.errors import MalformedStream
from basis_daemon.runtime.providers.wire import ModelPage, newest_first

ERROR_PREFIX = "Error: "
"""Ahead of the text of a failed tool call: these wires have no field for it (PV-22)."""

_CONTEXT_KEYS = ("context_length", "context_window", "max_model_len", "max_context_length")
"""What servers call a model's context window: OpenRouter, Groq, vLLM, LM Studio."""

_NO_CONVERSATION = re.compile(
    r"embedding|whisper|dall-e|moderation|sora|tts|transcribe|realtime|audio|image|^(babbage|davinci)|instruct"
    r"|search|computer-use"
)
"""Models in OpenAI's own list that can't hold a conversation; the newest of all must not be one of them (RT-30)."""


def image_url(image: Image) -> str:
    """An image as these wires take it: its URL, or its bytes as a data URL (PV-27)."""
    return image.url if image.url is not None else f"data:{image.media_type or 'image/png'};base64,{image.data or ''}"


def result_text(result: ToolResult) -> str:
    """What the model reads for a tool call."""
    return f"{ERROR_PREFIX}{result.as_text()}" if result.is_error else result.as_text()


def joined_text(blocks: list[ContentBlock]) -> str:
    return "".join(block.text for block in blocks if isinstance(block, Text))


def read_models(body: bytes, definition: ProviderDefinition) -> ModelPage:
    """The models of a `GET v1/models` answer, newest first; those of unknown age last, by id (RT-30, RT-32)."""
    try:
        rows = msgspec.json.decode(body, type=_Listing).data
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedStream(f"{definition.label} sent a list of models that can't be read") from error
    models = [_model(row, definition) for row in rows if isinstance(row.get("id"), str)]
    if definition.is_vendor and definition.id == "openai":
        models = [model for model in models if not _NO_CONVERSATION.search(model.id)]
    return ModelPage(newest_first(models))


def _model(row: dict[str, Any], definition: ProviderDefinition) -> ModelInfo:
    created = _positive(row.get("created"))
    name = next((row[key] for key in ("name", "display_name") if isinstance(row.get(key), str)), None)
    windows = [_positive(row.get(key)) for key in _CONTEXT_KEYS]
    return ModelInfo(row["id"], definition.id, name, created, next(filter(None, windows), None))


def _positive(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value > 0 else None


class _Listing(msgspec.Struct):
    data: list[dict[str, Any]] = []
