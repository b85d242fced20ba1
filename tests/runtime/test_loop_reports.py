"""What a turn reports of itself: tokens in fields of their own, and prompts that are images alone (runtime.md 13.1)."""

from pathlib import Path

import pytest

from basis_daemon.runtime.messages import Image, Message
from basis_protocol.events import UsageReported, UserMessage
from support.conversations import new_conversation
from support.model_server import ModelServer, Usage, says

pytestmark = pytest.mark.anyio


async def test_reasoning_and_cached_tokens_have_fields_of_their_own(server: ModelServer, tmp_path: Path) -> None:
    """D-28: they are part of what is reported, and of what the turn adds up."""
    usage = Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=5)
    server.script(says("hi", usage=usage))
    conversation = new_conversation(server, tmp_path)

    outcome = await conversation.say("hello")

    reported = conversation.seen(UsageReported)[0]
    assert (reported.input_tokens, reported.output_tokens) == (100, 20)
    assert (reported.cache_read_tokens, reported.reasoning_tokens) == (64, 5)
    assert (outcome.usage.reasoning_tokens, outcome.usage.total_tokens) == (5, 120)


async def test_prompt_of_images_alone_is_not_blank_in_the_events(server: ModelServer, tmp_path: Path) -> None:
    """D-31."""
    server.script(says("a cat"))
    conversation = new_conversation(server, tmp_path)

    await conversation.run(conversation.accept(Message("user", [Image(media_type="image/png", data="iVBORw0KGgo=")])))

    said = conversation.seen(UserMessage)[0]
    assert (said.text, said.image_count) == ("", 1)
