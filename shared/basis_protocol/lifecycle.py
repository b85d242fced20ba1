"""The handshake, and requests about the daemon itself."""

from typing import Annotated, Literal

import msgspec

from basis_protocol.asks import Actor, Ask
from basis_protocol.base import AbsolutePath, Json, Timestamp, WireModel, open_word
from basis_protocol.ids import SessionId

ClientKind = Annotated[str, open_word("vscode", "nvim", "cli", "acp", "lsp")]


class ClientInfo(WireModel):
    name: str
    version: str = ""
    kind: ClientKind = "lsp"


class ClientCan(WireModel, omit_defaults=False):
    """What the client is able to do for the person in front of it."""

    approve: bool = False
    apply_edit: bool = False
    open_diff: bool = False
    notify: bool = False


class ClientHello(WireModel):
    """`initialize` → `capabilities.experimental.basis`, stated by a client of the basis protocol."""

    protocol_versions: list[int]
    client: ClientInfo
    client_id: Annotated[str | None, msgspec.Meta(description="stable for one window or process across reconnects")] = (
        None
    )
    can: ClientCan = ClientCan()


class DaemonInfo(WireModel):
    version: str
    pid: int
    instance_id: Annotated[str, msgspec.Meta(description="changes at every start")]
    started_at: Timestamp


class Limits(WireModel):
    max_frame_bytes: int
    max_prompt_bytes: int


class ServerHello(WireModel):
    """The result's `capabilities.experimental.basis`."""

    protocol_version: int
    daemon: DaemonInfo
    limits: Limits
    features: list[str] = []


class Counts(WireModel, omit_defaults=False):
    clients: int = 0
    workspaces: int = 0
    sessions: dict[str, int] = {}
    pending_asks: int = 0


class ProviderState(WireModel):
    """One way to reach a model: `ready`, `needs_key`, `offered` (found, not yet agreed to), `unavailable`."""

    provider: str
    state: Annotated[str, open_word("ready", "needs_key", "offered", "unavailable")]
    detail: str = ""


class DaemonStatusResult(WireModel):
    version: str
    pid: int
    instance_id: str
    started_at: Timestamp
    uptime_s: float
    counts: Counts
    memory_bytes: int
    data_dir: AbsolutePath
    socket: str
    providers: list[ProviderState] = []


class PingResult(WireModel):
    now: Timestamp


class WorkspaceSummary(WireModel):
    path: AbsolutePath
    provider: str | None = None
    model: str | None = None
    clients: int = 0


class DaemonSnapshot(WireModel):
    """Result of `basis/daemon/subscribe`; `basis/daemon/event` keeps it current."""

    workspaces: list[WorkspaceSummary]
    sessions: list["SessionSummary"]
    asks: list[Ask]


class SessionSummary(WireModel):
    """A live session, as `basis/daemon/subscribe` lists it."""

    session_id: SessionId
    workspace: AbsolutePath
    title: str
    state: Annotated[str, msgspec.Meta(description="the `kind` of its SessionState")]
    updated_at: Timestamp
    pending_asks: int = 0


class DaemonEvent(WireModel):
    """`basis/daemon/event`: `kind` names what changed; the part that belongs to it is set."""

    kind: Annotated[
        str,
        open_word(
            "session_changed",
            "session_removed",
            "workspace_opened",
            "workspace_closed",
            "ask_opened",
            "ask_closed",
            "auth_changed",
            "stopping",
        ),
    ]
    session: SessionSummary | None = None
    session_id: SessionId | None = None
    workspace: WorkspaceSummary | None = None
    ask: Ask | None = None
    ask_id: str | None = None
    by: Annotated[Actor | None, msgspec.Meta(description="who answered or withdrew the ask that closed")] = None
    provider: Annotated[str | None, msgspec.Meta(description="whose key was stored or forgotten")] = None


class ProcessesParams(WireModel):
    session_id: SessionId | None = None


class ProcessInfo(WireModel):
    pid: int
    what: Annotated[str, open_word("shell", "mcp", "hook", "tool", "pocket")]
    command: str
    session_id: SessionId | None = None
    age_s: float
    rss_bytes: int = 0


class ProcessesResult(WireModel):
    processes: list[ProcessInfo]


class StopParams(WireModel):
    mode: Literal["drain", "now"] = "drain"


class ModelPrice(WireModel):
    """US dollars per million tokens, as a decimal number in a string. What is unset is not priced."""

    input: str
    output: str
    cache_read: str | None = None
    cache_write: str | None = None
    as_of: Annotated[str | None, msgspec.Meta(description="the day the price was read: 2026-01-31")] = None


class ModelInfo(WireModel):
    """A model as far as its provider tells; unknown is left out."""

    id: str
    provider: str
    display_name: str | None = None
    context_window: Annotated[int | None, msgspec.Meta(description="tokens")] = None
    description: str | None = None
    created_at: Annotated[int | None, msgspec.Meta(description="seconds since the epoch")] = None
    efforts: Annotated[list[str] | None, msgspec.Meta(description="what it takes; unset when that is not known")] = None
    price: ModelPrice | None = None


class ModelListParams(WireModel):
    """Without `workspace`, of all open ones. Answers are kept for some minutes; `refresh` asks again."""

    workspace: AbsolutePath | None = None
    provider: str | None = None
    refresh: bool = False


class ModelListProblem(WireModel):
    """Why a provider's models are missing, or are the ones it last told of."""

    provider: str
    message: str
    hint: str | None = None


class ModelListResult(WireModel):
    """Models of every provider that can be reached, those of one provider together, newest first."""

    models: list[ModelInfo]
    degraded: Annotated[list[str], msgspec.Meta(description="providers that could not be asked")] = []
    problems: list[ModelListProblem] = []


class AuthState(WireModel):
    """Where the key of one provider's own API, or of one endpoint, comes from. No field holds any part of a key."""

    provider: str
    base_url: Annotated[str | None, msgspec.Meta(description="set for a key that belongs to this endpoint")] = None
    source: Annotated[str, open_word("store", "workspace_environment", "daemon_environment", "none", "not_needed")]
    detail: Annotated[
        str, msgspec.Meta(description="the source in words: the keyring, OPENAI_API_KEY sent by nvim")
    ] = ""
    also: Annotated[list[str], msgspec.Meta(description="what else would apply, in order, in words")] = []
    variable: Annotated[str | None, msgspec.Meta(description="the environment variable a key may be in")] = None
    problem: Annotated[str | None, msgspec.Meta(description="why a stored key can't be used")] = None


class AuthStatusParams(WireModel):
    """Without `workspace`, the environments of all open ones are looked at."""

    workspace: AbsolutePath | None = None


class AuthStatusResult(WireModel):
    providers: list[AuthState]


class AuthSetParams(WireModel):
    """Credentials are accepted, never returned. With `base_url` the key belongs to that endpoint and to nobody else."""

    provider: str
    secret: str
    base_url: str | None = None
    wire: Annotated[str | None, msgspec.Meta(description="what the endpoint speaks, for trying the key")] = None
    verify: Annotated[bool, msgspec.Meta(description="try the key first; one that is refused is not stored")] = False
    in_file: Annotated[bool, msgspec.Meta(description="keep it in a private file even where there is a keyring")] = (
        False
    )


class AuthSetResult(WireModel):
    state: AuthState
    verified: Annotated[bool | None, msgspec.Meta(description="unset when it was not, or could not be, tried")] = None
    problem: Annotated[str | None, msgspec.Meta(description="why it could not be tried")] = None


class AuthForgetParams(WireModel):
    provider: str
    base_url: str | None = None


class CancelParams(WireModel):
    """`$/cancelRequest`."""

    id: int | str


class InitializeParams(WireModel):
    """The parts of LSP's `initialize` that a basis client needs to send; the rest is LSP's."""

    process_id: int | None = None
    capabilities: dict[str, Json] = {}
