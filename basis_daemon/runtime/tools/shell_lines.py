"""Takes a shell line apart into the simple commands it would run (PO-21).

Reads quotes, escapes, pipes, lists, substitutions, here-documents and redirections of the POSIX shell well enough to
say what a line is about. Runs nothing, expands nothing, and is no boundary.
"""

from dataclasses import dataclass, field
from typing import Self

MAX_CHARS = 50_000
MAX_DEPTH = 16
"""Substitutions within substitutions that are followed."""


class Unreadable(Exception):
    """The line can't be taken apart; `str()` says why."""


@dataclass(eq=False)
class SimpleCommand:
    """Words without their quotes, targets of output redirections, and the command whose output is its input."""

    words: list[str] = field(default_factory=list[str])
    outputs: list[str] = field(default_factory=list[str])
    fed_by: Self | None = None


def simple_commands(line: str) -> list[SimpleCommand]:
    """Every simple command of the line, those in substitutions included. Raises `Unreadable`."""
    if len(line) > MAX_CHARS:
        raise Unreadable("it is too long")
    reader = _Reader(line)
    reader.read("", 0)
    return [command for command in reader.commands if command.words or command.outputs]


class _Reader:
    def __init__(self, text: str) -> None:
        self.commands: list[SimpleCommand] = []
        self._text = text
        self._at = 0
        self._here_documents: list[str] = []

    def read(self, closing: str, depth: int) -> None:
        """Read commands up to `closing` (`)`, a backtick, or the end of the text) and step over it."""
        if depth > MAX_DEPTH:
            raise Unreadable("it nests too deeply")
        current = self._begin(None)
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == closing:
                self._at += 1
                return
            if char in " \t":
                self._at += 1
            elif char == "#":
                self._skip_to_line_end()
            elif self._starts("&>"):
                # Both outputs to a file: what follows reads as a redirection.
                self._at += 1
            elif char in "\n;&|()":
                current = self._next_command(current)
            elif char in "<>" and not self._starts("<(") and not self._starts(">("):
                self._redirection(current, closing, depth)
            else:
                self._add_word(current, closing, depth)
        if closing:
            raise Unreadable("a substitution is not closed" if closing == ")" else "a backtick is not closed")

    def _begin(self, fed_by: SimpleCommand | None) -> SimpleCommand:
        command = SimpleCommand(fed_by=fed_by)
        self.commands.append(command)
        return command

    def _next_command(self, current: SimpleCommand) -> SimpleCommand:
        is_pipe = self._text[self._at] == "|" and not self._starts("||")
        ends_line = self._text[self._at] == "\n"
        self._at += 2 if self._starts("||") or self._starts("&&") or self._starts("|&") else 1
        if ends_line:
            self._skip_here_documents()
        return self._begin(current if is_pipe else None)

    def _add_word(self, command: SimpleCommand, closing: str, depth: int) -> None:
        word = self._word(closing, depth)
        if word.isdigit() and self._peek() in ("<", ">"):
            return
        command.words.append(word)

    def _redirection(self, command: SimpleCommand, closing: str, depth: int) -> None:
        start = self._at
        while self._peek() in ("<", ">", "|", "&", "-") and self._at - start < 3:
            self._at += 1
        operator = self._text[start : self._at]
        while self._peek() in (" ", "\t"):
            self._at += 1
        target = self._word(closing, depth)
        if operator in ("<<", "<<-"):
            self._here_documents.append(target)
        elif ">" in operator and not (operator.endswith("&") and target.isdigit()):
            command.outputs.append(target)

    def _word(self, closing: str, depth: int) -> str:
        """One word, quotes taken off. What substitutions run is read as commands of their own."""
        parts: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == closing or (char in " \t\n;&|()<>" and not self._starts("<(") and not self._starts(">(")):
                break
            parts.append(self._part(char, depth))
        return "".join(parts)

    def _part(self, char: str, depth: int) -> str:
        if char == "\\":
            self._at += 2
            escaped = self._text[self._at - 1 : self._at]
            return "" if escaped == "\n" else escaped
        if char == "'":
            end = self._text.find("'", self._at + 1)
            if end < 0:
                raise Unreadable("a quote is not closed")
            quoted = self._text[self._at + 1 : end]
            self._at = end + 1
            return quoted
        if char == '"':
            return self._double_quoted(depth)
        return self._substitution(char, depth)

    def _double_quoted(self, depth: int) -> str:
        self._at += 1
        parts: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return "".join(parts)
            if char == "\\":
                self._at += 2
                parts.append(self._text[self._at - 1 : self._at])
            else:
                parts.append(self._substitution(char, depth))
        raise Unreadable("a quote is not closed")

    def _substitution(self, char: str, depth: int) -> str:
        """A substitution, whose commands are read, or one ordinary character."""
        if self._starts("$(("):
            end = self._text.find("))", self._at)
            if end < 0:
                raise Unreadable("an arithmetic expression is not closed")
            self._at = end + 2
            return "$((…))"
        if self._starts("$(") or self._starts("<(") or self._starts(">("):
            self._at += 2
            return self._nested(")", depth)
        self._at += 1
        return self._nested("`", depth) if char == "`" else char

    def _nested(self, closing: str, depth: int) -> str:
        self.read(closing, depth + 1)
        return "$(…)"

    def _skip_to_line_end(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _skip_here_documents(self) -> None:
        for delimiter in self._here_documents:
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = min(end + 1, len(self._text))
                if line.strip("\t") == delimiter:
                    break
        self._here_documents.clear()

    def _starts(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]
