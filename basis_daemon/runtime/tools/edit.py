"""The tools that change files: `write` and `edit` (runtime.md 4.10, workspace.md 2.10).

Owns their inputs and what is said of a change. How it is worked out, checked and made: `changes.py`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import cast

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools.base import (
    CallPreparation,
    InputSchema,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolSpec,
)
from basis_daemon.runtime.tools.changes import Changed, ChangeSet, in_style_of
from basis_daemon.runtime.tools.edit_inputs import canonical_edits, read_edits
from basis_daemon.runtime.tools.edits import apply_edits
from basis_daemon.runtime.tools.inputs import PATH_ALIASES, spelled, string
from basis_daemon.runtime.tools.text_files import TextFile
from basis_daemon.runtime.tools.threads import Stop, in_thread
from basis_protocol.content import DiffPreview

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
        _, changed, _ = await in_thread(lambda stop: _propose(context, path, rewrite))
        return _preparation(self.spec, changed, {"bytes": len(changed.data or b"")})

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        path, rewrite = _write_request(self.spec, input)
        changed, _ = await in_thread(lambda stop: _make(context, path, rewrite, stop))
        done = "wrote" if changed.was_there else "created"
        return ToolOutput(
            f"{done} {changed.name} ({len(changed.data or b'')} bytes)",
            summary=f"write {changed.name} ({changed.extent})",
            diff=(changed.change.diff,),
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
        _, changed, replaced = await in_thread(lambda stop: _propose(context, path, rewrite))
        return _preparation(self.spec, changed, {"replacements": replaced})

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        path, rewrite = _edit_request(input)
        changed, replaced = await in_thread(lambda stop: _make(context, path, rewrite, stop))
        passages = "1 passage" if replaced == 1 else f"{replaced} passages"
        return ToolOutput(
            f"replaced {passages} in {changed.name}",
            summary=f"edit {changed.name} ({changed.extent})",
            diff=(changed.change.diff,),
            details=_details(changed, replaced),
        )


def _preparation(spec: ToolSpec, changed: Changed, sizes: dict[str, Json]) -> CallPreparation:
    return CallPreparation(
        structured_input={"kind": "file", "op": spec.name, "resolved_path": str(changed.target), **sizes},
        preview=DiffPreview(files=[changed.change.diff]),
        side_effect=spec.side_effect,
        execution=spec.execution,
        title=f"{spec.name} {changed.name} ({changed.extent})",
    )


def _propose(context: ToolContext, path: str, rewrite: Rewrite) -> tuple[ChangeSet, Changed, int]:
    changes = ChangeSet(context)
    target = changes.resolve(path)
    text, replaced = rewrite(changes.text(target), target)
    changes.put(target, text)
    return changes, changes.outcome(target), replaced


def _make(context: ToolContext, path: str, rewrite: Rewrite, stop: Stop) -> tuple[Changed, int]:
    changes, changed, replaced = _propose(context, path, rewrite)
    changes.commit(stop)
    return changed, replaced


def _details(changed: Changed, replaced: int) -> dict[str, Json]:
    """What a host can show of an edit (BT-8)."""
    made = changed.change
    return {
        "replaced": replaced,
        "first_changed_line": changed.first_changed_line,
        "diff": {"added": made.added, "removed": made.removed, "truncated": made.diff.truncated},
        "patch": made.diff.patch,
    }


def _write_request(spec: ToolSpec, input: dict[str, Json]) -> tuple[str, Rewrite]:
    fields = cast(InputSchema, spec.input_schema).canonical(input)
    path, content = string(fields, "path"), string(fields, "content")

    def rewrite(file: TextFile | None, target: Path) -> tuple[str, int]:
        return (content if file is None else in_style_of(file, content)), 1

    return path, rewrite


def _edit_request(input: dict[str, Json]) -> tuple[str, Rewrite]:
    path, edits = read_edits(input)

    def rewrite(file: TextFile | None, target: Path) -> tuple[str, int]:
        if file is None:
            raise ToolError(f"there is no file {target}; use write to create one")
        return apply_edits(file.text, edits)

    return path, rewrite
