"""The Messages wire (2.10): Anthropic's own API, and the servers that stand in for it.

Owns the body it takes and the list of models; what it streams is read in `anthropic_stream.py`. Caching is asked for at
the ends of what stays the same from one request to the next (PV-46).
"""

import re
import zlib
from collections.abc import Sequence
from datetime import datetime
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
from basis_daemon.runtime.providers.anthropic_stream import MessagesMapper
from basis_daemon.runtime.providers.base import ModelInfo, Request, ToolDefinition
from basis_daemon.runtime.providers.definition import ProviderDefinition
from basis_daemon.runtime.providers.efforts import ANTHROPIC_EFFORTS, EffortRule, require_effort, rule_for
from basis_daemon.runtime.providers.encoded import EncodedMessages, joined
from basis_daemon.runtime.providers.errors import InvalidRequest, MalformedStream
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.schemas import ANTHROPIC_OUTPUT, pruned
from basis_daemon.runtime.providers.sealed import (
    is_sealed_here,
    odd_names,
    plain_words,
    refuse_misplaced_images,
    sendable_name,
)
from basis_daemon.runtime.providers.wire import ModelPage, StreamMapper, Wire, newest_first

Json = dict[str, Any]

API_VERSION = "2023-06-01"
BINDING_CONTROLS = "thinking-binding-controls-2026-08-01"
"""A definition that sends this as `anthropic-beta` has reasoning dropped whose conversation was changed ahead of it;
without it such a conversation is refused for good."""
DEFAULT_MAX_TOKENS = 8192
"""This wire wants a bound; this is it when nobody set one (PV-46): what all but the oldest models can give."""
ROOMY_MAX_TOKENS = 32_000
"""The same for models that take an effort: they give at least twice as much, and their thinking counts as well."""
OLDEST = ("claude-3-haiku", "claude-3-sonnet", "claude-3-opus", "claude-2")
OLDEST_MAX_TOKENS = 4096

_EPHEMERAL = {"type": "ephemeral"}
_CACHED_USER_MESSAGES = 2
_TOOL_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
_SEARCH_ID = re.compile(r"srvtoolu_\w+", re.ASCII)
_NO_ID = re.compile(r"[^A-Za-z0-9_-]")

# --- the request -----------------------------------------------------------------------------------------------------


def build_body(request: Request, definition: ProviderDefinition, history: EncodedMessages) -> bytes:
    """The JSON body. Raises `InvalidRequest` for what this wire can't carry."""
    rules = ANTHROPIC_EFFORTS if definition.efforts is None else definition.efforts
    rule = rule_for(request.model, rules)
    require_effort(request, rule)
    fields = {**_head(request, rule), **_tool_fields(request), **_thinking_fields(request, definition, rule)}
    messages = _messages(request, _provenance(request, definition), history)
    return b"".join((msgspec.json.encode(fields)[:-1], b',"messages":[', joined(messages), b"]}"))


def _provenance(request: Request, definition: ProviderDefinition) -> Provenance:
    return Provenance(definition.identity, request.model, "anthropic_signed")


def _head(request: Request, rule: EffortRule | None) -> Json:
    body: Json = {
        "model": request.model,
        "max_tokens": request.max_output_tokens or _most_tokens(request.model, rule),
        "stream": True,
    }
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _EPHEMERAL}]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if "user_id" in request.metadata:  # the only one it knows
        body["metadata"] = {"user_id": request.metadata["user_id"]}
    return body


def _most_tokens(model: str, rule: EffortRule | None) -> int:
    if rule is not None:
        return ROOMY_MAX_TOKENS
    return OLDEST_MAX_TOKENS if model.startswith(OLDEST) else DEFAULT_MAX_TOKENS


def _tool_fields(request: Request) -> Json:
    if not request.tools:
        return {}
    deferred = _deferred(request)
    tools = [_tool(tool, is_deferred=tool.name in deferred) for tool in request.tools]
    if deferred:
        tools.insert(0, dict(_TOOL_SEARCH))
    last = max(at for at, tool in enumerate(tools) if not tool.get("defer_loading"))
    tools[last]["cache_control"] = _EPHEMERAL
    choice: Json = {"type": request.tool_choice.mode}
    if request.tool_choice.mode == "tool":
        choice["name"] = request.tool_choice.name
    if request.options.disable_parallel_tool_use is not None:
        choice["disable_parallel_tool_use"] = request.options.disable_parallel_tool_use
    return {"tools": tools, "tool_choice": choice}


def _deferred(request: Request) -> frozenset[str]:
    """Tools that the model has to search for; a forced one has to be there at once (PV-23)."""
    names = frozenset(tool.name for tool in request.tools if tool.deferred and tool.name != request.tool_choice.name)
    if names and request.options.tool_search != "hosted":
        raise InvalidRequest("tools are deferred, and nothing searches for them", hint="ask for the hosted tool search")
    return names


def _tool(tool: ToolDefinition, *, is_deferred: bool) -> Json:
    if tool.kind != "function":
        raise InvalidRequest(f"Anthropic is not asked to run a tool of its own here: {tool.kind} ({tool.name})")
    schema = pruned(tool.input_schema, ANTHROPIC_OUTPUT) if tool.strict else tool.input_schema
    row: Json = {"name": tool.name, "description": tool.description, "input_schema": {"type": "object", **schema}}
    if tool.strict is not None:
        row["strict"] = tool.strict
    if is_deferred:
        row["defer_loading"] = True
    return row


def _thinking_fields(request: Request, definition: ProviderDefinition, rule: EffortRule | None) -> Json:
    """How hard to think, and what the answer has to look like (2.9, PV-44)."""
    config: Json = {"effort": request.effort} if request.effort is not None else {}
    if request.output is not None:
        schema = pruned(request.output.schema, ANTHROPIC_OUTPUT)
        config["format"] = {"type": "json_schema", "schema": schema}
    body: Json = {"output_config": config} if config else {}
    if rule is None or not rule.is_adaptive:
        return body
    thinking: Json = {}
    summary = request.options.reasoning_summary
    if (request.effort is not None or summary is not None) and request.tool_choice.mode == "auto":
        thinking["type"] = "adaptive"  # a forced call and thinking exclude each other
    if rule.binds_thinking and BINDING_CONTROLS in definition.headers.get("anthropic-beta", ""):
        thinking |= {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    if thinking and (summary is not None or (rule.hides_thinking and definition.is_vendor)):
        thinking["display"] = "summarized"
    return {**body, "thinking": thinking} if thinking else body


# --- messages


def _messages(request: Request, here: Provenance, history: EncodedMessages) -> Sequence[bytes]:
    """The conversation; the ends of the last user messages are marked, so that all up to there is cached (D-9)."""
    searchable, odd = _deferred(request), odd_names(request)

    def encode(message: Message) -> bytes:
        return _encode(message, here, searchable, odd)

    encoded = list(history.of(request.messages, encode, (here, searchable, odd)))
    said = [at for at in range(len(encoded)) if encoded[at] and request.messages[at].role == "user"]
    for at in said[-_CACHED_USER_MESSAGES:]:
        encoded[at] = _encode(request.messages[at], here, searchable, odd, is_marked=True)
    return encoded


def _encode(
    message: Message, here: Provenance, searchable: frozenset[str], odd: frozenset[str], *, is_marked: bool = False
) -> bytes:
    """One message; empty if it holds nothing this wire takes."""
    refuse_misplaced_images(message)
    # The vendor refuses a result behind text.
    blocks = sorted(message.content, key=lambda block: not isinstance(block, ToolResult))
    parts = [part for block in blocks for part in _parts(block, message.role, here, searchable, odd)]
    if not parts:
        return b""
    if is_marked:
        parts[-1]["cache_control"] = _EPHEMERAL
    return msgspec.json.encode({"role": message.role, "content": parts})


def _parts(
    block: ContentBlock, role: str, here: Provenance, searchable: frozenset[str], odd: frozenset[str]
) -> list[Json]:
    match block:
        case Text():
            return _text(block.text)
        case Thinking():
            if role != "assistant":
                return []
            return [_sealed(block)] if is_sealed_here(block, here) else _text(plain_words(block))
        case Image():
            return [{"type": "image", "source": _source(block)}]
        case ToolUse():
            name = sendable_name(block.name, odd)
            return [{"type": "tool_use", "id": _call_id(block.id), "name": name, "input": block.input}]
        case ToolResult():
            row: Json = {"type": "tool_result", "tool_use_id": _call_id(block.tool_use_id), "content": block.as_text()}
            return [{**row, "is_error": True} if block.is_error else row]
        case HostedToolSearch():
            return _search(block, searchable)
        case HostedWebSearch() | ImageGeneration():
            return []  # the results are sealed, and were not kept


def _text(text: str) -> list[Json]:
    """A text block; the vendor refuses blank ones."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _sealed(block: Thinking) -> Json:
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.encrypted_content or block.signature}
    return {"type": "thinking", "thinking": block.thinking, "signature": block.signature or block.encrypted_content}


def _source(image: Image) -> Json:
    if image.url is not None:
        return {"type": "url", "url": image.url}
    return {"type": "base64", "media_type": image.media_type or "image/png", "data": image.data or ""}


def _search(block: HostedToolSearch, searchable: frozenset[str]) -> list[Json]:
    """A search of this vendor's and what it found, so that the tools stay within the model's sight."""
    if not _SEARCH_ID.fullmatch(block.id) or not block.found or not searchable.issuperset(block.found):
        return []
    found = [{"type": "tool_reference", "tool_name": name} for name in block.found]
    name = _TOOL_SEARCH["name"]
    return [
        {"type": "server_tool_use", "id": block.id, "name": name, "input": {"query": block.query or ""}},
        {
            "type": "tool_search_tool_result",
            "tool_use_id": block.id,
            "content": {"type": "tool_search_tool_search_result", "tool_references": found},
        },
    ]


def _call_id(id: str) -> str:
    """A call's id as this vendor takes ids: other vendors' may hold characters that it refuses."""
    plain = _NO_ID.sub("_", id)
    return id if plain == id and id else f"{plain}_{zlib.crc32(id.encode()):08x}"


# --- the stream ------------------------------------------------------------------------------------------------------


def map_stream(request: Request, definition: ProviderDefinition, target: Target) -> StreamMapper:
    """What turns the answer to `request` into provider events."""
    return MessagesMapper(target, _provenance(request, definition))


# --- the list of models ----------------------------------------------------------------------------------------------

_PAGE = {"limit": "1000"}


class _Row(msgspec.Struct):
    id: str = ""
    display_name: str | None = None
    created_at: str | None = None
    max_input_tokens: int | None = None
    lifecycle: str | None = None


class _Listing(msgspec.Struct):
    data: list[_Row] = []
    has_more: bool = False
    last_id: str | None = None


def read_models(body: bytes, definition: ProviderDefinition) -> ModelPage:
    """One page of the models that can be asked for, newest first (RT-32, D-27)."""
    try:
        page = msgspec.json.decode(body, type=_Listing)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedStream(f"{definition.label} sent a list of models that can't be read") from error
    models = [
        ModelInfo(row.id, definition.id, row.display_name, _seconds(row.created_at), row.max_input_tokens or None)
        for row in page.data
        if row.id and row.lifecycle != "retired"
    ]
    more = {**_PAGE, "after_id": page.last_id} if page.has_more and page.last_id else None
    return ModelPage(newest_first(models), more)


def _seconds(timestamp: str | None) -> int | None:
    """Seconds since the epoch; the epoch itself stands for an unknown date."""
    try:
        return int(datetime.fromisoformat(timestamp or "").timestamp()) or None
    except ValueError:
        return None


MESSAGES = Wire("anthropic_messages", lambda _: "v1/messages", "v1/models", _PAGE, build_body, map_stream, read_models)
