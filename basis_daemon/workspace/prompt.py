"""The system prompt: what the repository says, then what the host says, and nothing of our own (CX-8…CX-10)."""

from dataclasses import dataclass

from basis_daemon.workspace.agents_md import WorkspaceContext


@dataclass(frozen=True, slots=True)
class Append:
    """Host text that follows the repository's, verbatim. Blank text is nothing."""

    text: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Host text instead of the repository's. Blank text means no system prompt at all (CX-9)."""

    text: str


SystemPrompt = Append | Replace


def system_prompt(context: WorkspaceContext, host: SystemPrompt | None) -> str | None:
    """What a session's model is told before anything else; `None` is nothing."""
    text = host.text if host is not None and host.text.strip() else ""
    if isinstance(host, Replace):
        return text or None
    return "\n\n".join(part for part in (context.render(), text) if part) or None
