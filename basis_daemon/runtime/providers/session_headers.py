"""Headers that tell a provider which turn, agent and conversation a request belongs to (PV-40).

Owns their names. When a provider's own state is sent back is `remote_scope.py`'s.
"""

from basis_daemon.runtime.providers.base import ResponsesTransport, SessionHints

STICKY_HEADER = "x-codex-turn-state"
"""In an answer: to be sent along with every further request of the same turn."""


def session_headers(hints: SessionHints, sticky: str | None, transport: ResponsesTransport) -> dict[str, str]:
    """What `hints` ask for and the provider itself wants back in this turn; the host's word wins."""
    state = hints.turn_state or sticky
    named = {
        "x-mentra-turn-state": state,
        "x-codex-turn-state": state,
        "x-mentra-turn-metadata": hints.turn_metadata,
        "x-codex-turn-metadata": hints.turn_metadata,
        "x-mentra-session-affinity": hints.affinity,
        "x-mentra-connection-reuse": hints.connection_reuse,
        "x-openai-subagent": hints.subagent,
    }
    if transport == "http_sse":
        named |= {"x-client-request-id": hints.affinity, "session_id": hints.affinity}
    return {name: value for name, value in named.items() if value is not None}
