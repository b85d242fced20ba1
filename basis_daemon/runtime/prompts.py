"""What somebody says to an agent, on its way to becoming a user message.

Owns the forms a prompt may be given in, that it is not empty, and the ids of turns.
"""

import os
import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from basis_daemon.errors import EmptyPrompt
from basis_daemon.runtime.messages import Block, ContentBlock, Message, Text, user
from basis_daemon.runtime.store.base import PromptAccepted
from basis_protocol.asks import Actor

Prompt = str | ContentBlock | Sequence[ContentBlock | str] | Message
"""Text, one block, several, or a whole message (AG-3)."""

_turns = count(1)


def new_turn_id() -> str:
    """A turn id that is unique within a conversation, across processes."""
    return f"turn-{time.time_ns():x}-{next(_turns):x}{os.urandom(2).hex()}"


def new_prompt(prompt: Prompt) -> PromptAccepted:
    """A prompt ready to be accepted."""
    return PromptAccepted(turn_id=new_turn_id(), message=message_from(prompt), at_ms=time.time_ns() // 1_000_000)


def speaker(by: Mapping[str, Any]) -> Actor | None:
    """Who said something, from what the host told of them; `None` when it told nothing."""
    return Actor(client=by["client"], kind=by.get("kind", "sdk"), client_id=by.get("client_id")) if by else None


def message_from(prompt: Prompt) -> Message:
    """`prompt` as a message of the user's."""
    if isinstance(prompt, Message):
        return prompt
    return user(prompt) if isinstance(prompt, str | Block) else user(*prompt)


def require_content(message: Message) -> None:
    """Raises `EmptyPrompt` when nothing is said in `message` (RS-2)."""
    if not any(not isinstance(block, Text) or block.text.strip() for block in message.content):
        raise EmptyPrompt
