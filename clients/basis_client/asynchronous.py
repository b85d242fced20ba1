"""A client for programs with an event loop: typed calls over one connection that heals itself.

Owns the supervision: connecting, starting a daemon, reconnecting with back-off, opening this client's workspaces and
attaching its streams again. What a stream of one session does with its events is `session.py`; frames are `link.py`.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from basis_client.connect import ALWAYS, IF_IT_DIED, NEVER, START_TIMEOUT_S, Found, connect
from basis_client.errors import CONNECTION_LOST, DAEMON_UNREACHABLE, NOT_RUNNING, TIMED_OUT, ClientError
from basis_client.handshake import Hello, read_initialize
from basis_client.link import Link
from basis_client.session import SessionStream
from basis_protocol.base import WireModel
from basis_protocol.errors import OVERLOADED
from basis_protocol.events import SessionLagged
from basis_protocol.lifecycle import DaemonInfo
from basis_protocol.methods import METHODS
from basis_protocol.sessions import TurnOutcome, TurnWaitParams
from basis_protocol.workspaces import WorkspaceInfo, WorkspaceOpenParams

R = TypeVar("R", bound=WireModel)

CALL_TIMEOUT_S = 60.0
"""Every request is answered at once except opening a workspace, which may import a provider and start MCP servers."""

PATIENCE_S = 60.0
"""How long a lost daemon is looked for before every stream and call is told."""

BACK_OFF_S = (0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)

PASSING = (CONNECTION_LOST, NOT_RUNNING, DAEMON_UNREACHABLE, TIMED_OUT)

TURN_STILL_RUNS = "timeout"
"""The daemon's answer to `basis/turn/wait` when its time was up first."""


class _Mark(WireModel):
    """What every session notification begins with."""

    session_id: str


_read_mark = msgspec.json.Decoder(_Mark).decode
_read_lagged = msgspec.json.Decoder(SessionLagged).decode

OnNotification = Callable[[str, bytes], None]


class Client:
    """A connection to the daemon, for as long as its `open_client` block lasts."""

    def __init__(
        self, hello: Hello, environ: Mapping[str, str], *, start: bool, on_notification: OnNotification | None = None
    ) -> None:
        self.hello = hello
        self.daemon: DaemonInfo | None = None
        """The daemon spoken to last; its `instance_id` changes when it was replaced."""
        self._environ = environ
        self._start = start
        self._on_notification = on_notification
        self._link: Link | None = None
        self._failure: ClientError | None = None
        self._changed = asyncio.Condition()
        self._streams: dict[str, SessionStream] = {}
        self._workspaces: dict[str, WorkspaceOpenParams] = {}

    @property
    def is_connected(self) -> bool:
        return self._usable_link() is not None

    async def call(self, method: str, params: WireModel, returning: type[R], *, timeout_s: float = CALL_TIMEOUT_S) -> R:
        """Call a method of the table and return its typed result.

        While there is no connection the call waits for one. Raises `ClientError`: the daemon's own, or `timed_out`, or
        `connection_lost` when the daemon went away before it answered: then whether it took effect is not known.
        Cancelling the call tells the daemon.
        """
        row = METHODS[method]
        if row.result is not returning or not isinstance(params, row.params):
            raise TypeError(f"{method} takes {row.params.__name__} and returns {row.result and row.result.__name__}")
        try:
            async with asyncio.timeout(timeout_s):
                link = await self._connected_link()
                return msgspec.json.decode(await link.request(method, msgspec.json.encode(params)), type=returning)
        except TimeoutError as error:
            raise ClientError(f"the daemon did not answer {method} within {timeout_s:g} s", kind=TIMED_OUT) from error

    async def wait_connected(self) -> None:
        """Return once requests can be sent. Raises `ClientError` when the daemon was given up on."""
        await self._connected_link()

    async def outcome(self, session_id: str, turn_id: str) -> TurnOutcome:
        """How a turn ended, waiting as long as that takes; the daemon may be replaced meanwhile."""
        params = TurnWaitParams(session_id=session_id, turn_id=turn_id, timeout_ms=int(CALL_TIMEOUT_S * 500))
        while True:
            try:
                return await self.call("basis/turn/wait", params, TurnOutcome)
            except ClientError as error:
                if error.kind not in (CONNECTION_LOST, TURN_STILL_RUNS):
                    raise

    async def open_workspace(self, path: str, *, env: Mapping[str, str] | None = None) -> WorkspaceInfo:
        """Open a workspace with this client's environment, now and again after every reconnection."""
        params = WorkspaceOpenParams(path=path, env=None if env is None else dict(env))
        info = await self.call("basis/workspace/open", params, WorkspaceInfo)
        self._workspaces[path] = params
        return info

    @asynccontextmanager
    async def watch(self, session_id: str, *, after_seq: int | None = None) -> AsyncGenerator[SessionStream, None]:
        """Attach to a session and follow it, across reconnections, until the block is left; then detach."""
        if session_id in self._streams:
            raise ValueError(f"this client already watches {session_id}")
        stream = SessionStream(session_id, self._connected_link, after_seq=after_seq)
        self._streams[session_id] = stream
        try:
            await self._begin(stream)
            yield stream
        finally:
            del self._streams[session_id]
            if self._link is not None:
                stream.detach(self._link)

    async def _begin(self, stream: SessionStream) -> None:
        while True:
            link = await self._connected_link()
            try:
                await stream.attach(link)
            except ClientError as error:
                if error.kind != CONNECTION_LOST:
                    raise
            else:
                return

    async def _connected_link(self) -> Link:
        async with self._changed:
            await self._changed.wait_for(lambda: self._usable_link() is not None or self._failure is not None)
        link = self._usable_link()
        if link is None:
            assert self._failure is not None
            raise self._failure
        return link

    def _usable_link(self) -> Link | None:
        return None if self._link is None or self._link.lost.is_set() else self._link

    # --- supervision --------------------------------------------------------------------------------------------

    async def supervise(self) -> None:
        """Keep one connection up until cancelled, or until the daemon can't be found any more."""
        while True:
            try:
                link = await self._connect()
            except ClientError as error:
                await self._set(None, error)
                for stream in self._streams.values():
                    stream.fail(error)
                return
            try:
                await self._set(link, None)
                await link.lost.wait()
            finally:
                self._link = None
                link.close()

    async def _connect(self) -> Link:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_S
        attempt = 0
        while True:
            try:
                return await self._connect_once()
            except ClientError as error:
                pause = BACK_OFF_S[min(attempt, len(BACK_OFF_S) - 1)]
                is_first = self.daemon is None and error.kind in (NOT_RUNNING, DAEMON_UNREACHABLE)
                is_passing = error.kind in PASSING or error.code == OVERLOADED
                if is_first or not is_passing or loop.time() + pause > give_up_at:
                    raise
                attempt += 1
                await asyncio.sleep(pause)

    async def _connect_once(self) -> Link:
        """Connect, shake hands, and put everything back as it was: workspaces with their environment, then streams."""
        start = NEVER if not self._start else ALWAYS if self.daemon is None else IF_IT_DIED
        found = await _dial(self._environ, start=start)
        link = await Link.over(found.socket, self._route)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                self.daemon = await self._greet(link, found)
                await self._restore(link)
        except TimeoutError as error:
            link.close()
            raise ClientError("the daemon does not answer", kind=TIMED_OUT) from error
        except BaseException:
            link.close()
            raise
        return link

    async def _greet(self, link: Link, found: Found) -> DaemonInfo:
        try:
            result = await link.request("initialize", msgspec.json.encode(self.hello.initialize_params()))
        except ClientError as error:
            if error.kind != CONNECTION_LOST:
                raise
            raise await asyncio.to_thread(found.explain, error) from None
        found.answered()
        answer = read_initialize(msgspec.json.decode(result))
        link.notify("initialized", b"{}")
        return msgspec.convert(answer.get("daemon"), DaemonInfo)

    async def _restore(self, link: Link) -> None:
        for params in self._workspaces.values():
            try:
                await link.request("basis/workspace/open", msgspec.json.encode(params))
            except ClientError as error:
                # A directory that is gone by now concerns whoever calls for it next, not the connection.
                if error.is_unreachable:
                    raise
        for stream in list(self._streams.values()):
            try:
                await stream.attach(link)
            except ClientError as error:
                if error.is_unreachable:
                    raise
                stream.fail(error)

    async def _set(self, link: Link | None, failure: ClientError | None) -> None:
        async with self._changed:
            self._link = link
            self._failure = failure
            self._changed.notify_all()

    def _route(self, method: str, params: bytes) -> None:
        if method == "basis/session/event":
            stream = self._streams.get(_read_mark(params).session_id)
            if stream is not None:
                stream.feed(params)
        elif method == "basis/session/lagged":
            stream = self._streams.get(_read_lagged(params).session_id)
            if stream is not None:
                stream.lagged()
        elif self._on_notification is not None:
            self._on_notification(method, params)


@asynccontextmanager
async def open_client(
    hello: Hello,
    environ: Mapping[str, str] = os.environ,
    *,
    start: bool = True,
    on_notification: OnNotification | None = None,
) -> AsyncGenerator[Client, None]:
    """Connect to the daemon, starting one if `start`, and keep connected while the block runs.

    Raises `ClientError` when the first connection fails. `on_notification` gets (method, params as JSON) of everything
    that isn't an event of a watched session; it must not block.
    """
    client = Client(hello, environ, start=start, on_notification=on_notification)
    failure: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        supervisor = group.create_task(client.supervise())
        try:
            await client.wait_connected()
            yield client
        except BaseException as error:
            # Raised again outside: a task group would wrap it, and callers would have to know that there is one.
            failure = error
        finally:
            supervisor.cancel()
    if failure is not None:
        raise failure


async def _dial(environ: Mapping[str, str], *, start: str) -> Found:
    """`connect` in a thread. When cancelled, the socket it may still return is closed."""
    dialling = asyncio.get_running_loop().run_in_executor(None, lambda: connect(environ, start=start))
    try:
        return await asyncio.shield(dialling)
    except asyncio.CancelledError:
        dialling.add_done_callback(_discard)
        raise


def _discard(dialled: asyncio.Future[Found]) -> None:
    if not dialled.cancelled() and dialled.exception() is None:
        dialled.result().socket.close()
