"""Questions to a person, as state of the daemon: opened, listed, answered once, kept across restarts (protocol.md 5).

Owns which asks are pending, who decided the others, and that an ask is on disk before anybody hears of it and an answer
before anybody acts on it. Does not know sessions: whoever opens an ask is told how it was decided.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from basis_daemon.runtime.approvals import Offer
from basis_daemon.server.ask_files import KEPT_DECIDED, AskFiles, AskRecord
from basis_daemon.server.clock import seconds, timestamp
from basis_daemon.server.error_map import AskDecidedAlready, InvalidParams, NoSuchAsk
from basis_daemon.server.work import Work
from basis_protocol.asks import Actor, Ask, AskAnswerParams, AskDecided, AskOption, Decision

log = logging.getLogger(__name__)

ASK_LIFETIME_S = 7 * 24 * 3600
"""Seconds an ask waits before it is denied. Long enough for a question of Friday night to be answered on Monday."""

ONCE = (
    AskOption(option_id="allow-once", label="Allow", decision="allow", scope="once"),
    AskOption(option_id="deny-once", label="Deny", decision="deny", scope="once"),
)
"""Ways to answer for the one call that is shown."""

DAEMON = Actor(client="basis-daemon", kind="daemon")


_WORDS: dict[Decision, str] = {"allow": "Allow", "deny": "Deny"}
_WHERE = {"session": "in this session", "project": "in this project", "global": "in every project"}


def options_for(offers: Iterable[Offer]) -> list[AskOption]:
    """Ways to answer: for the one call that is shown, and for what is like it. The labels say what that is (AP-21)."""
    return [*ONCE, *(option for offer in offers for option in _lasting(offer))]


def _lasting(offer: Offer) -> Iterator[AskOption]:
    for decision, word in _WORDS.items():
        yield AskOption(
            option_id=f"{decision}-{offer.scope}",
            label=f"{word} {offer.covered} {_WHERE[offer.scope]}",
            decision=decision,
            scope=offer.scope,
        )


def new_ask_id() -> str:
    return f"ask-{time.time_ns():x}-{os.urandom(4).hex()}"


Keeper = Callable[[AskRecord], Awaitable[None]]
"""Writes down what a decision says about later calls."""


class AskBook:
    """Every pending ask and the decided ones that are still remembered.

    `on_opened` and `on_closed` are called when an ask is safe on disk and when its answer is; they must not block.
    """

    def __init__(
        self,
        directory: Path,
        work: Work,
        *,
        on_opened: Callable[[Ask], None],
        on_closed: Callable[[AskRecord], None],
    ) -> None:
        self._files = AskFiles(directory)
        self._work = work
        self._records: dict[str, AskRecord] = {}
        self._deciding: dict[str, AskDecided] = {}
        self._waiting: dict[str, list[asyncio.Future[AskRecord]]] = {}
        self._keepers: dict[str, list[Keeper]] = {}
        self._on_opened = on_opened
        self._on_closed = on_closed

    async def load(self) -> None:
        """Read what an earlier daemon left. Once, at the start."""
        for record in await asyncio.to_thread(self._files.load):
            self._records[record.ask.ask_id] = record

    # --- looking ---

    def pending(self, *, workspace: str | None = None, session_id: str | None = None) -> list[Ask]:
        """Asks that wait for an answer, oldest first."""
        return [
            record.ask
            for record in self._records.values()
            if record.decided is None
            and session_id in (None, record.ask.session_id)
            and workspace in (None, record.ask.workspace)
        ]

    def turn_of(self, ask_id: str) -> str | None:
        """The turn an ask belongs to."""
        record = self._records.get(ask_id)
        return record.turn_id if record is not None else None

    def find(self, session_id: str, tool_call_id: str) -> AskRecord | None:
        """The newest ask about this tool call, pending or answered. One that was withdrawn is as good as none."""
        for record in reversed(self._records.values()):
            ask = record.ask
            if ask.session_id == session_id and ask.tool_call_id == tool_call_id and not record.withdrawn:
                return record
        return None

    def expired(self) -> list[str]:
        """Ids of pending asks whose time is up."""
        now = time.time()
        return [
            record.ask.ask_id
            for record in self._records.values()
            if record.decided is None and record.ask.expires_at and seconds(record.ask.expires_at) <= now
        ]

    # --- changing ---

    async def open(self, ask: Ask, turn_id: str) -> None:
        """Keep and announce `ask`. Raises `OSError` when it can't be kept; then nobody has heard of it."""
        record = AskRecord(ask, turn_id)
        await asyncio.to_thread(self._files.write, record)
        self._records[ask.ask_id] = record
        self._on_opened(ask)

    async def wait(self, ask_id: str, keep: Keeper | None = None) -> AskRecord:
        """Return the record of `ask_id` once it is decided. Cancelling it leaves the ask as it is.

        `keep` is handed a decision before it counts: what that raises is told to whoever answered, and the ask stays
        pending (SE-16).
        """
        record = self._records[ask_id]
        if record.decided is not None:
            return record
        future: asyncio.Future[AskRecord] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(ask_id, [])
        waiting.append(future)
        keepers = self._keepers.setdefault(ask_id, [])
        keepers += [keep] if keep is not None else []
        try:
            return await future
        finally:
            waiting.remove(future)
            if not waiting and self._waiting.get(ask_id) is waiting:
                del self._waiting[ask_id]
            if keep is not None:
                keepers.remove(keep)
            if not keepers:
                self._keepers.pop(ask_id, None)

    async def answer(self, params: AskAnswerParams, by: Actor) -> AskRecord:
        """Decide an ask; the first one to call this wins. On disk when it returns.

        Raises `NoSuchAsk`, `AskDecidedAlready` with the decision that stands, `InvalidParams` for an answer that isn't
        offered, and what keeping its rule raises; after these two the ask is still pending.
        """
        record = self._records.get(params.ask_id)
        if record is None:
            raise NoSuchAsk(f"there is no ask {params.ask_id!r}", hint="see which wait: basisctl asks")
        self._refuse_decided(record)
        _require_offered(record.ask, params)
        decided = AskDecided(
            by=by, decision=params.decision, scope=params.scope, at=timestamp(), reason=params.reason or None
        )
        return await self._decide(record, decided, pattern=params.pattern)

    async def close(self, ask_id: str, reason: str, *, withdrawn: bool = True) -> None:
        """Deny an ask in the daemon's name: its question went away, or its time is up (`withdrawn=False`). One that is
        decided already stays as it is."""
        record = self._records.get(ask_id)
        if record is None or record.decided is not None or ask_id in self._deciding:
            return
        decided = AskDecided(by=DAEMON, decision="deny", scope="once", at=timestamp(), reason=reason)
        await self._decide(record, decided, withdrawn=withdrawn)

    async def forget_session(self, session_id: str) -> None:
        """Remove every ask of a session that is deleted."""
        ids = [ask_id for ask_id, record in self._records.items() if record.ask.session_id == session_id]
        for ask_id in ids:
            await self.close(ask_id, "the session was deleted")
            self._records.pop(ask_id, None)
            await asyncio.to_thread(self._files.remove, ask_id)

    # --- below ---

    def _refuse_decided(self, record: AskRecord) -> None:
        decided = record.decided or self._deciding.get(record.ask.ask_id)
        if decided is None:
            return
        word = "allowed" if decided.decision == "allow" else "denied"
        raise AskDecidedAlready(
            f"{decided.by.client} has already {word} this",
            details=msgspec.to_builtins(decided),
        )

    async def _decide(
        self, record: AskRecord, decided: AskDecided, *, pattern: str | None = None, withdrawn: bool = False
    ) -> AskRecord:
        # Claimed before anything is waited for: a second answer from here on is late already.
        self._deciding[record.ask.ask_id] = decided
        return await self._work.run(self._carry_out(AskRecord(record.ask, record.turn_id, decided, pattern, withdrawn)))

    async def _carry_out(self, closed: AskRecord) -> AskRecord:
        ask_id = closed.ask.ask_id
        try:
            for keep in tuple(self._keepers.get(ask_id, ())):
                await keep(closed)
            await asyncio.to_thread(self._files.write, closed)
        finally:
            del self._deciding[ask_id]
        self._records[ask_id] = closed
        self._forget_surplus()
        self._on_closed(closed)
        for future in self._waiting.pop(ask_id, []):
            if not future.done():
                future.set_result(closed)
        return closed

    def _forget_surplus(self) -> None:
        decided = [ask_id for ask_id, record in self._records.items() if record.decided is not None]
        for ask_id in decided[: max(0, len(decided) - KEPT_DECIDED)]:
            del self._records[ask_id]


def _require_offered(ask: Ask, params: AskAnswerParams) -> None:
    """Refuse an answer that is not among the ask's options, naming those that are."""
    scopes = [option.scope for option in ask.options if option.decision == params.decision]
    if params.scope not in scopes:
        offered = ", ".join(dict.fromkeys(scopes)) or "nothing"
        raise InvalidParams(
            f"scope: `{params.scope}` is not offered for `{params.decision}`, only {offered}", field="scope"
        )
    if params.pattern is not None and params.scope == "once":
        raise InvalidParams("pattern: narrows what is remembered, and `once` remembers nothing", field="pattern")
