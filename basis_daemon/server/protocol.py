"""pygls for one connection: LSP's types, its text documents, its bookkeeping of requests (architecture.md 6).

Owns what has to be different when many editors share one process: nothing a client sends ends it, answers carry no
tracebacks, only the top level of a message is a message, and a failed send reports to nobody. Imported in a thread when
a client first speaks LSP: it takes longer to load than the rest of the daemon.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

from cattrs import Converter
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
    LanguageServerProtocol,
    default_converter,
    lsp_method,
)

from basis_protocol import framing

log = logging.getLogger(__name__)


class EditorProtocol(LanguageServerProtocol):
    """LSP's side of one connection. Private names of pygls are used: it is pinned to a minor version."""

    send: Callable[[bytes], None]

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: Any) -> Any:
        """Ends nothing here: the connection has its own way of leaving."""

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *_: Any) -> Any:
        """Answered by the connection."""

    def get_message_type(self, method: str) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        # Not pygls's own: that one caches by `self` and keeps closed connections in memory.
        return types.METHOD_TO_TYPES.get(method, (None,))[0]

    def get_result_type(self, method: str) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return types.METHOD_TO_TYPES.get(method, (None, None))[1]

    def _send_response(self, msg_id: Any, result: Any = None, error: Any = None) -> None:
        if error is not None:
            error = types.ResponseError(
                code=error.code, message=error.message, data={"kind": _kind(error.code), "message": error.message}
            )
        super()._send_response(msg_id, result, error)

    def _send_data(self, data: Any) -> None:
        try:
            # Not msgspec: it knows attrs classes and would write their Python names.
            body = json.dumps(data, default=self._serialize_message).encode()
        except Exception:
            log.exception("an LSP message could not be written")
            return
        self.send(framing.encode(body))


class Editor(LanguageServer):
    """One editor. Nothing here outlives its connection."""

    protocol: EditorProtocol  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, send: Callable[[bytes], None], version: str) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            "basis-daemon",
            version,
            text_document_sync_kind=types.TextDocumentSyncKind.Incremental,
            protocol_cls=EditorProtocol,
            converter_factory=lambda: _CONVERTER,
        )
        self.protocol.send = send
        self.feature(types.TEXT_DOCUMENT_DID_SAVE, types.SaveOptions(include_text=False))(_ignore)

    def handle(self, message: dict[str, Any]) -> None:
        """Take one message of the client. Whatever is wrong with it is answered, not raised."""
        try:
            structured: Any = self.protocol.structure_message(message)
            self.protocol.handle_message(structured)
        except JsonRpcException as error:
            if "method" in message and "id" in message:
                wrong = JsonRpcInvalidParams(f"the params of {message['method']} don't validate")
                self.protocol._send_response(message["id"], error=wrong.to_response_error())  # pyright: ignore[reportPrivateUsage]
            else:
                log.debug("ignored a malformed LSP message", extra={"problem": str(error)[:200]})
        except Exception:
            log.exception("an LSP message failed")

    def text(self, uri: str) -> str | None:
        """The text of an open document, `None` when the client has not opened it."""
        document = self.protocol.workspace.text_documents.get(uri)
        return document.source if document is not None else None

    def report_server_error(self, error: Exception, source: Any) -> None:
        """pygls would show this to the person as a message box; and report a failure to show it the same way."""
        log.warning("LSP request failed", extra={"problem": type(error).__name__})

    def close(self) -> None:
        """Let go of what waits: no answer will come any more."""
        for future in list(self.protocol._request_futures.values()):  # pyright: ignore[reportPrivateUsage]
            future.cancel()
        self.shutdown()


def _ignore(*_: Any) -> None:
    """Saves are followed by `language.py`; registering makes editors send them."""


def _plain(cls: type[Any], field: str) -> Callable[[Any, Any], Any]:
    """Structure a message without touching its payload, present or not."""
    return lambda message, _: cls(**{field: None, **message})


def _converter() -> Converter:
    converter = default_converter()
    for cls, field in (
        (JsonRPCRequestMessage, "params"),
        (JsonRPCNotification, "params"),
        (JsonRPCResponseMessage, "result"),
    ):
        converter.register_structure_hook(cls, _plain(cls, field))
    return converter


def _kind(code: int) -> str:
    return {-32601: "method_not_found", -32602: "invalid_params", -32800: "cancelled"}.get(code, "internal")


_CONVERTER = _converter()
"""Shared: building one takes milliseconds and a megabyte."""
