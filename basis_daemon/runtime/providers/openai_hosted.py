"""What the Responses wire runs at the vendor: web search, image generation, search for tools (PV-24, PV-26).

Owns how these look as tools, in answers and when they are sent back.
"""

from typing import Any

import msgspec

from basis_daemon.runtime.messages import HostedBlock, HostedToolSearch, HostedWebSearch, Image, ImageGeneration
from basis_daemon.runtime.providers.base import ToolDefinition
from basis_daemon.runtime.providers.openai_shapes import Item
from basis_daemon.runtime.providers.wire import json_text

Json = dict[str, Any]

TOOL_SEARCH: Json = {"type": "tool_search"}
WIRE_NAMES = {"hosted_web_search": "web_search", "image_generation": "image_generation"}
"""What the wire calls the kinds of tools that it runs itself."""
HOSTED_ITEMS = ("web_search_call", "image_generation_call", "tool_search_call")

_STATUS_EVENTS = ("response.web_search_call.", "response.image_generation_call.")
_STATUSES = ("in_progress", "searching", "generating", "completed")
_IMAGE_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp"}


def hosted_tool(tool: ToolDefinition) -> Json:
    """A tool of a kind the vendor runs, with what its spec says beyond that."""
    return {**dict(sorted(tool.options.items())), "type": WIRE_NAMES[tool.kind]}


def hosted_block(item: Item) -> HostedBlock:
    """All that an item of `HOSTED_ITEMS` tells. Several of them have no id of their own."""
    id = item.id or item.call_id or ""
    match item.type:
        case "web_search_call":
            return HostedWebSearch(id, item.status, item.action)
        case "image_generation_call":
            return ImageGeneration(id, item.status, item.revised_prompt, _image(item))
        case _:
            return HostedToolSearch(id, item.status, _query(item.arguments))


def hosted_item(block: HostedBlock) -> Json | None:
    """The item that goes back for a block; `None` where this vendor would not know it as its own.

    A search for tools is left out: what it loaded is not part of the block, and the model may search again.
    """
    match block:
        case HostedWebSearch() if block.id.startswith("ws_"):
            return _without_none(type="web_search_call", id=block.id, status=block.status, action=block.action)
        case ImageGeneration() if block.id.startswith("ig_") and _data_of(block.result) is not None:
            return _without_none(
                type="image_generation_call", id=block.id, status=block.status, result=_data_of(block.result)
            )
        case _:
            return None


def status_in(event_type: str) -> str | None:
    """The status that an event about a hosted item stands for."""
    status = event_type.rpartition(".")[2]
    return status if event_type.startswith(_STATUS_EVENTS) and status in _STATUSES else None


def with_status(block: HostedBlock, status: str) -> HostedBlock:
    return msgspec.structs.replace(block, status=status)


def _image(item: Item) -> Json | None:
    if not isinstance(item.result, str) or not item.result:
        return None
    return msgspec.to_builtins(Image(media_type=_IMAGE_TYPES.get(item.output_format or "png"), data=item.result))


def _data_of(result: Any) -> str | None:
    data: Any = result.get("data") if isinstance(result, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return data if isinstance(data, str) else None


def _query(arguments: str | Json | None) -> str | None:
    """What was searched for: the wire has it as text, as an object with a query, or as the paths that were loaded."""
    if not isinstance(arguments, dict):
        return arguments or None
    paths = arguments.get("paths")
    if isinstance(arguments.get("query"), str):
        return arguments["query"]
    return ", ".join(map(str, paths)) if isinstance(paths, list) else json_text(arguments)  # pyright: ignore[reportUnknownArgumentType]


def _without_none(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}
