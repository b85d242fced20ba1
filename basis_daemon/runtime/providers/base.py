"""The provider-neutral vocabulary: request, stream events, usage, and what a provider has to do.

Owns the seam between the loop and every wire. Knows no HTTP and no vendor: `openai_chat.py`, `openai_responses.py`,
`rehearsal.py`, … translate to and from it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from basis_daemon.runtime.messages import (
    HostedBlock,
    Json,
    Message,
    Provenance,
)

Effort = Literal["low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as far as its provider tells (RT-32). Unknown is `None`, never a guess."""

    id: str
    provider: str
    display_name: str | None = None
    created_at: int | None = None
    """Seconds since the epoch."""
    context_window: int | None = None
    """Tokens."""
    description: str | None = None


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as the model sees it (PV-8). `kind` other than `function` is run by the provider itself (PV-26)."""

    name: str
    description: str
    input_schema: dict[str, Json]
    strict: bool | None = None
    output_schema: dict[str, Json] | None = None
    kind: Literal["function", "hosted_web_search", "image_generation"] = "function"
    deferred: bool = False
    """Whether the model finds it by hosted tool search instead of being shown it at once (PV-24)."""
    options: Mapping[str, Json] = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`auto`, `any`, or one named tool."""

    mode: Literal["auto", "any", "tool"] = "auto"
    name: str | None = None


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A JSON schema the answer's text has to match, on wires that have it; others fail with `UnsupportedCapability`."""

    name: str
    schema: dict[str, Json]
    strict: bool = True


ResponsesStateMode = Literal["replay_only", "hybrid", "stateful"]
ResponsesTransport = Literal["http_sse", "web_socket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesOptions:
    """What only the Responses wire knows (2.4). Unset sends nothing, unless said otherwise."""

    state_mode: ResponsesStateMode = "hybrid"
    """`replay_only` sends the whole conversation every time. `hybrid` sends what is new behind the id of the last
    response wherever the provider still has that response, and the whole conversation otherwise. `stateful` sends what
    is new or fails (PV-31, PV-32, PV-33)."""
    transport: ResponsesTransport = "http_sse"
    """A provider without websockets refuses `web_socket`; nothing falls back to HTTP (PV-39)."""
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    """A response from elsewhere that this agent's first request continues; it stands for all messages up to the last
    answer in the conversation. Later requests continue the agent's own responses."""
    store: bool | None = None
    """Whether the vendor keeps responses (OpenAI: 30 days). Unset is no, except in `stateful` mode. Over HTTP an id
    can only name a stored response, so `hybrid` needs `True` to send less; a websocket remembers its last response by
    itself."""
    include: tuple[str, ...] = ()
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    compression: Literal["none", "zstd"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHints:
    """Affinity and tracing of one conversation (PV-40), and headers a host adds; those win over all others (RT-36)."""

    turn_state: str | None = None
    turn_metadata: str | None = None
    affinity: str | None = None
    connection_reuse: Literal["prefer-reuse", "prefer-fresh"] | None = None
    subagent: str | None = None
    extra_headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """What a host may ask of particular providers; the rest of them ignore it (2.4)."""

    tool_search: Literal["disabled", "hosted"] = "disabled"
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = None
    responses: ResponsesOptions = ResponsesOptions()
    disable_parallel_tool_use: bool | None = None
    """Anthropic's switch (PV-46)."""
    gemini_thoughts: bool | None = None
    """Whether Gemini is asked for its thoughts."""
    session: SessionHints = SessionHints()


@dataclass(frozen=True, slots=True)
class ProviderWait:
    """Why a request has not been sent yet: too many others under way, or the provider asked for a pause."""

    reason: Literal["concurrency", "rate_limit"]
    until: float | None = None
    """When it ends, in seconds since the epoch, where known."""
    ahead: int = 0
    """Requests that go first."""


@dataclass(frozen=True, slots=True)
class Request:
    """One model request. Tools are sorted by name by whoever builds it, so that prompt caches work (CV-8)."""

    model: str
    messages: list[Message]
    system: str | None = None
    tools: list[ToolDefinition] = field(default_factory=list[ToolDefinition])
    tool_choice: ToolChoice = ToolChoice()
    temperature: float | None = None
    max_output_tokens: int | None = None
    effort: Effort | None = None
    session_id: str | None = None
    """The agent this request belongs to: affinity and tracing only."""
    turn_id: str | None = None
    """The turn it belongs to: what the provider asks to be told again holds for one turn (PV-40)."""
    output: OutputFormat | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    options: RequestOptions = RequestOptions()
    on_wait: Callable[[ProviderWait | None], None] | None = None
    """Told when the request has to wait before it is sent, and with `None` once it no longer does."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as one wire reported them; `None` is not reported (2.6). What was read from a cache and written to it is
    part of `input_tokens`, reasoning part of `output_tokens`; thoughts and tool input are beside both."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None
    reasoning_tokens: int | None = None
    thoughts_tokens: int | None = None
    total_tokens: int | None = None
    tool_input_tokens: int | None = None

    def merged(self, later: "TokenUsage") -> "TokenUsage":
        """Later non-null values replace earlier ones, field by field (PV-19)."""
        return TokenUsage(
            *(
                getattr(later, name) if getattr(later, name) is not None else getattr(self, name)
                for name in TokenUsage.__slots__
            )
        )


# --- stream events (2.5) ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseStarted:
    """The provider has accepted the request and named its answer."""

    id: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class BlockStarted:
    """Block `index` begins. Indices are unique per message and assigned by the adapter (PV-13)."""

    index: int
    kind: Literal["text", "thinking", "tool_use"]
    id: str | None = None
    name: str | None = None
    item_id: str | None = None
    signature: str | None = None
    provenance: Provenance | None = None


@dataclass(frozen=True, slots=True)
class HostedUpdate:
    """Block `index` is one the provider works on itself; `block` is all of it so far and replaces what was (PV-14).

    The first one opens the block, `BlockStopped` closes it.
    """

    index: int
    block: HostedBlock


@dataclass(frozen=True, slots=True)
class TextDelta:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingSealed:
    """The opaque part of a reasoning block, whole."""

    index: int
    signature: str | None = None
    encrypted_content: str | None = None
    id: str | None = None
    provenance: Provenance | None = None
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    index: int
    json: str


@dataclass(frozen=True, slots=True)
class BlockStopped:
    index: int


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """Stop reason (`end_turn`, `tool_use`, `max_tokens`, `refusal`, …) and usage, as they become known."""

    stop_reason: str | None = None
    usage: TokenUsage | None = None


@dataclass(frozen=True, slots=True)
class MessageStopped:
    """The answer is complete. A stream that ends without it was cut."""


ProviderEvent = (
    ResponseStarted
    | BlockStarted
    | HostedUpdate
    | TextDelta
    | ThinkingDelta
    | ThinkingSealed
    | ToolInputDelta
    | BlockStopped
    | MessageDelta
    | MessageStopped
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider imposes in code on everybody who uses it. The pocket model's are tight; most have none."""

    max_tool_calls_per_round: int | None = None
    max_rounds: int | None = None
    always_ask: bool = False
    """Every consequential call is put to a person, whatever was remembered or whichever mode is on."""
    tools: frozenset[str] | None = None
    """The only tools this provider may be offered; `None` is all."""
    new_files_only: bool = False
    """A call that would change a file that is already there is refused before anybody is asked."""


class Provider(Protocol):
    """One way to reach models. Safe for concurrent use by many agents (RT-5)."""

    @property
    def id(self) -> str:
        """Registry id: `openai`, `rehearsal`, a custom name."""
        ...

    @property
    def label(self) -> str:
        """What a person is shown."""
        ...

    @property
    def limits(self) -> Limits: ...

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        """Send `request` and yield its answer's events; the last one is `MessageStopped`.

        Opens on first iteration. Raises `ProviderError` kinds (`errors.py`). Closing the iterator early, or cancelling
        the task that reads it, releases the connection (PV-65). Makes one attempt: retrying is the loop's (PV-52).
        """
        ...

    async def list_models(self) -> list[ModelInfo]:
        """Models on offer; raises `ProviderError`."""
        ...

    def scope(self) -> "Provider":
        """A provider for one agent: same credentials and connections, own conversation state (RT-14, PV-35).

        Local, synchronous, opens nothing. It has the same id. What continues a conversation (response ids, sticky turn
        state, a socket, encoded messages) lives in it alone and ends with it; two scopes never see each other's. A
        provider that keeps nothing between requests may be its own scope.
        """
        ...

    async def aclose(self) -> None:
        """Let go of what this object opened itself: of a scope, its own socket; never the shared connections."""
        ...
