"""The scripted model on Gemini's generateContent wire: what it streams, lists and refuses, and what it was asked.

Owns that vendor's shapes, as `model_wires.py` owns OpenAI's. It refuses what the vendor is known to refuse, so that a
test's conversation is one that the vendor would take.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from support.model_turns import Called, Said, Thought, Turn, Usage
from support.model_wires import Asked, Piece, compact

Json = Any
STOPS = {"done": "STOP", "max_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
CODES = {"server_error": 500, "overloaded": 503, "rate_limit_exceeded": 429}
"""What this vendor answers where a scripted stream breaks; 400 for all else."""
REFUSED_KEYWORDS = {"$schema", "$id", "const", "oneOf", "allOf", "not", "pattern", "minLength", "default", "examples"}

# --- answers ----------------------------------------------------------------------------------------------------------


class GenerateContentStream:
    """One answer on `/v1beta/models/…:streamGenerateContent`."""

    def __init__(self, asked: Asked, turn: Turn) -> None:
        self._asked = asked
        self._turn = turn

    def pieces(self) -> Iterator[Piece]:
        yield self._chunk([{"text": ""}])
        for part in self._turn.parts:
            yield from self._part(part)
        broken = self._turn.broken
        if broken is not None:
            code = CODES.get(broken.code, 400)
            yield self._data(
                {"error": {"code": code, "message": broken.message, "status": STATUSES.get(code, "INTERNAL")}}
            )
            return
        yield self._chunk([{"text": ""}], finish=STOPS[self._turn.stop])

    def whole(self) -> Json:
        raise NotImplementedError("this wire is only asked for streams")

    def _part(self, part: Said | Thought | Called) -> Iterator[Piece]:
        if isinstance(part, Called):
            signature = {"thoughtSignature": part.signature} if part.signature else {}
            call = {"name": part.name, **_arguments("".join(part.chunks)), **({"id": part.id} if part.id else {})}
            yield self._chunk([{"functionCall": call, **signature}], is_delta=True)
            return
        thought = {"thought": True} if isinstance(part, Thought) else {}
        for text in part.chunks:
            yield self._chunk([{"text": text, **thought}], is_delta=True)
        if isinstance(part, Thought) and part.encrypted is not None:
            yield self._chunk([{"text": "", **thought, "thoughtSignature": part.encrypted}])

    def _chunk(self, parts: list[Json], *, finish: str | None = None, is_delta: bool = False) -> Piece:
        candidate: Json = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if finish is not None:
            candidate["finishReason"] = finish
        usage = {"usageMetadata": _usage(self._turn.usage)} if self._turn.usage else {}
        names = {"modelVersion": self._asked.model, "responseId": f"resp-{self._asked.serial:08d}"}
        return self._data({"candidates": [candidate], **usage, **names}, is_delta=is_delta)

    def _data(self, value: Json, *, is_delta: bool = False) -> Piece:
        return Piece(f"data: {compact(value)}\r\n\r\n".encode(), is_delta)


def _arguments(text: str) -> Json:
    """The arguments of a call; what is no JSON goes out as a string, which no real model's do."""
    if not text.strip():
        return {}
    try:
        return {"args": json.loads(text)}
    except ValueError:
        return {"args": text}


def _usage(usage: Usage) -> Json:
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens + usage.reasoning_tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input_tokens}],
        "cachedContentTokenCount": usage.cached_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
    }
    return {name: count for name, count in counts.items() if count}


# --- the rest ---------------------------------------------------------------------------------------------------------


def error_body(status: int) -> Json:
    """The vendor's usual body for an error status."""
    message = {404: "models/m is not found for API version v1beta."}.get(status, "This is what the script says.")
    return {"error": {"code": status, "message": message, "status": STATUSES.get(status, "INTERNAL")}}


def bad_key_body() -> Json:
    """What a wrong key is told, along with 400."""
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    return {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": details}}


def models_body(models: list[dict[str, Json]], query: Mapping[str, str]) -> Json:
    """The page of the listing that `query` asks for."""
    start = int(query.get("pageToken", 0))
    end = start + int(query.get("pageSize", 50))
    more = {"nextPageToken": str(end)} if end < len(models) else {}
    return {"models": [_model(row) for row in models[start:end]], **more}


def _model(row: dict[str, Json]) -> Json:
    window = row.get("context_length") or row.get("max_model_len")
    return {
        "name": f"models/{row['id']}",
        "displayName": row.get("name", row["id"]),
        "description": row.get("description", ""),
        "supportedGenerationMethods": row.get("methods", ["generateContent", "countTokens"]),
        **({"inputTokenLimit": window} if window else {}),
    }


def key_of(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-goog-api-key")


def model_of(path: str) -> str:
    """The model a request is for: part of its path."""
    return path.rpartition("/")[2].removesuffix(":streamGenerateContent")


def refusal(headers: Mapping[str, str], body: dict[str, Json], model: str) -> str | None:
    """What the vendor would object to in a request; `None` if nothing."""
    contents: list[Json] = body["contents"]
    if any(content["role"] not in ("user", "model") for content in contents):
        return "Please use a valid role: user, model."
    declarations = [row for tool in body.get("tools", []) for row in tool["functionDeclarations"]]
    found = sorted(REFUSED_KEYWORDS & set(_keywords([row.get("parametersJsonSchema", {}) for row in declarations])))
    if found:
        return f"Unknown name {found[0]!r} at 'tools[0].function_declarations'"
    for at, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        answers = [part for row in contents[at + 1 : at + 2] for part in row["parts"] if "functionResponse" in part]
        if calls and model.startswith("gemini-3") and "thoughtSignature" not in calls[0]:
            return "Function call is missing a thought_signature in functionCall parts."
        if calls and len(calls) != len(answers):
            return "the number of function response parts has to equal that of the function call parts"
    return None


def _keywords(schemas: list[Json]) -> Iterator[str]:
    """The keywords of schemas; names of properties are none."""
    for schema in schemas:
        yield from schema
        for keyword, inner in schema.items():
            if keyword in ("properties", "$defs"):
                yield from _keywords(list(inner.values()))
            elif keyword in ("items", "anyOf", "prefixItems"):
                yield from _keywords(cast("list[Json]", inner) if isinstance(inner, list) else [inner])


# --- what was asked ---------------------------------------------------------------------------------------------------


def system(body: dict[str, Json]) -> str:
    return "".join(part["text"] for part in body.get("systemInstruction", {}).get("parts", []))


def items(body: dict[str, Json]) -> list[Json]:
    return body.get("contents", [])


def said(item: Json) -> tuple[str, str]:
    """Role and text of one content, in the words of the other wires."""
    role = "assistant" if item["role"] == "model" else item["role"]
    return role, "".join(part.get("text", "") for part in item["parts"])


def tool_names(body: dict[str, Json]) -> list[str]:
    return [row["name"] for tool in body.get("tools", []) for row in tool["functionDeclarations"]]


def tool_calls(body: dict[str, Json]) -> list[tuple[str, str, str]]:
    return [
        (part["functionCall"].get("id", ""), part["functionCall"]["name"], compact(part["functionCall"]["args"]))
        for item in items(body)
        for part in item["parts"]
        if "functionCall" in part
    ]


def tool_results(body: dict[str, Json]) -> dict[str, str]:
    """By their ids, or by their places where the vendor had given none."""
    answers = [part["functionResponse"] for item in items(body) for part in item["parts"] if "functionResponse" in part]
    return {answer.get("id", str(at)): _result(answer["response"]) for at, answer in enumerate(answers)}


def _result(response: Json) -> str:
    if "error" in response:
        return f"Error: {response['error']}"
    output = response["output"]
    return output if isinstance(output, str) else compact(output)
