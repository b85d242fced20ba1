"""The LSP side of a connection, loaded when a client first speaks LSP (protocol.md 7).

Owns the order of LSP messages while and after pygls is loaded, and keeping `documents.py` in step with the editor's
buffers. Imports nothing of pygls itself.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from basis_daemon.server.channel import Channel
from basis_daemon.server.documents import Documents
from basis_daemon.server.prompts import path_of

if TYPE_CHECKING:
    from basis_daemon.server.protocol import Editor

log = logging.getLogger(__name__)

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Messages that may wait while pygls loads; a client that sends more is disconnected."""


class LanguageSide:
    """One client's LSP. Messages are taken one after the other in a task of the connection."""

    def __init__(
        self,
        editor_id: str,
        channel: Channel,
        documents: Documents,
        version: str,
        *,
        initialize: bytes | None,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`initialize` is given for a client that was answered it already, as a basis client is."""
        self._editor_id = editor_id
        self._channel = channel
        self._documents = documents
        self._version = version
        self._is_silent = initialize is not None
        self._bodies: deque[bytes] = deque([initialize] if initialize is not None else [])
        self._waiting_bytes = 0
        self._signal = asyncio.Event()
        self._editor: Editor | None = None
        self._paths: dict[str, str] = {}
        start(self._run())

    def accept(self, body: bytes) -> None:
        """Take the client's next LSP message."""
        self._waiting_bytes += len(body)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._channel.abort("it sends faster than its messages can be taken")
            return
        self._bodies.append(body)
        self._signal.set()

    def close(self) -> None:
        """The connection is over: its buffers are nobody's any more."""
        self._documents.remove_editor(self._editor_id)
        if self._editor is not None:
            self._editor.close()

    async def _run(self) -> None:
        protocol = await asyncio.to_thread(import_module, "basis_daemon.server.protocol")
        self._editor = protocol.Editor(self._send, self._version)
        if self._is_silent:
            self._take(self._bodies.popleft())
            self._is_silent = False
        while True:
            while self._bodies:
                body = self._bodies.popleft()
                self._waiting_bytes -= len(body)
                message = self._take(body)
                if message is not None:
                    await self._follow(message)
            self._signal.clear()
            await self._signal.wait()

    def _send(self, frame: bytes) -> None:
        if not self._is_silent:
            self._channel.send(frame)

    def _take(self, body: bytes) -> dict[str, Any] | None:
        message: Any = msgspec.json.decode(body)
        if not isinstance(message, dict) or self._editor is None:
            return None
        self._editor.handle(message)  # pyright: ignore[reportUnknownArgumentType]
        return message  # pyright: ignore[reportUnknownVariableType]

    async def _follow(self, message: dict[str, Any]) -> None:
        """Keep the shared documents in step. A message pygls could not read changes nothing here either."""
        try:
            uri = message["params"]["textDocument"]["uri"]
        except (KeyError, TypeError):
            return
        match message.get("method"):
            case "textDocument/didOpen":
                await self._opened(uri)
            case "textDocument/didChange":
                self._changed(uri)
            case "textDocument/didSave":
                if uri in self._paths:
                    self._documents.mark(self._editor_id, self._paths[uri], is_changed=False)
            case "textDocument/didClose":
                if uri in self._paths:
                    self._documents.remove(self._editor_id, self._paths.pop(uri))
            case _:
                pass

    async def _opened(self, uri: str) -> None:
        text = self._text(uri)
        if text is None or not uri.startswith("file:"):
            return
        path, on_disk = await asyncio.to_thread(_look_up, path_of(uri))
        self._paths[uri] = path
        # A buffer may be opened changed: an editor restores what was unsaved when it was closed.
        self._documents.update(self._editor_id, path, text, is_changed=text != on_disk)

    def _changed(self, uri: str) -> None:
        text, path = self._text(uri), self._paths.get(uri)
        if text is not None and path is not None:
            self._documents.update(self._editor_id, path, text, is_changed=True)

    def _text(self, uri: str) -> str | None:
        return self._editor.text(uri) if self._editor is not None else None


def _look_up(path: str) -> tuple[str, str | None]:
    """The canonical path, and what its file says; `None` where there is no readable text."""
    canonical = os.path.realpath(path)
    try:
        return canonical, Path(canonical).read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return canonical, None
