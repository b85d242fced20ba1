"""What a prompt is made of, and how a proposed change is shown."""

from typing import Annotated

import msgspec

from basis_protocol.base import AbsolutePath, Json, WireModel, open_word


class Position(WireModel):
    """Zero-based line and UTF-16 character, as in LSP."""

    line: Annotated[int, msgspec.Meta(ge=0)]
    character: Annotated[int, msgspec.Meta(ge=0)] = 0


class Range(WireModel):
    start: Position
    end: Position


class TextBlock(WireModel, tag_field="type", tag="text"):
    text: str


class ImageBlock(WireModel, tag_field="type", tag="image"):
    """An image: base64 bytes with their media type, or a URI. Exactly one of `data` and `uri`."""

    mime_type: str | None = None
    data: Annotated[str | None, msgspec.Meta(description="base64")] = None
    uri: str | None = None


class ResourceBlock(WireModel, tag_field="type", tag="resource"):
    """A file, a range of one, or the unsaved text of a buffer (`text`)."""

    uri: str
    text: str | None = None
    range: Range | None = None
    mime_type: str | None = None


class MentionBlock(WireModel, tag_field="type", tag="mention"):
    """A path only; the agent reads it if it wants to."""

    path: str


class SelectionBlock(WireModel, tag_field="type", tag="selection"):
    uri: str
    range: Range
    text: str


class Diagnostic(WireModel):
    range: Range
    message: str
    severity: Annotated[str | None, open_word("error", "warning", "information", "hint")] = None
    source: str | None = None
    code: str | None = None


class DiagnosticsBlock(WireModel, tag_field="type", tag="diagnostics"):
    uri: str
    diagnostics: list[Diagnostic]


class TemplateBlock(WireModel, tag_field="type", tag="template"):
    name: str
    arguments: str = ""


InputBlock = TextBlock | ImageBlock | ResourceBlock | MentionBlock | SelectionBlock | DiagnosticsBlock | TemplateBlock
"""One part of a prompt. A client that only types text sends a list with one `text` block."""


class FileDiff(WireModel):
    """A proposed or finished change of one file. `patch` is a unified diff; `old`/`new` are whole texts when small."""

    path: str
    patch: str
    old: str | None = None
    new: str | None = None
    created: bool = False
    truncated: Annotated[bool, msgspec.Meta(description="patch was cut; the change itself was not")] = False


class DiffPreview(WireModel, tag_field="type", tag="diff"):
    files: list[FileDiff]


class Classification(WireModel):
    """What a command seems to do. A heuristic for the person who decides, never a boundary."""

    intent: Annotated[
        str,
        open_word(
            "read_only",
            "write",
            "destructive",
            "network",
            "process_management",
            "package_management",
            "system_admin",
            "unknown",
        ),
    ]
    warnings: list[str] = []


class CommandPreview(WireModel, tag_field="type", tag="command"):
    command: str
    cwd: AbsolutePath
    target: str = "local"
    classification: Classification | None = None


class CallPreview(WireModel, tag_field="type", tag="call"):
    input: Json


Preview = DiffPreview | CommandPreview | CallPreview
"""What a person is shown before they answer: exactly what will run."""
