"""Exceptions as JSON-RPC errors. The one place that decides what a client may read about a failure.

Our own exceptions say what they say. Any other one is a defect: the client gets a log id, the log the traceback.
"""

import errno
import logging
import os
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from basis_daemon.errors import (
    BasisError,
    EmptyPrompt,
    InvalidInput,
    MissingCredential,
    NoCompatibleCredential,
    NoCredential,
)
from basis_protocol import errors
from basis_protocol.errors import ErrorData

log = logging.getLogger(__name__)


class RequestRefused(BasisError):
    """A request that can't be carried out for a reason of the protocol itself. `code` is the JSON-RPC code."""

    kind = "invalid_request"
    code: ClassVar[int] = errors.INVALID_REQUEST


class InvalidRequest(RequestRefused):
    pass


class ParseFailed(RequestRefused):
    kind = "parse_error"
    code = errors.PARSE_ERROR


class MethodNotFound(RequestRefused):
    kind = "method_not_found"
    code = errors.METHOD_NOT_FOUND


class InvalidParams(RequestRefused):
    """Params that don't validate. `field` is the dotted name of what is wrong, as the client spelled it."""

    kind = "invalid_params"
    code = errors.INVALID_PARAMS

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, details={"field": field} if field else None)


class NotInitialized(RequestRefused):
    kind = "not_initialized"
    code = errors.SERVER_NOT_INITIALIZED


class Overloaded(RequestRefused):
    kind = "overloaded"
    code = errors.OVERLOADED


class ProtocolVersion(RequestRefused):
    kind = "protocol_version"
    code = errors.REQUEST_FAILED


class AskDecidedAlready(RequestRefused):
    """Somebody answered first. `details` is an `AskDecided`."""

    kind = "ask_decided"
    code = errors.REQUEST_FAILED


class WaitTimedOut(RequestRefused):
    """The time a client was willing to wait is over; what it waited for goes on."""

    kind = "timeout"
    code = errors.REQUEST_FAILED


class NoSuchAsk(RequestRefused):
    kind = "no_such_ask"
    code = errors.REQUEST_FAILED


class NoSuchRule(RequestRefused):
    kind = "no_such_rule"
    code = errors.REQUEST_FAILED


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is sent: the code, and data whose `message` is the error's too."""

    code: int
    data: ErrorData


_INVALID_PARAMS = (InvalidInput, EmptyPrompt)
_AUTH = (NoCredential, MissingCredential, NoCompatibleCredential)
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_AT = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"missing required field `(?P<name>[^`]*)`")


def refusal(error: BaseException) -> Refusal:
    """Translate an exception. Never quotes foreign text: an unknown exception becomes `internal` with a log id."""
    if isinstance(error, BasisError):
        return Refusal(_code(error), _data(error))
    if isinstance(error, OSError) and error.errno in _DISK:
        problem = f"the daemon's data directory can't be written: {os.strerror(error.errno)}"
        return Refusal(errors.REQUEST_FAILED, ErrorData(kind="store", message=problem, hint="make room and try again"))
    log_id = os.urandom(4).hex()
    log.error("unexpected failure in a request", exc_info=error, extra={"log_id": log_id})
    return Refusal(
        errors.INTERNAL_ERROR,
        ErrorData(
            kind="internal",
            message="the daemon failed to carry this out",
            hint=f"its log has the cause under id {log_id}: basisctl daemon logs",
        ),
    )


def invalid_params(error: msgspec.ValidationError) -> InvalidParams:
    """msgspec's complaint as ours, with the field it is about."""
    text = str(error)
    at = _AT.search(text)
    path = at["path"] if at else ""
    missing = _MISSING.search(text)
    field = ".".join(part for part in (path, missing["name"] if missing else "") if part)
    problem = _AT.sub("", text)
    return InvalidParams(f"{field}: {problem}" if field else problem, field=field or None)


def _code(error: BasisError) -> int:
    if isinstance(error, RequestRefused):
        return error.code
    if isinstance(error, _INVALID_PARAMS):
        return errors.INVALID_PARAMS
    if isinstance(error, _AUTH):
        return errors.AUTH_REQUIRED
    return errors.REQUEST_FAILED


def _data(error: BasisError) -> ErrorData:
    return ErrorData(kind=error.kind, message=str(error), hint=error.hint, details=_details(error))


def _details(error: BasisError) -> dict[str, msgspec.Raw] | None:
    details: dict[str, Any] = dict(error.details)
    for name in ("path", "key", "line", "column"):
        # A ConfigError's position, so that an editor can show the problem on the file (DM-7).
        if hasattr(error, name):
            details.setdefault(name, getattr(error, name))
    known = {name: value for name, value in details.items() if value is not None}
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in known.items()} or None
