"""What every wire does alike with content it can't send as it is: sealed reasoning from elsewhere, misplaced images,
names of tools that no vendor takes.

Owns the rule of PV-41: opaque reasoning goes back only to exactly where it is from. How it is written is the wire's.
"""

import re

from basis_daemon.runtime.messages import ContentBlock, Image, Message, Provenance, Thinking, ToolUse
from basis_daemon.runtime.providers.base import Request
from basis_daemon.runtime.providers.errors import InvalidRequest

_NO_WORDS = "[reasoning that can't be shown here]"
"""Stands for reasoning sealed by another model: its place in the conversation is kept, its content can't be."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""A tool's name that every vendor takes."""


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


def odd_names(request: Request) -> frozenset[str]:
    """Names of tools on offer that not every vendor takes. Whoever offers them knows that this one does."""
    return frozenset(tool.name for tool in request.tools if not _NAME.fullmatch(tool.name))


def sendable_name(name: str, odd: frozenset[str]) -> str:
    """The name of a call as it is told to the model again.

    Models make names up, and a vendor that refuses one refuses all that is said in the conversation from then on.
    """
    if name in odd or _NAME.fullmatch(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return (plain if _NAME.match(plain) else f"_{plain}")[:64]
