"""PV-3: what a provider can't do is refused before anything is sent, by its name; nothing is left out silently."""

import sys
from dataclasses import fields, replace
from typing import Any

import anyio
import pytest

from basis_daemon.runtime.messages import Image, Message, ToolResult, user
from basis_daemon.runtime.providers.abilities import embeddings_of
from basis_daemon.runtime.providers.base import (
    OutputFormat,
    Request,
    RequestOptions,
    ResponsesOptions,
    ToolDefinition,
)
from basis_daemon.runtime.providers.definition import Capabilities, StaticCredentials
from basis_daemon.runtime.providers.errors import InvalidRequest, ProviderError, UnsupportedCapability
from basis_daemon.runtime.providers.http import HttpPool
from basis_daemon.runtime.providers.openai_chat import CHAT
from basis_daemon.runtime.providers.openai_responses import RESPONSES
from basis_daemon.runtime.providers.registry import openai_definition, openrouter_definition
from basis_daemon.runtime.providers.remote import RemoteProvider
from support.model_server import ModelServer, says
from support.responses_talk import responses_talk, vendor
from support.wire_streams import body

pytestmark = pytest.mark.anyio

LS = ToolDefinition("ls", "List.", {"type": "object"})
HELLO = Request("m", [user("hello")])
NEEDS: dict[str, Request] = {
    "streaming": HELLO,
    "websockets": replace(HELLO, options=RequestOptions(responses=ResponsesOptions(transport="web_socket"))),
    "tool_calls": replace(HELLO, tools=[LS]),
    "images": Request("m", [user(Image(url="https://h.example/p.png"))]),
    "deferred_tools": replace(HELLO, tools=[replace(LS, deferred=True)], options=RequestOptions(tool_search="hosted")),
    "hosted_tool_search": replace(HELLO, options=RequestOptions(tool_search="hosted")),
    "hosted_web_search": replace(HELLO, tools=[ToolDefinition("web", "Search.", {}, kind="hosted_web_search")]),
    "image_generation": replace(HELLO, tools=[ToolDefinition("draw", "Draw.", {}, kind="image_generation")]),
    "reasoning_effort": replace(HELLO, effort="low"),
    "structured_output": replace(HELLO, output=OutputFormat("answer", {"type": "object"})),
}
OTHER_CALLS = {"model_listing", "embeddings", "history_compaction", "memory_summarization"}
"""Refused by the calls that need them."""
NO_NEEDS = {"reports_reasoning_tokens", "reports_thoughts_tokens", "structured_tool_results"}
"""Say how something is told, not whether it can be."""


def test_every_ability_is_accounted_for() -> None:
    """PV-3, 2.2"""
    assert {field.name for field in fields(Capabilities)} == set(NEEDS) | OTHER_CALLS | NO_NEEDS


@pytest.mark.parametrize("ability", NEEDS)
async def test_request_for_what_the_provider_lacks_is_refused_ahead_of_all_traffic(ability: str) -> None:
    """PV-3"""
    everything = openai_definition().capabilities
    pool = HttpPool()
    async with ModelServer(says("a"), says("b")) as server:

        async def ask(able: Capabilities) -> None:
            definition = vendor(server, id="own", label="Own", capabilities=able)
            scope = RemoteProvider(definition, StaticCredentials(), pool).scope()
            with anyio.fail_after(5):
                assert [event async for event in scope.stream(NEEDS[ability])]

        with pytest.raises(UnsupportedCapability, match=r"Own \(own\)") as caught:
            await ask(replace(everything, **{ability: False}))
        assert not caught.value.is_transient and server.requests == server.handshakes == []
        await ask(everything)
        assert len(server.requests) == 1
        await pool.aclose()


async def test_listing_of_a_provider_that_lists_nothing_is_refused() -> None:
    """PV-3"""
    definition = replace(openai_definition(), capabilities=Capabilities(model_listing=False))
    with pytest.raises(UnsupportedCapability, match="lists no models"):
        await RemoteProvider(definition, StaticCredentials(), HttpPool()).list_models()


def test_conversation_can_do_whatever_else_its_provider_can() -> None:
    """PV-59, D-18"""
    provider = RemoteProvider(openai_definition(), StaticCredentials(), HttpPool())
    assert embeddings_of(provider.scope()) is provider


def test_results_are_structured_only_where_the_provider_takes_them_so() -> None:
    """PV-22"""
    request = Request("m", [Message("user", [ToolResult("c1", {"n": 1}), ToolResult("c2", {"n": 2}, is_error=True)])])
    able = replace(openai_definition(), capabilities=Capabilities(structured_tool_results=True))
    assert [item["output"] for item in body(RESPONSES, able, request)["input"]] == [{"n": 1}, 'Error: {"n":2}']
    assert [item["output"] for item in body(RESPONSES, openai_definition(), request)["input"]] == [
        '{"n":1}',
        'Error: {"n":2}',
    ]


def test_presets_say_what_their_vendors_can_do() -> None:
    """2.1, 2.2"""
    openai, openrouter = openai_definition(), openrouter_definition()
    assert openai.capabilities.websockets and not openrouter.capabilities.websockets
    assert openai.keeps_responses and not openrouter.keeps_responses


# --- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (ResponsesOptions(state_mode="replay_only", previous_response_id="resp_1"), InvalidRequest),
        (ResponsesOptions(state_mode="stateful", store=False), InvalidRequest),
    ],
)
async def test_states_that_contradict_themselves_are_refused(options: Any, kind: type[ProviderError]) -> None:
    """PV-31, PV-33"""
    async with responses_talk(says("a"), options=RequestOptions(responses=options)) as talk:
        with pytest.raises(kind):
            await talk.say("hi")
        assert talk.asked == []


async def test_endpoint_behind_a_base_url_is_never_sent_an_id() -> None:
    """PR-4: everything, every time, whatever the host stores; and no stateful conversation can be had with it."""
    stored = RequestOptions(responses=ResponsesOptions(store=True))
    plain = {"keeps_responses": False}
    async with responses_talk(respond=lambda _: says("a"), options=stored, definition=plain) as talk:
        for text in ("one", "two"):
            await talk.say(text)
        assert talk.ids == [None, None] and talk.sizes == [1, 3]
    stateful = RequestOptions(responses=ResponsesOptions(state_mode="stateful"))
    async with responses_talk(says("a"), options=stateful, definition=plain) as talk:
        with pytest.raises(UnsupportedCapability, match="keeps no responses"):
            await talk.say("hi")


async def test_definition_can_say_that_ids_are_refused_over_http() -> None:
    """PV-32: no request has to find out."""
    options = RequestOptions(responses=ResponsesOptions(store=True))
    definition = openai_definition().without_hybrid_http_previous_response_id()
    assert definition.keeps_responses
    known = {"continues_over_http": definition.continues_over_http}
    async with responses_talk(respond=lambda _: says("a"), options=options, definition=known) as talk:
        for text in ("one", "two"):
            await talk.say(text)
        assert talk.ids == [None, None]


# --- compression ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python has zstd")
async def test_compression_python_does_not_have_is_refused_and_why() -> None:
    """PV-36"""
    options = RequestOptions(responses=ResponsesOptions(compression="zstd"))
    async with responses_talk(says("a"), options=options) as talk:
        with pytest.raises(UnsupportedCapability, match=r"zstd: Python has it from 3\.14") as caught:
            await talk.say("hi")
        assert caught.value.hint and talk.asked == []


@pytest.mark.skipif(sys.version_info < (3, 14), reason="this Python has no zstd")
async def test_compressed_request_says_so_and_can_be_read() -> None:
    """PV-36"""
    from importlib import import_module

    options = RequestOptions(responses=ResponsesOptions(compression="zstd"))
    async with responses_talk(says("a"), options=options) as talk:
        talk.messages.append(user("hi"))
        with pytest.raises(ProviderError):  # the scripted vendor reads plain JSON alone
            await talk.ask()
        (asked,) = talk.asked
        assert asked.headers["content-encoding"] == "zstd"
        assert b'"hi"' in import_module("compression.zstd").decompress(asked.data)


# --- chat/completions -------------------------------------------------------------------------------------------------


def test_chat_wire_leaves_out_hosted_tools_and_refuses_what_it_has_no_words_for() -> None:
    """PV-48, PV-24"""
    web = ToolDefinition("web", "Search.", {}, kind="hosted_web_search")
    sent = body(CHAT, openai_definition(), replace(HELLO, tools=[LS, web]))
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["ls"]
    assert "tools" not in body(CHAT, openai_definition(), replace(HELLO, tools=[web]))
    with pytest.raises(InvalidRequest, match="deferred"):
        body(CHAT, openai_definition(), replace(HELLO, tools=[replace(LS, deferred=True)]))
