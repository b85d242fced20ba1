"""The tool `files`: several operations on files in one call, all of them or none (BT-4, BT-5).

Owns what is shown of a call beforehand. How its operations are carried out: `batch_run.py`.
"""

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools import batch_ops
from basis_daemon.runtime.tools.base import (
    PARALLEL,
    CallPreparation,
    ExecutionCategory,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from basis_daemon.runtime.tools.batch_run import Batch
from basis_daemon.runtime.tools.threads import in_thread
from basis_protocol.content import CallPreview, DiffPreview


class FilesTool:
    """Reads, searches and changes files, in one call and in order."""

    spec = ToolSpec(
        name="files",
        description=(
            "Work on text files with a list of operations: read, list, search; create, set, replace, insert, move, "
            "delete. They are carried out in order and each sees what those before it did. If one fails, nothing is "
            "changed. Lines that are read come numbered as `L12: text`; the number is not part of the file."
        ),
        input_schema=batch_ops.SCHEMA,
        capabilities=frozenset({"filesystem_read", "filesystem_write"}),
        side_effect="local_state",
        approval="filesystem",
    )

    def execution_category(self, input: dict[str, Json]) -> ExecutionCategory:
        """Calls that only look run beside others (BT-4)."""
        return PARALLEL if batch_ops.is_read_only(input) else self.spec.execution

    async def prepare(self, context: ToolContext, input: dict[str, Json]) -> CallPreparation:
        batch = await Batch.of(context, input)
        if batch.is_read_only:
            operations = await in_thread(lambda stop: batch.judged())
        else:
            operations = await in_thread(lambda stop: batch.proposed())
        structured: dict[str, Json] = {
            "kind": "files",
            "working_directory": str(batch.directory or context.working_directory),
            "operations": operations,
        }
        if batch.is_read_only:
            preview = CallPreview(input=structured)
            return CallPreparation(structured, preview, "none", PARALLEL, title=f"files: {batch.summary()}")
        changed = await in_thread(lambda stop: list(batch.changes.outcomes()))
        return CallPreparation(
            structured_input=structured,
            preview=DiffPreview(files=[each.change.diff for each in changed]),
            side_effect=self.spec.side_effect,
            execution=self.spec.execution,
            title=f"files: {batch.summary(changed)}",
        )

    async def execute(self, context: ToolContext, input: dict[str, Json]) -> ToolOutput:
        batch = await Batch.of(context, input)
        sections = [await batch.carry_out(number) for number in range(len(batch.operations))]
        changed = await in_thread(batch.commit)
        return ToolOutput(
            "\n\n".join(sections),
            summary=f"files: {batch.summary(changed)}",
            diff=tuple(each.change.diff for each in changed),
        )
