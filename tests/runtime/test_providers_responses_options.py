"""2.4, 2.7: what a host may ask of the Responses wire, and PV-40, RT-36: the headers that go along."""

from dataclasses import replace
from typing import Any

import pytest

from basis_daemon.redact import Secret
from basis_daemon.runtime.messages import user
from basis_daemon.runtime.providers.base import (
    OutputFormat,
    Request,
    RequestOptions,
    ResponsesOptions,
    SessionHints,
)
from basis_daemon.runtime.providers.definition import AuthScheme, Credentials, ProviderDefinition
from basis_daemon.runtime.providers.errors import HttpError
from basis_daemon.runtime.providers.http import HttpPool
from basis_daemon.runtime.providers.openai_chat import CHAT
from basis_daemon.runtime.providers.openai_responses import RESPONSES
from basis_daemon.runtime.providers.registry import chat_completions_definition, openai_definition
from basis_daemon.runtime.providers.remote import RemoteProvider
from support.model_server import ModelServer, fails, says
from support.responses_talk import responses_talk
from support.wire_streams import body

pytestmark = pytest.mark.anyio

OPENAI = openai_definition()
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
HELLO = Request("m", [user("hello")])


def sent(request: Request = HELLO, **options: Any) -> dict[str, Any]:
    return body(RESPONSES, OPENAI, replace(request, options=RequestOptions(responses=ResponsesOptions(**options))))


# --- the body --------------------------------------------------------------------------------------------------------


def test_unset_options_send_nothing() -> None:
    """2.4, PV-45"""
    assert set(sent()) == {"model", "store", "stream", "input"} and sent()["store"] is False


def test_options_are_sent_under_the_vendors_names() -> None:
    """2.4"""
    asked = sent(
        parallel_tool_calls=False,
        service_tier="flex",
        prompt_cache_key="mine",
        verbosity="low",
        store=True,
        include=("web_search_call.action.sources",),
    )
    assert asked["parallel_tool_calls"] is False and asked["service_tier"] == "flex" and asked["store"] is True
    assert asked["prompt_cache_key"] == "mine" and asked["text"] == {"verbosity": "low"}
    assert asked["include"] == ["web_search_call.action.sources"]


def test_cache_key_of_the_host_wins_over_the_agents_own() -> None:
    assert sent(replace(HELLO, session_id="agent-1"), prompt_cache_key="mine")["prompt_cache_key"] == "mine"


@pytest.mark.parametrize("include", [(), ("reasoning.encrypted_content",), ("a", "a")])
def test_sealed_reasoning_is_asked_for_once(include: tuple[str, ...]) -> None:
    """PV-21"""
    asked = sent(replace(HELLO, effort="low"), include=include)["include"]
    assert asked == list(dict.fromkeys((*include, "reasoning.encrypted_content")))


def test_summary_of_reasoning_is_what_the_host_wants() -> None:
    """2.4, PV-21: also where no effort is set."""
    for effort, expected in ((None, {"summary": "detailed"}), ("high", {"effort": "high", "summary": "detailed"})):
        request = replace(HELLO, effort=effort, options=RequestOptions(reasoning_summary="detailed"))
        asked = body(RESPONSES, OPENAI, request)
        assert asked["reasoning"] == expected and asked["include"] == ["reasoning.encrypted_content"]


def test_answer_can_be_held_to_a_schema_on_both_wires() -> None:
    """2.4"""
    request = replace(HELLO, output=OutputFormat("count", SCHEMA, strict=False))
    wanted = {"name": "count", "schema": SCHEMA, "strict": False}
    assert sent(request, verbosity="high")["text"] == {
        "verbosity": "high",
        "format": {"type": "json_schema", **wanted},
    }
    assert body(CHAT, OPENAI, request)["response_format"] == {"type": "json_schema", "json_schema": wanted}


def test_metadata_is_sent_in_one_order() -> None:
    """CV-8"""
    asked = body(RESPONSES, OPENAI, replace(HELLO, metadata={"b": "2", "a": "1"}))
    assert list(asked["metadata"]) == ["a", "b"]


def test_chat_wire_takes_no_notice_of_what_only_responses_knows() -> None:
    """2.4, PV-48"""
    options = RequestOptions(responses=ResponsesOptions(verbosity="low", service_tier="flex", store=True))
    assert set(body(CHAT, OPENAI, replace(HELLO, options=options))) == {
        "model",
        "messages",
        "stream",
        "stream_options",
    }


# --- headers ---------------------------------------------------------------------------------------------------------

HINTS = SessionHints(
    turn_state="state-1",
    turn_metadata="{}",
    affinity="agent-1",
    connection_reuse="prefer-reuse",
    subagent="review",
)
NAMED = {
    "x-mentra-turn-state": "state-1",
    "x-codex-turn-state": "state-1",
    "x-mentra-turn-metadata": "{}",
    "x-codex-turn-metadata": "{}",
    "x-mentra-session-affinity": "agent-1",
    "x-mentra-connection-reuse": "prefer-reuse",
    "x-openai-subagent": "review",
}
OF_HTTP = {"x-client-request-id": "agent-1", "session_id": "agent-1"}


@pytest.mark.parametrize("transport", ["http_sse", "web_socket"])
async def test_hints_of_the_session_are_headers(transport: Any) -> None:
    """PV-40"""
    options = RequestOptions(responses=ResponsesOptions(transport=transport), session=HINTS)
    async with responses_talk(says("a"), options=options) as talk:
        await talk.say("hi")
        (request,) = talk.server.handshakes or talk.asked
        sent = {name: value for name, value in request.headers.items() if name in NAMED | OF_HTTP}
        assert sent == (NAMED | OF_HTTP if transport == "http_sse" else NAMED)


async def test_without_hints_no_such_header_is_sent() -> None:
    """PV-40"""
    async with responses_talk(says("a")) as talk:
        await talk.say("hi")
        assert not set(talk.asked[0].headers) & set(NAMED | OF_HTTP)


@pytest.mark.parametrize("transport", ["http_sse", "web_socket"])
async def test_state_the_provider_hands_out_is_told_to_it_for_the_rest_of_the_turn(transport: Any) -> None:
    """PV-40, PV-35: not in the next turn, not by another agent. A socket hears it when it is opened."""
    options = RequestOptions(
        responses=ResponsesOptions(transport=transport), session=SessionHints(connection_reuse="prefer-fresh")
    )
    async with responses_talk(
        respond=lambda _: says("a"), options=options, answer_headers={"X-Codex-Turn-State": "sticky"}
    ) as talk:
        other = talk.another()
        for turn in ("t1", "t1", "t2", "t2"):
            await talk.say("x", turn_id=turn)
            await other.say("x", turn_id="another")
        await talk.say("x")
        requests = talk.server.handshakes or talk.asked
        states = [request.headers.get("x-codex-turn-state") for request in requests]
        assert [states[at] for at in (0, 2, 4, 6, 8)] == [None, "sticky", None, "sticky", None]
        assert [states[at] for at in (1, 3, 5, 7)] == [None, "sticky", "sticky", "sticky"]
        await other.scope.aclose()


async def test_state_of_the_host_wins_over_the_providers() -> None:
    """PV-40"""
    options = RequestOptions(session=SessionHints(turn_state="mine"))
    async with responses_talk(
        respond=lambda _: says("a"), options=options, answer_headers={"x-codex-turn-state": "sticky"}
    ) as talk:
        await talk.say("x", turn_id="t1")
        await talk.say("x", turn_id="t1")
        assert [request.headers["x-codex-turn-state"] for request in talk.asked] == ["mine", "mine"]


class Keys:
    async def credentials(self) -> Credentials:
        headers = {"x-a": Secret("credential"), "x-b": Secret("credential"), "authorization": Secret("credential")}
        return Credentials(key=Secret("sk-1234567890"), headers=headers)


@pytest.mark.parametrize("wire", ["responses", "chat_completions"])
async def test_later_headers_win_and_the_hosts_own_win_over_all(wire: Any) -> None:
    """RT-36"""
    pool = HttpPool()
    async with ModelServer(says("a"), says("b"), fails(400, {"error": {"message": "no token-of-mine here"}})) as server:
        definition = ProviderDefinition(
            id="own",
            label="Own",
            base_url=server.base_url,
            wire=wire,
            headers={"X-A": "definition", "x-c": "definition", "authorization": "definition"},
        )
        provider = RemoteProvider(definition, Keys(), pool)
        more = RequestOptions(
            session=SessionHints(extra_headers={"X-B": "host", "Authorization": "Bearer token-of-mine"})
        )
        for options in (RequestOptions(), more):
            assert [event async for event in provider.stream(replace(HELLO, options=options))]
        plain, full = (request.headers for request in server.requests)
        assert (plain["x-a"], plain["x-b"], plain["x-c"]) == ("credential", "credential", "definition")
        assert plain["authorization"] == "Bearer sk-1234567890"
        assert (full["x-b"], full["authorization"]) == ("host", "Bearer token-of-mine")
        with pytest.raises(HttpError) as caught:
            await anext(provider.stream(replace(HELLO, options=more)))
        assert "token-of-mine" not in f"{caught.value}{caught.value.body}"
        await pool.aclose()


async def test_key_in_a_header_of_its_own_wins_over_the_definitions() -> None:
    """RT-36"""
    pool = HttpPool()
    async with ModelServer(says("a")) as server:
        definition = replace(
            chat_completions_definition("own", server.base_url),
            auth=AuthScheme("header", "X-Key"),
            headers={"x-key": "definition"},
        )
        assert [event async for event in RemoteProvider(definition, Keys(), pool).stream(HELLO)]
        assert server.requests[0].headers["x-key"] == "sk-1234567890"
        await pool.aclose()
