"""Minting and resuming sessions: what each is told, every time anew (workspace.md 1.5, 9.2).

Owns the guards of a session — policy, audience, identifier, authorizer, roster — the provider and model a stored
conversation goes on with, and the order of effects of a resume. Nothing here is looked up by working directory.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from basis_daemon.errors import MissingCredential, SessionRulesNotCleared, StoreError, WorkspaceMismatch
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.prices import PriceList
from basis_daemon.runtime.providers.base import Effort, ModelInfo, Provider
from basis_daemon.runtime.runtime import Runtime, new_agent_id
from basis_daemon.runtime.sessions import Session, SessionOptions
from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.workspace.agents_md import WorkspaceContext
from basis_daemon.workspace.approval import PolicyGate
from basis_daemon.workspace.config import EFFORTS, Config
from basis_daemon.workspace.connection import AwaitingModel, Connection, UnavailableProvider
from basis_daemon.workspace.credentials import Keychain
from basis_daemon.workspace.discovery import resolved_or_given
from basis_daemon.workspace.environment import session_environment
from basis_daemon.workspace.local_servers import LocalServers
from basis_daemon.workspace.model_catalogue import ModelCatalogue
from basis_daemon.workspace.price_files import pricing
from basis_daemon.workspace.provider_names import EMBEDDED
from basis_daemon.workspace.providers import HOW_TO_CONNECT
from basis_daemon.workspace.roster import ToolRoster
from basis_daemon.workspace.run import PreparedRun
from basis_daemon.workspace.skills import LoadedSkill
from basis_daemon.workspace.spec import RunSpec
from basis_daemon.workspace.store import identifier_of
from basis_daemon.workspace.surroundings import RunSurroundings
from basis_protocol.events import SkillSummary


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Everything opening a directory came to."""

    root: Path
    runtime: Runtime
    config: Config
    context: WorkspaceContext
    connection: Connection
    policy: RuntimePolicy
    roster: ToolRoster
    environment: Mapping[str, str]
    system: str | None
    skills_dirs: tuple[Path, ...]
    skills: tuple[LoadedSkill, ...]
    host_tools: tuple[str, ...]
    notices: tuple[str, ...]
    overlay: Callable[[Path], str | None]
    servers: LocalServers
    keychain: Keychain
    catalogue: ModelCatalogue
    prices: PriceList
    connect_to: Callable[[str], Awaitable[tuple[Connection, list[str]]]]
    """The way to another provider from here, by its name, and what there is to say about it."""
    holds: AsyncExitStack

    @property
    def identifier(self) -> str:
        """The tag of its conversations and the audience of its sessions (ST-5, SE-1)."""
        return identifier_of(self.root)

    @property
    def default_effort(self) -> Effort | None:
        return self.config.effort.value if self.config.effort else None


def mint(opened: Opened, runtime: Runtime, spec: RunSpec, agent_id: str | None) -> PreparedRun:
    """A new conversation (WS-3). Writes nothing."""
    surroundings = _surroundings(opened, spec)
    connection = opened.connection
    options = _options(opened, surroundings, connection.provider, connection.model, agent_id or new_agent_id())
    effort = spec.effort or opened.default_effort
    return _run(surroundings, runtime.create_session(replace(options, effort=effort, name=spec.session_name)))


def resume(opened: Opened, runtime: Runtime, record: AgentRecord, spec: RunSpec) -> PreparedRun:
    """A stored conversation, carried on (WS-7…WS-19). Synchronous file work.

    Raises `WorkspaceMismatch` ahead of every effect, then what `Runtime.resume_session` does, and
    `SessionRulesNotCleared`.
    """
    if resolved_or_given(record.base_dir) != opened.root:
        raise WorkspaceMismatch(record.id, str(opened.root), record.base_dir)
    provider, model = _continued(opened.connection, record)
    # What the conversation carries outranks the file's default, or every resume would change it (WS-17).
    effort = spec.effort or _effort(record) or opened.default_effort
    surroundings = _surroundings(opened, spec)
    options = replace(_options(opened, surroundings, provider, model, record.id), effort=effort, name=record.name)
    session = runtime.resume_session(record.id, options)
    _clear_session_rules(session)
    session.agent.record = msgspec.structs.replace(
        session.agent.record, provider=provider.id, model=model.id if model else "", effort=effort
    )
    return _run(surroundings, session)


def _clear_session_rules(session: Session) -> None:
    """Answers given "for this session" never outlive it (AP-16). Only older versions have stored such. Raises
    `SessionRulesNotCleared`, and then the conversation is closed again (AP-17)."""
    try:
        session.answers.clear_scope("session")
    except StoreError as error:
        session.close()
        file = session.answers.file
        raise SessionRulesNotCleared(
            f"session {session.agent.id} is not resumed, as answers given for its last life can't be cleared: {error}",
            hint=f"correct {file}, make it writable, or move it aside" if file else error.hint,
            details={"sessionId": session.agent.id, "path": file or ""},
        ) from error


def _surroundings(opened: Opened, spec: RunSpec) -> RunSurroundings:
    return RunSurroundings(
        workspace=str(opened.root),
        context_files=opened.context.files,
        skills_dirs=[str(path) for path in opened.skills_dirs],
        skills=[SkillSummary(name=each.name, description=each.description) for each in opened.skills],
        connection=opened.connection,
        spec=spec,
        notices=opened.notices,
        look_for_servers=opened.servers.sentences,
    )


def _options(
    opened: Opened, surroundings: RunSurroundings, provider: Provider, model: ModelInfo | None, agent_id: str
) -> SessionOptions:
    return SessionOptions(
        runtime_identifier=opened.identifier,
        base_dir=opened.root,
        provider=provider if model is not None else AwaitingModel(provider, opened.connection),
        model=model or ModelInfo("", provider.id),
        policy=opened.policy,
        authorizer=PolicyGate(surroundings.mode),
        environment=session_environment(opened.environment, agent_id),
        roster=opened.roster,
        audience=opened.identifier,
        system=opened.system,
        agent_id=agent_id,
        project_id=opened.identifier,
        overlay=opened.overlay,
        skill_roots=opened.skills_dirs,
        pricing=pricing(opened.prices, opened.connection),
    )


def _run(surroundings: RunSurroundings, session: Session) -> PreparedRun:
    run = PreparedRun(session, surroundings)
    surroundings.run = run
    return run


def _continued(connection: Connection, record: AgentRecord) -> tuple[Provider, ModelInfo | None]:
    """The provider and model a stored conversation goes on with.

    It stays on the model it had; this workspace's own is given again with all that is known of it (WS-16, WS-18). When
    the workspace uses another provider by now, that one takes over, unless nobody asked for it: a conversation never
    falls back to an embedded provider by itself.
    """
    held = ModelInfo(record.model, record.provider) if record.model else None
    if connection.error is not None:
        return UnavailableProvider(record.provider, connection.error), held
    if record.provider != connection.provider.id:
        if connection.by_default and record.provider not in EMBEDDED:
            return UnavailableProvider(record.provider, _connection_lost(record)), held
        return connection.provider, connection.model
    is_ours = connection.model is not None and record.model in ("", connection.model.id)
    return connection.provider, connection.model if is_ours else held


def _connection_lost(record: AgentRecord) -> MissingCredential:
    return MissingCredential(
        f"this conversation was held with {record.provider}, and nothing says how to reach it now",
        hint=HOW_TO_CONNECT,
        details={"provider": record.provider},
    )


def _effort(record: AgentRecord) -> Effort | None:
    """The effort a record carries; one this build doesn't know is none."""
    return next((effort for effort in EFFORTS if effort == record.effort), None)
