"""Looking for model servers on this machine, against real HTTP servers on ports the system picked."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest

from basis_daemon.runtime.providers.local_detection import (
    Found,
    Ports,
    detect,
    listening_users,
    stranger_listening,
)
from basis_daemon.runtime.providers.local_servers import LocalModel

pytestmark = pytest.mark.anyio


class Server:
    """Answers paths with what a test says; anything else with 404. `asked` has method, path and headers."""

    def __init__(self, answers: dict[str, Any], host: str = "127.0.0.1") -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(("GET", self.path, {name.lower(): value for name, value in self.headers.items()}))
                answer = answers.get(self.path, (404, b""))
                if callable(answer):
                    answer(self)
                    return
                status, body, *headers = answer if isinstance(answer, tuple) else (200, answer)
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, format: str, *args: Any) -> None:
                return

        class Listening(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                return  # a client that hangs up early is what some tests are about

        self.server = Listening((host, 0), Handler)
        self.port: int = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@contextmanager
def serving(answers: dict[str, Any], host: str = "127.0.0.1") -> Iterator[Server]:
    server = Server(answers, host)
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()


@pytest.fixture
def closed() -> Iterator[int]:
    """A port nobody listens on: taken, but not listening, on both addresses where there are two."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def look(environ: dict[str, str], closed: int, **ports: int) -> list[Found]:
    with anyio.fail_after(10):
        everywhere = {"ollama": closed, "lmstudio": closed, "llama_server": closed}
        return await detect(environ, ports=Ports(**{**everywhere, **ports}))


OLLAMA = {
    "/api/version": {"version": "0.13.5"},
    "/api/tags": {
        "models": [
            {"name": "nomic-embed-text:latest", "details": {"family": "nomic-bert", "families": ["nomic-bert"]}},
            {"name": "llama3:8b", "details": {"family": "llama"}, "capabilities": ["completion"]},
            {"name": "qwen3:8b", "details": {"family": "qwen3"}, "capabilities": ["completion", "tools"]},
            {"name": "glm-5:cloud"},
            {"name": "gpt-oss:120b-cloud"},
            {"name": "hidden", "remote_host": "https://elsewhere.example", "remote_model": "hidden"},
        ]
    },
    "/api/ps": {"models": [{"name": "qwen3:8b", "context_length": 40960}]},
}

STUDIO = {
    "/api/v1/models": {
        "models": [
            {"type": "embedding", "key": "embed"},
            {"type": "llm", "key": "big/unloaded", "loaded_instances": [], "max_context_length": 131072},
            {
                "type": "llm",
                "key": "small/loaded",
                "loaded_instances": [{"id": "small/loaded", "config": {"context_length": 4096}}],
                "capabilities": {"trained_for_tool_use": True},
            },
        ]
    }
}

LLAMA = {
    "/v1/models": {"object": "list", "data": [{"id": "my.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 32768}}]},
    "/props": {"chat_template_caps": {"supports_tools": True}, "build_info": "b11549"},
}


async def test_an_ollama_is_offered_with_its_best_model(closed: int) -> None:
    """local-model.md 4: loaded first, then tools; no embeddings; cloud models look local and are left out."""
    with serving(OLLAMA) as server:
        (found,) = await look({}, closed, ollama=server.port)
    assert found.kind == "ollama" and found.version == "0.13.5"
    assert [model.id for model in found.models] == ["qwen3:8b", "llama3:8b"]
    assert found.models[0] == LocalModel("qwen3:8b", has_tools=True, context_tokens=40960, is_loaded=True)
    assert found.cloud_models == 3
    assert found.sentence == (
        f"Ollama 0.13.5 runs at http://127.0.0.1:{server.port} with qwen3:8b (tools, 40k context, loaded) and 1 more. "
        "(3 cloud models, which would send your code away, left out.) "
        "To use it: `basisctl connect ollama --model qwen3:8b`."
    )


async def test_an_lm_studio_is_offered_with_what_is_loaded_and_a_warning(closed: int) -> None:
    with serving(STUDIO) as server:
        (found,) = await look({}, closed, lmstudio=server.port)
    assert [model.id for model in found.models] == ["small/loaded", "big/unloaded"]
    assert "context of 4096 tokens is small" in found.sentence
    assert found.command == "basisctl connect lmstudio --model small/loaded"


async def test_an_older_lm_studio_is_known_by_its_older_list(closed: int) -> None:
    listed = {"data": [{"id": "m", "type": "vlm", "state": "loaded"}, {"id": "e", "type": "embeddings", "state": "x"}]}
    with serving({"/api/v0/models": listed}) as server:
        (found,) = await look({}, closed, lmstudio=server.port)
    assert [(model.id, model.is_loaded) for model in found.models] == [("m", True)]


async def test_a_server_that_wants_a_key_is_told_of_and_given_none(closed: int) -> None:
    with serving({"/api/v1/models": (401, {"error": "no"})}) as server:
        (found,) = await look({"LM_API_TOKEN": "secret"}, closed, lmstudio=server.port)
    assert found.needs_key and "asks for a key" in found.sentence
    assert "authorization" not in server.asked[0][2]


async def test_a_llama_server_is_offered_over_its_address(closed: int) -> None:
    with serving(LLAMA) as server:
        (found,) = await look({}, closed, llama_server=server.port)
    assert found.models == (LocalModel("my.gguf", has_tools=True, context_tokens=32768, is_loaded=True),)
    assert found.command == (
        f"basisctl connect lmstudio --model my.gguf --base-url http://127.0.0.1:{server.port}/v1"
    )  # fmt: skip


async def test_all_of_them_are_told_in_one_order(closed: int) -> None:
    with serving(OLLAMA) as one, serving(STUDIO) as two, serving(LLAMA) as three:
        found = await look({}, closed, ollama=one.port, lmstudio=two.port, llama_server=three.port)
    assert [each.kind for each in found] == ["ollama", "lmstudio", "llama-server"]


def hang(handler: BaseHTTPRequestHandler) -> None:
    """Takes the request and never answers."""
    handler.rfile.read(1)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Sends a byte now and then, so that no read ever times out, until the other side has had enough."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            threading.Event().wait(0.1)
    except OSError:
        return


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html>my app</html>"),
        {"version": 3},
        {"something": "else"},
        (500, {"version": "0.13.5"}),
        (200, b"[" * (2 * 1024 * 1024)),
        (200, b'{"version": "1", "models": [], "data": [], "x": ' + b"[" * 500_000),
        hang,
        drip,
    ],
    ids=["page", "wrong type", "other json", "error", "endless", "deep", "silent", "dripping"],
)
async def test_an_open_port_is_no_proof(closed: int, answer: Any) -> None:
    """Identity by what it says, within bounds of time and size."""
    paths = ("/api/version", "/api/tags", "/api/v1/models", "/api/v0/models", "/v1/models")
    with serving(dict.fromkeys(paths, answer)) as server:
        found = await look({}, closed, ollama=server.port, lmstudio=server.port, llama_server=server.port)
    assert found == []


async def test_another_servers_models_are_not_taken_for_llama_servers(closed: int) -> None:
    listed = {"object": "list", "data": [{"id": "gpt", "owned_by": "somebody"}]}
    with serving({"/v1/models": listed}) as server:
        assert await look({}, closed, llama_server=server.port) == []


async def test_a_redirect_is_not_followed(closed: int) -> None:
    with serving(OLLAMA) as target:
        away = (302, b"", ("Location", f"http://127.0.0.1:{target.port}/api/version"))
        with serving({"/api/version": away}) as server:
            assert await look({}, closed, ollama=server.port) == []
        assert target.asked == []


async def test_no_proxy_stands_between(closed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({}) as proxy, serving(OLLAMA) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert len(await look({}, closed, ollama=server.port)) == 1
        assert proxy.asked == []


async def test_only_gets_are_sent_and_nothing_that_loads_a_model(closed: int) -> None:
    with serving({**OLLAMA, **STUDIO, **LLAMA}) as server:
        await look({}, closed, ollama=server.port, lmstudio=server.port, llama_server=server.port)
    assert {path for _, path, _ in server.asked} == {
        "/api/version", "/api/tags", "/api/ps", "/api/v1/models", "/v1/models", "/props",
    }  # fmt: skip


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no", "false"])
async def test_switched_off_nothing_is_asked(closed: int, word: str) -> None:
    with serving(OLLAMA) as server:
        assert await look({"BASIS_DETECT": word}, closed, ollama=server.port) == []
    assert server.asked == []


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "http://localhost:{}", "0.0.0.0:{}", ":{}", "[::1]:{}"])
async def test_ollamas_own_variable_says_which_port_on_this_machine(closed: int, host: str) -> None:
    with serving(OLLAMA) as server:
        (found,) = await look({"OLLAMA_HOST": host.format(server.port)}, closed)
    assert found.command.endswith(f"--model qwen3:8b --base-url http://127.0.0.1:{server.port}/v1")


@pytest.mark.parametrize("host", ["gpu.example:{}", "http://10.0.0.9:{}", "127.0.0.1:no", "127.0.0.1:99999", "::"])
async def test_a_host_elsewhere_or_unreadable_is_not_asked(closed: int, host: str) -> None:
    with serving(OLLAMA) as server:
        assert await look({"OLLAMA_HOST": host.format(server.port)}, closed) == []
    assert server.asked == []


async def test_a_server_on_the_other_loopback_address_is_found_too(closed: int) -> None:
    try:
        with serving(OLLAMA, "::1") as server:
            (found,) = await look({}, closed, ollama=server.port)
    except OSError:
        pytest.skip("there is no ::1 here")
    assert found.base_url == f"http://[::1]:{server.port}"
    assert found.command.endswith(f"--base-url http://[::1]:{server.port}/v1")


async def test_a_server_without_a_model_is_no_offer(closed: int) -> None:
    with serving({**OLLAMA, "/api/tags": {"models": None}}) as server:
        (found,) = await look({}, closed, ollama=server.port)
    assert found.sentence.endswith("but it has no model to chat with.")


@pytest.mark.parametrize("name", ["x`rm -rf ~`", "two words", "a\x1b[2J", "", "n" * 300, "it's"])
async def test_a_models_name_can_not_smuggle_anything_into_the_sentence(closed: int, name: str) -> None:
    """Whoever listens there made it up; a person may well copy the command."""
    tags = {"models": [{"name": name}, {"name": "$(id);good"}]}
    with serving({**OLLAMA, "/api/tags": tags}) as server:
        (found,) = await look({}, closed, ollama=server.port)
    assert [model.id for model in found.models] == ["$(id);good"]
    assert found.command == "basisctl connect ollama --model '$(id);good'"


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1 1 0 100 0 0 10 0
   1: 0100007F:2CAA 0100007F:E7B8 01 00000000:00000000 00:00000000 00000000  1002        0 2 1 0 100 0 0 10 0
   2: 00000000:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1003        0 3 1 0 100 0 0 10 0
   3: 0100007F:2CAB 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1004        0 4 1 0 100 0 0 10 0
   4: 0200A8C0:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1005        0 5 1 0 100 0 0 10 0
"""


@pytest.mark.skipif("sys.byteorder != 'little'")
def test_who_listens_is_read_from_the_kernels_table() -> None:
    """Listening sockets of that port, on that address or on all."""
    assert listening_users(TABLE, "127.0.0.1", 11434) == {1001, 1003}


def test_ones_own_server_is_nobody_elses() -> None:
    with serving({}) as server:
        assert stranger_listening("127.0.0.1", server.port) is None


def test_somebody_elses_server_is_named_in_the_offer() -> None:
    found = Found("ollama", "http://127.0.0.1:11434", models=(LocalModel("m"),), owner="mallory")
    assert "It belongs to the user mallory, who would see what you send." in found.sentence
