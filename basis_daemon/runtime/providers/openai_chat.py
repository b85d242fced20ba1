"""The chat/completions wire (PV-48): Ollama, LM Studio, llama.cpp, vLLM, gateways, and OpenAI itself.

Owns the body it takes; what it streams is read in `openai_chat_stream.py`. Reasoning it shows is kept, but never sent
back (PV-42).
"""

from typing import Any

import msgspec

from basis_daemon.runtime.messages import ContentBlock, Image, Message, Text, ToolResult, ToolUse
from basis_daemon.runtime.providers.base import Request
from basis_daemon.runtime.providers.definition import ProviderDefinition
from basis_daemon.runtime.providers.encoded import EncodedMessages, array_body, joined
from basis_daemon.runtime.providers.errors import InvalidRequest
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.openai_chat_stream import ChatMapper
from basis_daemon.runtime.providers.openai_common import (
    image_url,
    joined_text,
    read_models,
    result_text,
)
from basis_daemon.runtime.providers.sealed import odd_names, refuse_misplaced_images, sendable_name
from basis_daemon.runtime.providers.wire import StreamMapper, Wire

Json = dict[str, Any]


# --- the request -----------------------------------------------------------------------------------------------------


def build_body(request: Request, definition: ProviderDefinition, history: EncodedMessages) -> bytes:
    """The JSON body. Raises `InvalidRequest` for what this wire can't carry."""
    body: Json = {"model": request.model, **_tool_fields(request)}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_output_tokens is not None:
        # OpenAI's own reasoning models know the new name only, compatible servers often only the old one.
        body["max_completion_tokens" if definition.is_vendor else "max_tokens"] = request.max_output_tokens
    if request.effort is not None:
        body["reasoning_effort"] = "high" if request.effort in ("xhigh", "max") else request.effort
    if request.output is not None:
        wanted = request.output
        schema = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    fields = msgspec.json.encode({**body, "stream": True, "stream_options": {"include_usage": True}})
    odd = odd_names(request)

    def encode(message: Message) -> bytes:
        return _encode(message, odd)

    system = [msgspec.json.encode({"role": "system", "content": request.system})] if request.system else []
    rows = (*system, *history.of(request.messages, encode, odd))
    return array_body(fields[:-1] + b',"messages":[', rows, b"]}")


def _encode(message: Message, odd: frozenset[str]) -> bytes:
    return joined([msgspec.json.encode(row) for row in _messages(message, odd)])


def _tool_fields(request: Request) -> Json:
    """The functions on offer. Tools of a kind that a provider runs itself are unknown here and left out (PV-48)."""
    tools = [tool for tool in request.tools if tool.kind == "function"]
    forced = request.tool_choice.name if request.tool_choice.mode == "tool" else None
    if any(tool.deferred and tool.name != forced for tool in tools):
        raise InvalidRequest("the chat/completions wire has no deferred tools", hint="offer them at once")
    if forced is not None and forced not in [tool.name for tool in tools]:
        raise InvalidRequest(f"the chat/completions wire offers no tool {forced!r} that could be forced")
    if not tools:
        return {}
    rows = [_tool(tool.name, tool.description, tool.input_schema, tool.strict) for tool in tools]
    return {"tools": rows, "tool_choice": _tool_choice(request)}


def _messages(message: Message, odd: frozenset[str]) -> list[Json]:
    """One message as this wire has it: results are messages of their own, ahead of what was said with them."""
    refuse_misplaced_images(message)
    results = [block for block in message.content if isinstance(block, ToolResult)]
    rows: list[Json] = [{"role": "tool", "tool_call_id": r.tool_use_id, "content": result_text(r)} for r in results]
    calls = [_call(block, odd) for block in message.content if isinstance(block, ToolUse)]
    content = _content(message.content)
    if calls:
        rows.append({"role": message.role, "content": content or None, "tool_calls": calls})
    elif content:
        rows.append({"role": message.role, "content": content})
    return rows


def _content(blocks: list[ContentBlock]) -> str | list[Json]:
    """Plain text, unless an image forces parts."""
    if not any(isinstance(block, Image) for block in blocks):
        return joined_text(blocks)
    parts: list[Json] = []
    for block in blocks:
        if isinstance(block, Text):
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, Image):
            parts.append({"type": "image_url", "image_url": {"url": image_url(block)}})
    return parts


def _call(call: ToolUse, odd: frozenset[str]) -> Json:
    # Input that was no JSON object goes back as `{}`: several servers refuse a conversation holding broken arguments.
    function = {"name": sendable_name(call.name, odd), "arguments": msgspec.json.encode(call.input).decode()}
    return {"id": call.id, "type": "function", "function": function}


def _tool(name: str, description: str, schema: Json, strict: bool | None) -> Json:
    function: Json = {"name": name, "description": description, "parameters": schema}
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function}


def _tool_choice(request: Request) -> str | Json:
    match request.tool_choice.mode:
        case "auto":
            return "auto"
        case "any":
            return "required"
        case "tool":
            return {"type": "function", "function": {"name": request.tool_choice.name}}


# --- the stream ------------------------------------------------------------------------------------------------------


def map_stream(request: Request, definition: ProviderDefinition, target: Target) -> StreamMapper:
    """What turns the answer to `request` into provider events."""
    return ChatMapper(target)


# --- the list of models: `read_models`, as on the other wire of the same vendor ---------------------------------------

CHAT = Wire("chat_completions", lambda _: "v1/chat/completions", "v1/models", {}, build_body, map_stream, read_models)
