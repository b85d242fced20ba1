"""How a provider can fail (2.11), told so that the loop knows whether to try again.

Owns the kinds and the transient rule. Server text in a message is cut to 2 KiB and freed of control characters
(RT-38, PV-64); the whole body stays on `.body` and never reaches a log, an event or a client.
"""

from typing import ClassVar

from basis_daemon.errors import Category, RunFailure

MAX_BODY_IN_MESSAGE = 2048
"""Bytes of a server's own words that may stand in an error message."""


OVERLOADED = (429, 503, 529)
"""Statuses that say: too much at the moment. 529 is Anthropic's."""


def bounded(text: str, limit: int = MAX_BODY_IN_MESSAGE) -> str:
    """`text` without control characters, cut to `limit` bytes at a character boundary."""
    clean = "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)
    data = clean.encode("utf-8", "replace")
    return clean if len(data) <= limit else data[:limit].decode("utf-8", "ignore") + "…"


class ProviderError(RunFailure):
    """Base. `transient` failures may be retried (PV-49)."""

    kind = "provider"
    transient: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        status: int | None = None,
        body: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s
        self.held_s = 0.0
        """Seconds for which the provider's lane holds back whoever tries again (`governor.py`)."""

    @property
    def is_transient(self) -> bool:
        return self.transient

    @property
    def category(self) -> Category:
        return "retryable" if self.is_transient else "terminal"

    @property
    def asks_for_pause(self) -> bool:
        """Whether everybody who uses the same key had better wait, and not this request alone."""
        return self.is_transient and (self.status in OVERLOADED or self.retry_after_s is not None)


class TransportError(ProviderError):
    """The connection could not be made, was cut, or was silent for too long."""

    kind = "provider_transport"
    transient = True


class ServerNotRunning(TransportError):
    """Nothing listens at an address of this machine. Trying again would only keep a person waiting."""

    kind = "provider_not_running"
    transient = False


class UntrustedServer(TransportError):
    """The server's certificate is signed by nobody this machine trusts."""

    kind = "provider_untrusted"
    transient = False


class ProxyRefused(TransportError):
    """The proxy on the way let nobody through: it wants other credentials, or forbids the address."""

    kind = "provider_proxy_refused"
    transient = False


class RetryableError(ProviderError):
    """The provider asked to try again later."""

    kind = "provider_retryable"
    transient = True


class SocketEnded(RetryableError):
    """A websocket could not be opened, or ended ahead of the first event: nothing ran (PV-38)."""

    @property
    def asks_for_pause(self) -> bool:
        return False  # it says nothing about the requests of others


class HttpError(ProviderError):
    """An error status. 408, 429 and 5xx are transient."""

    kind = "provider_http"

    @property
    def is_transient(self) -> bool:
        return self.status in (408, 429) or (self.status or 0) >= 500


class AuthenticationError(HttpError):
    """401 or 403: the key is missing, wrong or not allowed to do this."""

    kind = "auth_required"


class QuotaExceeded(HttpError):
    """A 429 that no waiting cures: the account has nothing left to spend."""

    kind = "provider_quota_exceeded"

    @property
    def is_transient(self) -> bool:
        return False


class ContextLengthExceeded(ProviderError):
    """PV-50: the request does not fit the model's context window."""

    kind = "context_length_exceeded"


class UnsupportedCapability(ProviderError):
    """PV-3: refused before any network traffic."""

    kind = "unsupported_capability"


class InvalidRequest(ProviderError):
    kind = "invalid_request"


class AnswerBlocked(ProviderError):
    """The provider gives no answer to this, and nothing of one was said: its filters forbid it."""

    kind = "provider_blocked"


class MalformedStream(ProviderError):
    """The answer contradicted its own wire, or ended in the middle."""

    kind = "malformed_stream"


class StreamCut(TransportError):
    """The stream ended before its end marker. Nothing of it was committed, so it may be sent again (PV-55)."""

    kind = "provider_stream_cut"
