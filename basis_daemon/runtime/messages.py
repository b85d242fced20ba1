"""The transcript's vocabulary: what is stored and what providers are sent. Not the wire's: see `basis_protocol`.

Every type is a frozen msgspec struct that can be written as JSON and read back unchanged (PV-4…PV-7). They hold JSON
values only, which can form no cycle, so the garbage collector is told to leave them alone (`gc=False`).
"""

import base64
from typing import Any, Literal

import msgspec

Json = Any
"""Any JSON value."""


class Block(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind"):
    """Base of content blocks."""


class Text(Block, frozen=True, gc=False, tag="text"):
    text: str


class Provenance(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Who produced an opaque reasoning payload. It is replayed to exactly this provider, model and format (PV-41)."""

    provider: str
    model: str
    format: Literal["anthropic_signed", "open_ai_encrypted", "gemini_thought"]


class Thinking(Block, frozen=True, gc=False, tag="thinking"):
    """Reasoning. Never counted as assistant text (PV-43)."""

    thinking: str = ""
    signature: str | None = None
    encrypted_content: str | None = None
    id: str | None = None
    provenance: Provenance | None = None
    redacted: bool = False


class Image(Block, frozen=True, gc=False, tag="image"):
    """An image by bytes (`media_type` and base64 `data`) or by `url`."""

    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class ToolUse(Block, frozen=True, gc=False, tag="tool_use"):
    """A call the model asks for. `malformed` holds the raw text when it was no JSON object; `input` is then `{}`.

    `item_id` is the wire's own id of the item, where it differs from the call id (PV-20).
    """

    id: str
    name: str
    input: dict[str, Json]
    malformed: str | None = None
    item_id: str | None = None
    signature: str | None = None
    """Opaque reasoning that some wires attach to a call; replayed as its `provenance` allows (PV-41)."""
    provenance: Provenance | None = None


class ToolResult(Block, frozen=True, gc=False, tag="tool_result"):
    """What a call gave back: text, or any structured JSON value."""

    tool_use_id: str
    content: Json
    is_error: bool = False

    def as_text(self) -> str:
        """The content as text: itself, or compact JSON for structured content (PV-7)."""
        return self.content if isinstance(self.content, str) else msgspec.json.encode(self.content).decode()

    @property
    def byte_len(self) -> int:
        """Bytes of UTF-8 the content takes (PV-7)."""
        return len(self.as_text().encode())


class HostedToolSearch(Block, frozen=True, gc=False, tag="hosted_tool_search"):
    """A search for deferred tools that the provider ran itself. Each update replaces the whole block (PV-14)."""

    id: str
    status: str | None = None
    query: str | None = None
    found: tuple[str, ...] = ()
    """Names of the tools it brought up, where the provider has to be told of them again."""


class HostedWebSearch(Block, frozen=True, gc=False, tag="hosted_web_search"):
    """A web search that the provider ran itself; `action` is its `search`, `open_page` or `find_in_page` object."""

    id: str
    status: str | None = None
    action: Json = None


class ImageGeneration(Block, frozen=True, gc=False, tag="image_generation"):
    """An image the provider made; `result` is an `Image` as JSON or a reference to an artefact."""

    id: str
    status: str | None = None
    revised_prompt: str | None = None
    result: Json = None


HostedBlock = HostedToolSearch | HostedWebSearch | ImageGeneration
ContentBlock = Text | Thinking | Image | ToolUse | ToolResult | HostedToolSearch | HostedWebSearch | ImageGeneration


class Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One message of a conversation, in the order it was said."""

    role: str
    content: list[ContentBlock]

    def text(self) -> str:
        """All text blocks, concatenated (PV-4)."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    def display_text(self) -> str:
        """All text, tool results included, a line apart: what a summary is made from (PV-4)."""
        parts = (
            block.text if isinstance(block, Text) else block.as_text()
            for block in self.content
            if isinstance(block, Text | ToolResult)
        )
        return "\n".join(part for part in parts if part)

    def tool_uses(self) -> list[ToolUse]:
        return [block for block in self.content if isinstance(block, ToolUse)]


def image_bytes(media_type: str, data: bytes) -> Image:
    """An image block from bytes (PV-6)."""
    return Image(media_type=media_type, data=base64.b64encode(data).decode())


def image_url(url: str) -> Image:
    """An image block from an address; not every provider takes one."""
    return Image(url=url)


def user(*content: ContentBlock | str) -> Message:
    """A user message from blocks or plain strings."""
    return Message("user", [Text(part) if isinstance(part, str) else part for part in content])


def assistant(*content: ContentBlock | str) -> Message:
    """An assistant message from blocks or plain strings."""
    return Message("assistant", [Text(part) if isinstance(part, str) else part for part in content])
