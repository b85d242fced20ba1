"""The same conversations over the Responses wire, whatever is kept at the vendor and however it is reached.

What the model sees must not depend on either; what is sent must.
"""

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from basis_daemon.runtime.messages import Message, Text, ToolResult, assistant, user
from basis_daemon.runtime.providers.base import (
    RequestOptions,
    ResponsesOptions,
    ResponseStarted,
    TextDelta,
    ToolDefinition,
)
from basis_daemon.runtime.providers.errors import HttpError, InvalidRequest, StreamCut
from support.model_server import Scripted, calls, cuts, fails, rate_limits, says, tool
from support.responses_talk import Talk, responses_talk

pytestmark = pytest.mark.anyio

KINDS = {
    "replay": ResponsesOptions(state_mode="replay_only"),
    "hybrid": ResponsesOptions(),
    "hybrid, stored": ResponsesOptions(store=True),
    "stateful": ResponsesOptions(state_mode="stateful"),
    "replay on a socket": ResponsesOptions(state_mode="replay_only", transport="web_socket"),
    "hybrid on a socket": ResponsesOptions(transport="web_socket"),
    "stateful on a socket": ResponsesOptions(state_mode="stateful", transport="web_socket", store=False),
}
CHAINING = [kind for kind in KINDS if not kind.startswith("replay") and kind != "hybrid"]
RECOVERING = ["hybrid, stored", "hybrid on a socket"]
SOCKETS = [kind for kind in KINDS if kind.endswith("socket")]


def talking(kind: str, *script: Scripted, **fields: Any) -> AbstractAsyncContextManager[Talk]:
    return responses_talk(*script, options=RequestOptions(responses=KINDS[kind]), **fields)


@pytest.mark.parametrize("kind", KINDS)
async def test_model_sees_the_whole_conversation_in_every_way_of_sending_it(kind: str) -> None:
    """PV-31, PV-32, PV-33, PV-34, PV-36, PV-37, D-2"""
    script = [says("Hello."), says("Let me look.") + calls(tool("ls", {"p": "."})), says("Two files."), says("Bye.")]
    async with talking(kind, *script) as talk:
        await talk.say("hi")
        await talk.say("what is here?")
        await talk.say(Message("user", [ToolResult("call_1", "a\nb")]))
        await talk.say("thanks")
        assert [request.conversation for request in talk.asked][-1] == [
            ("user", "hi"),
            ("assistant", "Hello."),
            ("user", "what is here?"),
            ("assistant", "Let me look."),
            ("assistant", "Two files."),
            ("user", "thanks"),
        ]
        assert talk.asked[2].tool_calls == [("call_1", "ls", '{"p":"."}')]
        assert talk.asked[3].tool_results == {"call_1": "a\nb"}
        assert [id is not None for id in talk.ids] == [False, *[kind in CHAINING] * 3]
        assert talk.sizes == ([1, 1, 1, 1] if kind in CHAINING else [1, 3, 6, 8])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "stateful on a socket"])
async def test_failed_answer_is_asked_for_again_from_where_the_conversation_stood(kind: str) -> None:
    """PV-32: other errors keep the id. A socket that broke takes along what only it remembered."""
    async with talking(kind, says("Hello."), cuts(says("a", "b")), rate_limits(1), says("b")) as talk:
        await talk.say("hi")
        talk.messages.append(user("and?"))
        with pytest.raises(StreamCut):
            await talk.ask()
        with pytest.raises(HttpError) as caught:
            await talk.ask()
        assert caught.value.status == 429 and caught.value.retry_after_s == 1
        assert (await talk.ask()).message() == assistant("b")
        assert talk.asked[-1].conversation == [("user", "hi"), ("assistant", "Hello."), ("user", "and?")]
        is_kept = kind in ("hybrid, stored", "stateful")
        assert [id is not None for id in talk.ids] == [False, kind in CHAINING, is_kept, is_kept]


@pytest.mark.parametrize("kind", RECOVERING)
async def test_response_the_vendor_forgot_is_made_up_for_unseen(kind: str) -> None:
    """PV-32, D-3: the id is dropped, everything sent once more, and the stream shows nothing of it."""
    async with talking(kind, says("Hello."), says("It", " is."), says("more")) as talk:
        await talk.say("hi")
        talk.server.forget_responses()
        seen: list[Any] = []
        talk.messages.append(user("and?"))
        talk.messages.append((await talk.ask(seen=seen)).message())
        assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "It is."
        assert isinstance(seen[0], ResponseStarted) and seen[0].id == "resp_00000003"
        assert [id is not None for id in talk.ids] == [False, True, False]
        assert talk.asked[2].conversation == [("user", "hi"), ("assistant", "Hello."), ("user", "and?")]
        if kind.endswith("socket"):
            assert talk.asked[2].connection != talk.asked[1].connection
        await talk.say("go on")
        assert talk.ids[3] == "resp_00000003" and talk.sizes[3] == 1


@pytest.mark.parametrize("kind", RECOVERING)
async def test_endpoint_that_knows_no_ids_is_asked_once_for_each_model(kind: str) -> None:
    """PV-32, D-4: by no agent of the provider."""
    async with talking(kind, respond=lambda request: says("a"), continues=False) as talk:
        for text in ("one", "two", "three"):
            await talk.say(text)
        other = talk.another()
        await other.say("one")
        await other.say("two")
        assert [id is not None for id in talk.ids] == [False, True, False, False, False, False]
        await other.say("three", model="another")
        await other.say("four", model="another")
        assert [id is not None for id in talk.ids][6:] == [False, True, False]
        await other.scope.aclose()


async def test_organisation_without_data_retention_is_an_endpoint_that_knows_no_ids() -> None:
    """PV-32"""
    message = "Previous response cannot be used for this organization due to Zero Data Retention."
    refusal = {"error": {"message": message}}
    async with talking("hybrid, stored", says("a"), fails(400, refusal), says("b"), says("c")) as talk:
        for text in ("one", "two", "three"):
            await talk.say(text)
        assert [id is not None for id in talk.ids] == [False, True, False, False]


async def test_refusal_of_a_stateful_conversation_surfaces_and_its_id_is_forgotten() -> None:
    """PV-33"""
    async with talking("stateful", says("a"), says("b")) as talk:
        await talk.say("one")
        talk.server.forget_responses()
        talk.messages.append(user("two"))
        with pytest.raises(HttpError, match="not found"):
            await talk.ask()
        assert [id is not None for id in talk.ids] == [False, True]
        with pytest.raises(InvalidRequest, match="no response"):
            await talk.ask()
        assert len(talk.asked) == 2


@pytest.mark.parametrize("kind", CHAINING)
async def test_two_agents_never_see_each_others_responses(kind: str) -> None:
    """PV-35, D-1: the same words at the same moment, over one provider."""
    async with talking(kind, respond=lambda request: says(f"answer to {request.prompt}")) as talk:
        other = talk.another()
        for text in ("one", "two", "three"):
            await talk.say(text)
            await other.say(text)
        assert talk.ids == [None, None, "resp_00000001", "resp_00000002", "resp_00000003", "resp_00000004"]
        assert talk.asked[4].conversation == talk.asked[5].conversation
        await other.scope.aclose()


@pytest.mark.parametrize("kind", ["hybrid, stored", "hybrid on a socket"])
@pytest.mark.parametrize("change", ["branch", "rollback", "compaction", "edited answer", "model", "tools"])
async def test_conversation_that_goes_on_from_elsewhere_is_sent_whole(kind: str, change: str) -> None:
    """PV-35: no branch, no summary and no other model ever continues a response that was made from something else."""
    async with talking(kind, respond=lambda request: says("a")) as talk:
        for text in ("one", "two", "three"):
            await talk.say(text)
        fields: dict[str, Any] = {}
        match change:
            case "branch":
                talk.messages = [*talk.messages[:2], user("instead"), assistant("b")]
            case "rollback":
                talk.messages = talk.messages[:2]
            case "compaction":
                talk.messages = [user("a summary"), *talk.messages[4:]]
            case "edited answer":
                talk.messages[-1] = Message("assistant", [Text("something else")])
            case "model":
                fields = {"model": "another"}
            case _:
                fields = {"tools": [ToolDefinition("ls", "List.", {})]}
        before = len(talk.asked)
        await talk.say("four", **fields)
        assert talk.ids[before] is None
        assert talk.asked[before].conversation == [(m.role, m.text()) for m in talk.messages[:-1]]
        await talk.say("five", **fields)
        assert talk.ids[-1] == f"resp_{before + 1:08d}" and talk.sizes[-1] == 1
