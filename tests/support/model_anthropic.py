"""The scripted model on Anthropic's Messages wire: what it streams, lists and refuses, and what it was asked.

Owns that vendor's shapes, as `model_wires.py` owns OpenAI's. It refuses what the vendor is known to refuse, so that a
test's conversation is one that the vendor would take.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from support.model_turns import Called, Said, Thought, Turn, Usage
from support.model_wires import CREATED_AT, Asked, Piece, compact

Json = Any
STOPS = {"max_tokens": "max_tokens", "content_filter": "refusal"}
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
CODES = {"server_error": "api_error", "overloaded": "overloaded_error", "rate_limit_exceeded": "rate_limit_error"}
"""What this vendor calls the ways a scripted stream breaks."""
MAX_BREAKPOINTS = 4

# --- answers ----------------------------------------------------------------------------------------------------------


class MessagesStream:
    """One answer on `/v1/messages`."""

    def __init__(self, asked: Asked, turn: Turn) -> None:
        self._asked = asked
        self._turn = turn

    def pieces(self) -> Iterator[Piece]:
        yield self._event("message_start", message=self._message(is_over=False))
        yield self._event("ping")
        for index, part in enumerate(self._turn.parts):
            yield from self._block(index, part)
        broken = self._turn.broken
        if broken is not None:
            yield self._event(
                "error", error={"type": CODES.get(broken.code, broken.code), "message": broken.message, "details": None}
            )
            return
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        usage = {"usage": _end_usage(self._turn.usage)} if self._turn.usage else {}
        yield self._event("message_delta", delta=delta, **usage)
        yield self._event("message_stop")

    def whole(self) -> Json:
        """The answer to a request that isn't streamed."""
        return self._message(is_over=True)

    def _block(self, index: int, part: Said | Thought | Called) -> Iterator[Piece]:
        block: dict[str, Json]
        if isinstance(part, Thought) and part.encrypted is not None and part.redacted:
            block = {"type": "redacted_thinking", "data": part.encrypted}
        elif isinstance(part, Thought):
            block = {"type": "thinking", "thinking": "", "signature": ""}
        elif isinstance(part, Called):
            block = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
        else:
            block = {"type": "text", "text": ""}
        yield self._event("content_block_start", index=index, content_block=block)
        for chunk in part.chunks:
            yield self._event("content_block_delta", is_delta=True, index=index, delta=_delta(part, chunk))
        if self._turn.broken and part is self._turn.parts[-1]:
            return
        if isinstance(part, Thought) and part.encrypted is not None and not part.redacted:
            yield self._event(
                "content_block_delta", index=index, delta={"type": "signature_delta", "signature": part.encrypted}
            )
        yield self._event("content_block_stop", index=index)

    def _message(self, *, is_over: bool) -> Json:
        usage = self._turn.usage
        started = usage and {**_end_usage(usage), "output_tokens": 1}
        return {
            "id": f"msg_{self._asked.serial:08d}",
            "type": "message",
            "role": "assistant",
            "model": self._asked.model,
            "content": [],
            "stop_reason": self._stop_reason() if is_over else None,
            "stop_sequence": None,
            **({"usage": started} if started else {}),
        }

    def _stop_reason(self) -> str:
        if self._turn.stop != "done":
            return STOPS[self._turn.stop]
        return "tool_use" if any(isinstance(part, Called) for part in self._turn.parts) else "end_turn"

    def _event(self, type: str, *, is_delta: bool = False, **fields: Json) -> Piece:
        return Piece(f"event: {type}\ndata: {compact({'type': type, **fields})}\n\n".encode(), is_delta)


def _delta(part: Said | Thought | Called, text: str) -> Json:
    if isinstance(part, Said):
        return {"type": "text_delta", "text": text}
    if isinstance(part, Thought):
        return {"type": "thinking_delta", "thinking": text}
    return {"type": "input_json_delta", "partial_json": text}


def _end_usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens - usage.written_tokens,
        "cache_creation_input_tokens": usage.written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


# --- the rest ---------------------------------------------------------------------------------------------------------


def error_body(status: int) -> Json:
    """The vendor's usual body for an error status."""
    kind = ERRORS.get(status, "api_error")
    message = {401: "invalid x-api-key", 404: "model: m"}.get(status, "This is what the script says.")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def models_body(models: list[dict[str, Json]], query: Mapping[str, str]) -> Json:
    """The page of the listing that `query` asks for."""
    ids = [model["id"] for model in models]
    start = ids.index(query["after_id"]) + 1 if "after_id" in query else 0
    rows = models[start : start + int(query.get("limit", 20))]
    return {
        "data": [_model(row) for row in rows],
        "has_more": start + len(rows) < len(models),
        "first_id": rows[0]["id"] if rows else None,
        "last_id": rows[-1]["id"] if rows else None,
    }


def _model(row: dict[str, Json]) -> Json:
    created = datetime.fromtimestamp(row.get("created", CREATED_AT) or 0, UTC)
    return {
        "type": "model",
        "id": row["id"],
        "display_name": row.get("name", row["id"]),
        "created_at": created.isoformat().replace("+00:00", "Z"),
        "max_input_tokens": row.get("context_length") or row.get("max_model_len"),
        "lifecycle": row.get("lifecycle", "active"),
    }


def key_of(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-api-key")


def refusal(headers: Mapping[str, str], body: dict[str, Json]) -> str | None:
    """What the vendor would object to in a request; `None` if nothing."""
    if "anthropic-version" not in headers:
        return "anthropic-version: header is required"
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens: Field required"
    if str(body).count("'cache_control'") > MAX_BREAKPOINTS:
        return "A maximum of 4 blocks with cache_control may be provided."
    for at, message in enumerate(body["messages"]):
        problem = _message_problem(message, body["messages"][at + 1 : at + 2])
        if problem:
            return f"messages.{at}: {problem}"
    return None


def _message_problem(message: Json, following: list[Json]) -> str | None:
    if message["role"] not in ("user", "assistant"):
        return f"Unexpected role {message['role']!r}"
    blocks = message["content"]
    if not blocks or any(block["type"] == "text" and not block["text"].strip() for block in blocks):
        return "text content blocks must be non-empty"
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if any(not re.fullmatch(r"[a-zA-Z0-9_-]+", id) for id in ids):
        return "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    answered = [block.get("tool_use_id") for row in following for block in row["content"]]
    if ids and set(ids) - set(answered[: len(ids)]):
        return "`tool_use` ids were found without `tool_result` blocks immediately after"
    return None


# --- what was asked ---------------------------------------------------------------------------------------------------


def system(body: dict[str, Json]) -> str:
    return "".join(block["text"] for block in body.get("system", []))


def items(body: dict[str, Json]) -> list[Json]:
    return body.get("messages", [])


def said(item: Json) -> tuple[str, str]:
    """Role and text of one message."""
    return item["role"], "".join(block.get("text", "") for block in item["content"])


def tool_names(body: dict[str, Json]) -> list[str]:
    return [tool["name"] for tool in body.get("tools", [])]


def tool_calls(body: dict[str, Json]) -> list[tuple[str, str, str]]:
    return [
        (block["id"], block["name"], compact(block["input"]))
        for item in items(body)
        for block in item["content"]
        if block["type"] == "tool_use"
    ]


def tool_results(body: dict[str, Json]) -> dict[str, str]:
    return {
        block["tool_use_id"]: f"{'Error: ' if block.get('is_error') else ''}{_result(block['content'])}"
        for item in items(body)
        for block in item["content"]
        if block["type"] == "tool_result"
    }


def _result(content: Json) -> str:
    return content if isinstance(content, str) else json.dumps(content)
