"""Opened repositories: opening, describing and trusting them, and what is found in them."""

from typing import Annotated

import msgspec

from basis_protocol.base import AbsolutePath, Json, WireModel, open_word
from basis_protocol.events import ContextFile, TemplateSummary
from basis_protocol.ids import SessionId


class Trust(WireModel, omit_defaults=False):
    state: Annotated[str, open_word("trusted", "pending", "none")] = "none"
    pending: Annotated[list[str], msgspec.Meta(description="files that would run programs and await consent")] = []


class WorkspaceDiagnostic(WireModel):
    """A problem in a file the workspace is configured by. Lines and columns start at 1."""

    file: AbsolutePath
    line: int = 1
    column: int = 1
    kind: str
    message: str


class WorkspaceCounts(WireModel, omit_defaults=False):
    sessions: int = 0
    live_sessions: int = 0
    clients: int = 0


class WorkspaceInfo(WireModel):
    path: Annotated[AbsolutePath, msgspec.Meta(description="canonical")]
    trust: Trust
    provider: str | None = None
    model: str | None = None
    diagnostics: list[WorkspaceDiagnostic]
    counts: WorkspaceCounts
    notices: Annotated[
        list[str], msgspec.Meta(description="sentences for the person, e.g. how to connect a model")
    ] = []


class WorkspaceOpenParams(WireModel):
    """`env` is the client's environment snapshot: commands run with it and credentials are looked up in it."""

    path: AbsolutePath
    env: dict[str, str] | None = None
    additional_directories: list[AbsolutePath] = []


class WorkspacePathParams(WireModel):
    path: AbsolutePath


class WorkspaceListResult(WireModel):
    workspaces: list[WorkspaceInfo]


class Setting(WireModel):
    value: str
    path: AbsolutePath
    scope: str


class ContextDocument(WireModel):
    path: AbsolutePath
    scope: str
    bytes: int


class WorkspaceDescription(WireModel):
    """Everything discovered, and from which file."""

    info: WorkspaceInfo
    context: list[ContextDocument] = []
    config: dict[str, Setting] = {}
    config_files: list[ContextFile] = []
    memories: list[Json] = []
    skills: list[Json] = []
    templates: list[TemplateSummary] = []
    hooks: list[Json] = []
    declared_tools: list[Json] = []
    mcp_servers: list[str] = []
    tools: Annotated[list[str], msgspec.Meta(description="names the model is offered")] = []


class FingerprintResult(WireModel):
    hex: str | None = None
    files: int | None = None
    unknown: str | None = None


class TrustParams(WireModel):
    path: AbsolutePath
    digests: list[str] = []
    revoke: bool = False


class TemplateListParams(WireModel):
    workspace: AbsolutePath


class TemplateListResult(WireModel):
    templates: list[TemplateSummary]


class FileSearchParams(WireModel):
    workspace: AbsolutePath
    query: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50


class FileSearchResult(WireModel):
    paths: list[str]


class McpListParams(WireModel):
    workspace: AbsolutePath | None = None


class McpServerInfo(WireModel):
    name: str
    workspace: AbsolutePath
    state: Annotated[str, open_word("connected", "connecting", "failed", "needs_auth")]
    tools: int = 0
    error: str | None = None


class McpListResult(WireModel):
    servers: list[McpServerInfo]


class McpRestartParams(WireModel):
    workspace: AbsolutePath
    name: str


class MemoryParams(WireModel):
    workspace: AbsolutePath
    name: str | None = None


class MemoryEntry(WireModel):
    name: str
    description: str
    type: Annotated[str, open_word("user", "feedback", "project", "reference")]
    path: AbsolutePath
    scope: str


class MemoryListResult(WireModel):
    memories: list[MemoryEntry]


class MemoryReadResult(WireModel):
    text: str


class Rule(WireModel):
    tool_name: str
    pattern: str | None = None
    allow: bool
    scope: Annotated[str, open_word("process", "session", "project", "global")]
    reason: str | None = None


class RuleListParams(WireModel):
    workspace: AbsolutePath | None = None
    session_id: SessionId | None = None


class RuleListResult(WireModel):
    """In the order in which they are asked: scope by scope, patterns before bare tools."""

    rules: list[Rule]
    file: Annotated[AbsolutePath | None, msgspec.Meta(description="where all but `process` rules are kept")] = None


class RuleRemoveParams(WireModel):
    rule: Rule
    workspace: AbsolutePath | None = None
    session_id: SessionId | None = None


class RuleExplainParams(WireModel):
    """What would become of this call in a session, or in a new one of a workspace. Nobody is asked, nothing runs."""

    tool: str
    input: Json
    workspace: AbsolutePath | None = None
    session_id: SessionId | None = None


class RuleRunnerUp(WireModel):
    """A rule for the same tool that does not decide."""

    rule: Rule
    why: Annotated[str, msgspec.Meta(description="why it does not, for a person")]


class RuleExplainResult(WireModel):
    """`prompt`: a person would be asked. `file` is where the rule is kept, or what can't be read (`rules_file`)."""

    outcome: Annotated[str, open_word("allow", "deny", "prompt")]
    decided_by: Annotated[str, open_word("tool", "authorizer", "mode", "rule", "rules_file", "person")]
    why: Annotated[str, msgspec.Meta(description="one sentence for a person")]
    rule: Rule | None = None
    file: AbsolutePath | None = None
    runners_up: list[RuleRunnerUp] = []
    uncovered: Annotated[list[str], msgspec.Meta(description="commands of the line that no rule covers")] = []
