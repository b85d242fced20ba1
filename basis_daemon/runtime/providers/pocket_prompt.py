"""What the pocket model is told and may choose from.

Owns the two short prompts and the schema its first answer is forced into. No path, command or text of a file is ever
the model's own: it is picked from the words of the person, by the schema. The model is far too small to be trusted with
more, and for the usual prompt and tools of an agent its context is too small and its reading too slow.
"""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

MAX_WORDS_BYTES: Final = 2000
"""What a prompt may have. The model reads some 150 tokens a second on one idle core, 50 on a busy one."""
MAX_TEXT_BYTES: Final = 3000
"""How much of a file the model gets to see: about 1,000 tokens, so between seven and twenty seconds."""
MAX_REPLY_TOKENS: Final = 200
MAX_ANSWER_CHARS: Final = 600
MAX_PATHS: Final = 20
MAX_RUN_WORDS: Final = 8
MAX_UNMARKED_WORDS: Final = 40
"""In a longer prompt only what is marked as such can be a command or a text: every run of words is one choice more."""

_SYSTEM = (
    "You are a small assistant in a folder of files. Reply with one JSON object.\n"
    "read: show a file. write: make a new file. run: run a command. answer: say something."
)
_EXAMPLES: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("Read the file notes.txt and tell me what is in it.", {"tool": "read", "path": "notes.txt"}),
    (
        "Create a file hello.txt with the text Good morning",
        {"tool": "write", "path": "hello.txt", "content": "Good morning"},
    ),
    ("Run the command date", {"tool": "run", "command": "date"}),
    (
        "The red box weighs 4 kg, the blue box 9 kg. Which box is heavier?",
        {"tool": "answer", "text": "The blue box, at 9 kg."},
    ),
    ("Write app/list.md: eggs", {"tool": "write", "path": "app/list.md", "content": "eggs"}),
    ("What is in src/main.py?", {"tool": "read", "path": "src/main.py"}),
    ("What is a river?", {"tool": "answer", "text": "A river is water that flows to the sea."}),
    ("Please run make test", {"tool": "run", "command": "make test"}),
    ("Show me docs/plan.txt", {"tool": "read", "path": "docs/plan.txt"}),
)

_READER = "You answer questions about the text of a file. Answer in one sentence."
_READINGS: Final = (
    (
        "garden.ini",
        '[garden]\ntrees = 7\nowner = "Mia"\n',
        "How many trees are in garden.ini?",
        "garden.ini says that there are 7 trees.",
    ),
    (
        "letter.txt",
        "Dear Tom,\nthe train leaves at 9:20 from platform 3.\nAnn\n",
        "Read letter.txt and tell me what it says",
        "letter.txt says that the train leaves at 9:20 from platform 3.",
    ),
    (
        "double.py",
        "def double(x):\n    return 2 * x\n",
        "What does double.py do?",
        "double.py defines the function double, which returns its argument times two.",
    ),
)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the model may pick from for one prompt."""

    paths: tuple[str, ...]
    commands: tuple[str, ...]
    texts: tuple[str, ...]
    """What can be written to a file."""
    tools: frozenset[str]
    """Of `read`, `write` and `spawn`, those that are offered."""

    @property
    def may_answer(self) -> bool:
        """A prompt that names a file is not answered before the file was read: the model makes its contents up."""
        return not (self.paths and "read" in self.tools)


def choices(words: str, tools: Collection[str]) -> Choices:
    """What `words` leave to pick from, with these tools on offer."""
    paths = paths_in(words)
    texts = [text for text in texts_in(words) if text not in paths]
    return Choices(tuple(paths), tuple(commands_in(words)), tuple(texts), frozenset(tools) & {"read", "write", "spawn"})


_TOKEN = re.compile(r"`[^`\n]+`|\"[^\"\n]+\"|\S+")
_PATH_LIKE = re.compile(r"[/\\]|\.[A-Za-z_]|\A\.\w")
_BARE_NAMES = frozenset(
    {"authors", "changelog", "contributing", "dockerfile", "gemfile", "justfile", "license", "makefile", "readme"}
)


def paths_in(words: str) -> list[str]:
    """What looks like a path: has a slash or an extension, or is a well-known name without one."""
    found: dict[str, None] = {}
    for token in _TOKEN.findall(words):
        name = token.strip("`\"'()[]{}<>,;:!?").rstrip(".")
        if "://" not in name and (_PATH_LIKE.search(name) or name.lower() in _BARE_NAMES):
            found.setdefault(name)
    return list(found)[:MAX_PATHS]


def commands_in(words: str) -> list[str]:
    """What may be a command: everything between backticks, else every run of a few words of a short prompt."""
    found = re.findall(r"`([^`\n]+)`", words) or _runs(words)
    # The marks at the front mean something else to the tool than a command on this machine.
    runs = dict.fromkeys(run.lstrip("!").strip() for run in found)
    return [run for run in runs if run and not run.startswith("@")]


_QUOTED = re.compile(r"(?<!\w)(?:\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`)(?!\w)")
_FENCE = re.compile(r"\A```[^\n]*\n(.*?)\n?```\s*\Z", re.DOTALL)


def texts_in(words: str) -> list[str]:
    """What may be written: the lines after the first; else everything between quotes; else runs of a short prompt."""
    _, _, rest = words.partition("\n")
    if rest.strip():
        fenced = _FENCE.match(rest.strip())
        return [fenced[1] if fenced else rest.strip("\n")]
    paths = set(paths_in(words))
    quoted = [match[1] or match[2] or match[3] for match in _QUOTED.finditer(words)]
    quoted = [text for text in quoted if text not in paths]
    if quoted:
        return list(dict.fromkeys(quoted))
    places = [match.start() for match in re.finditer(r"\S+", words)]
    ends = [words[start:].rstrip() for start in places[1:]] if len(places) <= MAX_UNMARKED_WORDS else []
    return list(dict.fromkeys((*ends, *_runs(words))))


def _runs(words: str) -> list[str]:
    """Every run of a few words on one line, with and without the marks around it; none of a long prompt."""
    places = [match.span() for match in re.finditer(r"\S+", words)]
    if len(places) > MAX_UNMARKED_WORDS:
        return []
    runs: dict[str, None] = {}
    for first, (start, _) in enumerate(places):
        for _, end in places[first : first + MAX_RUN_WORDS]:
            run = words[start:end]
            if "\n" not in run:
                runs |= {run: None, run.strip("\"'.,;:!?"): None}
    return [run for run in runs if run]


def choosing(words: str, allowed: Choices) -> dict[str, Any]:
    """The request for the first answer of a turn: one action, as JSON of exactly this shape."""
    messages = [{"role": "system", "content": _SYSTEM}]
    for said, action in _EXAMPLES:
        messages += [
            {"role": "user", "content": said},
            {"role": "assistant", "content": json.dumps(action)},
        ]
    messages.append({"role": "user", "content": words})
    schema = {"name": "action", "strict": True, "schema": {"anyOf": _actions(allowed)}}
    return _request(messages) | {"response_format": {"type": "json_schema", "json_schema": schema}}


def reading(words: str, path: str, text: str) -> dict[str, Any]:
    """The request for an answer, in words, from the text of a file."""
    messages = [{"role": "system", "content": _READER}]
    for name, content, question, answer in _READINGS:
        messages += [
            {"role": "user", "content": _question(name, content, question)},
            {"role": "assistant", "content": answer},
        ]
    messages.append({"role": "user", "content": _question(path, text, words)})
    # One paragraph: what comes after it is never better.
    return _request(messages) | {"stop": ["\n\n"]}


def _question(name: str, text: str, words: str) -> str:
    return f"Text of {name}:\n{text}\nQuestion: {words}\nAnswer:"


def _request(messages: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "messages": messages,
        "temperature": 0,
        "max_tokens": MAX_REPLY_TOKENS,
        "stream_options": {"include_usage": True},
    }


def _actions(allowed: Choices) -> list[dict[str, Any]]:
    path = {"enum": list(allowed.paths)}
    actions: list[dict[str, Any]] = []
    if allowed.paths and "read" in allowed.tools:
        actions.append(_action("read", path=path))
    if allowed.paths and allowed.texts and "write" in allowed.tools:
        actions.append(_action("write", path=path, content={"enum": list(allowed.texts)}))
    if allowed.commands and "spawn" in allowed.tools:
        actions.append(_action("run", command={"enum": list(allowed.commands)}))
    if allowed.may_answer or not actions:
        actions.append(_action("answer", text={"type": "string", "maxLength": MAX_ANSWER_CHARS}))
    return actions


def _action(tool: str, **fields: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {"tool": {"const": tool}, **fields}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


# --- what the model is shown of a file -------------------------------------------------------------------------------

_NUMBER = re.compile(r"^L\d+: ?", re.MULTILINE)
_NOTE = re.compile(r"^\[[^\n]*\]\n?\Z", re.MULTILINE)


def plain_text(result: str) -> tuple[str, bool]:
    """What the `read` tool showed, without its line numbers and notes; and whether the model gets only a part of it."""
    unnumbered = [line for line in result.splitlines() if _NUMBER.match(line) or not _NOTE.match(line)]
    is_part = len(unnumbered) < len(result.splitlines()) and "read on with offset" in result
    text = _NUMBER.sub("", "\n".join(unnumbered))
    data = text.encode()
    if len(data) > MAX_TEXT_BYTES:
        return data[:MAX_TEXT_BYTES].decode(errors="ignore"), True
    return text, is_part
