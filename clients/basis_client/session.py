"""One session as an asyncio program sees it: the stream of its events, and what can be asked of it.

Owns the cursor of a stream: every event once, in order, whatever happens to the connection, the daemon or a reader that
falls behind. Decodes events; does not know what they mean.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from basis_client.cursor import GAP, NEXT, Cursor
from basis_client.errors import CONNECTION_LOST, ClientError
from basis_client.link import Link
from basis_protocol.base import Timestamp, WireModel
from basis_protocol.events import SessionEvent, decode_event
from basis_protocol.ids import Seq, SessionId
from basis_protocol.sessions import SessionAttachParams, SessionAttachResult, SessionIdParams

MAX_BUFFERED_EVENTS = 20_000
"""Events kept for a reader that doesn't come for them; what follows is asked for again when it does."""


class Reset(WireModel):
    """The past was too old to replay: whatever was shown before is void, and `attached.snapshot` stands for it."""

    attached: SessionAttachResult


class _Record(WireModel):
    """A `SessionEvent` whose event may be of a type this build doesn't know."""

    session_id: SessionId
    seq: Seq
    time: Timestamp
    event: msgspec.Raw


_read_record = msgspec.json.Decoder(_Record).decode
_read_attached = msgspec.json.Decoder(SessionAttachResult).decode


class SessionStream(AsyncIterator["SessionEvent | Reset"]):
    """The events of one session, oldest first: `async for item in stream`.

    Items are `SessionEvent`, and `Reset` when a gap could not be replayed. Event types this build doesn't know are
    left out. The iteration ends only by `ClientError`, when the daemon is gone for good.
    """

    def __init__(self, session_id: str, link: Callable[[], Awaitable[Link]], *, after_seq: int | None) -> None:
        self.session_id = session_id
        self.attached: SessionAttachResult | None = None
        """The answer to the last attach: info, asks, snapshot, running turn."""
        self.attach_count = 0
        self._link = link
        self._cursor = Cursor(after_seq)
        self._items: deque[SessionEvent | Reset] = deque()
        self._news = asyncio.Event()
        self._failure: ClientError | None = None
        self._is_behind = False

    @property
    def seq(self) -> int:
        """Number of the last event received, read or not."""
        return self._cursor.seen or 0

    async def attach(self, link: Link) -> None:
        """Attach, or attach again after the last event received."""
        after_seq = self._cursor.seen
        params = msgspec.json.encode(SessionAttachParams(session_id=self.session_id, after_seq=after_seq))
        await link.request("basis/session/attach", params, on_answer=lambda answer: self._begin(after_seq, answer))

    def detach(self, link: Link) -> None:
        """Stop watching. Not waited for: nobody listens any more."""
        link.request_nowait("basis/session/detach", msgspec.json.encode(SessionIdParams(session_id=self.session_id)))

    def feed(self, params: bytes) -> None:
        """Take the params of one `basis/session/event`."""
        if self._is_behind:
            return
        if len(self._items) >= MAX_BUFFERED_EVENTS:
            self.lagged()
            return
        record = _read_record(params)
        place = self._cursor.take(record.seq)
        if place == GAP:
            self.lagged()
        elif place == NEXT:
            self._take(record)

    def lagged(self) -> None:
        """Something is missing from here on: attach again once the reader has taken what is there."""
        self._is_behind = True
        self._news.set()

    def fail(self, error: ClientError) -> None:
        """The end: raised to the reader once it has taken what is there."""
        self._failure = error
        self._news.set()

    def __aiter__(self) -> AsyncIterator[SessionEvent | Reset]:
        return self

    async def __anext__(self) -> SessionEvent | Reset:
        """Return the next item. Cancelling it loses nothing."""
        while not self._items:
            if self._failure is not None:
                raise self._failure
            if self._is_behind:
                await self._catch_up()
                continue
            self._news.clear()
            await self._news.wait()
        return self._items.popleft()

    async def _catch_up(self) -> None:
        link = await self._link()
        if not self._is_behind:
            return  # the connection was lost meanwhile, and reconnecting attached this stream too
        try:
            await self.attach(link)
        except ClientError as error:
            if error.kind != CONNECTION_LOST:
                raise

    def _begin(self, after_seq: int | None, answer: bytes) -> None:
        attached = _read_attached(answer)
        has_snapshot = attached.snapshot is not None
        self._cursor.attached(after_seq=after_seq, seq=attached.seq, has_snapshot=has_snapshot)
        self._is_behind = False
        self.attached = attached
        self.attach_count += 1
        if after_seq is not None and has_snapshot:
            self._append(Reset(attached=attached))

    def _take(self, record: _Record) -> None:
        event = decode_event(bytes(record.event))
        if event is not None:
            self._append(SessionEvent(session_id=record.session_id, seq=record.seq, time=record.time, event=event))

    def _append(self, item: SessionEvent | Reset) -> None:
        self._items.append(item)
        self._news.set()
