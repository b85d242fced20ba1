"""Telling those who watch a runtime what happens in it, and the audit trail (TL-28, TL-29).

Owns the kinds of events and that watching changes nothing: what an observer does wrong is logged, and the run goes on
as if nobody had watched. Events carry ids, names and outcomes, never what a person or a tool said (SE-32).
"""

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from basis_daemon.runtime.messages import Json

logger = logging.getLogger(__name__)

RuntimeEventKind = Literal[
    "authorization_denied",
    "tool_authorization_started",
    "tool_authorization_finished",
    "tool_authorization_blocked",
    "recovery_prepared",
    "model_request_started",
    "model_request_finished",
    "model_response_finished",
    "tool_execution_started",
    "tool_execution_finished",
    "tool_execution_blocked",
    "policy_denied",
    "background_task_started",
    "background_task_finished",
    "memory_search_started",
    "memory_search_finished",
    "memory_ingest_started",
    "memory_ingest_finished",
    "memory_compaction_proposed",
    "memory_compaction_applied",
    "memory_compaction_skipped",
    "run_aborted",
]

RUNTIME_SCOPE = "runtime"
"""Scope of what belongs to no agent."""


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """Something that happened, and to which agent."""

    kind: RuntimeEventKind
    agent_id: str | None
    payload: Mapping[str, Json]


class AuditStore(Protocol):
    """Keeps the audit trail. Recording returns at once and raises nothing a disk could cause."""

    def record_audit_event(self, scope: str, event_type: str, payload: Mapping[str, Json]) -> None: ...

    def close(self) -> None:
        """Return when everything recorded is kept. Blocks meanwhile; later use is fine."""
        ...


class RuntimeHook(Protocol):
    """An observer. Called on the loop's thread, so it must not block."""

    def on_event(self, audit: AuditStore, event: RuntimeEvent) -> None: ...


class AuditHook:
    """Writes every event to the audit store. There unless a builder's `with_hooks` says otherwise."""

    def on_event(self, audit: AuditStore, event: RuntimeEvent) -> None:
        scope = RUNTIME_SCOPE if event.agent_id is None else f"agent:{event.agent_id}"
        audit.record_audit_event(scope, event.kind, event.payload)


class AuditLogHook:
    """Writes every event to the log."""

    def on_event(self, audit: AuditStore, event: RuntimeEvent) -> None:
        logger.info("%s %s %s", event.kind, event.agent_id or RUNTIME_SCOPE, dict(event.payload))


class NoAudit:
    """Keeps nothing."""

    def record_audit_event(self, scope: str, event_type: str, payload: Mapping[str, Json]) -> None: ...

    def close(self) -> None: ...


class Observers:
    """Everybody who watches one runtime, in the order they were added."""

    def __init__(self, hooks: Sequence[RuntimeHook] = (), audit: AuditStore | None = None) -> None:
        self.audit: AuditStore = audit or NoAudit()
        self._hooks = tuple(hooks)

    def keeping(self, audit: AuditStore) -> "Observers":
        """The same observers with another audit trail."""
        return Observers(self._hooks, audit)

    def notify(self, kind: RuntimeEventKind, agent_id: str | None = None, **payload: Json) -> None:
        """Tell them. Never raises."""
        if not self._hooks:
            return
        event = RuntimeEvent(kind, agent_id, {name: value for name, value in payload.items() if value is not None})
        for hook in self._hooks:
            try:
                answer: object = hook.on_event(self.audit, event)
                if inspect.iscoroutine(answer):
                    answer.close()
                    raise TypeError("on_event must not be async")
            except Exception:
                logger.exception("an observer failed at %s", kind)
