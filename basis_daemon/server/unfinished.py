"""Which conversations have something left to do, so that a new daemon knows without reading every transcript.

One empty file a conversation, `<data>/unfinished/<session id>`, from a prompt's acceptance to the last turn's end. Only
a hint for lists: a conversation that is loaded says itself what it is in the middle of. Blocking: use a thread.
"""

from pathlib import Path
from urllib.parse import quote, unquote


class Unfinished:
    """The directory of marks, and the ids found in it when the daemon started."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ids: set[str] = set()

    def load(self) -> None:
        """Read what an earlier daemon left."""
        if self._directory.is_dir():
            self.ids = {unquote(path.name) for path in self._directory.iterdir()}

    def add(self, session_id: str) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path(session_id).touch(mode=0o600)
        self.ids.add(session_id)

    def remove(self, session_id: str) -> None:
        if session_id in self.ids:  # anything else may be no file name at all
            self._path(session_id).unlink(missing_ok=True)
            self.ids.discard(session_id)

    def _path(self, session_id: str) -> Path:
        return self._directory / quote(session_id, safe="").replace(".", "%2E")
