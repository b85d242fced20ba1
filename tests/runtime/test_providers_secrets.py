"""No key, URL secret or body in any error, event or log, wherever it was and however the server repeats it."""

import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import user
from basis_daemon.runtime.providers.base import Request
from basis_daemon.runtime.providers.definition import AuthScheme, Credentials, ProviderDefinition
from basis_daemon.runtime.providers.errors import ProviderError
from basis_daemon.runtime.providers.governor import Governor
from basis_daemon.runtime.providers.network import Network
from basis_daemon.runtime.providers.registry import ProviderRegistry, chat_completions_definition
from basis_daemon.runtime.turn_end import describe
from support.conversations import new_conversation
from support.model_server import ModelServer, Raw, Reply, breaks, cuts, fails, malformed, raw, says

pytestmark = pytest.mark.anyio
ASKED = "what-the-person-asked"


@dataclass(frozen=True)
class Setup:
    """Where a secret is, on the way to the server."""

    change: Callable[[ProviderDefinition, str], ProviderDefinition] = lambda definition, secret: definition
    is_key: bool = True
    header: str | None = None
    in_proxy: bool = False


PLACES = {
    "bearer key": Setup(),
    "key in a header": Setup(lambda d, s: replace(d, auth=AuthScheme("header", "x-api-key"))),
    "key in the query": Setup(lambda d, s: replace(d, auth=AuthScheme("query_param", "key"))),
    "credential header": Setup(is_key=False, header="x-account"),
    "definition's query": Setup(lambda d, s: replace(d, query={"token": s}), is_key=False),
    "definition's header": Setup(lambda d, s: replace(d, headers={"x-gateway": s}), is_key=False),
    "base URL's query": Setup(lambda d, s: replace(d, base_url=f"{d.base_url}?sig={quote(s, '')}"), is_key=False),
    "proxy's password": Setup(is_key=False, in_proxy=True),
}

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda s: s,
    "JSON": lambda s: json.dumps(s)[1:-1],
    "JSON in letters": lambda s: json.dumps(s, ensure_ascii=False)[1:-1],
    "URL": lambda s: quote(s, ""),
    "URL, slashes kept": quote,
    "form": quote_plus,
}

FAILURES: dict[str, Callable[[str], Reply]] = {
    "400": lambda s: fails(400, {"error": {"message": f"you sent {s}"}}),
    "401": lambda s: fails(401, {"error": {"message": f"wrong: {s}"}}, headers={"x-echo": quote(s)}),
    "404": lambda s: fails(404, f"no route for /v1/chat/completions?key={s}"),
    "413": lambda s: fails(413, f"prompt is too long: {s}"),
    "429": lambda s: fails(429, {"error": {"message": s}}, headers={"retry-after": "0"}),
    "500": lambda s: fails(500, f"<html>\x1b[31m{s}</html>"),
    "redirect": lambda s: fails(308, s, headers={"location": f"http://other/?key={quote(s)}"}),
    "document": lambda s: raw(f'{{"error": {json.dumps(s)}}}'.encode(), content_type="application/json"),
    "page": lambda s: raw(f"<html>{s}</html>".encode(), content_type="text/html"),
    "error in the stream": lambda s: breaks(s, after=says("half")),
    "unknown error in the stream": lambda s: breaks(s, code=s),
    "junk in the stream": lambda s: malformed(f'{{"choices": {json.dumps(s)}'.encode()),
    "wrong shape in the stream": lambda s: malformed(json.dumps({"choices": s}).encode()),
    "cut": lambda s: cuts(says("a", "b"), after_deltas=1),
    "reset": lambda s: cuts(says("a", "b"), after_deltas=1, how="reset"),
    "broken encoding": lambda s: Raw(
        pieces=(s.encode(),), headers={"content-type": "text/event-stream", "content-encoding": "gzip"}
    ),
}


class Held:
    """Credentials as a setup has them."""

    def __init__(self, setup: Setup, secret: str) -> None:
        key = Secret(secret) if setup.is_key else None
        headers = {setup.header: Secret(secret)} if setup.header else {}
        self._credentials = Credentials(key=key, headers=headers, source="MY_KEY")

    async def credentials(self) -> Credentials:
        return self._credentials


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


def shown(secret: str, said: str) -> str | None:
    """How `said` shows the secret, if it does."""
    return next((name for name, spell in SPELLINGS.items() if spell(secret) in said), None)


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    place=st.sampled_from(sorted(PLACES)),
    failure=st.sampled_from(sorted(FAILURES)),
    spelling=st.sampled_from(sorted(SPELLINGS)),
    tail=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=24),
)
async def test_planted_secrets_show_nowhere(
    place: str,
    failure: str,
    spelling: str,
    tail: str,
    server: ModelServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """RT-38, PV-62, PV-64, CV-9, D-19: errors, their bodies and causes, events, logs at every level, and `repr`."""
    setup = PLACES[place]
    secret = f"sk-{tail}"
    definition = setup.change(chat_completions_definition("own", server.base_url), secret)
    server.script(FAILURES[failure]("no" if setup.in_proxy else SPELLINGS[spelling](secret)))  # it knows no proxy's
    environment = {"HTTP_PROXY": f"http://me:{quote(secret, '')}@127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    network = Network.of(environment if setup.in_proxy else {})
    registry = ProviderRegistry(Governor(first_pause_s=0))
    provider = registry.make(definition, Held(setup, secret), network)
    caplog.clear()
    seen: list[Any] = [provider, network, registry]
    with caplog.at_level(logging.NOTSET), anyio.fail_after(10):
        try:
            seen += [event async for event in provider.stream(Request("m", [user(ASKED)]))]
        except ProviderError as error:
            cause: BaseException | None = error
            while cause is not None:
                ours = [cause, cause.args, vars(cause)] if isinstance(cause, ProviderError) else []
                seen += [*ours, *([describe(cause)] if ours else [])]
                cause = cause.__cause__
    await registry.aclose()
    said = "\n".join([*map(repr, seen), *map(str, seen), caplog.text])
    assert shown(secret, said) is None and ASKED not in caplog.text


@pytest.mark.parametrize("failure", sorted(FAILURES))
async def test_turn_that_fails_tells_its_clients_no_secret(
    failure: str, server: ModelServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Events and the outcome: what every client and the journal get."""
    secret = 'sk-/+"%=&-planted'
    registry = ProviderRegistry(Governor(first_pause_s=0))
    provider = registry.make(
        replace(chat_completions_definition("own", server.base_url), query={"token": secret}), Held(Setup(), secret)
    )
    for _ in range(6):
        server.script(FAILURES[failure](json.dumps(secret)[1:-1]))
    conversation = new_conversation(server, tmp_path, providers=registry, provider=provider)
    with caplog.at_level(logging.NOTSET), anyio.fail_after(10):
        outcome = await conversation.say(ASKED)
    said = repr(conversation.events) + repr(outcome)
    assert outcome.status == "error" and shown(secret, said) is None and "planted" not in said
    assert "planted" not in caplog.text and ASKED not in caplog.text
    await conversation.runtime.aclose()
