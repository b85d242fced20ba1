"""Questions to a person: the ask itself, listing them, answering one."""

from typing import Annotated, Literal

import msgspec

from basis_protocol.base import AbsolutePath, Timestamp, WireModel, open_word
from basis_protocol.content import Preview
from basis_protocol.ids import AskId, SessionId, ToolCallId

Decision = Literal["allow", "deny"]
Scope = Literal["once", "session", "project", "global"]
SideEffect = Annotated[str, open_word("none", "local_state", "process", "external")]


class AskOption(WireModel):
    """One way to answer, ready to be a button. Sending its decision and scope back is an answer."""

    option_id: str
    label: str
    decision: Decision
    scope: Scope


class Ask(WireModel):
    """A question that waits. It outlives the client that saw it first, a restart and a reboot."""

    ask_id: AskId
    session_id: SessionId
    workspace: AbsolutePath
    kind: Annotated[str, open_word("tool", "question", "elicitation", "sign_in", "conflict")]
    title: str
    description: str
    tool_call_id: ToolCallId | None = None
    tool_name: str | None = None
    side_effect: SideEffect | None = None
    preview: Preview
    options: list[AskOption]
    created_at: Timestamp
    expires_at: Timestamp | None = None


class Actor(WireModel):
    """Who did something: a client by name, or the daemon itself."""

    client: str
    kind: Annotated[str, open_word("vscode", "nvim", "cli", "acp", "lsp", "daemon", "sdk")] = "daemon"
    client_id: str | None = None


class AskListParams(WireModel):
    workspace: AbsolutePath | None = None
    session_id: SessionId | None = None


class AskListResult(WireModel):
    asks: list[Ask]


class AskAnswerParams(WireModel):
    """The first answer wins. `reason` on a denial is what the model reads. `pattern` narrows what is remembered."""

    ask_id: AskId
    decision: Decision
    scope: Scope = "once"
    reason: str | None = None
    pattern: str | None = None


class AskAnswerResult(WireModel):
    outcome: Annotated[str, open_word("allowed", "denied")]


class AskDecided(WireModel):
    """`error.data.details` of `ask_decided`: who answered first, what, and when."""

    by: Actor
    decision: Decision
    scope: Annotated[str, msgspec.Meta(description="once, session, project or global")]
    at: Timestamp
    reason: str | None = None
