"""Skills as a workspace has them: where they are looked for, and holding them while it is open (workspace.md 2.3).

Owns the four places and their order. What is in them is read by the runtime: see `skills.py` there.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.runtime.skills import SkillInfo, SkillTable
from basis_daemon.workspace.discovery import GLOBAL, WORKSPACE, GlobalDir, Inherit, Source, chosen_global_dir, distinct

SHARED_DIR = ".agents/skills"
"""Where other tools look as well: in the workspace and in the home directory (SK-2)."""

GLOBAL_NAME = "skills"

LoadedSkill = SkillInfo
"""A skill as it was when the workspace was opened (SK-5)."""


@dataclass(frozen=True, slots=True)
class SkillsConfig:
    """Where skills are looked for. Without a `global_dir` both personal places are left out (SK-2)."""

    workspace_subdir: str = ".basis/skills"
    global_dir: GlobalDir = Inherit.GLOBAL_DIR
    enabled: bool = True

    @classmethod
    def disabled(cls) -> "SkillsConfig":
        """Look for no skills at all."""
        return cls(enabled=False)


def discover_skill_roots(
    root: Path, config: SkillsConfig, *, global_dir: Path | None, environment: Mapping[str, str]
) -> list[Source]:
    """The directories of skills there are, most specific first, canonical, each once (SK-1, SK-3). Blocking."""
    if not config.enabled:
        return []
    places = [Source(root / config.workspace_subdir, WORKSPACE), Source(root / SHARED_DIR, WORKSPACE)]
    personal = chosen_global_dir(config.global_dir, global_dir)
    if personal is not None:
        places.append(Source(personal / GLOBAL_NAME, GLOBAL))
        home = environment.get("HOME")
        if home and os.path.isabs(home):
            places.append(Source(Path(home) / SHARED_DIR, GLOBAL))
    present = [place for place in places if place.path.is_dir()]
    return [Source(Path(os.path.realpath(place.path)), place.scope) for place in distinct(present)]


class SkillHold:
    """The roots of one workspace in the runtime's table, from its opening to its close (SH-5, SH-6)."""

    def __init__(self, table: SkillTable, roots: Sequence[Path]) -> None:
        self._table = table
        self._roots = tuple(roots)
        self._lock = threading.Lock()
        self._give_back: Callable[[], None] | None = None
        self._is_over = False

    def take(self) -> tuple[SkillInfo, ...]:
        """Hold them, all or none. Returns what names mean now. Blocking: use a thread. Raises `SkillLoadError`s."""
        if not self._roots:
            return tuple(self._table.skills())
        give_back = self._table.hold(self._roots)
        with self._lock:
            self._give_back = give_back
            is_over = self._is_over
        if is_over:  # given back while the thread was still reading
            give_back()
        return tuple(self._table.skills(self._roots))

    def release(self) -> None:
        """Give them back. Idempotent; safe while `take` is under way in a thread."""
        with self._lock:
            self._is_over = True
            give_back = self._give_back
        if give_back is not None:
            give_back()
