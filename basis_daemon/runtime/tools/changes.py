"""Changes of files, worked out against the disk and each other before any of them is made (BT-4, BT-10).

The one engine under `write`, `edit` and `files`. Owns what is shown of a change beforehand, and what is checked again
when it is made: a change is worked out from the file as it is on disk, and refused when that isn't the version the
agent knows: one it read, wrote, or proposed a change to. How bytes get into place: `file_writes.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from basis_daemon.runtime.messages import Json
from basis_daemon.runtime.tools import file_writes, text_files
from basis_daemon.runtime.tools.base import ToolContext, ToolError
from basis_daemon.runtime.tools.diffs import Change, change
from basis_daemon.runtime.tools.edits import first_difference
from basis_daemon.runtime.tools.file_writes import FileChange, StaleFile
from basis_daemon.runtime.tools.inputs import shown
from basis_daemon.runtime.tools.text_files import Stored, TextFile
from basis_daemon.runtime.tools.threads import Stop
from basis_protocol.content import FileDiff


@dataclass(frozen=True, slots=True)
class Changed:
    """What becomes of one path."""

    target: Path
    name: str
    """The path as it is shown."""
    was_there: bool
    data: bytes | None
    """`None` when no file is left."""
    change: Change
    first_changed_line: int

    @property
    def extent(self) -> str:
        return str(self.change) if self.was_there else f"new file, {self.change}"


@dataclass(frozen=True, slots=True)
class _Content:
    data: bytes
    origin: Stored | None = None
    """The file on disk it began as."""
    moved_from: Path | None = None
    """Where it is on disk, byte for byte, if that is elsewhere."""


@dataclass(slots=True)
class _Place:
    """One path: as it was found, and as it is left so far."""

    target: Path
    name: str
    stored: Stored | None
    now: _Content | None


class ChangeSet:
    """Changes for one call. Each sees those before it; nothing is on disk until `commit`. Blocking: use a thread."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._places: dict[Path, _Place] = {}

    def resolve(self, path: str) -> Path:
        """The file meant, if it may be written. Raises `PolicyDenied`."""
        return self._context.policy.resolve_write(path, self._context.working_directory)

    def texts(self) -> dict[Path, str | None]:
        """What paths hold by now that are not as on disk; `None` for files that are gone, and no text is no entry."""
        held = {place.target: None if place.now is None else place.now.data for place in self._different()}
        texts = {target: _text_or_none(data, target) for target, data in held.items()}
        return {target: text for target, text in texts.items() if text is not None or held[target] is None}

    def presence(self) -> dict[Path, bool]:
        """Whether there is a file by now, for every path that is not as on disk."""
        return {place.target: place.now is not None for place in self._different()}

    def text(self, target: Path) -> TextFile | None:
        """What the file holds by now; `None` if there is none. Raises `ToolError`, `StaleFile`."""
        content = self._place(target).now
        return None if content is None else text_files.decode(content.data, target)

    def has(self, target: Path) -> bool:
        """Whether there is a file by now. Raises `StaleFile`."""
        return self._place(target).now is not None

    def rewrite(self, target: Path, content: str) -> int:
        """Have the file hold `content` and nothing else, in its own style. Returns the size in bytes."""
        file = self.text(target)
        self.put(target, content if file is None else in_style_of(file, content))
        held = self._places[target].now
        return 0 if held is None else len(held.data)

    def put(self, target: Path, text: str) -> None:
        """Have the file hold `text`, encoded as the file is; a missing one is created. Raises `ToolError`."""
        place = self._place(target)
        file = None if place.now is None else text_files.decode(place.now.data, target)
        self._require_saved(place)
        data = text_files.for_text(file, target, text).encode(text)
        text_files.require_size(target, len(data))
        origin = place.now.origin if place.now is not None else place.stored
        unchanged = place.now is not None and place.now.data == data
        place.now = _Content(data, origin, place.now.moved_from if place.now is not None and unchanged else None)

    def move(self, source: Path, target: Path) -> None:
        """Raises `ToolError` when there is no file, or the target is there."""
        origin, goal = self._place(source), self._place(target)
        if origin.now is None:
            raise ToolError(f"there is no file {source}")
        if goal.now is not None:
            raise ToolError(f"{target} is there already; delete it first or choose another name")
        self._require_saved(origin)
        self._require_saved(goal)
        is_as_stored = origin.stored is not None and origin.now.data == origin.stored.data
        moved_from = origin.now.moved_from or (source if is_as_stored else None)
        goal.now, origin.now = replace(origin.now, moved_from=moved_from), None

    def delete(self, target: Path) -> None:
        place = self._place(target)
        if place.now is None:
            raise ToolError(f"there is no file {target}")
        self._require_saved(place)
        place.now = None

    def outcome(self, target: Path) -> Changed:
        """What the changes so far come to for one path that was touched."""
        place = self._places[target]
        before = "" if place.stored is not None else None
        after = "" if place.now is not None else None
        if place.stored is not None:
            before = _text_or_none(place.stored.data, target) or ""
        if place.now is not None:
            after = _text_or_none(place.now.data, target) or ""
        made = change(str(target), place.name, before, after)
        return Changed(
            target=target,
            name=place.name,
            was_there=place.stored is not None,
            data=None if place.now is None else place.now.data,
            change=replace(made, diff=self._told(place, made.diff)),
            first_changed_line=first_difference(before or "", after or ""),
        )

    def outcomes(self) -> Iterator[Changed]:
        """All that is different from the disk, in the order it was touched in. A path that was moved away is told of
        with the one it was moved to."""
        moved = {place.now.moved_from for place in self._different() if place.now is not None}
        for place in self._different():
            if place.now is not None or place.target not in moved:
                yield self.outcome(place.target)

    def commit(self, stop: Stop) -> None:
        """Make all changes or none. Raises `StaleFile` when a path leads elsewhere than was agreed to, or somebody else
        wrote, and `ToolError`."""
        different = list(self._different())
        agreed = _agreed(self._context)
        for place in self._places.values():
            if agreed is not None and str(place.target) not in agreed:
                raise StaleFile(
                    f"the path leads to {place.target} now, and was agreed to as {' or '.join(sorted(agreed))}; "
                    "nothing was changed."
                )
        stop.check()
        file_writes.commit([_file_change(place) for place in different])
        for place in self._places.values():
            self._note(place, text_files.ABSENT if place.now is None else text_files.digest(place.now.data))

    # -----------------------------------------------------------------------------------------------------------------

    def _different(self) -> Iterator[_Place]:
        for place in self._places.values():
            before = None if place.stored is None else place.stored.data
            if before != (None if place.now is None else place.now.data):
                yield place

    def _place(self, target: Path) -> _Place:
        """The path as it is left so far. Looked at for the first time, its version becomes the one the agent knows, so
        that what a person agreed to is not made to another."""
        place = self._places.get(target)
        if place is None:
            stored = text_files.read(target)
            name = shown(target, self._context.working_directory)
            place = _Place(target, name, stored, None if stored is None else _Content(stored.data, stored))
            self._require_known(place)
            self._places[target] = place
        return place

    def _require_known(self, place: _Place) -> None:
        if self._context.files is None:
            return
        now = text_files.ABSENT if place.stored is None else place.stored.digest
        seen = self._context.files.seen(place.target)
        if seen is None:
            self._note(place, now)
        elif seen != now:
            is_new = seen == text_files.ABSENT
            what = "is gone" if place.stored is None else "has appeared" if is_new else "has changed on disk"
            raise StaleFile(f"{place.target} {what} since you last looked; nothing was changed. Read it again first.")

    def _note(self, place: _Place, digest: str) -> None:
        if self._context.files is not None:
            self._context.files.note(place.target, digest)

    def _require_saved(self, place: _Place) -> None:
        unsaved = self._context.overlay(place.target)
        if unsaved is None:
            return
        stored = None if place.stored is None else place.stored.decode(place.target)
        if stored is None or unsaved != stored.text:
            raise ToolError(
                f"{place.target} has unsaved changes in an editor, which a write would put in conflict; nothing was "
                "changed. Ask for it to be saved first."
            )

    def _told(self, place: _Place, diff: FileDiff) -> FileDiff:
        """The diff, with what a text's lines don't say: that a file was moved, or is no text."""
        if place.now is not None and place.now.moved_from is not None and place.now.moved_from != place.target:
            origin = shown(place.now.moved_from, self._context.working_directory)
            return FileDiff(path=diff.path, patch=f"rename from {origin}\nrename to {place.name}\n")
        if place.stored is not None and place.now is None and not diff.patch:
            size = len(place.stored.data)
            return FileDiff(path=diff.path, patch=f"deleted file {place.name} ({size} bytes)\n")
        return diff


def _text_or_none(data: bytes | None, target: Path) -> str | None:
    """A text to show lines of; files that are moved or deleted need not be any."""
    if data is None:
        return None
    try:
        return text_files.decode(data, target).text
    except ToolError:
        return None


def _file_change(place: _Place) -> FileChange:
    content = place.now
    if content is None:
        return FileChange(place.target, place.stored, None)
    moved_from = content.moved_from if content.moved_from != place.target else None
    permissions = content.origin.status if content.origin is not None else None
    return FileChange(place.target, place.stored, content.data, moved_from, permissions)


def _agreed(context: ToolContext) -> frozenset[str] | None:
    """The paths a person was shown; a link may have been turned while they were thinking."""
    if context.prepared is None:
        return None
    shown_input = context.prepared.structured_input
    entries = shown_input.get("operations")
    operations = cast(list[dict[str, Json]], entries) if isinstance(entries, list) else [shown_input]
    fields = ("resolved_path", "resolved_from", "resolved_to")
    paths = [operation[field] for operation in operations for field in fields if field in operation]
    return frozenset(path for path in paths if isinstance(path, str)) or None


def in_style_of(file: TextFile, content: str) -> str:
    """`content` with the line endings of a file that has only CRLF, and without a mark the file has anyway."""
    if file.bom:
        content = content.removeprefix("\ufeff")
    lines = file.text.count("\n")
    if lines and file.text.count("\r\n") == lines and "\r" not in content:
        return content.replace("\n", "\r\n")
    return content
