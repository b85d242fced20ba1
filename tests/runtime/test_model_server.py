"""The scripted model itself: whatever everybody's tests rely on it for.

Spoken to with the standard library's HTTP client, so that none of our own code stands between.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import model_server as model_server_module
from support.model_server import (
    Gate,
    ModelRequest,
    ModelServer,
    Reply,
    breaks,
    burst,
    calls,
    cuts,
    fails,
    hangs,
    malformed,
    rate_limits,
    raw,
    says,
    slow,
    thinks,
    tool,
)

pytestmark = pytest.mark.timeout(20)


class Asker:
    """One plain HTTP client connection per server, closed at the end of the test."""

    def __init__(self) -> None:
        self._connections: list[http.client.HTTPConnection] = []

    def connect(self, base_url: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", int(base_url.rsplit(":", 1)[1].strip("/")), timeout=5)
        self._connections.append(connection)
        return connection

    def chat(self, server: ModelServer, **fields: Any) -> http.client.HTTPResponse:
        return self.post(server, "/v1/chat/completions", {"model": "m", "messages": [], "stream": True, **fields})

    def responses(self, server: ModelServer, **fields: Any) -> http.client.HTTPResponse:
        return self.post(server, "/v1/responses", {"model": "m", "input": [], "stream": True, **fields})

    def post(self, server: ModelServer, path: str, body: dict[str, Any]) -> http.client.HTTPResponse:
        connection = self.connect(server.base_url)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        return connection.getresponse()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@pytest.fixture
def ask() -> Iterator[Asker]:
    asker = Asker()
    yield asker
    asker.close()


def events(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.decode().splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])


def test_both_wires_say_the_same_turn_in_their_own_events(ask: Asker) -> None:
    turn = thinks("hm") + says("a", "b") + calls(tool("read", {"path": "x"}, id="c1"))
    with ModelServer(turn, turn) as server:
        said = list(events(ask.responses(server).read()))
        types = [e["type"] for e in said]
        assert [e["sequence_number"] for e in said] == list(range(len(said)))
        assert types[:2] == ["response.created", "response.in_progress"] and types[-1] == "response.completed"
        assert [e["delta"] for e in said if e["type"] == "response.output_text.delta"] == ["a", "b"]
        call = said[-1]["response"]["output"][-1]
        assert (call["name"], call["arguments"], call["call_id"]) == ("read", '{"path":"x"}', "c1")

        deltas = [e["choices"][0]["delta"] for e in events(ask.chat(server).read())]
        assert [d["content"] for d in deltas if d.get("content")] == ["a", "b"]
        assert [d["reasoning_content"] for d in deltas if "reasoning_content" in d] == ["hm"]
        arguments = [d["tool_calls"][0]["function"]["arguments"] for d in deltas if "tool_calls" in d]
        assert "".join(arguments) == '{"path":"x"}'
        server.assert_exhausted()


def test_usage_is_told_on_chat_completions_only_when_asked_for(ask: Asker) -> None:
    with ModelServer(says("a"), says("a")) as server:
        assert b"prompt_tokens" not in ask.chat(server).read()
        assert b'"prompt_tokens":12' in ask.chat(server, stream_options={"include_usage": True}).read()


def test_a_request_without_stream_gets_one_json_document(ask: Asker) -> None:
    with ModelServer(says("a", "b"), says("c")) as server:
        assert json.loads(ask.chat(server, stream=False).read())["choices"][0]["message"]["content"] == "ab"
        assert json.loads(ask.responses(server, stream=False).read())["output"][0]["content"][0]["text"] == "c"


def test_request_beyond_the_script_is_told_so(ask: Asker) -> None:
    """TE-4: never a hang."""
    with ModelServer(says("a")) as server:
        ask.chat(server).read()
        answer = ask.chat(server)
        assert answer.status == 400 and b"1 turns and this is request 2" in answer.read()
        with pytest.raises(AssertionError, match="asked 2 times"):
            server.assert_exhausted()


def test_responder_sees_the_request_and_decides(ask: Asker) -> None:
    def respond(request: ModelRequest) -> Reply:
        return says(f"you said {request.prompt}")

    with ModelServer(respond=respond) as server:
        told = ask.chat(server, messages=[{"role": "user", "content": "hello"}]).read()
        assert b"you said hello" in told
        told = ask.responses(server, input=[{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]).read()
        assert b"you said hi" in told


def test_gate_holds_the_stream_at_the_delta_it_was_put_before(ask: Asker) -> None:
    gate = Gate()
    with ModelServer(slow(says("one", "two"), gate=gate, before=1)) as server:
        answer = ask.chat(server)
        gate.wait_arrival()
        early = answer.read1(65536)
        while b"one" not in early:
            early += answer.read1(65536)
        assert b"two" not in early
        gate.open()
        assert b"two" in answer.read()


def test_gate_lets_single_deltas_through(ask: Asker) -> None:
    gate = Gate()
    with ModelServer(slow(says("a", "b", "c"), gate=gate)) as server:
        answer = ask.chat(server)
        for count in (1, 2, 3):
            gate.wait_arrival(count)
            gate.step()
        assert [e["choices"][0]["delta"].get("content") for e in events(answer.read())][1:4] == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_cut_stream_ends_in_the_middle_of_its_body(ask: Asker, how: Any) -> None:
    with ModelServer(cuts(says("a", "b", "c"), after_deltas=2, how=how)) as server:
        answer = ask.chat(server)
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)) as caught:
            answer.read()
        if isinstance(caught.value, http.client.IncompleteRead):
            assert b'"b"' in caught.value.partial and b'"c"' not in caught.value.partial
        assert server.wait_ending().how == "cut"


def test_stream_can_be_cut_at_a_byte_and_still_look_complete(ask: Asker) -> None:
    with ModelServer(cuts(says("abc"), after_bytes=100, how="end")) as server:
        assert len(ask.chat(server).read()) == 100


def test_hanging_answer_ends_when_the_client_leaves(ask: Asker) -> None:
    with ModelServer(hangs(), hangs(says("a", "b"), after_deltas=1)) as server:
        for index in (0, 1):
            connection = ask.connect(server.base_url)
            connection.request("POST", "/v1/responses", json.dumps({"model": "m", "stream": True}))
            server.wait_request(index)
            connection.close()
            assert server.wait_ending(index).how == "client_left"
        assert server.open_connections == 0


def test_failures_carry_status_body_and_headers(ask: Asker) -> None:
    with ModelServer(
        rate_limits(3), fails(500), fails(400, {"error": {"message": "no"}}), fails(502, "<html>")
    ) as server:
        answer = ask.chat(server)
        assert (answer.status, answer.headers["retry-after"]) == (429, "3") and b"rate_limit_exceeded" in answer.read()
        assert (server_error := ask.chat(server)).status == 500 and b"server_error" in server_error.read()
        assert json.loads(ask.chat(server).read()) == {"error": {"message": "no"}}
        assert ask.chat(server).read() == b"<html>"


def test_broken_and_malformed_streams_are_sent_as_scripted(ask: Asker) -> None:
    with ModelServer(
        breaks("gone", after=says("a")),
        breaks("gone", how="error"),
        breaks("gone"),
        malformed(b"{oops"),
        raw(b"x", b"y"),
    ) as server:
        assert [e["type"] for e in events(ask.responses(server).read())][-1] == "response.failed"
        assert [e["type"] for e in events(ask.responses(server).read())][-1] == "error"
        assert list(events(ask.chat(server).read()))[-1]["error"]["message"] == "gone"
        assert b"data: {oops\n\n" in ask.chat(server).read()
        assert ask.chat(server).read() == b"xy"


def test_burst_carries_the_same_bytes_in_fewer_chunks(ask: Asker) -> None:
    with ModelServer(says(*"abc"), burst(says(*"abc"))) as server:
        assert ask.chat(server).read().replace(b"00000001", b"") == ask.chat(server).read().replace(b"00000002", b"")


def test_connections_are_kept_and_counted(ask: Asker) -> None:
    with ModelServer(says("a"), says("b")) as server:
        connection = ask.connect(server.base_url)
        for path in ("/v1/responses", "/prefix/v1/responses"):
            connection.request("POST", path, '{"stream": true}')
            connection.getresponse().read()
        assert [request.connection for request in server.requests] == [1, 1]


def test_wrong_key_wrong_wire_and_models_are_answered_as_vendors_do(ask: Asker) -> None:
    with ModelServer(
        api_key="sk-right", wires=("chat_completions",), models=["b", {"id": "a", "created": 5}]
    ) as server:
        answer = ask.chat(server)
        assert answer.status == 401 and b"invalid_api_key" in answer.read()
        connection = ask.connect(server.base_url)
        headers = {"authorization": "Bearer sk-right"}
        connection.request("POST", "/v1/responses", "{}", headers)
        assert (answer := connection.getresponse()).status == 404 and answer.read() == b"404 page not found"
        connection.request("GET", "/v1/models", headers=headers)
        rows = json.loads(connection.getresponse().read())["data"]
        assert [(row["id"], row["created"]) for row in rows] == [("b", 1_767_225_600), ("a", 5)]
        assert (len(server.requests), len(server.strays), len(server.listings)) == (1, 1, 1)


def test_it_runs_as_a_process_and_ends_on_a_signal(ask: Asker, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("script = [says('from a file')]\ndef respond(request):\n    return says(request.prompt)\n")
    process = subprocess.Popen(
        [sys.executable, str(model_server_module.__file__), "--script", str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        connection = ask.connect(url)
        for expected in (b"from a file", b"echo"):
            body = {"messages": [{"role": "user", "content": "echo"}], "stream": True}
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            assert expected in connection.getresponse().read()
        connection.request("GET", "/_recorded")
        assert [row["how"] for row in json.loads(connection.getresponse().read())] == ["sent", "sent"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout and process.stdout.close()
