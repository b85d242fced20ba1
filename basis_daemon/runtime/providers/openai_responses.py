"""The Responses wire (2.7): OpenAI, OpenRouter, and servers that offer `v1/responses`.

Owns the body it takes; what it streams is read in `openai_responses_stream.py`. Nothing is stored at the vendor unless
somebody asks for it, and reasoning travels sealed (PV-31, PV-41).
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
from basis_daemon.runtime.providers.base import Request
from basis_daemon.runtime.providers.definition import ProviderDefinition
from basis_daemon.runtime.providers.encoded import EncodedMessages, array_body, joined
from basis_daemon.runtime.providers.errors import InvalidRequest
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.openai_common import image_url, read_models, result_text
from basis_daemon.runtime.providers.openai_hosted import TOOL_SEARCH, WIRE_NAMES, hosted_item, hosted_tool
from basis_daemon.runtime.providers.openai_responses_stream import ResponsesMapper
from basis_daemon.runtime.providers.response_chain import is_stored
from basis_daemon.runtime.providers.sealed import (
    is_sealed_here,
    odd_names,
    plain_words,
    refuse_misplaced_images,
    sendable_name,
)
from basis_daemon.runtime.providers.wire import StreamMapper, Wire

Json = dict[str, Any]

# --- the request -----------------------------------------------------------------------------------------------------


def build_body(request: Request, definition: ProviderDefinition, history: EncodedMessages) -> bytes:
    """The JSON body, or the frame of a request over a websocket. Raises `InvalidRequest` for what can't be carried.

    All of `request.messages` are sent, and a `previous_response_id` if there is one: which of them are new is
    `response_chain.py`'s.
    """
    here = _provenance(request, definition)
    is_structured = definition.capabilities.structured_tool_results
    odd = odd_names(request)

    def encode(message: Message) -> bytes:
        return joined([msgspec.json.encode(item) for item in _items(message, here, odd, is_structured)])

    items = history.of(request.messages, encode, (here, odd))
    fields = msgspec.json.encode({**_head(request), **_answer_fields(request), **_tool_fields(request, definition)})
    return array_body(fields[:-1] + b',"input":[', items, b"]}")


def _head(request: Request) -> Json:
    options = request.options.responses
    body: Json = {"model": request.model, "store": is_stored(options)}
    if options.transport == "web_socket":
        body |= {"type": "response.create", "instructions": request.system or ""}
    else:
        body["stream"] = True
        body |= {"instructions": request.system} if request.system else {}
    if options.previous_response_id is not None:
        body["previous_response_id"] = options.previous_response_id
    if request.metadata:
        body["metadata"] = dict(sorted(request.metadata.items()))
    return body


def _answer_fields(request: Request) -> Json:
    """What the answer is to be like."""
    options = request.options.responses
    body: Json = {}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    include = [*options.include]
    summary = request.options.reasoning_summary
    if request.effort is not None or summary is not None:
        effort = {"effort": request.effort} if request.effort else {}
        body["reasoning"] = {**effort, "summary": summary or "auto"}
        include.append("reasoning.encrypted_content")
    if include:
        body["include"] = list(dict.fromkeys(include))
    text = {"verbosity": options.verbosity} if options.verbosity else {}
    if request.output is not None:
        wanted = request.output
        schema = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict}
        text = {**text, "format": {"type": "json_schema", **schema}}
    return {**body, "text": text} if text else body


def _tool_fields(request: Request, definition: ProviderDefinition) -> Json:
    options = request.options.responses
    body: Json = {}
    if request.tools:
        body["tools"] = _tools(request)
        body["tool_choice"] = _tool_choice(request)
    if options.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = options.parallel_tool_calls
    if options.service_tier is not None:
        body["service_tier"] = options.service_tier
    key = options.prompt_cache_key or (request.session_id if definition.is_vendor else None)
    return {**body, "prompt_cache_key": key} if key else body


def _tools(request: Request) -> list[Json]:
    """The tools on offer; a deferred one is found by the vendor's own search, if that is asked for (PV-24)."""
    tools: list[Json] = []
    is_any_deferred = False
    for tool in request.tools:
        if tool.kind != "function":
            tools.append(hosted_tool(tool))
            continue
        row: Json = {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
            "strict": tool.strict or False,  # the vendor's own default is true here (PV-25)
        }
        if tool.deferred and tool.name != request.tool_choice.name:  # a forced tool has to be there at once (PV-23)
            row["defer_loading"] = is_any_deferred = True
        tools.append(row)
    if is_any_deferred and request.options.tool_search != "hosted":
        raise InvalidRequest("tools are deferred, and nothing searches for them", hint="ask for the hosted tool search")
    return [*tools, TOOL_SEARCH] if is_any_deferred else tools


def _provenance(request: Request, definition: ProviderDefinition) -> Provenance:
    return Provenance(definition.identity, request.model, "open_ai_encrypted")


def _items(message: Message, here: Provenance, odd: frozenset[str], is_structured: bool) -> list[Json]:
    """One message as the items of this wire, in the order of its blocks; neighbouring prose is one item."""
    refuse_misplaced_images(message)
    is_sealed = any(isinstance(block, Thinking) and _is_replayable(block, here) for block in message.content)
    items: list[Json] = []
    prose: list[Json] = []
    for block in message.content:
        if isinstance(block, Text | Image) or (isinstance(block, Thinking) and not _is_replayable(block, here)):
            prose += _part(block, message.role)
            continue
        items += _prose(message.role, prose)
        prose = []
        item = _item(block, odd, is_sealed, is_structured)
        items += [item] if item is not None else []
    return items + _prose(message.role, prose)


def _prose(role: str, parts: list[Json]) -> list[Json]:
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _part(block: ContentBlock, role: str) -> list[Json]:
    kind = "output_text" if role == "assistant" else "input_text"
    if isinstance(block, Image):
        return [{"type": "input_image", "image_url": image_url(block)}]
    if isinstance(block, Thinking):
        return [{"type": kind, "text": plain_words(block)}] if role == "assistant" else []
    return [{"type": kind, "text": block.text}] if isinstance(block, Text) and block.text else []


def _item(block: ContentBlock, odd: frozenset[str], is_sealed: bool, is_structured: bool) -> Json | None:
    match block:
        case ToolUse():
            # An item id is known to the vendor only along with the reasoning it came from (PV-20).
            own = {"id": block.item_id} if is_sealed and block.item_id else {}
            arguments = msgspec.json.encode(block.input).decode()
            name = sendable_name(block.name, odd)
            return {"type": "function_call", **own, "call_id": block.id, "name": name, "arguments": arguments}
        case ToolResult():
            is_text = block.is_error or not is_structured
            output = result_text(block) if is_text else block.content
            return {"type": "function_call_output", "call_id": block.tool_use_id, "output": output}
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
            return hosted_item(block)


def _is_replayable(block: Thinking, here: Provenance) -> bool:
    """Opaque reasoning goes back only to exactly where it is from (PV-41)."""
    return bool(block.encrypted_content and block.id) and is_sealed_here(block, here)


def _tool_choice(request: Request) -> str | Json:
    match request.tool_choice.mode:
        case "auto":
            return "auto"
        case "any":
            return "required"
        case "tool":
            kinds = {tool.name: WIRE_NAMES[tool.kind] for tool in request.tools if tool.kind != "function"}
            name = request.tool_choice.name
            return {"type": kinds[name]} if name in kinds else {"type": "function", "name": name}


# --- the stream ------------------------------------------------------------------------------------------------------


def map_stream(request: Request, definition: ProviderDefinition, target: Target) -> StreamMapper:
    """What turns the answer to `request` into provider events."""
    return ResponsesMapper(target, _provenance(request, definition))


# --- the list of models: `read_models`, as on the other wire of the same vendor --------------------------------------

RESPONSES = Wire("responses", lambda _: "v1/responses", "v1/models", {}, build_body, map_stream, read_models)
