"""The exception tree. Every exception says what is wrong, carries a stable `kind`, and where possible a `hint`.

BasisError
├── UsageError                  the caller passed something it must not; nothing happened
│   └── EmptyPrompt, InvalidInput, Busy, StaleTurn, NoSuchTurn, NothingToResume, BudgetExhausted, …
├── NoSuchSession, WorkspaceMismatch, WorkspaceClosed, SessionRulesNotCleared
├── StoreError                  LegacyStore, CorruptStore, LeaseUnavailable
├── ContextError                WorkspaceMissing, WorkspaceNotADirectory, WorkspaceUnresolvable, ContextUnreadable
├── ConfigError                 a config.json that can't be used; names file, key and position, never a value
├── ProviderSetupError          NoCredential, MissingCredential, UnknownProvider, NoCompatibleCredential, …
├── RunFailure                  how a turn can fail: Cancelled, DeadlineExceeded, ToolBudgetExceeded, …
│   └── (provider failures: runtime/providers/errors.py)
└── PolicyDenied                a hard limit of the runtime; becomes an error result for the model

A denied tool call, a failed turn, a tripped bound and a cancelled turn are results, not exceptions (B-2): `RunFailure`
stays inside the runtime and becomes a `RunReport`.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

Category = Literal["retryable", "terminal", "degraded"]
"""What a failure says about what comes next: trying again may help, it won't, or something was not kept (RT-37)."""


class BasisError(Exception):
    """Base of everything this project raises on purpose. `str()` is fit for a client: no secret, no file content."""

    kind: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.details = dict(details or {})

    @property
    def category(self) -> Category:
        """What may be done about it (RT-37)."""
        return "terminal"


class UsageError(BasisError):
    kind = "usage"


class InvalidInput(UsageError):
    kind = "invalid_input"


class EmptyPrompt(UsageError):
    """RS-2: a prompt was blank where one is sent."""

    kind = "empty_prompt"

    def __init__(self) -> None:
        super().__init__("the prompt is empty", hint="send at least one non-blank character or an image")


class Busy(UsageError):
    """A turn is running and the caller asked not to wait (AG-4)."""

    kind = "busy"


class StaleTurn(UsageError):
    """The turn meant by the caller is not the running one any more."""

    kind = "stale_turn"


class NoSuchTurn(UsageError):
    kind = "no_such_turn"


class NothingToResume(UsageError):
    """AG-6: no interrupted or failed turn to carry on."""

    kind = "nothing_to_resume"


class BudgetExhausted(UsageError):
    """BP-4: the shared pool is spent; the turn was refused before its header."""

    kind = "budget_exhausted"

    def __init__(self, limit: int, spent: int) -> None:
        super().__init__(f"the token budget of {limit} is spent ({spent} used)")
        self.limit = limit
        self.spent = spent


class NoSuchSession(BasisError):
    kind = "no_such_session"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"there is no session {session_id!r}", hint="list sessions to see the ids that exist")
        self.session_id = session_id


class WorkspaceMismatch(BasisError):
    """WS-13: the conversation took place in another directory. Raised ahead of every effect."""

    kind = "workspace_mismatch"

    def __init__(self, agent_id: str, workspace: str, agent_workspace: str) -> None:
        super().__init__(
            f"session {agent_id} belongs to {agent_workspace}, not to {workspace}",
            hint="open the directory the conversation took place in",
        )
        self.agent_id = agent_id
        self.workspace = workspace
        self.agent_workspace = agent_workspace


class ResolvedModelProviderMismatch(UsageError):
    """PR-10: the model is another provider's than the conversation's. Nothing has changed."""

    kind = "model_provider_mismatch"

    def __init__(self, model: str, provider: str, own: str) -> None:
        super().__init__(
            f"the model {model} is one of {provider}, but this conversation is held with {own}",
            hint=f"choose a model of {own}, or begin a conversation with {provider}",
        )
        self.model = model
        self.provider = provider


class WorkspaceClosed(BasisError):
    """LC-6."""

    kind = "workspace_closed"


class SessionRulesNotCleared(BasisError):
    """AP-17: legacy remembered answers of this session could not be cleared, so it is not resumed."""

    kind = "session_rules_not_cleared"


class StoreError(BasisError):
    """An operation on the store failed; names the operation and the path (ST-28)."""

    kind = "store"

    @property
    def category(self) -> Category:
        return "degraded"


class LegacyStore(StoreError):
    """ST-21: the directory holds a database written by version 0.6 or earlier."""

    kind = "legacy_store"


class CorruptStore(StoreError):
    """A file of the store can't be read as what it should be; names file and line. Nothing was changed."""

    kind = "corrupt_store"


class LeaseUnavailable(StoreError):
    """Another process holds this session (ST-19, ST-30)."""

    kind = "open_elsewhere"

    @property
    def is_open_elsewhere(self) -> bool:
        return True


class ContextError(BasisError):
    kind = "context"


class WorkspaceMissing(ContextError):
    kind = "workspace_missing"


class WorkspaceNotADirectory(ContextError):
    kind = "workspace_not_a_directory"


class WorkspaceUnresolvable(ContextError):
    kind = "workspace_unresolvable"


class ContextUnreadable(ContextError):
    """CX-5: a context document exists but can't be read as UTF-8 text."""

    kind = "context_unreadable"


class ConfigError(BasisError):
    """A config file that can't be used. `path`, `key`, `line`, `column` say where; values are never quoted (DI-4)."""

    kind = "config"

    def __init__(
        self,
        message: str,
        *,
        path: str,
        key: str | None = None,
        line: int = 1,
        column: int = 1,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.key = key
        self.line = line
        self.column = column


class ProviderSetupError(BasisError):
    """workspace.md 3: no way to reach a model could be decided on. Never names a key or a variable's value (PR-12)."""

    kind = "provider_setup"


class NoCredential(ProviderSetupError):
    kind = "no_credential"


class MissingCredential(ProviderSetupError):
    kind = "missing_credential"


class UnknownProvider(ProviderSetupError):
    kind = "unknown_provider"


class NotKeyed(ProviderSetupError):
    """PR-5: a key was given for a provider that takes none."""

    kind = "not_keyed"


class NoCompatibleCredential(ProviderSetupError):
    kind = "no_compatible_credential"


class InvalidBaseUrl(ProviderSetupError):
    kind = "invalid_base_url"


class UnattributedCredential(ProviderSetupError):
    kind = "unattributed_credential"


class ProviderNotFound(ProviderSetupError):
    """RT-19: the runtime has no provider of that id."""

    kind = "provider_not_found"


class ProviderSessionScopeIdentityMismatch(ProviderSetupError):
    """RT-14: what a provider gave for one agent reports another provider's id."""

    kind = "provider_scope_mismatch"


class NoModelsAvailable(ProviderSetupError):
    """RT-30: the provider lists no models."""

    kind = "no_models"


class RunFailure(BasisError):
    """How a turn fails."""

    kind = "run_failed"


class Cancelled(RunFailure):
    kind = "cancelled"


class DeadlineExceeded(RunFailure):
    kind = "deadline"


class ToolBudgetExceeded(RunFailure):
    kind = "tool_budget"


class ModelBudgetExceeded(RunFailure):
    kind = "model_budget"


class MaxRoundsExceeded(RunFailure):
    kind = "max_rounds"


class EmptyAssistantResponse(RunFailure):
    kind = "empty_response"


class InvalidToolUseInput(RunFailure):
    """AG-22: the model sent malformed tool input three rounds in a row."""

    kind = "invalid_tool_input"


class PolicyDenied(BasisError):
    """PO-22: refused by a hard limit. The text is what the model reads."""

    kind = "policy_denied"
