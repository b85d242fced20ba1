"""The skills of one runtime: which roots there are, and what a name means (runtime.md 1.7).

Owns precedence and who holds a root. How skills are read from disk: `skill_files.py`. Live and shared: what is
registered later is seen by sessions that exist already (RT-10). Safe from any thread; registering blocks.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from basis_daemon.errors import UsageError
from basis_daemon.runtime.envelopes import envelope
from basis_daemon.runtime.skill_files import DuplicateSkillName as DuplicateSkillName
from basis_daemon.runtime.skill_files import InvalidFrontmatter as InvalidFrontmatter
from basis_daemon.runtime.skill_files import Skill, load_root
from basis_daemon.runtime.skill_files import SkillLoadError as SkillLoadError

_INTRODUCTION = "Instructions for particular kinds of work. Read the fitting one with load_skill before you begin:"


class UnknownSkill(UsageError):
    """There is no such skill, or none the model may use. Lists those there are."""

    kind = "unknown_skill"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no skill {name!r}; there are: {', '.join(known) or 'none'}")


@dataclass(frozen=True, slots=True)
class SkillInfo:
    """What a name resolves to (SK-5)."""

    name: str
    description: str
    path: Path
    root: Path
    model_invocable: bool


@dataclass(slots=True, eq=False)
class _Root:
    path: Path
    given: Path
    """As it was spelled when it was registered: all there is to match once it is gone from disk (SK-4)."""
    skills: dict[str, Skill]
    is_registered: bool = False
    holders: int = 0


class SkillTable:
    """The roots, strongest first, and what is in them."""

    def __init__(self) -> None:
        self._on_presence: Callable[[bool], None] = lambda has_roots: None
        self._lock = threading.RLock()
        self._roots: dict[Path, _Root] = {}
        """By canonical path, strongest first."""

    def tell(self, on_presence: Callable[[bool], None]) -> None:
        """Have `on_presence` told whether there are roots at all: now, and whenever that changes. It must not raise."""
        with self._lock:
            self._on_presence = on_presence
            on_presence(bool(self._roots))

    # --- roots -------------------------------------------------------------------------------------------------------

    def register(self, roots: Iterable[str | os.PathLike[str]]) -> None:
        """Add roots, strongest first, behind those there are; one that is there is read again and keeps its place.
        All or none (SK-3). Raises `SkillLoadError` kinds."""
        self._add(roots, is_hold=False)

    def unregister(self, roots: Iterable[str | os.PathLike[str]]) -> bool:
        """Take registered roots away; weaker ones show again. Returns whether any was dropped (SK-4)."""
        with self._lock:
            found = [root for root in map(self._find, roots) if root is not None and root.is_registered]
            for root in found:
                root.is_registered = False
            return self._drop_unused()

    def hold(self, roots: Iterable[str | os.PathLike[str]]) -> Callable[[], None]:
        """Have roots for as long as they are held: they leave with their last holder (SH-5). Returns what gives them
        back, once. Raises as `register` does."""
        held = self._add(roots, is_hold=True)

        def release() -> None:
            with self._lock:
                while held:
                    held.pop().holders -= 1
                self._drop_unused()

        return release

    @property
    def roots(self) -> list[Path]:
        with self._lock:
            return list(self._roots)

    # --- skills ------------------------------------------------------------------------------------------------------

    def skills(self, preferred: Sequence[Path] = ()) -> list[SkillInfo]:
        """What every name resolves to now, by name. Roots in `preferred` come first, in that order (SH-7)."""
        found = self._resolved(preferred)
        return [
            SkillInfo(skill.name, skill.description, skill.path, skill.root, skill.model_invocable)
            for _, skill in sorted(found.items())
        ]

    def body(self, name: str, preferred: Sequence[Path] = (), *, for_model: bool = False) -> str:
        """A skill's text (SK-6). `for_model` admits only those it may use itself. Raises `UnknownSkill`."""
        found = self._resolved(preferred)
        allowed = {each: skill for each, skill in found.items() if skill.model_invocable or not for_model}
        if name not in allowed:
            raise UnknownSkill(name, sorted(allowed))
        return allowed[name].body

    # -----------------------------------------------------------------------------------------------------------------

    def _add(self, roots: Iterable[str | os.PathLike[str]], *, is_hold: bool) -> list[_Root]:
        spelled = {Path(os.path.realpath(root)): Path(root) for root in roots}
        loaded = {path: load_root(path) for path in spelled}
        with self._lock:
            had_roots = bool(self._roots)
            for path, skills in loaded.items():
                present = self._roots.get(path)
                if present is None:
                    self._roots[path] = _Root(path, spelled[path], skills)
                else:
                    present.skills = skills
            added = [self._roots[path] for path in loaded]
            for root in added:
                root.holders += is_hold
                root.is_registered |= not is_hold
            if self._roots and not had_roots:
                self._on_presence(True)
            return added

    def _find(self, given: str | os.PathLike[str]) -> _Root | None:
        real, spelled = Path(os.path.realpath(given)), Path(given)
        root = self._roots.get(real)
        return root or next((each for each in self._roots.values() if each.given == spelled), None)

    def _drop_unused(self) -> bool:
        unused = [path for path, root in self._roots.items() if not root.is_registered and not root.holders]
        for path in unused:
            del self._roots[path]
        if unused and not self._roots:
            self._on_presence(False)
        return bool(unused)

    def _resolved(self, preferred: Sequence[Path]) -> dict[str, Skill]:
        with self._lock:
            first = [self._roots[path] for path in preferred if path in self._roots]
            rest = [root for root in self._roots.values() if root not in first]
        found: dict[str, Skill] = {}
        for root in (*first, *rest):
            for name, skill in root.skills.items():
                found.setdefault(name, skill)
        return found


@dataclass(frozen=True, slots=True)
class SessionSkills:
    """The skills as one session has them: its own workspace's roots are stronger than others' (SH-7)."""

    table: SkillTable
    preferred: tuple[Path, ...] = ()

    def body(self, name: str) -> str:
        """One the model may use. Raises `UnknownSkill`."""
        return self.table.body(name, self.preferred, for_model=True)

    def listing(self) -> str | None:
        """What the model is told of those it may use (SK-6); `None` where there are none."""
        lines = [
            f"- {skill.name}: {skill.description}" if skill.description else f"- {skill.name}"
            for skill in self.table.skills(self.preferred)
            if skill.model_invocable
        ]
        return envelope("skills", "\n".join([_INTRODUCTION, *lines])) if lines else None
