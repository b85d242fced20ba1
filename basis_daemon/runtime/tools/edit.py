"""The tools that change files: `write` and `edit` (runtime.md 4.10, workspace.md 2.10).

Owns what is shown before a change and what is checked again when it is made. A change is worked out from the file as it
is on disk, and refused when that isn't the version the agent knows: one it read, wrote, or proposed a change to.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools import text_files
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    InputSchema,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSpec,
)
from basis_daemon.runtime.tools.diffs import Change, change
from basis_daemon.runtime.tools.edit_inputs import canonical_edits, read_edits
from basis_daemon.runtime.tools.edits import apply_edits, first_difference
from basis_daemon.runtime.tools.inputs import PATH_ALIASES, shown, spelled, string
from basis_daemon.runtime.tools.text_files import StaleFile, Stored, TextFile
from basis_daemon.runtime.tools.threads import Stop, in_thread
from basis_protocol.content import DiffPreview


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A change worked out but not made."""

    target: Path
    name: str
    stored: Stored | None
    data: bytes
    change: Change
    replaced: int
    first_changed_line: int

    @property
    def extent(self) -> str:
        return f"new file, {self.change}" if self.stored is None else str(self.change)


Rewrite = Callable[[TextFile | None, Path], tuple[str, int]]
"""From the file as it is to its new text, and how many passages were replaced. Raises `ToolError`."""


class WriteTool:
    """Creates a file or replaces its whole text."""

    spec = ToolSpec(
        name="write",
        description=(
            "Create a text file, or replace all of its text. Missing directories are made. To change a part of a file "
            "use edit."
        ),
        input_schema=InputSchema(
            {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "File, relative to the working directory or absolute."},
                    "content": {"type": "string", "description": "The whole text of the file."},
                },
                "required": ["path", "content"],
            },
            spelled({**PATH_ALIASES, "contents": "content"}),
        ),
        capabilities=frozenset({"filesystem_write"}),
        side_effect="local_state",
        approval="filesystem",
    )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        path, rewrite = _write_request(self.spec, input)
        proposal = await in_thread(lambda stop: _propose(context, path, rewrite))
        return _preparation(self.spec, proposal, {"bytes": len(proposal.data)})

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        path, rewrite = _write_request(self.spec, input)
        proposal = await in_thread(lambda stop: _make(context, path, rewrite, stop))
        done = "created" if proposal.stored is None else "wrote"
        return ToolOutput(
            f"{done} {proposal.name} ({len(proposal.data)} bytes)",
            summary=f"write {proposal.name} ({proposal.extent})",
            diff=(proposal.change.diff,),
        )


class EditTool:
    """Replaces passages of a file."""

    spec = ToolSpec(
        name="edit",
        description=(
            "Replace passages of a text file. Each `old_string` must stand in the file exactly once, indentation and "
            "all, unless `replace_all` is set; all are matched against the file as it is now and must not overlap."
        ),
        input_schema=InputSchema(
            {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "File, relative to the working directory or absolute."},
                    "edits": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "old_string": {"type": "string", "description": "The passage as it is in the file."},
                                "new_string": {"type": "string", "description": "What to put in its place."},
                            },
                            "required": ["old_string", "new_string"],
                        },
                    },
                    "replace_all": {"type": "boolean", "description": "Replace every occurrence. Default false."},
                },
                "required": ["path", "edits"],
            },
            canonical_edits,
        ),
        capabilities=frozenset({"filesystem_write"}),
        side_effect="local_state",
        approval="filesystem",
    )

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        path, rewrite = _edit_request(input)
        proposal = await in_thread(lambda stop: _propose(context, path, rewrite))
        return _preparation(self.spec, proposal, {"replacements": proposal.replaced})

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        path, rewrite = _edit_request(input)
        proposal = await in_thread(lambda stop: _make(context, path, rewrite, stop))
        passages = "1 passage" if proposal.replaced == 1 else f"{proposal.replaced} passages"
        return ToolOutput(
            f"replaced {passages} in {proposal.name}",
            summary=f"edit {proposal.name} ({proposal.extent})",
            diff=(proposal.change.diff,),
            details={"replaced": proposal.replaced, "first_changed_line": proposal.first_changed_line},
        )


def _preparation(spec: ToolSpec, proposal: _Proposal, sizes: dict[str, Json]) -> CallPreparation:
    return CallPreparation(
        structured_input={"kind": "file", "op": spec.name, "resolved_path": str(proposal.target), **sizes},
        preview=DiffPreview(files=[proposal.change.diff]),
        side_effect=spec.side_effect,
        execution=spec.execution,
        title=f"{spec.name} {proposal.name} ({proposal.extent})",
    )


def _propose(context: ToolContext, path: str, rewrite: Rewrite) -> _Proposal:
    """Work the change out. The version it is based on becomes the one the agent knows, so that what a person agreed
    to is not made to another."""
    target = context.policy.resolve_write(path, context.working_directory)
    stored = text_files.read(target)
    _require_known(context, target, stored)
    file = None if stored is None else stored.decode(target)
    _require_saved(context, target, file)
    text, replaced = rewrite(file, target)
    before = None if file is None else file.text
    name = shown(target, context.working_directory)
    return _Proposal(
        target=target,
        name=name,
        stored=stored,
        data=(file or TextFile("")).encode(text),
        change=change(str(target), name, before, text),
        replaced=replaced,
        first_changed_line=first_difference(before or "", text),
    )


def _make(context: ToolContext, path: str, rewrite: Rewrite, stop: Stop) -> _Proposal:
    proposal = _propose(context, path, rewrite)
    _require_same_place(context, proposal.target)
    stop.check()
    if proposal.stored is None or proposal.data != proposal.stored.data:
        text_files.replace(proposal.target, proposal.data, expected=proposal.stored)
    if context.files is not None:
        context.files.note(proposal.target, text_files.digest(proposal.data))
    return proposal


def _require_known(context: ToolContext, target: Path, stored: Stored | None) -> None:
    if context.files is None:
        return
    now = text_files.ABSENT if stored is None else stored.digest
    seen = context.files.seen(target)
    if seen is None:
        context.files.note(target, now)
    elif seen != now:
        what = "is gone" if stored is None else "has appeared" if seen == text_files.ABSENT else "has changed on disk"
        raise StaleFile(f"{target} {what} since you last looked; nothing was changed. Read it again first.")


def _require_same_place(context: ToolContext, target: Path) -> None:
    """A link may have been turned while a person was thinking; what they agreed to is a change of one file."""
    shown_target = context.prepared and context.prepared.structured_input.get("resolved_path")
    if shown_target is not None and shown_target != str(target):
        raise StaleFile(f"the path leads to {target} now, and was agreed to as {shown_target}; nothing was changed.")


def _require_saved(context: ToolContext, target: Path, file: TextFile | None) -> None:
    unsaved = context.overlay(target)
    if unsaved is not None and (file is None or unsaved != file.text):
        raise ToolError(
            f"{target} has unsaved changes in an editor, which a write would put in conflict; nothing was changed. "
            "Ask for it to be saved first."
        )


def _write_request(spec: ToolSpec, input: dict[str, Json]) -> tuple[str, Rewrite]:
    fields = cast(InputSchema, spec.input_schema).canonical(input)
    path, content = string(fields, "path"), string(fields, "content")

    def rewrite(file: TextFile | None, target: Path) -> tuple[str, int]:
        return (content if file is None else _in_style_of(file, content)), 1

    return path, rewrite


def _in_style_of(file: TextFile, content: str) -> str:
    """`content` with the line endings of a file that has only CRLF, and without a mark the file has anyway."""
    if file.bom:
        content = content.removeprefix("\ufeff")
    lines = file.text.count("\n")
    if lines and file.text.count("\r\n") == lines and "\r" not in content:
        return content.replace("\n", "\r\n")
    return content


def _edit_request(input: dict[str, Json]) -> tuple[str, Rewrite]:
    path, edits = read_edits(input)

    def rewrite(file: TextFile | None, target: Path) -> tuple[str, int]:
        if file is None:
            raise ToolError(f"there is no file {target}; use write to create one")
        return apply_edits(file.text, edits)

    return path, rewrite
