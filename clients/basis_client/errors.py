"""The one exception of the client library. Standard library only."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NOT_RUNNING = "not_running"
"""Nobody listens at the socket, and starting a daemon was not wanted."""

DAEMON_UNREACHABLE = "daemon_unreachable"
"""The socket can't be used, or a daemon could not be started."""

CONNECTION_LOST = "connection_lost"
"""The daemon went away. Whether a request that was under way took effect is not known."""

TIMED_OUT = "timed_out"
"""The daemon is there but did not answer in time."""

BAD_PEER = "bad_peer"
"""Whatever listens there does not speak this protocol, or is another user's."""

PROTOCOL_VERSION = "protocol_version"
"""Client and daemon have no protocol version in common."""

UNREACHABLE_KINDS = (NOT_RUNNING, DAEMON_UNREACHABLE, CONNECTION_LOST, TIMED_OUT, BAD_PEER, PROTOCOL_VERSION)
"""The kinds made on this side; every other kind is the daemon's own (protocol.md 8)."""


class ClientError(Exception):
    """A call that failed: what happened, a stable `kind`, and where possible a `hint` on what to do.

    `code` is the JSON-RPC code when the daemon answered, `None` when it didn't get that far. `details` are the
    error's own fields, as they came.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        code: int | None = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.code = code
        self.hint = hint
        self.details = dict(details or {})

    @property
    def is_unreachable(self) -> bool:
        """Whether the daemon could not be spoken to, rather than having refused something."""
        return self.kind in UNREACHABLE_KINDS

    @classmethod
    def from_wire(cls, error: Any) -> ClientError:
        """Read a JSON-RPC error object. Never fails: a peer's strange error is still an error."""
        body = fields_of(error)
        data = fields_of(body.get("data"))
        code = body.get("code")
        return cls(
            str(data.get("message") or body.get("message") or "the daemon refused without saying why"),
            kind=str(data.get("kind") or "error"),
            code=code if isinstance(code, int) else None,
            hint=str(data["hint"]) if data.get("hint") else None,
            details=fields_of(data.get("details")),
        )


def fields_of(value: Any) -> dict[str, Any]:
    """Return a JSON object as it is, and anything else as an empty one."""
    return value if value.__class__ is dict else {}
