"""The bytes two vendors' wires would send for a scripted turn: Responses and chat/completions.

Owns the event shapes, bookkeeping events included. Knows no HTTP (`model_server.py`) and decides nothing.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from support.model_turns import Broken, Called, Said, Thought, Turn, Usage

Json = Any
Object = dict[str, Any]
CREATED_AT = 1_767_225_600
"""The scripted vendor's clock stands still, so that its bytes can be compared."""


class Piece(NamedTuple):
    """Bytes of the body; `is_delta` marks events that carry text, reasoning or arguments."""

    data: bytes
    is_delta: bool


@dataclass(frozen=True)
class Asked:
    """What of a request shows in the answer to it."""

    serial: int
    """Which request of the server this is, from 1."""
    body: dict[str, Json]

    @property
    def model(self) -> str:
        return str(self.body.get("model", "scripted"))


def compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- Responses --------------------------------------------------------------------------------------------------------


class ResponsesStream:
    """One answer on `/v1/responses`."""

    def __init__(self, asked: Asked, turn: Turn) -> None:
        self._asked = asked
        self._turn = turn
        self._sequence = 0
        self.output: list[Json] = []
        """Items that are whole."""

    @property
    def id(self) -> str:
        return f"resp_{self._asked.serial:08d}"

    def pieces(self) -> Iterator[Piece]:
        yield self._event("response.created", response=self._response("in_progress"))
        yield self._event("response.in_progress", response=self._response("in_progress"))
        for index, part in enumerate(self._turn.parts):
            if isinstance(part, Said):
                yield from self._message(index, part)
            elif isinstance(part, Called):
                yield from self._call(index, part)
            else:
                yield from self._reasoning(index, part)
        yield self._end()

    def whole(self) -> Json:
        """The answer to `stream: false`."""
        for _ in self.pieces():
            pass
        return self._response(self._status())

    def _message(self, index: int, part: Said) -> Iterator[Piece]:
        item: Object = {
            "id": self._id("msg", index),
            "type": "message",
            "status": "in_progress",
            "content": [],
            "role": "assistant",
        }
        at: Object = {"item_id": item["id"], "output_index": index, "content_index": 0}
        text = "".join(part.chunks)
        whole: Object = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        yield self._event("response.output_item.added", output_index=index, item=item)
        yield self._event("response.content_part.added", **at, part={**whole, "text": ""})
        for chunk in part.chunks:
            yield self._event("response.output_text.delta", **at, delta=chunk, logprobs=[])
        if self._turn.broken:
            return
        yield self._event("response.output_text.done", **at, text=text, logprobs=[])
        yield self._event("response.content_part.done", **at, part=whole)
        yield self._done(index, {**item, "status": self._status(), "content": [whole]})

    def _call(self, index: int, part: Called) -> Iterator[Piece]:
        item: Object = {
            "id": self._id("fc", index),
            "type": "function_call",
            "status": "in_progress",
            "arguments": "",
            "call_id": part.id,
            "name": part.name,
        }
        at: Object = {"item_id": item["id"], "output_index": index}
        arguments = "".join(part.chunks)
        yield self._event("response.output_item.added", output_index=index, item=item)
        for chunk in part.chunks:
            yield self._event("response.function_call_arguments.delta", **at, delta=chunk)
        if self._turn.broken:
            return
        yield self._event("response.function_call_arguments.done", **at, arguments=arguments)
        yield self._done(index, {**item, "status": self._status(), "arguments": arguments})

    def _reasoning(self, index: int, part: Thought) -> Iterator[Piece]:
        item: Object = {"id": self._id("rs", index), "type": "reasoning", "summary": []}
        if part.encrypted is not None:
            item["encrypted_content"] = part.encrypted[:8]
        at: Object = {"item_id": item["id"], "output_index": index, "summary_index": 0}
        text = "".join(part.chunks)
        whole: Object = {"type": "summary_text", "text": text}
        yield self._event("response.output_item.added", output_index=index, item=item)
        if part.chunks:
            yield self._event("response.reasoning_summary_part.added", **at, part={**whole, "text": ""})
        for chunk in part.chunks:
            yield self._event("response.reasoning_summary_text.delta", **at, delta=chunk)
        if self._turn.broken:
            return
        if part.chunks:
            yield self._event("response.reasoning_summary_text.done", **at, text=text)
            yield self._event("response.reasoning_summary_part.done", **at, part=whole)
        sealed = {} if part.encrypted is None else {"encrypted_content": part.encrypted}
        yield self._done(index, {**item, **sealed, "summary": [whole] if part.chunks else []})

    def _done(self, index: int, item: Json) -> Piece:
        self.output.append(item)
        return self._event("response.output_item.done", output_index=index, item=item)

    def _end(self) -> Piece:
        broken = self._turn.broken
        if broken is None:
            return self._event(f"response.{self._status()}", response=self._response(self._status()))
        if broken.how == "error":
            return self._event("error", code=broken.code, message=broken.message, param=None)
        return self._event("response.failed", response=self._response("failed"))

    def _status(self) -> str:
        return "completed" if self._turn.stop == "done" else "incomplete"

    def _response(self, status: str) -> Json:
        body, over = self._asked.body, status != "in_progress"
        reasons = {"max_tokens": "max_output_tokens", "content_filter": "content_filter"}
        return {
            "id": self.id,
            "object": "response",
            "created_at": CREATED_AT,
            "status": status,
            "background": False,
            "error": _error(self._turn.broken) if status == "failed" else None,
            "incomplete_details": {"reason": reasons[self._turn.stop]} if status == "incomplete" else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "max_tool_calls": None,
            "model": self._asked.model,
            "output": self.output if over else [],
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "previous_response_id": body.get("previous_response_id"),
            "prompt_cache_key": body.get("prompt_cache_key"),
            "reasoning": {"effort": body.get("reasoning", {}).get("effort"), "summary": None},
            "safety_identifier": None,
            "service_tier": "default" if over else "auto",
            "store": body.get("store", True),
            "temperature": body.get("temperature", 1.0),
            "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools", []),
            "top_logprobs": 0,
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": _responses_usage(self._turn.usage) if over else None,
            "user": None,
            "metadata": {},
        }

    def _id(self, prefix: str, index: int) -> str:
        return f"{prefix}_{self._asked.serial:08d}_{index}"

    def _event(self, type: str, **fields: Json) -> Piece:
        data = compact({"type": type, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        return Piece(f"event: {type}\ndata: {data}\n\n".encode(), type.endswith(".delta"))


def _error(broken: Broken | None) -> Json:
    return {"code": broken.code, "message": broken.message} if broken else None


def _responses_usage(usage: Usage | None) -> Json:
    return usage and {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, **_written(usage)},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


# --- chat/completions -------------------------------------------------------------------------------------------------


class ChatStream:
    """One answer on `/v1/chat/completions`."""

    def __init__(self, asked: Asked, turn: Turn) -> None:
        self._asked = asked
        self._turn = turn
        self._with_usage = bool(asked.body.get("stream_options", {}).get("include_usage"))

    def pieces(self) -> Iterator[Piece]:
        yield self._chunk({"role": "assistant", "content": "", "refusal": None})
        call = 0
        for part in self._turn.parts:
            if isinstance(part, Called):
                yield from self._call(call, part)
                call += 1
                continue
            name = "content" if isinstance(part, Said) else part.field
            for text in part.chunks:
                yield self._chunk({name: text}, is_delta=True)
        if self._turn.broken:
            yield self._data({"error": {**_error(self._turn.broken), "type": self._turn.broken.code, "param": None}})
            return
        yield self._chunk({}, finish=self._finish())
        if self._with_usage and self._turn.usage:
            yield self._data(
                {**self._head("chat.completion.chunk"), "choices": [], "usage": _chat_usage(self._turn.usage)}
            )
        yield Piece(b"data: [DONE]\n\n", False)

    def whole(self) -> Json:
        """The answer to `stream: false`."""
        said = [text for part in self._turn.parts if isinstance(part, Said) for text in part.chunks]
        thought = [text for part in self._turn.parts if isinstance(part, Thought) for text in part.chunks]
        called = [part for part in self._turn.parts if isinstance(part, Called)]
        message: Object = {"role": "assistant", "content": "".join(said) if said else None, "refusal": None}
        if thought:
            message["reasoning_content"] = "".join(thought)
        if called:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": "".join(c.chunks)}}
                for c in called
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish()}
        usage = self._turn.usage and _chat_usage(self._turn.usage)
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    def _call(self, index: int, part: Called) -> Iterator[Piece]:
        function = {"name": part.name, "arguments": ""}
        yield self._chunk({"tool_calls": [{"index": index, "id": part.id, "type": "function", "function": function}]})
        for text in part.chunks:
            yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]}, is_delta=True)

    def _finish(self) -> str:
        if self._turn.stop != "done":
            return {"max_tokens": "length", "content_filter": "content_filter"}[self._turn.stop]
        return "tool_calls" if any(isinstance(part, Called) for part in self._turn.parts) else "stop"

    def _head(self, kind: str) -> dict[str, Json]:
        return {
            "id": f"chatcmpl-{self._asked.serial:08d}",
            "object": kind,
            "created": CREATED_AT,
            "model": self._asked.model,
            "service_tier": "default",
            "system_fingerprint": "fp_scripted",
        }

    def _chunk(self, delta: Json, *, finish: str | None = None, is_delta: bool = False) -> Piece:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._with_usage else {}
        return self._data({**self._head("chat.completion.chunk"), "choices": [choice], **usage}, is_delta=is_delta)

    def _data(self, value: Json, *, is_delta: bool = False) -> Piece:
        return Piece(f"data: {compact(value)}\n\n".encode(), is_delta)


def _chat_usage(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0, **_written(usage)},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens, "audio_tokens": 0},
    }


def _written(usage: Usage) -> dict[str, Json]:
    return {"cache_write_tokens": usage.written_tokens} if usage.written_tokens else {}


# --- the rest ---------------------------------------------------------------------------------------------------------


def error_body(status: int) -> Json:
    """The vendor's usual body for an error status."""
    message, kind, code = {
        400: ("Invalid request.", "invalid_request_error", None),
        401: ("Incorrect API key provided: sk-****.", "invalid_request_error", "invalid_api_key"),
        403: ("You are not allowed to use this model.", "permission_error", None),
        404: ("The model does not exist or you do not have access to it.", "invalid_request_error", "model_not_found"),
        429: ("Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
    }.get(status, ("The server had an error while processing your request.", "server_error", None))
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def models_body(models: list[dict[str, Json]]) -> Json:
    rows = [{"object": "model", "created": CREATED_AT, "owned_by": "scripted", **model} for model in models]
    return {"object": "list", "data": rows}
