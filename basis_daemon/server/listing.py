"""Conversations as a list: most recently used first, a page at a time, searched by title.

Owns the order and the cursor. A cursor names the last item given, so pages neither repeat nor skip what stood still.
"""

import asyncio
import base64

import msgspec

from basis_daemon.runtime.store.base import AgentRecord
from basis_daemon.server.clock import timestamp
from basis_daemon.server.error_map import InvalidParams
from basis_daemon.server.hub import Hub
from basis_daemon.server.session_state import interrupted_state
from basis_daemon.server.session_views import info_of, title_of
from basis_daemon.server.workspaces import require_absolute
from basis_daemon.workspace.store import runtime_identifier
from basis_protocol.events import SessionState
from basis_protocol.sessions import SessionInfo, SessionListParams, SessionListResult


async def page(hub: Hub, params: SessionListParams) -> SessionListResult:
    """Raises `InvalidParams` for a relative workspace or a cursor of somebody else's making."""
    after = _decode(params.cursor) if params.cursor is not None else None
    identifier = None
    if params.workspace is not None:
        identifier = await asyncio.to_thread(runtime_identifier, require_absolute(params.workspace, "workspace"))
    records = [record for record in await hub.records(identifier) if _matches(record, params.query)]
    records.sort(key=_order, reverse=True)
    if after is not None:
        records = [record for record in records if _order(record) < after]
    shown = records[: params.limit]
    more = len(records) > len(shown)
    return SessionListResult(
        sessions=[_info(hub, record) for record in shown],
        next_cursor=_encode(_order(shown[-1])) if more else None,
    )


_Order = tuple[int, str]


def _order(record: AgentRecord) -> _Order:
    """Larger is newer. Times are whole seconds: within one, the id decides, which begins with when it was made."""
    return record.updated_at, record.id


def _matches(record: AgentRecord, query: str | None) -> bool:
    if not query:
        return True
    title = title_of(record).casefold()
    return all(word in title for word in query.casefold().split())


def _info(hub: Hub, record: AgentRecord) -> SessionInfo:
    live = hub.find(record.id)
    if live is not None:
        return live.session.info()
    asks = hub.asks.pending(session_id=record.id)
    since = timestamp(record.updated_at)
    if asks:
        state = SessionState(kind="waiting_person", since=since, detail=asks[0].title, ask_id=asks[0].ask_id)
    elif record.id in hub.unfinished_ids:
        state = interrupted_state(since)
    else:
        state = SessionState(kind="idle", since=since, detail="")
    return info_of(record, state=state, mode="prompt", pending_asks=len(asks))


def _encode(order: _Order) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(order)).decode()


def _decode(cursor: str) -> _Order:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=_Order)
    except (ValueError, RecursionError):
        raise InvalidParams("cursor: it is not one of this list's", field="cursor") from None
