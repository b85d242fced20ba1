"""What Anthropic does itself in the middle of an answer, as hosted blocks: searching the deferred tools, or the web.

Owns what is kept of it. When it is told is the mapper's.
"""

from typing import cast

import msgspec

from basis_daemon.runtime.messages import HostedBlock, HostedToolSearch, HostedWebSearch
from basis_daemon.runtime.providers.anthropic_shapes import BlockShape, Json


def begun(start: BlockShape) -> HostedBlock | None:
    """What the vendor has begun; `None` for work that is passed over (PV-46)."""
    name, id = start.name or "", start.id or ""
    if name.startswith("tool_search_tool"):
        return HostedToolSearch(id, "in_progress")
    return HostedWebSearch(id, "in_progress") if name in ("web_search", "web_fetch") else None


def input_of(start: BlockShape, text: str) -> dict[str, Json]:
    """The input it was begun with: streamed as `text`, or there from the start."""
    try:
        return _as_object(msgspec.json.decode(text)) if text else _as_object(start.input)
    except (msgspec.DecodeError, RecursionError):
        return {}


def asking(known: HostedBlock, asked: dict[str, Json]) -> HostedBlock:
    """What it is looking for is known."""
    if isinstance(known, HostedToolSearch):
        query = asked.get("query") or asked.get("pattern")
        return HostedToolSearch(known.id, "searching", query if isinstance(query, str) else None)
    if isinstance(asked.get("url"), str):
        return HostedWebSearch(known.id, "searching", {"type": "open_page", "url": asked["url"]})
    query = asked.get("query")
    return HostedWebSearch(
        known.id, "searching", {"type": "search", "query": query if isinstance(query, str) else None}
    )


def found(known: HostedBlock, content: Json) -> HostedBlock:
    """It is over; `content` is what came of it."""
    has_failed = str(_as_object(content).get("type", "")).endswith("error")
    status = "failed" if has_failed else "completed"
    if isinstance(known, HostedToolSearch):
        references = _as_object(content).get("tool_references")
        rows = cast("list[Json]", references) if isinstance(references, list) else []
        names = [_as_object(row).get("tool_name") for row in rows]
        return HostedToolSearch(known.id, status, known.query, tuple(name for name in names if isinstance(name, str)))
    return HostedWebSearch(known.id, status, known.action if isinstance(known, HostedWebSearch) else None)


def _as_object(value: Json) -> dict[str, Json]:
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}
