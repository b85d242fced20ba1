"""What a client says of itself at `initialize`, and what it learns from the answer (protocol.md 2). No I/O.

Standard library only: the blocking and the asynchronous connection share it.
"""

from __future__ import annotations

import os

from basis_client.errors import BAD_PEER, PROTOCOL_VERSION, ClientError, fields_of
from basis_protocol.version import SUPPORTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = "0.1.0"
"""Of the clients in this distribution; a test compares it with the package's metadata, which is slow to read."""


class Hello:
    """Who is calling. `client_id` names one process or window across its reconnections."""

    __slots__ = ("can_approve", "client_id", "kind", "name")

    def __init__(self, name: str, *, kind: str, can_approve: bool = False, client_id: str | None = None) -> None:
        self.name = name
        self.kind = kind
        self.can_approve = can_approve
        self.client_id = client_id or f"{kind}-{os.getpid()}-{os.urandom(4).hex()}"

    def initialize_params(self) -> dict[str, Any]:
        can = {"approve": self.can_approve, "applyEdit": False, "openDiff": False, "notify": False}
        hello = {
            "protocolVersions": list(SUPPORTED),
            "client": {"name": self.name, "version": VERSION, "kind": self.kind},
            "clientId": self.client_id,
            "can": can,
        }
        # No processId: LSP servers may watch that process and end with it.
        return {"processId": None, "rootUri": None, "capabilities": {"experimental": {"basis": hello}}}


def read_initialize(result: Any) -> dict[str, Any]:
    """Return the daemon's `capabilities.experimental.basis`. Raises `ClientError` for a peer that isn't a basis daemon
    or that chose a version we don't speak."""
    capabilities = fields_of(fields_of(result).get("capabilities"))
    answer = fields_of(fields_of(capabilities.get("experimental")).get("basis"))
    if not answer:
        raise ClientError(
            "what listens there is not a basis daemon",
            kind=BAD_PEER,
            hint="point BASIS_SOCKET at the daemon's socket, or unset it",
        )
    if answer.get("protocolVersion") not in SUPPORTED:
        raise ClientError(
            f"the daemon speaks protocol {answer.get('protocolVersion')}, this client {list(SUPPORTED)}",
            kind=PROTOCOL_VERSION,
            hint="after an upgrade, restart the daemon: basisctl daemon stop",
        )
    return answer
