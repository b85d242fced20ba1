"""What a request needs of its provider, checked before anything is sent (PV-3).

Owns the refusals. What a provider can do is its definition's; what a wire can't write down is the wire's to refuse.
"""

from collections.abc import Iterator

from basis_daemon.runtime.messages import Image
from basis_daemon.runtime.providers.base import Request
from basis_daemon.runtime.providers.compression import require_zstd
from basis_daemon.runtime.providers.definition import Capabilities, ProviderDefinition, WireName
from basis_daemon.runtime.providers.errors import InvalidRequest, UnsupportedCapability


def require(definition: ProviderDefinition, request: Request, wire: WireName) -> None:
    """Raise `UnsupportedCapability` or `InvalidRequest` if `request` needs what the provider can't do over `wire`.

    Nothing is left out or done in another way silently. `reports_*` are no needs: they say what usage can hold;
    `structured_tool_results` says how results are written; the rest belongs to other calls than this one.
    """
    for what in _missing(definition.capabilities, request):
        raise UnsupportedCapability(f"{definition.label} ({definition.id}) can't be given {what}")
    options = request.options.responses
    if options.transport == "web_socket" and not (definition.capabilities.websockets and wire == "responses"):
        raise UnsupportedCapability(
            f"{definition.label} ({definition.id}) has no websockets", hint="choose the http_sse transport"
        )
    if wire == "responses":
        _require_state(definition, request)
        if options.compression == "zstd" and options.transport == "web_socket":
            raise InvalidRequest("requests over a websocket are not compressed", hint="choose the http_sse transport")
        if options.compression == "zstd":
            require_zstd()


def _missing(able: Capabilities, request: Request) -> Iterator[str]:
    kinds = {tool.kind for tool in request.tools}
    if not able.streaming:
        yield "a request whose answer is streamed, and others are not made"
    if request.tools and not able.tool_calls:
        yield "tools"
    if "hosted_web_search" in kinds and not able.hosted_web_search:
        yield "a web search of its own to run"
    if "image_generation" in kinds and not able.image_generation:
        yield "images to make"
    if any(tool.deferred for tool in request.tools) and not able.deferred_tools:
        yield "deferred tools"
    if request.options.tool_search == "hosted" and not able.hosted_tool_search:
        yield "a tool search of its own to run"
    if request.effort is not None and not able.reasoning_effort:
        yield "a reasoning effort"
    if request.output is not None and not able.structured_output:
        yield "a schema for its answer"
    if not able.images and any(isinstance(block, Image) for message in request.messages for block in message.content):
        yield "images"


def _require_state(definition: ProviderDefinition, request: Request) -> None:
    options = request.options.responses
    if options.state_mode == "replay_only" and options.previous_response_id is not None:
        raise InvalidRequest("replay_only sends the whole conversation, so there is no response it could continue")
    if options.state_mode != "stateful":
        return
    if not definition.keeps_responses:
        raise UnsupportedCapability(
            f"{definition.label} ({definition.id}) keeps no responses that a stateful conversation could continue",
            hint="choose the hybrid or the replay_only state mode",
        )
    if options.store is False and options.transport == "http_sse":
        raise InvalidRequest("a stateful conversation over HTTP continues stored responses, and store is off")
