"""What a scripted model answers: the vocabulary tests speak in.

Owns turns and the ways they can be delivered (slowly, cut, never). Knows no wire: `model_wires.py` writes the bytes.
Import everything from `support.model_server`.
"""

import asyncio
import concurrent.futures
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, overload

Json = Any
StopReason = Literal["done", "max_tokens", "content_filter"]


class Gate:
    """Holds a scripted stream until the test says go. Safe from any thread and any loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._permits = 0
        self._is_open = False
        self._waiting: list[concurrent.futures.Future[None]] = []
        self._arrivals = 0
        self._arrived: list[tuple[int, concurrent.futures.Future[None]]] = []

    def open(self) -> None:
        """Let everything through from now on."""
        with self._lock:
            self._is_open = True
            released, self._waiting = self._waiting, []
        _resolve(released)

    def step(self, count: int = 1) -> None:
        """Let the next `count` deltas through."""
        with self._lock:
            released, self._waiting = self._waiting[:count], self._waiting[count:]
            self._permits += count - len(released)
        _resolve(released)

    async def arrival(self, count: int = 1) -> None:
        """Wait until a stream has come to this gate for the `count`-th time."""
        await asyncio.wrap_future(self._arrival(count))

    def wait_arrival(self, count: int = 1, *, timeout_s: float = 5.0) -> None:
        """`arrival` for tests without a loop; raises `TimeoutError`."""
        self._arrival(count).result(timeout_s)

    async def passage(self) -> None:
        """The server's side: come to the gate and wait for leave to pass."""
        leave: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._lock:
            self._arrivals += 1
            reached = [future for count, future in self._arrived if count <= self._arrivals]
            self._arrived = [entry for entry in self._arrived if entry[0] > self._arrivals]
            if self._is_open:
                leave.set_result(None)
            elif self._permits:
                self._permits -= 1
                leave.set_result(None)
            else:
                self._waiting.append(leave)
        _resolve(reached)
        await asyncio.wrap_future(leave)

    def _arrival(self, count: int) -> concurrent.futures.Future[None]:
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._lock:
            if self._arrivals >= count:
                future.set_result(None)
            else:
                self._arrived.append((count, future))
        return future


def _resolve(futures: list[concurrent.futures.Future[None]]) -> None:
    for future in futures:
        if future.set_running_or_notify_cancel():
            future.set_result(None)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens the answer reports."""

    input_tokens: int = 12
    output_tokens: int = 7
    cached_tokens: int = 0
    written_tokens: int = 0
    """Written to the cache; told only where there are any, as not all models count them."""
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class Said:
    """Text, one delta per chunk."""

    chunks: tuple[str, ...]


@dataclass(frozen=True)
class Thought:
    """Reasoning. `field` is what chat/completions servers call it; `encrypted` is the part that only the vendor reads:
    encrypted content, or a signature; `redacted` reasoning consists of nothing else on Anthropic's wire."""

    chunks: tuple[str, ...]
    field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    encrypted: str | None = None
    redacted: bool = False


@dataclass(frozen=True)
class Called:
    """One tool call; `chunks` are the pieces of its argument text, `signature` is what Gemini seals it with."""

    name: str
    chunks: tuple[str, ...]
    id: str | None = None
    signature: str | None = None


@dataclass(frozen=True)
class Broken:
    """The vendor gives up in the middle of the stream."""

    message: str
    code: str
    how: Literal["failed", "error"]


@dataclass(frozen=True)
class Delivery:
    """How the bytes travel. A *delta* is an event that carries text, reasoning or arguments."""

    delay_s: float = 0.0
    gate: Gate | None = None
    gate_before: int | None = None
    cut_after_bytes: int | None = None
    cut_after_deltas: int | None = None
    cut_how: Literal["close", "reset", "end"] = "close"
    close_code: int | None = None
    """What a websocket that is cut says at its end; `None` is nothing."""
    hang_after_deltas: int | None = None
    hang_before_headers: bool = False
    burst_bytes: int | None = None
    junk: bytes | None = None
    junk_after_deltas: int = 0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One answer of the model. `a + b` is an answer holding the parts of both, delivered as `b` is."""

    parts: tuple[Said | Thought | Called, ...] = ()
    usage: Usage | None = field(default_factory=Usage)
    stop: StopReason = "done"
    broken: Broken | None = None
    delivery: Delivery = Delivery()

    def __add__(self, other: "Turn") -> "Turn":
        return replace(other, parts=self.parts + other.parts)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An error status instead of a stream. `body` is bytes, or JSON, or `None` for the vendor's usual shape."""

    status: int
    body: Json = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delivery: Delivery = Delivery()


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Exactly these bytes as the body, one write each (each counts as a delta)."""

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream; charset=utf-8"})
    delivery: Delivery = Delivery()


Reply = Turn | Failure | Raw
AnyReply = TypeVar("AnyReply", Turn, Failure, Raw)

# --- what the model says ----------------------------------------------------------------------------------------------


def says(*text: str, chunks: int | None = None, usage: Usage | None = Usage(), stop: StopReason = "done") -> Turn:
    """Text, one delta per argument; `chunks=n` re-cuts it into `n` deltas. `usage=None`: the server reports none."""
    pieces = text if chunks is None else cut("".join(text), chunks)
    return Turn(parts=(Said(tuple(pieces)),), usage=usage, stop=stop)


def tool(
    name: str,
    input: Mapping[str, Json] | str | None = None,
    *,
    id: str | None = None,
    chunks: int = 2,
    signature: str | None = None,
) -> Called:
    """One call. `input` as a string is sent as it is, so that it can be malformed. Ids default to `call_1`, …"""
    text = input if isinstance(input, str) else json.dumps(input or {}, ensure_ascii=False, separators=(",", ":"))
    return Called(name, tuple(cut(text, chunks)), id, signature)


def calls(*tools: Called, usage: Usage | None = Usage()) -> Turn:
    """Tool calls, in parallel. `says("Let me look.") + calls(tool("read", {"path": "a"}))` has text ahead of them."""
    return Turn(parts=tools, usage=usage)


def thinks(
    *text: str,
    encrypted: str | None = None,
    field: Literal["reasoning_content", "reasoning"] = "reasoning_content",
    redacted: bool = False,
) -> Turn:
    """Reasoning; usually `thinks("hm") + says("yes")`."""
    return Turn(parts=(Thought(text, field, encrypted, redacted),))


# --- what goes wrong --------------------------------------------------------------------------------------------------


def fails(status: int, body: Json = None, headers: Mapping[str, str] | None = None) -> Failure:
    """An error status. `body`: bytes or str as they are, anything else as JSON, `None` for the vendor's usual shape."""
    return Failure(status=status, body=body, headers=headers or {})


def rate_limits(retry_after: int | str | None = None) -> Failure:
    """429, with `Retry-After` if given."""
    return fails(429, headers=None if retry_after is None else {"retry-after": str(retry_after)})


def breaks(
    message: str = "The server had an error while processing your request.",
    *,
    code: str = "server_error",
    how: Literal["failed", "error"] = "failed",
    after: Turn | None = None,
) -> Turn:
    """An error event inside the stream, after the deltas of `after`.

    `how`: `response.failed` or `error` on the Responses wire; both are an `error` object on the others.
    """
    return replace(after or Turn(), broken=Broken(message, code, how))


def malformed(data: bytes = b'{"choices":[{"delta":{"content":"un', *, after: Turn | None = None) -> Turn:
    """An event whose data is `data`, after all deltas of `after` and ahead of its end."""
    turn = after or says("a")
    count = sum(len(part.chunks) for part in turn.parts)
    return replace(turn, delivery=replace(turn.delivery, junk=b"data: " + data + b"\n\n", junk_after_deltas=count))


def raw(*pieces: bytes, status: int = 200, content_type: str = "text/event-stream; charset=utf-8") -> Raw:
    """A body given byte for byte, one network write per piece."""
    return Raw(pieces=pieces, status=status, headers={"content-type": content_type})


# --- how it travels ---------------------------------------------------------------------------------------------------


def cuts(
    reply: AnyReply,
    *,
    after_bytes: int | None = None,
    after_deltas: int | None = None,
    how: Literal["close", "reset", "end"] = "close",
    code: int | None = None,
) -> AnyReply:
    """`reply`, ended early: the socket closed in mid-body, reset, or (`end`) an HTTP body that looks complete."""
    if after_bytes is None and after_deltas is None:
        after_deltas = 1
    return replace(
        reply,
        delivery=replace(
            reply.delivery, cut_after_bytes=after_bytes, cut_after_deltas=after_deltas, cut_how=how, close_code=code
        ),
    )


def slow(reply: AnyReply, *, delay_s: float = 0.0, gate: Gate | None = None, before: int | None = None) -> AnyReply:
    """`reply`, with a pause ahead of every delta, and a gate ahead of every delta or only of delta number `before`.

    Prefer gates: `slow(says("one", "two"), gate=gate, before=1)` sends "one" and waits for `gate.open()`.
    """
    return replace(reply, delivery=replace(reply.delivery, delay_s=delay_s, gate=gate, gate_before=before))


@overload
def hangs() -> Turn: ...
@overload
def hangs(reply: AnyReply, *, after_deltas: int = 0) -> AnyReply: ...
def hangs(reply: Reply | None = None, *, after_deltas: int = 0) -> Reply:
    """Never ends: without an argument not even headers are sent, else `after_deltas` deltas of `reply` are."""
    if reply is None:
        return Turn(delivery=Delivery(hang_before_headers=True))
    return replace(reply, delivery=replace(reply.delivery, hang_after_deltas=after_deltas))


def burst(reply: AnyReply, *, chunk_bytes: int = 16_384) -> AnyReply:
    """`reply` in HTTP chunks of about `chunk_bytes` instead of one per event: the shape of a server far ahead."""
    return replace(reply, delivery=replace(reply.delivery, burst_bytes=chunk_bytes))


def cut(text: str, count: int) -> list[str]:
    """`text` in at most `count` pieces of about the same length; never an empty piece, except for an empty text."""
    size = max(1, -(-len(text) // max(1, count)))
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]
