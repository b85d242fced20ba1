"""What a client sends as a prompt, as the message a model reads.

Owns the text that stands for files, selections and diagnostics. Reads no file: whatever the client did not send along,
the agent reads itself if it wants to.
"""

from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from basis_daemon.errors import InvalidInput
from basis_daemon.runtime.messages import ContentBlock, Image, Message, Text
from basis_daemon.server.error_map import InvalidParams
from basis_daemon.server.handshake import MAX_PROMPT_BYTES
from basis_protocol.content import (
    Diagnostic,
    DiagnosticsBlock,
    ImageBlock,
    InputBlock,
    MentionBlock,
    Range,
    ResourceBlock,
    SelectionBlock,
    TemplateBlock,
    TextBlock,
)


def message_of(blocks: Sequence[InputBlock]) -> Message:
    """The user message of a prompt. Raises `InvalidParams` naming the block that can't be used."""
    content: list[ContentBlock] = []
    for index, block in enumerate(blocks):
        try:
            part = _content(block)
        except InvalidInput as error:
            field = f"input[{index}]"
            raise InvalidParams(f"{field}: {error}", field=field, hint=error.hint) from None
        if content and isinstance(part, Text) and isinstance(content[-1], Text):
            content[-1] = Text(f"{content[-1].text}\n\n{part.text}")
        else:
            content.append(part)
    size = sum(len(part.text if isinstance(part, Text) else getattr(part, "data", None) or "") for part in content)
    if size > MAX_PROMPT_BYTES:
        raise InvalidParams(f"input: the prompt is larger than {MAX_PROMPT_BYTES} bytes", field="input")
    return Message("user", content)


def title_of(message: Message) -> str:
    """A conversation's title from its first prompt: the first line that says something, cut to a list's width."""
    for line in message.text().splitlines():
        words = " ".join(line.split())
        if words and not words.startswith(("```", "File ", "Selection ", "Diagnostics ")):
            return words if len(words) <= 80 else words[:79].rstrip() + "…"
    return ""


def path_of(uri: str) -> str:
    """The path a `file:` URI names; any other text as it is."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


def _content(block: InputBlock) -> ContentBlock:
    match block:
        case TextBlock():
            return Text(block.text)
        case ImageBlock():
            return _image(block)
        case ResourceBlock():
            return Text(_resource(block))
        case MentionBlock():
            return Text(f"@{block.path}")
        case SelectionBlock():
            return Text(f"Selection in {path_of(block.uri)}, {_lines(block.range)}:\n{_fenced(block.text)}")
        case DiagnosticsBlock():
            lines = "\n".join(_diagnostic(each) for each in block.diagnostics)
            return Text(f"Diagnostics of {path_of(block.uri)}:\n{_fenced(lines)}")
        case TemplateBlock():
            raise InvalidInput("templates are not served yet", hint="send the text itself")


def _image(block: ImageBlock) -> Image:
    if (block.data is None) == (block.uri is None):
        raise InvalidInput("an image has either data or a uri")
    if block.data is not None and block.mime_type is None:
        raise InvalidInput("an image given by data needs a mimeType")
    return Image(media_type=block.mime_type, data=block.data, url=block.uri)


def _resource(block: ResourceBlock) -> str:
    where = f"File {path_of(block.uri)}" + (f", {_lines(block.range)}" if block.range else "")
    return where if block.text is None else f"{where}:\n{_fenced(block.text)}"


def _lines(range: Range) -> str:
    first, last = range.start.line + 1, range.end.line + 1
    return f"line {first}" if first == last else f"lines {first} to {last}"


def _diagnostic(diagnostic: Diagnostic) -> str:
    origin = " ".join(part for part in (diagnostic.source, diagnostic.code) if part)
    kind = diagnostic.severity or "problem"
    return f"{_lines(diagnostic.range)}: {kind}: {diagnostic.message}" + (f" ({origin})" if origin else "")


def _fenced(text: str) -> str:
    """`text` in a fence that nothing in it can close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
