"""A conversation as clients are shown it, from its record and its run. Keeps nothing, changes nothing."""

from collections.abc import Sequence

from basis_daemon.runtime.prompts import speaker
from basis_daemon.runtime.providers.base import ModelInfo
from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.server import session_config
from basis_daemon.server.clock import timestamp
from basis_daemon.server.session_state import RunningTurn
from basis_daemon.workspace.run import PreparedRun
from basis_daemon.workspace.spec import DEFAULT_NAME
from basis_protocol.events import SessionState
from basis_protocol.sessions import SessionInfo, TurnInfo


def title_of(record: AgentRecord) -> str:
    """The conversation's title; empty while nobody gave it one."""
    return "" if record.name == DEFAULT_NAME else record.name


def info_of(
    record: AgentRecord,
    *,
    state: SessionState,
    mode: str,
    pending_asks: int,
    messages: int | None = None,
    created_at: float | None = None,
    ephemeral: bool = False,
    models: Sequence[ModelInfo] = (),
) -> SessionInfo:
    """A conversation as lists show it, live or not."""
    created = created_at if created_at is not None else record.created_at
    return SessionInfo(
        session_id=record.id,
        workspace=record.base_dir,
        title=title_of(record),
        state=state,
        created_at=timestamp(created),
        updated_at=timestamp(record.updated_at or created),
        turns=record.turns,
        messages=record.messages if messages is None else messages,
        provider=record.provider or None,
        model=record.model or None,
        config=session_config.options(record, mode, models),
        usage=record.usage,
        pending_asks=pending_asks,
        parent=record.parent,
        ephemeral=ephemeral,
    )


def turn_info(run: PreparedRun, running: RunningTurn | None) -> TurnInfo | None:
    """The turn that runs, or the one that was cut short."""
    if running is not None:
        prompt = running.prompt
        return TurnInfo(turn_id=prompt.turn_id, state="running", started_at=running.started_at, by=speaker(prompt.by))
    if run.interrupted is not None:
        prompt = run.interrupted
        return TurnInfo(turn_id=prompt.turn_id, state="interrupted", by=speaker(prompt.by))
    return None
