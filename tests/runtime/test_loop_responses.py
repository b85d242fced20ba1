"""PV-32…PV-35, RT-14: sessions over the Responses wire, where only what is new is sent as long as that is safe."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from basis_daemon.errors import ProviderNotFound, ProviderSessionScopeIdentityMismatch
from basis_daemon.redact import Secret
from basis_daemon.runtime.cancel import CancelSignal
from basis_daemon.runtime.limits import TurnOptions
from basis_daemon.runtime.providers.base import ModelInfo, Provider, RequestOptions, ResponsesOptions
from basis_daemon.runtime.providers.definition import StaticCredentials
from basis_daemon.runtime.providers.registry import ProviderRegistry
from basis_daemon.runtime.providers.scripted import ScriptedProvider
from basis_daemon.runtime.runtime import Runtime
from basis_daemon.runtime.store.files import FileStore
from support.conversations import Conversation, Counter, new_conversation
from support.model_server import ModelRequest, ModelServer, Turn, calls, cuts, hangs, says, tool
from support.responses_talk import vendor

pytestmark = pytest.mark.anyio

STORED = RequestOptions(responses=ResponsesOptions(store=True))
ON_SOCKET = RequestOptions(responses=ResponsesOptions(transport="web_socket"))


@pytest.fixture(params=[STORED, ON_SOCKET], ids=["stored", "socket"])
def options(request: pytest.FixtureRequest) -> RequestOptions:
    return request.param


def conversation_with(server: ModelServer, directory: Path, *tools: Any, **fields: Any) -> Conversation:
    registry = ProviderRegistry()
    provider = fields.pop("provider", None) or registry.make(vendor(server), StaticCredentials(Secret("sk-1234567890")))
    return new_conversation(server, directory, *tools, providers=registry, provider=provider, **fields)


def ids(server: ModelServer) -> list[str | None]:
    return [request.body.get("previous_response_id") for request in server.requests]


def sees(request: ModelRequest) -> list[str]:
    return [text for _, text in request.conversation]


async def test_rounds_and_turns_send_only_what_is_new(
    server: ModelServer, tmp_path: Path, options: RequestOptions
) -> None:
    """PV-34: with tool calls, whose ids are ours to make unique."""
    counter = Counter()
    server.script(
        calls(tool("bump", {"n": 1}, id="c")), says("one"), calls(tool("bump", {"n": 2}, id="c")), says("two")
    )
    conversation = conversation_with(server, tmp_path, counter.tool(), request_options=options)
    await conversation.say("count")
    await conversation.say("again")
    assert [len(request.body["input"]) for request in server.requests[:3]] == [1, 1, 1]
    assert ids(server)[:3] == [None, "resp_00000001", "resp_00000002"]
    # The call's id was used before, so it has another here than at the vendor: everything is sent, under our ids.
    assert ids(server)[3] is None
    assert sees(server.requests[3]) == ["count", "one", "again"]
    assert len({id for id, *_ in server.requests[3].tool_calls}) == 2
    assert set(server.requests[3].tool_results) == {id for id, *_ in server.requests[3].tool_calls}


async def test_branch_is_never_a_continuation_of_what_it_left(
    server: ModelServer, tmp_path: Path, options: RequestOptions
) -> None:
    """PV-35"""
    server.script(*map(says, "ABCD"))
    conversation = conversation_with(server, tmp_path, request_options=options)
    await conversation.say("a")
    fork = conversation.session.agent.transcript.leaf_id
    await conversation.say("b")
    conversation.session.branch_from(fork)
    await conversation.say("c")
    await conversation.say("d")
    assert ids(server) == [None, "resp_00000001", None, "resp_00000003"]
    assert sees(server.requests[2]) == ["a", "A", "c"] and sees(server.requests[3]) == ["a", "A", "c", "C", "d"]


async def test_cancelled_turn_leaves_nothing_for_the_next_to_continue(
    server: ModelServer, tmp_path: Path, options: RequestOptions
) -> None:
    """PV-35: the rolled back words are not in what the model sees."""
    server.script(says("A"), hangs(says("B", "B"), after_deltas=1), says("C"))
    conversation = conversation_with(server, tmp_path, request_options=options)
    await conversation.say("a")
    cancel = CancelSignal()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def cancel_in_mid_answer() -> None:
                await server.request(1)
                cancel.set("enough")

            tasks.start_soon(cancel_in_mid_answer)
            await conversation.say("b", options=TurnOptions(cancel=cancel))
    await conversation.say("c")
    assert sees(server.requests[2]) == ["a", "A", "c"]
    # A stored response still stands for what is left of the conversation; a socket is gone with the turn.
    assert ids(server)[2] == ("resp_00000001" if options is STORED else None)


async def test_answer_that_broke_is_tried_again_from_where_the_conversation_stood(
    server: ModelServer, tmp_path: Path, options: RequestOptions
) -> None:
    """PV-55, PV-32"""
    server.script(says("A"), cuts(says("B", "B")), says("C"))
    conversation = conversation_with(server, tmp_path, request_options=options)
    await conversation.say("a")
    assert (await conversation.say("b")).final_message == "C"
    assert sees(server.requests[2]) == ["a", "A", "b"]


async def test_another_model_starts_from_the_whole_conversation(
    server: ModelServer, tmp_path: Path, options: RequestOptions
) -> None:
    """PV-35"""
    server.script(*map(says, "ABC"))
    conversation = conversation_with(server, tmp_path, request_options=options)
    await conversation.say("a")
    conversation.session.set_model(ModelInfo("another", "openai"))
    await conversation.say("b")
    await conversation.say("c")
    assert ids(server) == [None, None, "resp_00000002"]
    assert sees(server.requests[1]) == ["a", "A", "b"]


async def test_resumed_conversation_starts_from_the_whole_of_it(
    server: ModelServer, tmp_path: Path, store: FileStore, options: RequestOptions
) -> None:
    """PV-35: nothing of a scope is written down."""
    server.script(*map(says, "ABC"))
    first = conversation_with(server, tmp_path, store=store, request_options=options)
    await first.say("a")
    agent_id = first.session.agent.id
    await asyncio.to_thread(first.session.close)
    again = await asyncio.to_thread(
        conversation_with, server, tmp_path, store=store, resume=agent_id, request_options=options
    )
    await again.say("b")
    await again.say("c")
    assert ids(server) == [None, None, "resp_00000002"]
    assert sees(server.requests[2]) == ["a", "A", "b", "B", "c"]


async def test_two_sessions_of_one_provider_share_no_response(
    server: ModelServer, tmp_path: Path, options: RequestOptions
) -> None:
    """PV-35, D-1: a vendor that hands out the other's ids could make one read what the other was told."""

    def answer(request: ModelRequest) -> Turn:
        return says(f"for {request.prompt}")

    server.script(*[answer] * 6)
    registry = ProviderRegistry()
    provider = registry.make(vendor(server), StaticCredentials(Secret("sk-1234567890")))
    one, two = (
        new_conversation(server, tmp_path, providers=registry, provider=provider, request_options=options)
        for _ in range(2)
    )
    for number in range(3):
        await one.say(f"one {number}")
        await two.say(f"two {number}")
    assert ids(server) == [None, None, "resp_00000001", "resp_00000002", "resp_00000003", "resp_00000004"]
    for number, request in enumerate(server.requests):
        mine, other = ("one", "two") if number % 2 == 0 else ("two", "one")
        assert all(mine in text and other not in text for text in sees(request))


# --- what a runtime says ---------------------------------------------------------------------------------------------


async def test_host_chooses_the_transport_for_all_sessions_or_for_one(server: ModelServer, tmp_path: Path) -> None:
    """PV-39, D-29: the choice is the runtime's, and a session's own counts more."""
    chosen = Runtime.builder().with_ephemeral_history().with_responses_transport("web_socket").build()
    assert chosen.request_options.responses.transport == "web_socket"
    kept = Runtime.builder().with_request_options(STORED).with_responses_transport("web_socket").request_options
    assert kept is not None and kept.responses.store is True and kept.responses.transport == "web_socket"
    provider = chosen.providers.make(vendor(server), StaticCredentials())
    server.script(says("a"), says("b"))
    usual = new_conversation(server, tmp_path, providers=chosen.providers, provider=provider).session.options
    for asked in (None, RequestOptions()):
        options = replace(usual, request_options=asked)
        conversation = Conversation(chosen.create_session(options), chosen)
        await conversation.say("hi")
        await asyncio.to_thread(conversation.session.close)
    assert len(server.handshakes) == 1
    assert [request.method for request in server.requests] == ["POST", "POST"]
    await chosen.aclose()


async def test_conversation_with_a_provider_can_be_had_by_itself(server: ModelServer) -> None:
    """RT-14"""
    runtime = Runtime.builder().with_ephemeral_history().build()
    provider = runtime.providers.make(vendor(server), StaticCredentials())
    runtime.providers.register(provider)
    one, two = (runtime.fresh_provider_session_scope("openai") for _ in range(2))
    assert one is not two and one.id == two.id == "openai" and one.scope() is not one
    assert server.open_connections == 0
    with pytest.raises(ProviderNotFound):
        runtime.fresh_provider_session_scope("nobody")
    runtime.providers.register(Impostor(id="impostor"))
    with pytest.raises(ProviderSessionScopeIdentityMismatch, match="'impostor'"):
        runtime.fresh_provider_session_scope("impostor")
    await runtime.aclose()


class Impostor(ScriptedProvider):
    """Gives out a scope of another provider."""

    def scope(self) -> Provider:
        return ScriptedProvider(id="somebody")
