"""Unsaved text of the files that attached editors have open: what the agent reads instead of the disk (protocol.md 7).

Owns, per path, the newest changed text of any editor. A buffer that says the same as its file is none of this module's
business: the agent's own edits reach the disk before they reach the editor.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class _Buffer:
    """One editor's view of one file. `order` rises with every change of any buffer."""

    text: str
    is_changed: bool
    order: int


class Documents:
    """Open buffers of all editors, by canonical path. `overlay` may be called from any thread."""

    def __init__(self) -> None:
        self._buffers: dict[str, dict[str, _Buffer]] = {}
        self._order = 0

    def update(self, editor: str, path: str, text: str, *, is_changed: bool) -> None:
        """Take an editor's text of `path`. `is_changed` says whether it differs from the file, as far as known."""
        self._order += 1
        self._buffers.setdefault(path, {})[editor] = _Buffer(text, is_changed, self._order)

    def mark(self, editor: str, path: str, *, is_changed: bool) -> None:
        """The text is on disk now, or turned out to differ from it."""
        buffer = self._buffers.get(path, {}).get(editor)
        if buffer is not None:
            buffer.is_changed = is_changed

    def remove(self, editor: str, path: str) -> None:
        """An editor has closed its buffer."""
        buffers = self._buffers.get(path)
        if buffers is not None:
            buffers.pop(editor, None)
            if not buffers:
                self._buffers.pop(path, None)

    def remove_editor(self, editor: str) -> None:
        """An editor has gone, and all its buffers with it."""
        for path in list(self._buffers):
            self.remove(editor, path)

    def overlay(self, path: Path) -> str | None:
        """Unsaved text of a canonical path: the latest change of any editor, or `None`."""
        buffers = self._buffers.get(str(path))
        if not buffers:
            return None
        changed = [buffer for buffer in tuple(buffers.values()) if buffer.is_changed]
        return max(changed, key=lambda buffer: buffer.order).text if changed else None
