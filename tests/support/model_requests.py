"""What the scripted model was asked: each request as it arrived, and readings of it that fit all wires.

Owns the record. Readings are for tests; a test about a wire's exact body looks at `body`.
"""

import json
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal
from urllib.parse import parse_qsl

from support import model_anthropic, model_gemini

Json = Any
Wire = Literal[
    "responses",
    "chat_completions",
    "anthropic_messages",
    "gemini_generate_content",
    "embeddings",
    "models",
    "other",
]
DIALECTS: dict[str, ModuleType] = {
    "anthropic_messages": model_anthropic,
    "gemini_generate_content": model_gemini,
}
"""Wires whose words are nobody else's, and where they are told."""


@dataclass(frozen=True)
class Ending:
    """How the answer to a request ended, and when (`time.monotonic()`, which all processes of a machine share)."""

    how: Literal["sent", "cut", "client_left"]
    at: float


@dataclass
class ModelRequest:
    """One request. Header names are lower case. `arrived_at` is `time.monotonic()` at its last byte."""

    index: int
    method: str
    target: str
    wire: Wire
    headers: dict[str, str]
    data: bytes
    arrived_at: float
    connection: int
    """Which connection of the server it came on, from 1: the same number twice is a reused connection."""
    ending: Ending | None = None
    context: list[Json] | None = None
    """On the Responses wire, all the model sees: what the response that is continued stood for, and what is new."""
    _body: Json = field(default=None, repr=False)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def body(self) -> dict[str, Json]:
        """The parsed JSON body; `{}` when there is none. Raises `ValueError` on a body that isn't JSON."""
        if self._body is None:
            self._body = json.loads(self.data) if self.data else {}
        return self._body

    @property
    def dialect(self) -> ModuleType | None:
        """Who can read this request, if it is on a wire of its own; a listing's is told by its headers and path."""
        if self.wire == "models" and "anthropic-version" in self.headers:
            return model_anthropic
        if self.wire == "models" and "/v1beta/" in self.path:
            return model_gemini
        return DIALECTS.get(self.wire)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2]))

    @property
    def model(self) -> str | None:
        return model_gemini.model_of(self.path) if self.wire == "gemini_generate_content" else self.body.get("model")

    @property
    def items(self) -> list[dict[str, Json]]:
        """The conversation as the model sees it, in the wire's words; what was sent of it is in `body`."""
        if self.context is not None:
            return self.context
        if self.dialect:
            return self.dialect.items(self.body)
        return self.body.get("input" if self.wire == "responses" else "messages", [])

    @property
    def system(self) -> str:
        """The system prompt."""
        if self.dialect:
            return self.dialect.system(self.body)
        if self.wire == "responses":
            return self.body.get("instructions") or ""
        return "\n".join(_text(item) for item in self.items if item["role"] in ("system", "developer"))

    @property
    def conversation(self) -> list[tuple[str, str]]:
        """`(role, text)` of every user and assistant message, in order."""
        if self.dialect:
            return [(role, text) for role, text in map(self.dialect.said, self.items) if text]
        return [
            (item["role"], _text(item))
            for item in self.items
            if item.get("role") in ("user", "assistant") and _text(item)
        ]

    @property
    def prompt(self) -> str:
        """The text of the last user message."""
        return next((text for role, text in reversed(self.conversation) if role == "user"), "")

    @property
    def tool_names(self) -> list[str]:
        """The tools on offer, as listed."""
        if self.dialect:
            return self.dialect.tool_names(self.body)
        return [
            spec["name"] if self.wire == "responses" else spec["function"]["name"]
            for spec in self.body.get("tools", [])
        ]

    @property
    def tool_calls(self) -> list[tuple[str, str, str]]:
        """`(id, name, argument text)` of every call in the conversation sent."""
        if self.dialect:
            return self.dialect.tool_calls(self.body)
        if self.wire == "responses":
            return [
                (item["call_id"], item["name"], item["arguments"])
                for item in self.items
                if item.get("type") == "function_call"
            ]
        return [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for item in self.items
            for call in item.get("tool_calls", [])
        ]

    @property
    def tool_results(self) -> dict[str, str]:
        """Call id → the text the model reads for it."""
        if self.dialect:
            return self.dialect.tool_results(self.body)
        if self.wire == "responses":
            return {
                item["call_id"]: _text({"content": item["output"]})
                for item in self.items
                if item.get("type") == "function_call_output"
            }
        return {item["tool_call_id"]: _text(item) for item in self.items if item.get("role") == "tool"}


def _text(item: dict[str, Json]) -> str:
    content = item.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def wire_of(method: str, path: str) -> Wire:
    """Which wire a path belongs to, whatever prefix stands ahead of it."""
    for suffix, verb, wire in (
        ("/responses", "POST", "responses"),
        ("/chat/completions", "POST", "chat_completions"),
        ("/messages", "POST", "anthropic_messages"),
        (":streamGenerateContent", "POST", "gemini_generate_content"),
        ("/embeddings", "POST", "embeddings"),
        ("/models", "GET", "models"),
    ):
        if method == verb and path.endswith(suffix):
            return wire  # type: ignore[return-value]
    return "other"
