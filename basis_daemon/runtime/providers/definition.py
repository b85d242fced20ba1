"""What a remote provider is: its endpoint, wire, credentials and abilities (runtime.md 1.6, 2.2).

Owns the values; presets are in `registry.py`. Sends nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol
from urllib.parse import parse_qsl, urlsplit

from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.efforts import EffortRule
from basis_daemon.runtime.providers.endpoint import origin

WireName = Literal["responses", "chat_completions", "anthropic_messages", "gemini_generate_content"]
WireChoice = WireName | Literal["auto"]


@dataclass(frozen=True, slots=True)
class AuthScheme:
    """Where the credential goes: nowhere, a bearer token, a header or a query parameter called `name`."""

    kind: Literal["none", "bearer_token", "header", "query_param"] = "bearer_token"
    name: str = "authorization"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What requests may ask for (2.2). A request for anything else fails ahead of all traffic (PV-3)."""

    model_listing: bool = True
    streaming: bool = True
    websockets: bool = False
    tool_calls: bool = True
    images: bool = True
    history_compaction: bool = False
    memory_summarization: bool = False
    deferred_tools: bool = False
    hosted_tool_search: bool = False
    hosted_web_search: bool = False
    image_generation: bool = False
    reasoning_effort: bool = True
    reports_reasoning_tokens: bool = False
    reports_thoughts_tokens: bool = False
    structured_tool_results: bool = False
    embeddings: bool = False
    structured_output: bool = True
    """Whether an answer can be held to a JSON schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """For calls outside a turn, such as listing models (PV-56). Turns have their own."""

    max_attempts: int = 5
    base_delay_s: float = 0.2
    retry_429: bool = False
    retry_5xx: bool = True
    retry_transport: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderDefinition:
    """A provider, ready to be changed by copy (RT-33): `replace(openai_definition(), id="proxy", base_url=…)`."""

    id: str
    label: str
    base_url: str
    wire: WireChoice
    auth: AuthScheme = AuthScheme()
    capabilities: Capabilities = Capabilities()
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    retry: RetryPolicy = RetryPolicy()
    idle_timeout_s: float = 300.0
    """Silence on a stream after which it counts as dead, over HTTP and websocket alike (PV-18)."""
    websocket_connect_timeout_s: float = 15.0
    websocket_lifetime_s: float = 3300.0
    """Age after which a websocket is not used for another request; OpenAI ends them after an hour (PV-38)."""
    keeps_responses: bool = False
    """Whether a request can continue an earlier response by its id. Compatible endpoints get everything (PR-4)."""
    continues_over_http: bool = True
    """Whether `hybrid` requests over HTTP do so; see `without_hybrid_http_previous_response_id`."""
    max_concurrent: int = 32
    """Requests of one key that may be under way at once; more wait their turn (`governor.py`)."""
    efforts: tuple[EffortRule, ...] | None = None
    """Which model takes which effort, where the wire has to know (PV-44); unset is the vendor's own table."""
    allow_plaintext: bool = False
    """Whether a key may travel over http:// to another machine (PV-63)."""
    is_vendor: bool = False
    """The vendor's own API, which knows parameters that compatible servers may refuse."""

    def __repr__(self) -> str:
        """No header, query or URL, which may hold credentials (RT-42)."""
        return f"ProviderDefinition(id={self.id!r}, wire={self.wire!r}, origin={origin(self.base_url)!r})"

    @property
    def hidden(self) -> list[Secret]:
        """What may be a credential in disguise, and is never repeated from a server's words: values of the URL's query
        and of headers."""
        written = urlsplit(self.base_url).query
        as_written = [part.partition("=")[2] for part in written.split("&")]
        meant = [value for _, value in parse_qsl(written)]
        return [Secret(value) for value in (*as_written, *meant, *self.query.values(), *self.headers.values())]

    def without_hybrid_http_previous_response_id(self) -> "ProviderDefinition":
        """The same for an endpoint known to refuse `previous_response_id` over HTTP, so that no request finds out
        (PV-32)."""
        return replace(self, continues_over_http=False)

    @property
    def identity(self) -> str:
        """Whom sealed reasoning belongs to: the id alone doesn't tell a vendor from a gateway in its name (PV-41)."""
        return self.id if self.is_vendor else f"{self.id}@{origin(self.base_url)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What one request is authorised with."""

    key: Secret | None = None
    headers: Mapping[str, Secret] = field(default_factory=dict[str, Secret])
    source: str | None = None
    """Where the key was found, in a person's words: a variable, a file, the keyring. Shown when it is refused."""

    def secrets(self) -> list[Secret]:
        return [*([self.key] if self.key else []), *self.headers.values()]


class CredentialSource(Protocol):
    """Asked ahead of every request, so that tokens can rotate (RT-35)."""

    async def credentials(self) -> Credentials: ...


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """One key for ever, or none."""

    key: Secret | None = None

    async def credentials(self) -> Credentials:
        return Credentials(key=self.key)
