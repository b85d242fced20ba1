"""The generateContent wire (2.10): Google's Gemini, and the servers that stand in for it.

Owns the body it takes and the list of models; what it streams is read in `gemini_stream.py`.
"""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

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
from basis_daemon.runtime.providers.base import ModelInfo, Request, ToolDefinition
from basis_daemon.runtime.providers.definition import ProviderDefinition
from basis_daemon.runtime.providers.efforts import GEMINI_EFFORTS, require_effort, rule_for
from basis_daemon.runtime.providers.encoded import EncodedMessages, joined
from basis_daemon.runtime.providers.errors import InvalidRequest, MalformedStream
from basis_daemon.runtime.providers.failures import Target
from basis_daemon.runtime.providers.gemini_stream import GeminiMapper
from basis_daemon.runtime.providers.schemas import GEMINI, pruned
from basis_daemon.runtime.providers.sealed import (
    is_sealed_here,
    odd_names,
    plain_words,
    refuse_misplaced_images,
    sendable_name,
)
from basis_daemon.runtime.providers.wire import ModelPage, StreamMapper, Wire, newest_first

Json = dict[str, Any]

NO_SIGNATURE = "skip_thought_signature_validator"
"""What the vendor takes for the signature of a call that another model made."""

_NEEDS_SIGNATURES = re.compile(r"gemini-(?!1|2\.|2-)")
"""From the third generation on, the first call of every step has to be signed."""

# --- the request -----------------------------------------------------------------------------------------------------


def path(request: Request) -> str:
    """Where `request` is posted: the model is part of it. Raises `InvalidRequest` for one that leads elsewhere: a
    repository may name the model, and must not choose what the key is sent to."""
    if not {".", ".."}.isdisjoint(request.model.split("/")):
        raise InvalidRequest(f"{request.model!r} is no name of a model")
    model = request.model if request.model.startswith(("models/", "tunedModels/")) else f"models/{request.model}"
    return f"v1beta/{quote(model)}:streamGenerateContent?alt=sse"


def build_body(request: Request, definition: ProviderDefinition, history: EncodedMessages) -> bytes:
    """The JSON body. Raises `InvalidRequest` for what this wire can't carry."""
    rules = GEMINI_EFFORTS if definition.efforts is None else definition.efforts
    require_effort(request, rule_for(request.model, rules))
    fields: Json = {}
    if request.system:
        fields["systemInstruction"] = {"parts": [{"text": request.system}]}
    fields |= _tool_fields(request)
    if generation := _generation(request):
        fields["generationConfig"] = generation
    contents = joined(_contents(request, _provenance(request, definition), history))
    head = msgspec.json.encode(fields)[:-1]
    return b"".join((head, b"," if fields else b"", b'"contents":[', contents, b"]}"))


def _provenance(request: Request, definition: ProviderDefinition) -> Provenance:
    return Provenance(definition.identity, request.model, "gemini_thought")


def _tool_fields(request: Request) -> Json:
    if not request.tools:
        return {}
    choice = request.tool_choice
    config: Json = {"mode": "AUTO" if choice.mode == "auto" else "ANY"}
    if choice.mode == "tool":
        config["allowedFunctionNames"] = [choice.name]
    declarations = [_declaration(tool) for tool in request.tools]
    return {"tools": [{"functionDeclarations": declarations}], "toolConfig": {"functionCallingConfig": config}}


def _declaration(tool: ToolDefinition) -> Json:
    if tool.deferred:
        raise InvalidRequest(f"Gemini shows a model all of its tools at once, so {tool.name} can't be deferred")
    if tool.kind != "function":
        raise InvalidRequest(f"Gemini is not asked to run a tool of its own here: {tool.kind} ({tool.name})")
    row: Json = {"name": tool.name, "description": tool.description}
    schema = pruned(tool.input_schema, GEMINI)
    if schema.get("properties"):  # an object without any is refused
        row["parametersJsonSchema"] = {"type": "object", **schema}
    return row


def _generation(request: Request) -> Json:
    """All settings, whichever of them are there (PV-45, D-12)."""
    config: Json = {}
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if request.max_output_tokens is not None:
        config["maxOutputTokens"] = request.max_output_tokens
    if request.output is not None:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = pruned(request.output.schema, GEMINI)
    thinking: Json = {"thinkingLevel": request.effort} if request.effort is not None else {}
    thoughts = request.options.gemini_thoughts
    if thoughts is not None or thinking:
        thinking["includeThoughts"] = thoughts is not False
    return {**config, "thinkingConfig": thinking} if thinking else config


# --- contents


def _contents(request: Request, here: Provenance, history: EncodedMessages) -> Sequence[bytes]:
    calls, odd = _Calls(request.messages), odd_names(request)

    def encode(message: Message) -> bytes:
        # It looks at earlier messages too, which are the same wherever what is encoded here is used again.
        return _encode(message, here, calls, odd)

    return history.of(request.messages, encode, (here, odd))


class _Calls:
    """The calls of a conversation by their ids: results are sent with the name of what was called."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._by_id: dict[str, ToolUse] | None = None

    def of(self, result: ToolResult) -> ToolUse:
        """The call `result` belongs to. Raises `InvalidRequest` if there is none."""
        if self._by_id is None:
            self._by_id = {call.id: call for message in self._messages for call in message.tool_uses()}
        try:
            return self._by_id[result.tool_use_id]
        except KeyError:
            raise InvalidRequest(f"there is no call {result.tool_use_id!r} that a result could belong to") from None


def _encode(message: Message, here: Provenance, calls: _Calls, odd: frozenset[str]) -> bytes:
    """One message; empty if it holds nothing this wire takes."""
    refuse_misplaced_images(message)
    # Results answer the calls right ahead of them; nothing may stand in between.
    blocks = sorted(message.content, key=lambda block: not isinstance(block, ToolResult))
    parts = [part for block in blocks for part in _parts(block, message.role, here, calls, odd)]
    if not parts:
        return b""
    first = next((part for part in parts if "functionCall" in part), None)
    if first is not None and _NEEDS_SIGNATURES.match(here.model):
        first.setdefault("thoughtSignature", NO_SIGNATURE)
    return msgspec.json.encode({"role": "model" if message.role == "assistant" else "user", "parts": parts})


def _parts(block: ContentBlock, role: str, here: Provenance, calls: _Calls, odd: frozenset[str]) -> list[Json]:
    match block:
        case Text():
            return [{"text": block.text}] if block.text else []
        case Thinking():
            if role != "assistant":
                return []
            if is_sealed_here(block, here):
                return [{"text": block.thinking, "thought": True, "thoughtSignature": block.signature}]
            return [{"text": plain_words(block)}]
        case Image():
            return [{"inlineData": _inline(block)}]
        case ToolUse():
            call = {
                "functionCall": {**_own_id(block, here), "name": sendable_name(block.name, odd), "args": block.input}
            }
            return [{**call, "thoughtSignature": block.signature} if is_sealed_here(block, here) else call]
        case ToolResult():
            call = calls.of(block)
            response = {"error": block.as_text()} if block.is_error else {"output": block.content}
            name = sendable_name(call.name, odd)
            return [{"functionResponse": {**_own_id(call, here), "name": name, "response": response}}]
        case HostedToolSearch() | HostedWebSearch() | ImageGeneration():
            return []  # another vendor's


def _own_id(call: ToolUse, here: Provenance) -> Json:
    """The vendor's own id of a call, where it gave one."""
    return {"id": call.item_id} if call.item_id and call.provenance == here else {}


def _inline(image: Image) -> Json:
    if image.url is not None:
        raise InvalidRequest("Gemini takes images as bytes only, and this one is an address", hint="send its bytes")
    return {"mimeType": image.media_type or "image/png", "data": image.data or ""}


# --- the stream ------------------------------------------------------------------------------------------------------


def map_stream(request: Request, definition: ProviderDefinition, target: Target) -> StreamMapper:
    """What turns the answer to `request` into provider events."""
    return GeminiMapper(target, _provenance(request, definition))


# --- the list of models ----------------------------------------------------------------------------------------------

_PAGE = {"pageSize": "1000"}
_NO_CONVERSATION = re.compile(
    r"embedding|tts|image|banana|audio|live|lyria|robotics|computer-use|deep-research|imagen|veo|aqa"
)
"""Models in the vendor's own list that hold no conversation with tools (RT-30)."""


class _Row(msgspec.Struct, rename="camel"):
    name: str = ""
    display_name: str | None = None
    description: str | None = None
    input_token_limit: int | None = None
    supported_generation_methods: list[str] | None = None


class _Listing(msgspec.Struct, rename="camel"):
    models: list[_Row] = []
    next_page_token: str | None = None


def read_models(body: bytes, definition: ProviderDefinition) -> ModelPage:
    """One page of the models that answer, by id: this vendor tells no dates (PV-1, RT-32, D-27)."""
    try:
        page = msgspec.json.decode(body, type=_Listing)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedStream(f"{definition.label} sent a list of models that can't be read") from error
    models = [_model(row, definition) for row in page.models if row.name and _answers(row)]
    if definition.is_vendor:
        models = [model for model in models if not _NO_CONVERSATION.search(model.id)]
    more = {**_PAGE, "pageToken": page.next_page_token} if page.next_page_token else None
    return ModelPage(newest_first(models), more)


def _model(row: _Row, definition: ProviderDefinition) -> ModelInfo:
    return ModelInfo(
        row.name.removeprefix("models/"),
        definition.id,
        row.display_name,
        context_window=row.input_token_limit or None,
        description=row.description,
    )


def _answers(row: _Row) -> bool:
    methods = row.supported_generation_methods
    return methods is None or "generateContent" in methods


GENERATE_CONTENT = Wire("gemini_generate_content", path, "v1beta/models", _PAGE, build_body, map_stream, read_models)
