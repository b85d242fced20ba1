"""A scripted peer on a real unix socket that speaks the basis protocol, for what a healthy daemon won't do on demand.

It cuts connections in the middle of a stream, sends events twice, lags, answers late, says hostile things. It keeps
numbered journals as the daemon does, so that attaching again after a cut shows whether a client misses anything.
"""

import contextlib
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from basis_protocol.framing import Decoder, FramingError, encode

Json = dict[str, Any]
Turn = Callable[["FakeSession", str], None]
Handler = Callable[["FakeConnection", Json], Any]

WAIT_S = 20.0
NOW = "2026-01-31T12:00:00.000Z"
HELLO = {
    "protocolVersion": 1,
    "daemon": {"version": "0.1.0", "pid": 1, "instanceId": "fake", "startedAt": NOW},
    "limits": {"maxFrameBytes": 1 << 26, "maxPromptBytes": 1 << 20},
}
USAGE = {
    "inputTokens": 0,
    "outputTokens": 0,
    "cacheReadTokens": 0,
    "cacheCreationTokens": 0,
    "reasoningTokens": 0,
    "thoughtsTokens": 0,
}


class Refusal(Exception):
    """Raise in a handler to answer with an error."""

    def __init__(self, kind: str, message: str, *, hint: str | None = None, details: Json | None = None) -> None:
        super().__init__(message)
        self.error = {
            "code": -32803,
            "message": message,
            "data": {"kind": kind, "message": message, "hint": hint, "details": details},
        }


class NoAnswer(Exception):
    """Raise in a handler to leave the request without an answer."""


class FakeConnection:
    """One accepted client."""

    def __init__(self, daemon: "FakeDaemon", accepted: socket.socket) -> None:
        self.daemon = daemon
        self.hello: Json = {}
        self.owed: dict[str, int] = {}
        """Where the replay after an attach begins, by session."""
        self._socket = accepted
        self._writing = threading.Lock()

    def serve(self) -> None:
        decoder = Decoder()
        with contextlib.suppress(OSError, FramingError):
            while data := self._socket.recv(65536):
                for body in decoder.feed(data):
                    self._handle(json.loads(body))
        self.daemon.forget(self)
        self._socket.close()

    def send(self, message: Json) -> None:
        self.send_raw(encode(json.dumps({"jsonrpc": "2.0", **message}).encode()))

    def send_raw(self, data: bytes) -> None:
        with self._writing, contextlib.suppress(OSError):
            self._socket.sendall(data)

    def cut(self) -> None:
        """Be gone, as the connection of a killed daemon is."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _handle(self, message: Json) -> None:
        method = message.get("method", "")
        if "id" not in message:
            return
        self.daemon.requests.append((method, message.get("params", {})))
        try:
            result = self.daemon.handlers[method](self, message.get("params", {}))
            self.send({"id": message["id"], "result": result})
        except Refusal as refusal:
            self.send({"id": message["id"], "error": refusal.error})
        except NoAnswer:
            return
        except KeyError as error:
            fault = {"code": -32601, "message": f"no handler: {error}", "data": {"kind": "method_not_found"}}
            self.send({"id": message["id"], "error": fault})
        self.daemon.after(self, method, message.get("params", {}))


class FakeSession:
    """A numbered journal, and who watches it."""

    def __init__(self, daemon: "FakeDaemon", session_id: str, workspace: str) -> None:
        self.daemon = daemon
        self.id = session_id
        self.workspace = workspace
        self.journal: list[Json] = []
        self.watchers: list[FakeConnection] = []
        self.emitting = threading.RLock()
        self.turn: Json | None = None
        self.state = "idle"
        self.asks: dict[str, Json] = {}
        self.answers: queue.Queue[Json] = queue.Queue()
        self.cancelled = threading.Event()
        self.kept_from = 1
        """Events below this number are too old to be replayed."""

    def emit(self, kind: str, /, **fields: Any) -> Json:
        """Append an event and send it to whoever watches."""
        with self.emitting:
            seq = len(self.journal) + 1
            record = {"sessionId": self.id, "seq": seq, "time": NOW, "event": {"type": kind, **fields}}
            self.journal.append(record)
            for watcher in list(self.watchers):
                watcher.send({"method": "basis/session/event", "params": record})
        return record

    def resend(self, seq: int) -> None:
        """Send an event once more, as no daemon should."""
        for watcher in list(self.watchers):
            watcher.send({"method": "basis/session/event", "params": self.journal[seq - 1]})

    def lag(self, seq: int) -> None:
        """Let every watcher go, saying it was sent everything up to `seq`."""
        watchers, self.watchers = self.watchers, []
        for watcher in watchers:
            watcher.send({"method": "basis/session/lagged", "params": {"sessionId": self.id, "seq": seq}})

    def say(self, text: str, message_id: str = "m-1") -> None:
        for word in text.split(" "):
            self.emit("assistant_delta", text=word if word == text.split(" ")[0] else f" {word}", messageId=message_id)
        self.emit("assistant_message", text=text, messageId=message_id)

    def open_ask(self, ask_id: str = "ask-1", **fields: Any) -> None:
        ask = {
            "askId": ask_id,
            "sessionId": self.id,
            "workspace": self.workspace,
            "kind": "tool",
            "title": "Run a command",
            "description": "make test",
            "toolCallId": "call-1",
            "toolName": "spawn",
            "preview": {"type": "command", "command": "make test", "cwd": self.workspace},
            "options": [
                {"optionId": "1", "label": "Allow", "decision": "allow", "scope": "once"},
                {"optionId": "2", "label": "Allow for this session", "decision": "allow", "scope": "session"},
                {"optionId": "3", "label": "Deny", "decision": "deny", "scope": "once"},
            ],
            "createdAt": NOW,
            **fields,
        }
        self.asks[ask_id] = ask
        self.emit("ask_opened", ask=ask)

    def close_ask(self, ask_id: str, by: Json, decision: str, **fields: Any) -> None:
        self.asks.pop(ask_id, None)
        self.emit("ask_closed", askId=ask_id, by=by, decision=decision, **fields)

    def finish(self, turn_id: str, status: str = "ok", **fields: Any) -> None:
        self.turn = None
        self.emit("run_finished", turnId=turn_id, status=status, **fields)


class FakeDaemon:
    """Listens on `path`. `on_turn` is what happens when a prompt was accepted; it runs in a thread of its own."""

    def __init__(self, path: Path, on_turn: Turn | None = None) -> None:
        self.path = path
        self.on_turn = on_turn or answer_at_once
        self.sessions: dict[str, FakeSession] = {}
        self.requests: list[tuple[str, Json]] = []
        self.connections: list[FakeConnection] = []
        self.prompts = 0
        self.handlers: dict[str, Handler] = {
            "initialize": self._initialize,
            "basis/daemon/stop": lambda _, __: {},
            "basis/workspace/open": self._open_workspace,
            "basis/session/new": self._new_session,
            "basis/session/list": lambda _, __: {"sessions": [info(one) for one in self.sessions.values()]},
            "basis/session/attach": self._attach,
            "basis/session/detach": lambda _, __: {},
            "basis/session/prompt": self._prompt,
            "basis/turn/cancel": self._cancel,
            "basis/turn/resume": self._resume,
            "basis/turn/wait": self._wait,
            "basis/ask/list": lambda _, __: {"asks": [a for s in self.sessions.values() for a in s.asks.values()]},
            "basis/ask/answer": self._answer,
        }
        self._listening: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "FakeDaemon":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Ended on purpose: a client that is still there must not start a real daemon in its place.
        self.path.unlink(missing_ok=True)
        self.die()
        for session in self.sessions.values():
            # Whatever a scripted turn still waits for, it is not coming.
            session.cancelled.set()
            session.answers.put({"decision": "none", "scope": "none"})
        for thread in self._threads:
            thread.join(WAIT_S)

    def start(self) -> None:
        """Listen, on the path that a dead one may have left."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        temporary = f"{self.path}.new"
        listening.bind(temporary)
        listening.listen(64)
        os.replace(temporary, self.path)
        self._listening = listening
        self._spawn(lambda: self._accept(listening))

    def die(self) -> None:
        """Be gone as after SIGKILL: connections cut, the socket's path left behind. Journals are on disk, so to say."""
        if self._listening is not None:
            # A blocked accept doesn't notice that its socket was closed; it does notice this.
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
        for connection in list(self.connections):
            connection.cut()
        for session in self.sessions.values():
            session.watchers.clear()

    def asked(self, method: str) -> list[Json]:
        """Params of every request of this method."""
        return [params for name, params in list(self.requests) if name == method]

    def wait_for(self, method: str, times: int = 1) -> Json:
        """Return the params of a request once it has come so often."""
        give_up_at = time.monotonic() + WAIT_S
        while len(self.asked(method)) < times:
            assert time.monotonic() < give_up_at, f"{method} was not called {times} times: {self.requests}"
            time.sleep(0.005)
        return self.asked(method)[times - 1]

    def forget(self, connection: FakeConnection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
        for session in self.sessions.values():
            if connection in session.watchers:
                session.watchers.remove(connection)

    def after(self, connection: FakeConnection, method: str, params: Json) -> None:
        """What follows an answer: replayed events after an attach, the turn after a prompt."""
        session = self.sessions.get(params.get("sessionId", ""))
        if session is None:
            return
        if method == "basis/session/attach":
            self._replay(connection, session)
        elif method in ("basis/session/prompt", "basis/turn/resume") and session.turn is not None:
            turn_id = session.turn["turnId"]
            self._spawn(lambda: self.on_turn(session, turn_id))

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listening.accept()
            except OSError:
                return
            connection = FakeConnection(self, accepted)
            self.connections.append(connection)
            self._spawn(connection.serve)

    # --- handlers ---

    def _initialize(self, connection: FakeConnection, params: Json) -> Json:
        connection.hello = params["capabilities"]["experimental"]["basis"]
        return {"capabilities": {"experimental": {"basis": HELLO}}}

    def _open_workspace(self, connection: FakeConnection, params: Json) -> Json:
        return {"path": params["path"], "trust": {"state": "none", "pending": []}, "diagnostics": [], "counts": {}}

    def _new_session(self, connection: FakeConnection, params: Json) -> Json:
        session_id = params.get("sessionId") or f"session-{len(self.sessions) + 1}"
        self.sessions[session_id] = FakeSession(self, session_id, params["workspace"])
        return info(self.sessions[session_id])

    def _session(self, params: Json) -> FakeSession:
        if params["sessionId"] not in self.sessions:
            raise Refusal("no_such_session", f"there is no session {params['sessionId']!r}")
        return self.sessions[params["sessionId"]]

    def _attach(self, connection: FakeConnection, params: Json) -> Json:
        session = self._session(params)
        after_seq = params.get("afterSeq")
        head = len(session.journal)
        result = {"info": info(session), "asks": list(session.asks.values())}
        if session.turn is not None:
            result["turn"] = session.turn
        if after_seq is None or after_seq + 1 < session.kept_from:
            connection.owed[session.id] = head
            return {**result, "seq": head, "snapshot": {"items": [], "reset": after_seq is not None}}
        connection.owed[session.id] = after_seq
        return {**result, "seq": after_seq}

    def _replay(self, connection: FakeConnection, session: FakeSession) -> None:
        with session.emitting:
            for record in session.journal[connection.owed[session.id] :]:
                connection.send({"method": "basis/session/event", "params": record})
            if connection not in session.watchers:
                session.watchers.append(connection)

    def _prompt(self, connection: FakeConnection, params: Json) -> Json:
        session = self._session(params)
        self.prompts += 1
        turn_id = f"turn-{self.prompts}"
        by = {"client": "basisctl", "kind": "cli", "clientId": connection.hello["clientId"]}
        session.turn = {"turnId": turn_id, "state": "running", "by": by}
        return {"turnId": turn_id, "state": "running"}

    def _resume(self, connection: FakeConnection, params: Json) -> Json:
        session = self._session(params)
        assert session.turn is not None
        session.turn["state"] = "running"
        return {"turnId": session.turn["turnId"]}

    def _wait(self, connection: FakeConnection, params: Json) -> Json:
        session = self._session(params)
        for record in session.journal:
            event = record["event"]
            if event["type"] == "run_finished" and event["turnId"] == params["turnId"]:
                return {"status": event["status"], "usage": USAGE}
        if session.state == "interrupted":
            return {"status": "interrupted", "usage": USAGE}
        raise Refusal("timeout", "the turn still runs")

    def _cancel(self, connection: FakeConnection, params: Json) -> Json:
        self._session(params).cancelled.set()
        return {}

    def _answer(self, connection: FakeConnection, params: Json) -> Json:
        for session in self.sessions.values():
            if params["askId"] in session.asks:
                by = {"client": "basisctl", "kind": "cli", "clientId": connection.hello["clientId"]}
                session.close_ask(params["askId"], by, params["decision"], scope=params["scope"])
                session.answers.put(params)
                return {"outcome": "allowed" if params["decision"] == "allow" else "denied"}
        raise Refusal("no_such_ask", f"there is no ask {params['askId']!r}")


def info(session: FakeSession) -> Json:
    return {
        "sessionId": session.id,
        "workspace": session.workspace,
        "title": "A conversation",
        "state": {"kind": session.state, "since": NOW, "detail": ""},
        "createdAt": NOW,
        "updatedAt": NOW,
        "turns": 0,
        "messages": 0,
        "config": [],
        "usage": USAGE,
        "pendingAsks": len(session.asks),
    }


def begin(session: FakeSession, turn_id: str) -> None:
    session.emit(
        "run_started",
        turnId=turn_id,
        schema=2,
        basis="0.1.0",
        sessionId=session.id,
        workspace=session.workspace,
        model="fake-1",
        provider="fake",
    )


def answer_at_once(session: FakeSession, turn_id: str) -> None:
    """The plainest turn."""
    begin(session, turn_id)
    session.say("the answer is 42")
    session.finish(turn_id)
