"""Which version of each file an agent has seen: the memory behind refusing to write over somebody else's change."""

from pathlib import Path


class ReadLedger:
    """Digests by canonical path, for one live session. A session that was resumed has seen nothing yet."""

    def __init__(self) -> None:
        self._seen: dict[Path, str] = {}

    def note(self, path: Path, digest: str) -> None:
        """Remember that this version of `path` was read or written."""
        self._seen[path] = digest

    def seen(self, path: Path) -> str | None:
        """Digest of the version last read or written, if any."""
        return self._seen.get(path)
