"""What an error status, an error object or a foreign exception means: one place, one table.

Owns the translation into `errors.py` kinds (2.11). Text from a server is bounded, freed of control characters and of
the credentials the request was sent with (RT-38, PV-64).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

import msgspec

from basis_daemon.redact import Secret, scrub
from basis_daemon.runtime.providers.errors import (
    AuthenticationError,
    ContextLengthExceeded,
    HttpError,
    InvalidRequest,
    ProviderError,
    ProxyRefused,
    QuotaExceeded,
    RetryableError,
    ServerNotRunning,
    StreamCut,
    TransportError,
    UntrustedServer,
    bounded,
)

CONTEXT_MARKERS = (
    "context_length_exceeded",
    "prompt is too long",
    "exceeds the maximum number of tokens",
    "please reduce the length",
)
"""In the body of a 400 or 413: the request doesn't fit the model's window (PV-50)."""

QUOTA_MARKERS = ("insufficient_quota", "billing_hard_limit_reached")
"""In the body of a 429: the account is spent, and no pause changes that."""
BAD_KEY_MARKERS = ("API_KEY_INVALID",)
"""In the body of a 400: the key is wrong, which others answer 401 to."""
WHAT_TO_DO_ABOUT_LENGTH = "start a new conversation, or choose a model that takes longer ones"

LONGEST_WISH_S = 365 * 24 * 3600.0
"""Seconds that a wait asked for is taken to be at most: beyond it, it is no number to show to anybody."""

_TRANSIENT_CODE = re.compile(r"server_error|api_error|internal|unavailable|timeout")
_OVERLOAD_CODE = re.compile(r"rate.?limit|overload|too_many_requests|slow_down")
_STATUS = re.compile(r"\d{3}", re.ASCII)
_TRY_AGAIN_IN = re.compile(r"(?:try again|retry) in (\d+(?:\.\d+)?)\s*(ms|s)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a request goes to, in the words of an error message; `secrets` and what is `hidden` never appear in one."""

    label: str
    provider: str
    origin: str
    path: str
    wire: str
    is_local: bool
    secrets: tuple[Secret, ...] = ()
    hidden: tuple[Secret, ...] = ()
    """Not the credentials, and still not to be shown: parts of the address and fixed headers."""
    key_source: str | None = None
    """Where the key was found, in a person's words."""

    def clean(self, text: str) -> str:
        """A server's own words, fit to be shown."""
        return bounded(self.scrubbed(text)).strip()

    def scrubbed(self, text: str) -> str:
        return scrub(text, (*self.secrets, *self.hidden))


# --- error statuses --------------------------------------------------------------------------------------------------


def from_status(target: Target, status: int, headers: Mapping[str, str], body: str) -> ProviderError:
    """The error an answer with `status` (not 2xx) stands for."""
    error = _by_status(target, status, body, target.clean(message_in(body) or body) or "no reason given")
    error.status = status
    error.body = target.scrubbed(body)
    error.retry_after_s = retry_after(headers.get("retry-after"))
    if error.retry_after_s is None and status in (429, 503):
        error.retry_after_s = _named_delay(message_in(body) or "")
    if error.hint is None and error.is_transient and error.retry_after_s:
        error.hint = f"{target.label} asks to be left alone for {error.retry_after_s:.0f} s"
    return error


def _by_status(target: Target, status: int, body: str, said: str) -> ProviderError:
    if status in (400, 413) and any(marker in body.lower() for marker in CONTEXT_MARKERS):
        return ContextLengthExceeded(f"the request is too long for the model: {said}", hint=WHAT_TO_DO_ABOUT_LENGTH)
    if status in (401, 403) or (status == 400 and any(marker in body for marker in BAD_KEY_MARKERS)):
        return AuthenticationError(
            f"{target.label} refused the credentials ({status}): {said}", hint=_what_to_do_about_the_key(target)
        )
    if status == 429 and any(marker in body for marker in QUOTA_MARKERS):
        return QuotaExceeded(
            f"{target.label} has nothing left for this key ({status}): {said}",
            hint="look at the account's limits and billing; trying again does not help",
        )
    if status in (404, 405) and not names_model(body):
        message = f"{target.label} has no {target.path} ({status}), where the {target.wire} wire is spoken: {said}"
        return HttpError(message, hint="check the base URL, or choose the other wire")
    if 300 <= status < 400:
        message = f"{target.label} redirects to another address ({status}), which is not followed"
        return HttpError(message, hint="configure the final address as the base URL")
    return HttpError(f"{target.label} answered {status}: {said}")


def _what_to_do_about_the_key(target: Target) -> str:
    if not target.secrets:
        return "this server wants a key"
    return f"check the key configured for {target.provider}" + (
        f", from {target.key_source}" if target.key_source else ""
    )


def names_model(body: str) -> bool:
    """Whether a 404 is about the model asked for, not about the path (PV-2a)."""
    return "model" in (message_in(body) or "").lower()


def message_in(body: str) -> str | None:
    """The message of an error body in any of the shapes servers use; `None` if it is in none of them."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(value, list) and value:  # Gemini, when it was not asked for events
        value = cast("list[Any]", value)[0]
    for _ in range(2):  # {"error": {"message": …}}, {"error": …}, {"message": …}, {"detail": …}
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            value = next((fields[key] for key in ("error", "message", "detail") if fields.get(key)), None)
    return value if isinstance(value, str) else None


def retry_after(value: str | None) -> float | None:
    """Seconds a `Retry-After` asks to wait: an integer, or a date (the past is 0); anything else is none (PV-51)."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value), LONGEST_WISH_S)
    from email.utils import parsedate_to_datetime  # slow to import, and hardly ever needed

    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # the latter: a number in it is larger than any calendar
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(max(0.0, (when - datetime.now(UTC)).total_seconds()), LONGEST_WISH_S)


# --- error objects inside a stream -----------------------------------------------------------------------------------


def from_stream(target: Target, code: object, message: object) -> ProviderError:
    """The error a vendor reports in the middle of an answer (PV-16, PV-29), whatever its code and its message are."""
    said = target.clean(_as_text(message) or _as_text(code) or "no reason given")
    text = f"{target.label} gave up on the answer: {said}"
    word = _as_text(code).lower()
    status = int(word) if _STATUS.fullmatch(word) else None
    if any(marker in f"{word} {said.lower()}" for marker in CONTEXT_MARKERS):
        return ContextLengthExceeded(text, status=status, hint=WHAT_TO_DO_ABOUT_LENGTH)
    if status in (401, 403):
        return AuthenticationError(text, status=status, hint=_what_to_do_about_the_key(target))
    if any(marker in word for marker in QUOTA_MARKERS):
        return QuotaExceeded(text, status=status)
    if status is not None and 400 <= status < 600:
        return HttpError(text, status=status, retry_after_s=_named_delay(said))
    if _OVERLOAD_CODE.search(word):
        return RetryableError(text, status=429, retry_after_s=_named_delay(said))
    return RetryableError(text) if _TRANSIENT_CODE.search(word) else ProviderError(text)


def _named_delay(said: str) -> float | None:
    """Seconds a vendor asks to wait in its own words, where no header can (`Please try again in 1.898s.`)."""
    found = _TRY_AGAIN_IN.search(said)
    if found is None:
        return None
    return min(float(found[1]) * (0.001 if found[2].lower() == "ms" else 1.0), LONGEST_WISH_S)


def _as_text(value: object) -> str:
    """What stands where a word or a sentence should: some servers have an object there, or a list."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode() if value else ""
    except RecursionError:
        return "something that can't be read"


# --- foreign exceptions ----------------------------------------------------------------------------------------------


@cache
def _table() -> dict[type[Exception], tuple[type[ProviderError], str]]:
    """Every exception of the HTTP library by its nearest listed ancestor. Built at first use: the import is slow."""
    import httpx2

    return {
        httpx2.ConnectTimeout: (TransportError, "no connection to {origin} within the time allowed"),
        httpx2.ConnectError: (TransportError, "could not connect to {origin}"),
        httpx2.ProxyError: (TransportError, "the proxy on the way to {origin} refused"),
        httpx2.ReadTimeout: (TransportError, "{label} was silent for too long"),
        httpx2.WriteTimeout: (TransportError, "{label} did not take the request in time"),
        httpx2.PoolTimeout: (TransportError, "no connection to {origin} became free"),
        httpx2.RemoteProtocolError: (StreamCut, "{label} ended the connection in the middle of the answer"),
        httpx2.ReadError: (StreamCut, "the connection to {label} broke in the middle of the answer"),
        httpx2.DecodingError: (TransportError, "the answer of {label} could not be decompressed"),
        httpx2.TransportError: (TransportError, "the connection to {label} failed"),
        httpx2.StreamError: (TransportError, "the connection to {label} was closed"),
        httpx2.LocalProtocolError: (InvalidRequest, "the request to {label} is not valid HTTP"),
        httpx2.UnsupportedProtocol: (InvalidRequest, "{origin} is not an address HTTP can reach"),
        httpx2.InvalidURL: (InvalidRequest, "{origin} is not an address HTTP can reach"),
        httpx2.TooManyRedirects: (InvalidRequest, "{label} redirects in a circle"),
        httpx2.CookieConflict: (InvalidRequest, "{label} set cookies that contradict each other"),
        httpx2.HTTPError: (TransportError, "the request to {label} failed"),
    }


def foreign_exceptions() -> tuple[type[Exception], ...]:
    """What `from_exception` translates, for an `except` clause."""
    return tuple(_table())


def from_exception(target: Target, error: Exception, via: str | None = None) -> ProviderError:
    """The error one of the HTTP library's exceptions stands for; `via` is the proxy it came by.

    Its own text is left out: it may quote a URL.
    """
    import ssl  # loaded by then

    table = _table()
    kind, sentence = next(table[ancestor] for ancestor in type(error).__mro__ if ancestor in table)
    hint = None
    if _is_due_to(error, ssl.SSLCertVerificationError):
        kind, sentence = UntrustedServer, "the certificate of {origin} is not trusted"
        hint = "behind a proxy that opens TLS, or with an authority of your own, set SSL_CERT_FILE to its certificate"
    elif target.is_local and kind is TransportError and "connect to" in sentence:
        kind = ServerNotRunning if _is_due_to(error, ConnectionRefusedError) else kind
        hint = f"start {target.label}, or check the port"
    elif _is_refused_by_proxy(error):
        kind, hint = ProxyRefused, "check the proxy's address, and the name and password in it"
    text = sentence.format(label=target.label, origin=target.origin)
    return kind(f"{text} (by way of the proxy {via})" if via else text, hint=hint)


def _is_refused_by_proxy(error: Exception) -> bool:
    """Whether the proxy answered for itself that it won't: 4xx to CONNECT. Its 5xx are about the server behind it."""
    import httpx2

    return isinstance(error, httpx2.ProxyError) and str(error)[:1] == "4"


def _is_due_to(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether `kind` is among the causes the HTTP library's exceptions were raised from."""
    for _ in range(10):
        if error is None or isinstance(error, kind):
            return error is not None
        error = error.__cause__ or error.__context__
    return False
