"""How a turn asks a person: the ask is put on disk and announced, whoever answers first decides (DM-17).

Owns what an ask says, what an unattended turn does, and that an answer given before a restart still counts. Which calls
need a person at all is decided before anything gets here.
"""

import asyncio
import time
from collections.abc import Callable

from basis_daemon.runtime.approvals import ApprovalAnswer, ApprovalRequest, RememberScope
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.server.ask_files import AskRecord
from basis_daemon.server.asks import ASK_LIFETIME_S, AskBook, new_ask_id, options_for
from basis_daemon.server.clock import timestamp
from basis_daemon.server.work import Work
from basis_protocol.asks import Ask
from basis_protocol.sessions import Unattended

_SCOPES: dict[str, RememberScope] = {"session": "session", "project": "project", "global": "global"}

NOBODY_THERE = "nobody is attached who could approve this"


class TurnApprover:
    """Asks about the calls of one turn. `can_be_asked` says whether anybody who can approve is attached just now."""

    def __init__(
        self,
        *,
        asks: AskBook,
        work: Work,
        workspace: str,
        turn_id: str,
        cancel: CancelSignal,
        unattended: Unattended,
        can_be_asked: Callable[[], bool],
    ) -> None:
        self._asks = asks
        self._work = work
        self._workspace = workspace
        self._turn_id = turn_id
        self._cancel = cancel
        self._unattended = unattended
        self._can_be_asked = can_be_asked

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask, or find the answer that was given already. Cancelled with the turn, the ask is withdrawn; cancelled with
        the daemon, it stands and is answered later. Raises `OSError` when the ask can't be kept."""
        known = await self._still_true(request)
        if known is not None and known.decided is not None:
            return _answer(known)
        ask_id = known.ask.ask_id if known is not None else new_ask_id()
        if known is None and self._unattended.policy == "deny" and not self._can_be_asked():
            return ApprovalAnswer(reason=self._unattended.reason or NOBODY_THERE)
        try:
            if known is None:
                await self._work.run(self._asks.open(self._ask(ask_id, request), self._turn_id))
            return _answer(await self._asks.wait(ask_id, lambda record: request.keep(_answer(record))))
        except asyncio.CancelledError:
            if self._cancel.is_set:
                self._work.start(self._asks.close(ask_id, "the turn was cancelled"), name="withdrawing an ask")
            raise

    async def _still_true(self, request: ApprovalRequest) -> AskRecord | None:
        """The ask about this call from before a restart, if it showed what the call would do now.

        An answer holds for what was seen (5.7 e): if that has become another since, it is asked anew.
        """
        known = self._asks.find(request.session_id, request.tool_call_id)
        if known is None or known.ask.preview == request.preview:
            return known
        await self._asks.close(known.ask.ask_id, "what it would do has changed; it is asked anew")
        return None

    def leave_nobody(self) -> list[str]:
        """Ids of asks to be denied because the last person who could answer left and the turn doesn't wait."""
        if self._unattended.policy == "wait" or self._can_be_asked():
            return []
        return [ask.ask_id for ask in self._asks.pending() if self._asks.turn_of(ask.ask_id) == self._turn_id]

    @property
    def unattended_reason(self) -> str:
        return self._unattended.reason or NOBODY_THERE

    def _ask(self, ask_id: str, request: ApprovalRequest) -> Ask:
        now = time.time()
        return Ask(
            ask_id=ask_id,
            session_id=request.session_id,
            workspace=self._workspace,
            kind="tool",
            title=request.title,
            description=request.description,
            tool_call_id=request.tool_call_id,
            tool_name=request.tool_name,
            side_effect=request.side_effect_level,
            preview=request.preview,
            options=options_for(request.offers),
            created_at=timestamp(now),
            expires_at=timestamp(now + ASK_LIFETIME_S),
        )


def _answer(record: AskRecord) -> ApprovalAnswer:
    decided = record.decided
    assert decided is not None
    return ApprovalAnswer(
        allow=decided.decision == "allow",
        scope=_SCOPES.get(decided.scope, "once"),
        reason=decided.reason or (f"the person at {decided.by.client} said no" if decided.decision == "deny" else None),
        pattern=record.pattern,
    )
