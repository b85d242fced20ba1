"""Statuses, error objects and foreign exceptions, told as our own (2.11)."""

import inspect
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2
import pytest

from basis_daemon.redact import Secret
from basis_daemon.runtime.providers.errors import (
    AuthenticationError,
    ContextLengthExceeded,
    HttpError,
    ProviderError,
    QuotaExceeded,
    RetryableError,
    StreamCut,
    TransportError,
)
from basis_daemon.runtime.providers.failures import (
    Target,
    foreign_exceptions,
    from_exception,
    from_status,
    from_stream,
    message_in,
    names_model,
    retry_after,
)

KEY = Secret("sk-do-not-show")
TARGET = Target("Gateway", "openai", "https://h:443", "v1/responses", "responses", False, (KEY,))


def status(code: int, body: str = "", **headers: str) -> ProviderError:
    return from_status(TARGET, code, {name.replace("_", "-"): value for name, value in headers.items()}, body)


@pytest.mark.parametrize(
    ("code", "kind", "is_transient"),
    [
        (400, HttpError, False),
        (401, AuthenticationError, False),
        (402, HttpError, False),
        (403, AuthenticationError, False),
        (404, HttpError, False),
        (408, HttpError, True),
        (422, HttpError, False),
        (429, HttpError, True),
        (500, HttpError, True),
        (503, HttpError, True),
        (529, HttpError, True),
        (307, HttpError, False),
    ],
)
def test_status_decides_the_kind_and_whether_to_try_again(code: int, kind: type, is_transient: bool) -> None:
    """PV-49"""
    error = status(code, "{}")
    assert type(error) is kind and error.status == code and error.is_transient is is_transient


@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"message":"too big","code":"context_length_exceeded"}}',
        "Prompt is too long: 210000 tokens",
        "exceeds the maximum number of tokens",
        "Please REDUCE the length of the messages",
    ],
)
def test_context_overflow_is_known_by_its_marker_in_400_and_413_only(body: str) -> None:
    """PV-50: never transient."""
    for code in (400, 413):
        error = status(code, body)
        assert isinstance(error, ContextLengthExceeded) and not error.is_transient and error.body == body
    assert isinstance(status(500, body), HttpError)


def test_account_that_is_spent_is_told_from_one_that_is_too_fast() -> None:
    """2.11: the same status; no pause cures the first."""
    spent = status(429, '{"error":{"message":"no credit","code":"insufficient_quota"}}', retry_after="5")
    assert isinstance(spent, QuotaExceeded) and not spent.is_transient and not spent.asks_for_pause
    assert not isinstance(status(429, '{"error":{"message":"slow down"}}'), QuotaExceeded)


@pytest.mark.parametrize(
    ("error", "asks"),
    [
        (status(429), True),
        (status(503), True),
        (status(529), True),
        (status(500), False),
        (status(500, retry_after="3"), True),
        (status(400, retry_after="3"), False),
        (from_stream(TARGET, "rate_limit_exceeded", "slow"), True),
        (from_stream(TARGET, "overloaded_error", "slow"), True),
        (from_stream(TARGET, "server_error", "oops"), False),
        (TransportError("gone"), False),
    ],
)
def test_only_too_much_at_once_asks_everybody_to_wait(error: ProviderError, asks: bool) -> None:
    """One governor: what pauses a lane."""
    assert error.asks_for_pause is asks


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("Rate limit reached. Please try again in 1.898s. Visit https://x", 1.898),
        ("Please try again in 20ms.", 0.02),
        ("try again in 7 s", 7.0),
        ("try again in an hour", None),
        ("try again in 3sheets", None),
    ],
)
def test_wait_named_in_a_vendors_words_is_heeded(said: str, seconds: float | None) -> None:
    """2.11: inside a stream there is no header for it."""
    found = from_stream(TARGET, "rate_limit_exceeded", said).retry_after_s
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_refused_key_says_where_it_is_from() -> None:
    """RT-38: the variable, the file or the keyring, never the value."""
    known = replace(TARGET, key_source="OPENAI_API_KEY")
    for error in (from_status(known, 401, {}, "no"), from_stream(known, 401, "no")):
        assert error.hint == "check the key configured for openai, from OPENAI_API_KEY"
    assert status(403).hint == "check the key configured for openai"
    assert from_status(replace(TARGET, secrets=()), 401, {}, "no").hint == "this server wants a key"


def test_wait_the_provider_asks_for_is_told_with_its_refusal() -> None:
    assert status(429, retry_after="3600").hint == "Gateway asks to be left alone for 3600 s"


def test_missing_path_names_path_and_wire() -> None:
    """PV-2"""
    error = status(404, "404 page not found")
    assert "v1/responses" in str(error) and "responses wire" in str(error) and error.hint
    assert "v1/responses" not in str(status(404, '{"error":{"message":"The model `x` does not exist"}}'))


def test_missing_model_is_told_from_a_missing_path() -> None:
    """PV-2a"""
    assert names_model('{"error":{"message":"model \\"x\\" not found, try pulling it first"}}')
    assert names_model('{"error":"no such Model"}')
    assert not names_model("404 page not found") and not names_model('{"error":"Not Found","path":"/v1/models"}')


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error":{"message":"a"}}', "a"),
        ('{"error":"b"}', "b"),
        ('{"message":"c"}', "c"),
        ('{"detail":"d"}', "d"),
        ('{"detail":[{"loc":1}]}', None),
        ("[1]", None),
        ("<html>", None),
        ('"e"', "e"),
        ("[" * 100_000, None),
    ],
)
def test_message_of_an_error_body_is_found_in_every_shape(body: str, message: str | None) -> None:
    assert message_in(body) == message


def test_servers_words_are_bounded_clean_and_without_the_key() -> None:
    """RT-38, PV-64: cut to 2 KiB in the message, whole on `.body`."""
    error = status(500, "\x1b[31mred\x00 sk-do-not-show " + "x" * 10_000)
    assert len(str(error).encode()) < 2200 and "\x1b" not in str(error) and "\x00" not in str(error)
    assert error.body is not None and len(error.body) > 10_000
    assert "do-not-show" not in str(error) + error.body and "[redacted]" in str(error)


def test_retry_after_is_read_on_any_error() -> None:
    """PV-51"""
    assert status(429, "", retry_after="7").retry_after_s == 7
    assert status(503, "", retry_after="0").retry_after_s == 0
    assert status(400).retry_after_s is None


def test_retry_after_takes_seconds_and_dates() -> None:
    """PV-51: past date → 0; unparsable or negative → none."""
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 55 < (retry_after(soon) or 0) <= 60
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after(" 12 ") == 12
    for bad in ("-1", "1.5", "soon", "", "²", "Wed, 99 Oct 2015"):
        assert retry_after(bad) is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("rate_limit_exceeded", RetryableError),
        ("server_error", RetryableError),
        ("overloaded_error", RetryableError),
        ("context_length_exceeded", ContextLengthExceeded),
        ("invalid_prompt", ProviderError),
        (None, ProviderError),
        (502, HttpError),
        ("429", HttpError),
        (401, AuthenticationError),
    ],
)
def test_error_inside_a_stream_is_typed_by_its_code(code: object, kind: type) -> None:
    """PV-16"""
    error = from_stream(TARGET, code, "it said sk-do-not-show")
    assert type(error) is kind and "it said [redacted]" in str(error)


def test_every_exception_of_the_http_library_has_a_translation() -> None:
    exceptions = [
        value
        for name in httpx2.__all__
        if inspect.isclass(value := getattr(httpx2, name)) and issubclass(value, Exception)
    ]
    assert len(exceptions) > 25
    for kind in exceptions:
        assert issubclass(kind, foreign_exceptions()), kind
        error = from_exception(TARGET, kind.__new__(kind))
        assert isinstance(error, ProviderError)
        assert TARGET.label in str(error) or TARGET.origin in str(error)


def test_foreign_words_are_not_repeated() -> None:
    """They may quote a URL, and with it a key in its query."""
    assert "sk-do" not in str(from_exception(TARGET, httpx2.ConnectError("https://h/?key=sk-do-not-show")))


@pytest.mark.parametrize(
    ("foreign", "kind"),
    [
        (httpx2.ConnectError, TransportError),
        (httpx2.ConnectTimeout, TransportError),
        (httpx2.ReadTimeout, TransportError),
        (httpx2.ReadError, StreamCut),
        (httpx2.RemoteProtocolError, StreamCut),
    ],
)
def test_network_trouble_is_transient(foreign: type[httpx2.TransportError], kind: type[ProviderError]) -> None:
    error = from_exception(TARGET, foreign("x"))
    assert type(error) is kind and error.is_transient
