"""Plain LSP on the same socket: any editor is a client without a plugin (protocol.md 7, ADR 4)."""

from pathlib import Path
from typing import Any

from support.daemon import DaemonProcess, OpenSession
from support.model_server import ModelServer, calls, says, tool
from support.raw_client import RawClient


def open_document(client: RawClient, path: Path, text: str) -> dict[str, Any]:
    uri = path.as_uri()
    document = {"uri": uri, "languageId": "plaintext", "version": 1, "text": text}
    client.notify("textDocument/didOpen", {"textDocument": document})
    return {"uri": uri}


def change(client: RawClient, document: dict[str, Any], text: str, version: int = 2, **range: Any) -> None:
    content = {"text": text, **({"range": range} if range else {})}
    client.notify(
        "textDocument/didChange", {"textDocument": {**document, "version": version}, "contentChanges": [content]}
    )


def settle(client: RawClient) -> None:
    """Return when everything sent before was taken: messages of one client are taken in order."""
    assert client.refusal(
        "textDocument/hover", {"textDocument": {"uri": "file:///x"}, "position": {"line": 0, "character": 0}}
    )


def plain(daemon: DaemonProcess) -> RawClient:
    """An LSP client that has never heard of basis."""
    client = daemon.dial()
    result = client.call("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    client.notify("initialized", {})
    assert result["capabilities"]["textDocumentSync"]["openClose"] is True
    assert result["serverInfo"]["name"] == "basis-daemon"
    return client


def read_by_the_agent(daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, path: str) -> str:
    """What the read tool gives the model."""
    model.script(calls(tool("read", {"path": path})), says("read"))
    client = daemon.connect(name="reader")
    session_id = open_session(client)
    block = {"type": "text", "text": "read it"}
    client.call("basis/session/prompt", {"sessionId": session_id, "input": [block]})
    client.events_until("run_finished")
    return next(iter(model.requests[-1].tool_results.values()))


def test_unsaved_text_of_a_plain_editor_is_what_the_agent_reads(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    editor = plain(daemon)
    document = open_document(editor, repo / "a.txt", "alpha\n")
    change(editor, document, "UNSAVED ", start={"line": 0, "character": 0}, end={"line": 0, "character": 0})
    settle(editor)

    assert "UNSAVED alpha" in read_by_the_agent(daemon, model, open_session, "a.txt")


def test_unsaved_text_of_a_basis_client_counts_too(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """The LSP side is loaded when it is first spoken, behind a handshake that was answered without it."""
    editor = daemon.connect(name="plugin")
    document = open_document(editor, repo / "a.txt", "alpha\n")
    change(editor, document, "changed in the buffer\n")
    settle(editor)

    assert "changed in the buffer" in read_by_the_agent(daemon, model, open_session, "a.txt")


def test_saved_closed_and_untouched_buffers_leave_the_file_to_the_disk(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    """The agent's own edits reach the disk before they reach the editor."""
    for name in ("saved", "closed", "untouched"):
        (repo / f"{name}.txt").write_text("old\n")
    editor = plain(daemon)
    documents = {
        name: open_document(editor, repo / f"{name}.txt", "old\n") for name in ("saved", "closed", "untouched")
    }
    for name in ("saved", "closed"):
        change(editor, documents[name], "buffer\n")
    editor.notify("textDocument/didSave", {"textDocument": documents["saved"]})
    editor.notify("textDocument/didClose", {"textDocument": documents["closed"]})
    settle(editor)
    for name in documents:
        (repo / f"{name}.txt").write_text("new on disk\n")

    for name in documents:
        assert "new on disk" in read_by_the_agent(daemon, model, open_session, f"{name}.txt")


def test_an_editor_that_crashes_takes_its_buffers_with_it(
    daemon: DaemonProcess, model: ModelServer, open_session: OpenSession, repo: Path
) -> None:
    editor = plain(daemon)
    change(editor, open_document(editor, repo / "a.txt", "alpha\n"), "gone with the editor\n")
    settle(editor)
    bystander = daemon.connect()

    editor.socket.close()
    while bystander.call("basis/daemon/status")["counts"]["clients"] > 1:
        pass

    assert "alpha" in read_by_the_agent(daemon, model, open_session, "a.txt")


def test_shutdown_and_exit_of_an_editor_end_its_connection_only(daemon: DaemonProcess) -> None:
    """pygls would end the process (ADR 4)."""
    bystander = plain(daemon)
    editor = plain(daemon)

    assert editor.call("shutdown") is None
    editor.notify("exit", None)

    assert editor.is_closed_by_daemon()
    settle(bystander)
    assert daemon.connect().call("basis/daemon/ping")


def test_lsp_errors_name_the_problem_and_carry_no_traceback(daemon: DaemonProcess) -> None:
    """ADR 4: every request is answered; no file paths of the daemon in it."""
    editor = plain(daemon)

    unknown = editor.refusal(
        "textDocument/hover", {"textDocument": {"uri": "file:///x"}, "position": {"line": 0, "character": 0}}
    )
    wrong = editor.refusal("textDocument/hover", {"textDocument": 5})
    absent = editor.answer(_send(editor, {"jsonrpc": "2.0", "id": "n", "method": "textDocument/hover"}))["error"]

    assert unknown["code"] == -32601
    assert wrong["code"] == absent["code"] == -32602
    assert "Traceback" not in str([unknown, wrong, absent]) and ".py" not in str([unknown, wrong, absent])


def test_a_payload_that_looks_like_a_message_is_only_a_payload(daemon: DaemonProcess) -> None:
    """ADR 4: nested dicts with a `jsonrpc` key made the whole request fail without an answer."""
    editor = plain(daemon)
    nested = {"jsonrpc": "2.0", "id": 1, "method": "x", "class": 1, "a-b": 2}

    error = editor.refusal("workspace/executeCommand", {"command": "unknown", "arguments": [nested]})

    assert error["code"] == -32602


def test_other_methods_of_an_editor_are_not_found_without_loading_anything(daemon: DaemonProcess) -> None:
    client = daemon.connect()

    assert client.refusal("custom/thing")["code"] == -32601


def test_a_plain_editor_may_use_the_daemon_s_own_methods(daemon: DaemonProcess) -> None:
    editor = plain(daemon)

    assert editor.call("basis/daemon/ping")


def _send(client: RawClient, message: dict[str, object]) -> object:
    client.send(message)
    return message["id"]
