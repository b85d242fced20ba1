"""Error codes and the data every error carries. Owns the numbers and the stable `kind` words, raises nothing."""

from typing import Annotated

import msgspec

from basis_protocol.base import WireModel

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_NOT_INITIALIZED = -32002
OVERLOADED = -32001
AUTH_REQUIRED = -32000
REQUEST_CANCELLED = -32800
REQUEST_FAILED = -32803
"""A well-formed request that could not be carried out; `data.kind` says why."""


class ErrorData(WireModel):
    """`error.data` of every error the daemon answers with."""

    kind: Annotated[str, msgspec.Meta(description="stable word, one per cause: no_such_session, busy, stale_turn, …")]
    message: str
    hint: Annotated[str | None, msgspec.Meta(description="what to do about it")] = None
    details: dict[str, msgspec.Raw] | None = None
