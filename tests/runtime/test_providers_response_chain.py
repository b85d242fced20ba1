"""PV-32…PV-35: which requests continue the last response, and what counts as a refusal of its id."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.messages import Message, Text, ToolResult, ToolUse, assistant, user
from basis_daemon.runtime.providers.base import (
    BlockStarted,
    BlockStopped,
    MessageStopped,
    ProviderEvent,
    Request,
    RequestOptions,
    ResponsesOptions,
    TextDelta,
    ToolInputDelta,
)
from basis_daemon.runtime.providers.errors import AuthenticationError, HttpError, InvalidRequest
from basis_daemon.runtime.providers.response_chain import (
    ResponseChain,
    is_stored,
    refuses_id,
    refuses_parameter,
    require_link,
)


def spoken(text: str, call: str | None = None) -> list[ProviderEvent]:
    events: list[ProviderEvent] = [BlockStarted(0, "text"), TextDelta(0, text), BlockStopped(0)]
    if call is not None:
        events += [BlockStarted(1, "tool_use", call, "ls"), ToolInputDelta(1, "{}"), BlockStopped(1)]
    return [*events, MessageStopped()]


def asked(*messages: Message, **fields: Any) -> Request:
    return Request("m", list(messages), **fields)


HI, AND = user("hi"), user("and?")


def chained(place: object | None = None) -> ResponseChain:
    chain = ResponseChain()
    chain.answered(asked(HI), spoken("Hello."), "resp_1", place)
    return chain


def test_request_that_goes_on_is_what_is_new_behind_the_id() -> None:
    """PV-34"""
    request = chained().continuation(asked(HI, assistant("Hello."), AND), None, has_stored=True)
    assert request is not None and request.messages == [AND]
    assert request.options.responses.previous_response_id == "resp_1"


@pytest.mark.parametrize(
    "messages",
    [
        [HI],
        [HI, AND],
        [HI, assistant("Hello.")],
        [HI, assistant("Hello"), AND],
        [user("hi"), assistant("Hello."), AND],
        [AND, HI, assistant("Hello."), AND],
        [HI, user("Hello."), AND],
        [],
    ],
    ids=[
        "shorter",
        "no answer",
        "nothing new",
        "another answer",
        "another question",
        "more ahead",
        "another role",
        "empty",
    ],
)
def test_request_that_goes_on_from_anything_else_is_not(messages: list[Message]) -> None:
    """PV-35"""
    assert chained().continuation(asked(*messages), None, has_stored=True) is None


def test_answer_whose_call_was_given_another_id_is_not_continued() -> None:
    """The vendor knows the call by its own id alone: a result under another one would not be understood."""
    chain = ResponseChain()
    chain.answered(asked(HI), spoken("Look.", call="call_1"), "resp_1", None)
    for id, is_continued in (("call_1", True), ("call-of-ours", False)):
        answer = assistant("Look.", ToolUse(id, "ls", {}))
        result = Message("user", [ToolResult(id, "a")])
        assert (chain.continuation(asked(HI, answer, result), None, has_stored=True) is not None) is is_continued


def test_response_that_only_a_connection_remembers_is_continued_on_that_connection() -> None:
    here, there = object(), object()
    request = asked(HI, assistant("Hello."), AND)
    chain = chained(here)
    assert chain.continuation(request, here, has_stored=False) is not None
    assert chain.continuation(request, there, has_stored=True) is None
    assert chain.continuation(request, None, has_stored=True) is None
    assert chained().continuation(request, there, has_stored=False) is None


def test_answer_without_an_id_ends_the_chain_and_a_refusal_too() -> None:
    request = asked(HI, assistant("Hello."), AND)
    chain = chained()
    chain.answered(asked(HI), spoken("Hello."), None, None)
    assert chain.continuation(request, None, has_stored=True) is None
    chain = chained()
    chain.forget()
    assert chain.continuation(request, None, has_stored=True) is None


@given(st.lists(st.sampled_from("uat"), max_size=8), st.integers(0, 8), st.integers(0, 3), st.booleans())
def test_only_the_very_conversation_is_ever_continued(said: list[str], keep: int, more: int, same: bool) -> None:
    """PV-34, PV-35: whatever is sent behind an id, with what the id stands for, is exactly the request."""
    before = [{"u": user, "a": assistant, "t": user}[kind](Text(kind)) for kind in said]
    chain = ResponseChain()
    chain.answered(asked(*before), spoken("x"), "resp_1", None)
    answer = assistant("x") if same else assistant("y")
    request = asked(*before[:keep], answer, *(user(str(n)) for n in range(more)))
    sent = chain.continuation(request, None, has_stored=True)
    if sent is not None:
        assert [*before, assistant("x"), *sent.messages] == request.messages and sent.messages
    assert (sent is not None) is (same and keep >= len(before) and more > 0)


# --- ids from elsewhere ----------------------------------------------------------------------------------------------


def test_id_a_host_brought_stands_for_everything_up_to_the_last_answer() -> None:
    options = RequestOptions(responses=ResponsesOptions(previous_response_id="resp_0"))
    chain = ResponseChain()
    sent = chain.continuation(asked(HI, assistant("Hello."), AND, options=options), None, has_stored=True)
    assert sent is not None and sent.messages == [AND]
    fresh = chain.continuation(asked(AND, options=options), None, has_stored=True)
    assert fresh is not None and fresh.messages == [AND]
    chain.answered(asked(HI), spoken("Hello."), "resp_1", None)
    later = chain.continuation(asked(HI, assistant("Hello."), AND, options=options), None, has_stored=True)
    assert later is not None and later.options.responses.previous_response_id == "resp_1"
    chain.forget()
    assert chain.continuation(asked(HI, assistant("Hello."), AND, options=options), None, has_stored=True) is None


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "refused", "unsupported"),
    [
        (400, '{"error":{"message":"Previous response with id \'resp_1\' not found."}}', True, False),
        (404, '{"error":{"code":"previous_response_not_found"}}', True, False),
        (400, '{"error":{"message":"previous_response_id resp_1 has expired"}}', True, False),
        (400, '{"error":{"message":"Unsupported parameter: \'previous_response_id\'."}}', True, True),
        (400, '{"error":{"message":"Unknown parameter: \'previous_response_id\'."}}', True, True),
        (400, '{"detail":"previous_response_id: extra input not permitted"}', True, True),
        (400, "Previous response cannot be used for this organization due to Zero Data Retention.", True, True),
        (400, '{"error":{"message":"Unsupported parameter: \'temperature\'."}}', False, False),
        (404, "404 page not found", False, False),
        (429, '{"error":{"message":"previous_response_id resp_1: slow down"}}', False, False),
        (500, '{"error":{"message":"previous_response_id resp_1 could not be read"}}', False, False),
    ],
)
def test_refusals_are_told_apart_from_other_errors(status: int, body: str, refused: bool, unsupported: bool) -> None:
    """PV-32"""
    error = HttpError("no", status=status, body=body)
    assert (refuses_id(error), refuses_parameter(error)) == (refused, unsupported)
    assert not refuses_id(AuthenticationError("previous response", status=401, body=body))


def test_stateful_conversation_without_an_id_ends_after_its_first_turn() -> None:
    """PV-33"""
    require_link(asked(HI))
    with pytest.raises(InvalidRequest, match="no response"):
        require_link(asked(HI, assistant("Hello."), AND))


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        (ResponsesOptions(), False),
        (ResponsesOptions(state_mode="replay_only"), False),
        (ResponsesOptions(state_mode="stateful"), True),
        (ResponsesOptions(state_mode="stateful", store=False), False),
        (ResponsesOptions(store=True), True),
    ],
)
def test_nothing_is_stored_unless_somebody_wants_it_or_nothing_else_would_do(
    options: ResponsesOptions, stored: bool
) -> None:
    """PV-32, PV-33"""
    assert is_stored(options) is stored
    assert is_stored(replace(options, transport="web_socket")) is stored
