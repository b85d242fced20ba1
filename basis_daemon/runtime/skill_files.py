"""Skills on disk: what a directory of them holds (runtime.md 1.7).

Owns the walk, the frontmatter and their limits. Which skills a name means is `skills.py`'s. Blocking: use a thread.
"""

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from basis_daemon.errors import BasisError

logger = logging.getLogger(__name__)

FILE_NAME = "SKILL.md"

MAX_BODY_BYTES = 256 * 1024
"""A skill is given to the model whole, so it must not be larger than that (D-83)."""

MAX_FRONTMATTER_BYTES = 16 * 1024
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024
"""More is cut in the list every request carries."""

MAX_DIRECTORIES = 10_000
MAX_DEPTH = 16

_DELIMITER = re.compile(r"^---[ \t]*$", re.MULTILINE)


class SkillLoadError(BasisError):
    """A skill directory that can't be used; says which file and why."""

    kind = "skill_load"

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}", details={"path": str(path)})
        self.path = path


class InvalidFrontmatter(SkillLoadError):
    """SK-1: what stands between the `---` lines can't be understood."""

    kind = "invalid_frontmatter"


class DuplicateSkillName(SkillLoadError):
    """SK-2: two skills of one root have the same name."""

    kind = "duplicate_skill_name"


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill as it was when its root was registered."""

    name: str
    description: str
    path: Path
    root: Path
    model_invocable: bool
    body: str


def load_root(root: Path) -> dict[str, Skill]:
    """The skills below a canonical directory, by name. Raises `SkillLoadError` kinds."""
    if not root.is_dir():
        raise SkillLoadError(root, "there is no such directory")
    skills: dict[str, Skill] = {}
    for path in _skill_files(root):
        skill = _read(path, root)
        twin = skills.get(skill.name)
        if twin is not None:
            raise DuplicateSkillName(path, f"there is a skill {skill.name!r} already, in {twin.path}")
        skills[skill.name] = skill
    return skills


def _skill_files(root: Path) -> Iterator[Path]:
    """Paths of the files, by their spelling. Links out of the root are left out, and cycles broken (SK-7)."""
    seen = {os.path.realpath(root)}
    waiting = [(root, 0)]
    while waiting:
        directory, depth = waiting.pop()
        below: list[tuple[Path, int]] = []
        for entry in _entries(directory):
            if entry.name == FILE_NAME:
                if _stays_inside(entry.path, root) and os.path.isfile(entry.path):
                    yield Path(entry.path)
            elif entry.is_dir() and entry.name != ".git" and depth < MAX_DEPTH and _stays_inside(entry.path, root):
                real = os.path.realpath(entry.path)
                if real not in seen:
                    seen.add(real)
                    below.append((Path(entry.path), depth + 1))
        waiting += reversed(below)
        if len(seen) > MAX_DIRECTORIES:
            raise SkillLoadError(root, f"more than {MAX_DIRECTORIES} directories; this is no directory of skills")


def _entries(directory: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise SkillLoadError(directory, f"can't be listed: {(error.strerror or str(error)).lower()}") from error


def _stays_inside(path: str, root: Path) -> bool:
    real = os.path.realpath(path)
    if Path(real).is_relative_to(os.path.realpath(root)):
        return True
    logger.warning("%s is left out: it leads out of the skills in %s", path, root)
    return False


def _read(path: Path, root: Path) -> Skill:
    text = _text(path)
    fields, body = _parted(path, text)
    name = _word(path, fields, "name") or path.parent.name
    if not name.isprintable() or len(name) > MAX_NAME_CHARS:
        raise InvalidFrontmatter(path, f"name: more than {MAX_NAME_CHARS} characters, or some that can't be shown")
    return Skill(
        name=name,
        description=_word(path, fields, "description")[:MAX_DESCRIPTION_CHARS],
        path=path,
        root=root,
        model_invocable=not _flag(path, fields),
        body=body,
    )


def _text(path: Path) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            data = file.read(MAX_BODY_BYTES + MAX_FRONTMATTER_BYTES + 1)
    except OSError as error:
        raise SkillLoadError(path, f"can't be read: {(error.strerror or str(error)).lower()}") from error
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        if len(data) > MAX_BODY_BYTES + MAX_FRONTMATTER_BYTES:
            raise _too_long(path) from error
        raise SkillLoadError(path, f"is not UTF-8 text (byte {error.start})") from error


def _parted(path: Path, text: str) -> tuple[dict[str, Any], str]:
    """The frontmatter's fields and what stands below it. A file without any is all body."""
    fields: dict[str, Any] = {}
    opening = _DELIMITER.match(text)
    if opening is not None:
        closing = _DELIMITER.search(text, opening.end())
        if closing is None:
            raise InvalidFrontmatter(path, "the frontmatter that begins in line 1 has no closing --- line")
        fields = _fields(path, text[opening.end() : closing.start()])
        text = text[closing.end() :]
    body = text.strip("\n")
    if len(body.encode()) > MAX_BODY_BYTES:
        raise _too_long(path)
    return fields, body


def _too_long(path: Path) -> SkillLoadError:
    return SkillLoadError(path, f"is larger than {MAX_BODY_BYTES} bytes; put what is not always needed in other files")


def _fields(path: Path, source: str) -> dict[str, Any]:
    import yaml  # slow to import, and most runtimes have no skills

    if len(source) > MAX_FRONTMATTER_BYTES:
        raise InvalidFrontmatter(path, f"the frontmatter is longer than {MAX_FRONTMATTER_BYTES} characters")
    try:
        value = yaml.safe_load(source)
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise InvalidFrontmatter(path, f"the frontmatter is no YAML{line}: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidFrontmatter(path, f"the frontmatter is no YAML: {type(error).__name__}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidFrontmatter(path, "the frontmatter is no list of `name: value` lines")
    return cast(dict[str, Any], value)


def _word(path: Path, fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidFrontmatter(path, f"{name}: expected text")
    return " ".join(str(value).split())


def _flag(path: Path, fields: dict[str, Any]) -> bool:
    value = next((fields[name] for name in _DISABLING if name in fields), False)
    if not isinstance(value, bool):
        raise InvalidFrontmatter(path, f"{_DISABLING[0]}: expected true or false")
    return value


_DISABLING = ("disable-model-invocation", "disable_model_invocation")
