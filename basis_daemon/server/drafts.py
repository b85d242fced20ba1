"""The unsent prompt of a session, shared by its clients: begun in one editor, finished in another.

Owns where it is kept: beside the conversation, and with the live session while nothing of that is on disk yet. Tells
nobody of changes; a client reads it when it attaches.
"""

import asyncio
import os
from pathlib import Path
from weakref import WeakKeyDictionary

import msgspec

from basis_daemon.server.clock import timestamp
from basis_daemon.server.session import LiveSession
from basis_protocol.asks import Actor
from basis_protocol.sessions import SessionDraftResult

FILE = "draft.json"
EMPTY = SessionDraftResult(text="")


class Drafts:
    """Drafts by session. The last one written stands; an empty one leaves nothing behind."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[LiveSession, SessionDraftResult] = WeakKeyDictionary()
        self._turn = asyncio.Lock()

    async def read(self, session: LiveSession) -> SessionDraftResult:
        """The draft; an empty one when there is none or its file can't be read."""
        async with self._turn:
            known = self._known.get(session)
            if known is None:
                path = _path(session)
                known = EMPTY if path is None else await asyncio.to_thread(_load, path)
                self._known[session] = known
            return known

    async def write(self, session: LiveSession, text: str, by: Actor) -> SessionDraftResult:
        """Replace the draft. On disk when this returns, unless the conversation itself is not. Raises `OSError`."""
        draft = SessionDraftResult(text=text, by=by, at=timestamp()) if text else EMPTY
        async with self._turn:
            self._known[session] = draft
            path = _path(session)
            if path is not None:
                await asyncio.to_thread(_keep, path, draft)
            return draft


def _path(session: LiveSession) -> Path | None:
    directory = session.run.directory
    return directory / FILE if directory is not None and session.run.is_persisted else None


def _load(path: Path) -> SessionDraftResult:
    try:
        return msgspec.json.decode(path.read_bytes(), type=SessionDraftResult)
    except (OSError, ValueError, RecursionError):
        # A draft is a convenience: an unreadable one must not keep anybody from the conversation.
        return EMPTY


def _keep(path: Path, draft: SessionDraftResult) -> None:
    if not draft.text:
        path.unlink(missing_ok=True)
        return
    temporary = path.with_suffix(".new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(draft))
    os.replace(temporary, path)
