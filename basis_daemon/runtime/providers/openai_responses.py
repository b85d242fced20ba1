"""The Responses wire (2.7): OpenAI, OpenRouter, and servers that offer `v1/responses`.

Owns the body it takes; what it streams is read in `openai_responses_stream.py`. Every request replays the whole
conversation, nothing is stored at the vendor, and reasoning travels sealed (PV-31, PV-41).
"""

from typing import Any

import msgspec

from basis_daemon.runtime.messages import (
    ContentBlock,
    HostedToolSearch,
    HostedWebSearch,
    Image,
    ImageGeneration,
    Message,
    Provenance,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from basis_daemon.runtime.providers.base import (
    Request,
)
from basis_daemon.runtime.providers.definition import ProviderDefinition
from basis_daemon.runtime.providers.encoded import EncodedMessages
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.openai_common import image_url, read_models, refuse_images, result_text
from basis_daemon.runtime.providers.openai_responses_stream import ResponsesMapper
from basis_daemon.runtime.providers.wire import StreamMapper, Wire

Json = dict[str, Any]

_NO_WORDS = "[reasoning that can't be shown here]"
"""Stands for reasoning sealed by another model: its place in the conversation is kept, its content can't be (PV-41)."""

# --- the request -----------------------------------------------------------------------------------------------------


def build_body(request: Request, definition: ProviderDefinition, history: EncodedMessages) -> bytes:
    """The JSON body. Raises `InvalidRequest` for what this wire can't carry."""
    items: list[Json] = []
    for message in request.messages:
        items += _items(message, _provenance(request, definition))
    body: Json = {"model": request.model, "input": items, "store": False, "stream": True}
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
                "strict": tool.strict or False,  # the vendor's own default is true here (PV-25)
            }
            for tool in request.tools
        ]
        body["tool_choice"] = _tool_choice(request)
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    if request.effort is not None:
        body["reasoning"] = {"effort": request.effort, "summary": "auto"}
        body["include"] = ["reasoning.encrypted_content"]
    if definition.is_vendor and request.session_id is not None:
        body["prompt_cache_key"] = request.session_id
    return msgspec.json.encode(body)


def _provenance(request: Request, definition: ProviderDefinition) -> Provenance:
    return Provenance(definition.identity, request.model, "open_ai_encrypted")


def _items(message: Message, here: Provenance) -> list[Json]:
    """One message as the items of this wire, in the order of its blocks; neighbouring prose is one item."""
    refuse_images(message.role, message.content)
    is_sealed = any(isinstance(block, Thinking) and _is_replayable(block, here) for block in message.content)
    items: list[Json] = []
    prose: list[Json] = []
    for block in message.content:
        if isinstance(block, Text | Image) or (isinstance(block, Thinking) and not _is_replayable(block, here)):
            prose += _part(block, message.role)
            continue
        items += _prose(message.role, prose)
        prose = []
        items.append(_item(block, is_sealed))
    return items + _prose(message.role, prose)


def _prose(role: str, parts: list[Json]) -> list[Json]:
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _part(block: ContentBlock, role: str) -> list[Json]:
    kind = "output_text" if role == "assistant" else "input_text"
    if isinstance(block, Image):
        return [{"type": "input_image", "image_url": image_url(block)}]
    if isinstance(block, Thinking):
        return [{"type": kind, "text": block.thinking or _NO_WORDS}] if role == "assistant" else []
    return [{"type": kind, "text": block.text}] if isinstance(block, Text) and block.text else []


def _item(block: ContentBlock, is_sealed: bool) -> Json:
    match block:
        case ToolUse():
            # An item id is known to the vendor only along with the reasoning it came from (PV-20).
            own = {"id": block.item_id} if is_sealed and block.item_id else {}
            arguments = msgspec.json.encode(block.input).decode()
            return {"type": "function_call", **own, "call_id": block.id, "name": block.name, "arguments": arguments}
        case ToolResult():
            return {"type": "function_call_output", "call_id": block.tool_use_id, "output": result_text(block)}
        case Thinking():
            summary = [{"type": "summary_text", "text": block.thinking}] if block.thinking else []
            return {
                "type": "reasoning",
                "id": block.id,
                "summary": summary,
                "encrypted_content": block.encrypted_content,
            }
        case Text() | Image():
            raise AssertionError("prose is not an item of its own")
        case HostedToolSearch() | HostedWebSearch() | ImageGeneration():
            raise AssertionError("this wire asks for no hosted tool yet")


def _is_replayable(block: Thinking, here: Provenance) -> bool:
    """Opaque reasoning goes back only to exactly where it is from (PV-41)."""
    return bool(block.encrypted_content and block.id) and block.provenance == here


def _tool_choice(request: Request) -> str | Json:
    match request.tool_choice.mode:
        case "auto":
            return "auto"
        case "any":
            return "required"
        case "tool":
            return {"type": "function", "name": request.tool_choice.name}


# --- the stream ------------------------------------------------------------------------------------------------------


def map_stream(request: Request, definition: ProviderDefinition, target: Target) -> StreamMapper:
    """What turns the answer to `request` into provider events."""
    return ResponsesMapper(target, _provenance(request, definition))


# --- the list of models: `read_models`, as on the other wire of the same vendor --------------------------------------

RESPONSES = Wire("responses", lambda _: "v1/responses", "v1/models", {}, build_body, map_stream, read_models)
