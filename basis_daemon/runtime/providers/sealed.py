"""What every wire does alike with content it can't send as it is: sealed reasoning from elsewhere, misplaced images.

Owns the rule of PV-41: opaque reasoning goes back only to exactly where it is from. How it is written is the wire's.
"""

from basis_daemon.runtime.messages import ContentBlock, Image, Message, Provenance, Thinking, ToolUse
from basis_daemon.runtime.providers.errors import InvalidRequest

_NO_WORDS = "[reasoning that can't be shown here]"
"""Stands for reasoning sealed by another model: its place in the conversation is kept, its content can't be."""


def is_sealed_here(block: ContentBlock, here: Provenance) -> bool:
    """Whether `block` holds opaque reasoning that provider, model and format `here` made themselves (PV-41)."""
    match block:
        case Thinking():
            return bool(block.signature or block.encrypted_content) and block.provenance == here
        case ToolUse():
            return bool(block.signature) and block.provenance == here
        case _:
            return False


def plain_words(block: Thinking) -> str:
    """Reasoning as text, for a model that can't open the seal (PV-41)."""
    return block.thinking.strip() or _NO_WORDS


def refuse_misplaced_images(message: Message) -> None:
    """Raise `InvalidRequest` for an image anywhere but in a user message (PV-27)."""
    if message.role != "user" and any(isinstance(block, Image) for block in message.content):
        raise InvalidRequest(f"an image can only be part of a user message, not of one by {message.role}")
