"""PV-14, PV-23…PV-26: tools that OpenAI runs itself: offered, watched, and sent back."""

from typing import Any

import pytest

from basis_daemon.runtime.messages import (
    HostedToolSearch,
    HostedWebSearch,
    ImageGeneration,
    Message,
    Text,
    ToolUse,
    user,
)
from basis_daemon.runtime.providers.base import (
    BlockStopped,
    HostedUpdate,
    Request,
    RequestOptions,
    ToolChoice,
    ToolDefinition,
)
from basis_daemon.runtime.providers.errors import InvalidRequest
from basis_daemon.runtime.providers.openai_responses import RESPONSES
from basis_daemon.runtime.providers.registry import openai_definition
from support.wire_streams import body, collected, stream

OPENAI = openai_definition()
WEB = ToolDefinition("web", "Search.", {}, kind="hosted_web_search", options={"user_location": {"type": "approximate"}})
DRAW = ToolDefinition("draw", "Draw.", {}, kind="image_generation", options={"size": "1024x1024", "type": "other"})
LS = ToolDefinition("ls", "List.", {"type": "object"})
LATER = ToolDefinition("rare", "Rare.", {"type": "object"}, deferred=True)
SEARCHING = RequestOptions(tool_search="hosted")


def sent(**fields: Any) -> dict[str, Any]:
    return body(RESPONSES, OPENAI, Request("m", [user("x")], **fields))


def event(type: str, at: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{type}", "output_index": at, **fields}


def completed(*output: Any) -> dict[str, Any]:
    return event("completed", response={"id": "resp_1", "output": list(output)})


# --- offered ---------------------------------------------------------------------------------------------------------


def test_hosted_tools_are_offered_by_their_kind_with_their_options() -> None:
    """PV-26, PV-8"""
    assert sent(tools=[DRAW, LS, WEB])["tools"] == [
        {"type": "image_generation", "size": "1024x1024"},
        {"type": "function", "name": "ls", "description": "List.", "parameters": {"type": "object"}, "strict": False},
        {"type": "web_search", "user_location": {"type": "approximate"}},
    ]


def test_hosted_tools_appear_only_if_somebody_offers_them() -> None:
    """PV-26"""
    assert [tool["type"] for tool in sent(tools=[LS], options=SEARCHING)["tools"]] == ["function"]


def test_hosted_tool_is_forced_by_its_kind() -> None:
    """PV-23"""
    assert sent(tools=[LS, WEB], tool_choice=ToolChoice("tool", "web"))["tool_choice"] == {"type": "web_search"}
    assert sent(tools=[LS, WEB], tool_choice=ToolChoice("tool", "ls"))["tool_choice"] == {
        "type": "function",
        "name": "ls",
    }


def test_deferred_tools_are_found_by_the_vendors_search() -> None:
    """PV-24"""
    tools = sent(tools=[LS, LATER], options=SEARCHING)["tools"]
    assert [tool.get("defer_loading") for tool in tools] == [None, True, None]
    assert tools[-1] == {"type": "tool_search"}


def test_deferred_tools_that_nothing_searches_for_are_refused() -> None:
    """PV-24"""
    with pytest.raises(InvalidRequest, match="nothing searches"):
        sent(tools=[LS, LATER])


def test_forced_tool_is_there_at_once() -> None:
    """PV-23"""
    tools = sent(tools=[LATER], tool_choice=ToolChoice("tool", "rare"))["tools"]
    assert [tool["type"] for tool in tools] == ["function"] and "defer_loading" not in tools[0]


# --- watched ---------------------------------------------------------------------------------------------------------


def test_web_search_is_one_block_whose_latest_state_counts() -> None:
    """PV-14, D-20"""
    action = {"type": "search", "query": "weather"}
    events = stream(
        RESPONSES,
        OPENAI,
        event("output_item.added", item={"type": "web_search_call", "id": "ws_1", "status": "in_progress"}),
        event("web_search_call.in_progress", item_id="ws_1"),
        event("web_search_call.searching", item_id="ws_1"),
        event("web_search_call.completed", item_id="ws_1"),
        event(
            "output_item.done",
            item={"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action},
        ),
        event("output_text.delta", 1, delta="Rain."),
        completed(),
    )
    states = [update.block.status for update in events if isinstance(update, HostedUpdate)]
    assert states == ["in_progress", "in_progress", "searching", "completed", "completed"]
    assert sum(isinstance(event, BlockStopped) for event in events) == 2
    assert collected(events).message().content == [HostedWebSearch("ws_1", "completed", action), Text("Rain.")]


@pytest.mark.parametrize(
    "action",
    [
        {"type": "search", "query": "x", "sources": [{"type": "url", "url": "https://h.example"}]},
        {"type": "open_page", "url": "https://h.example"},
        {"type": "find_in_page", "url": "https://h.example", "pattern": "y"},
    ],
)
def test_every_kind_of_search_action_is_kept_as_it_is(action: Any) -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    (block,) = collected(stream(RESPONSES, OPENAI, completed(item))).message().content
    assert block == HostedWebSearch("ws_1", "completed", action)


def test_generated_image_is_kept_with_what_it_was_made_from() -> None:
    item = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "revised_prompt": "A cat.",
        "result": "AAAA",
        "output_format": "webp",
    }
    events = stream(
        RESPONSES,
        OPENAI,
        event("output_item.added", item={"type": "image_generation_call", "id": "ig_1", "status": "in_progress"}),
        event("image_generation_call.generating", item_id="ig_1"),
        event("image_generation_call.partial_image", item_id="ig_1", partial_image_b64="AA"),
        event("output_item.done", item=item),
        completed(item),
    )
    image = {"kind": "image", "media_type": "image/webp", "data": "AAAA"}
    assert collected(events).message().content == [ImageGeneration("ig_1", "completed", "A cat.", image)]


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ({"query": "crm"}, "crm"),
        ({"paths": ["crm", "mail"]}, "crm, mail"),
        ({"other": 1}, '{"other":1}'),
        ("crm", "crm"),
        (None, None),
        ({}, "{}"),
    ],
)
def test_search_for_tools_is_a_block_and_what_it_found_can_be_called(arguments: Any, query: str | None) -> None:
    """PV-24"""
    search = {"type": "tool_search_call", "execution": "server", "call_id": None, "status": "completed"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "rare", "arguments": "{}"}
    events = stream(
        RESPONSES,
        OPENAI,
        event("output_item.added", item={**search, "arguments": arguments}),
        event("output_item.done", item={**search, "arguments": arguments}),
        event("output_item.done", 1, item={"type": "tool_search_output", "tools": [{"name": "rare"}]}),
        event("output_item.done", 2, item=call),
        completed(),
    )
    assert collected(events).message().content == [HostedToolSearch("", "completed", query), ToolUse("c1", "rare", {})]


# --- sent back -------------------------------------------------------------------------------------------------------


def test_what_the_vendor_ran_goes_back_in_its_place() -> None:
    image = {"kind": "image", "media_type": "image/png", "data": "AAAA"}
    message = Message(
        "assistant",
        [
            HostedWebSearch("ws_1", "completed", {"type": "search", "query": "x"}),
            Text("Rain."),
            ImageGeneration("ig_1", "completed", "A cat.", image),
        ],
    )
    assert body(RESPONSES, OPENAI, Request("m", [message]))["input"] == [
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "x"},
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rain."}]},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"},
    ]


def test_what_another_vendor_ran_or_what_cannot_be_repeated_is_left_out() -> None:
    message = Message(
        "assistant",
        [
            HostedWebSearch("srvtoolu_1", "completed", {"type": "search"}),
            HostedToolSearch("ts_1", "completed", "crm"),
            ImageGeneration("ig_1", "completed", None, {"artifact": "results/1.png"}),
            ImageGeneration("ig_2", "failed"),
            Text("Rain."),
        ],
    )
    (item,) = body(RESPONSES, OPENAI, Request("m", [message]))["input"]
    assert item["type"] == "message"
