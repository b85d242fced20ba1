"""Base URLs: PR-3, RT-34, PV-63."""

import pytest

from basis_daemon.errors import InvalidBaseUrl
from basis_daemon.runtime.providers.endpoint import (
    is_loopback,
    join_url,
    normalise_base_url,
    origin,
    refuse_plaintext,
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://h", "https://h/"),
        ("  https://h/  ", "https://h/"),
        ("https://h///", "https://h/"),
        ("https://h/v1", "https://h/"),
        ("https://h/v1/", "https://h/"),
        ("https://h/v1/v1", "https://h/v1/"),
        ("http://h:8080/api/v1//", "http://h:8080/api/"),
        ("https://h/prefix/v1?api-version=2", "https://h/prefix/?api-version=2"),
        ("http://[::1]:9/v1", "http://[::1]:9/"),
    ],
)
def test_base_url_has_one_spelling(given: str, expected: str) -> None:
    """PR-3"""
    assert normalise_base_url(given) == expected
    assert normalise_base_url(expected) in (expected, expected.replace("/v1/", "/"))


@pytest.mark.parametrize(
    "given", ["", "h", "ftp://h", "https://", "http:///v1", "https://a b", "https://h:99999", "https://h:0"]
)
def test_what_is_no_base_url_is_refused(given: str) -> None:
    """PR-3"""
    with pytest.raises(InvalidBaseUrl):
        normalise_base_url(given)


def test_credentials_inside_a_url_are_refused_and_not_repeated() -> None:
    """PR-12: no error holds a credential."""
    with pytest.raises(InvalidBaseUrl) as caught:
        normalise_base_url("https://user:hunter2@h/v1")
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("https://h/", "https://h/v1/responses"),
        ("https://h", "https://h/v1/responses"),
        ("https://h/v1", "https://h/v1/responses"),
        ("https://h/v1/", "https://h/v1/responses"),
        ("https://h/backend-api/codex", "https://h/backend-api/codex/responses"),
        ("https://h/api/", "https://h/api/v1/responses"),
        ("https://h/api?version=1", "https://h/api/v1/responses?version=1"),
    ],
)
def test_paths_are_joined_without_losing_prefix_or_query(base: str, expected: str) -> None:
    """RT-34"""
    assert join_url(base, "v1/responses") == expected


def test_query_is_encoded_and_ordered() -> None:
    """RT-33, CV-8, D-16"""
    assert join_url("https://h/?z=1", "v1/x", {"b": "ä&=", "a": "1"}) == "https://h/v1/x?z=1&a=1&b=%C3%A4%26%3D"


def test_origin_is_scheme_host_and_port() -> None:
    assert origin("https://H.example/a?b") == "https://h.example:443"
    assert origin("http://[::1]:9/a") == "http://[::1]:9"


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_key_may_travel_in_the_clear_on_this_machine(host: str) -> None:
    """PV-63"""
    assert is_loopback(f"http://{host}:1/")
    refuse_plaintext(f"http://{host}:1/")


@pytest.mark.parametrize("host", ["h.example", "10.0.0.1", "localhost.example", "127.0.0.1.example", "[::2]"])
def test_key_is_kept_from_travelling_in_the_clear_to_another(host: str) -> None:
    """PV-63"""
    with pytest.raises(InvalidBaseUrl, match="unencrypted"):
        refuse_plaintext(f"http://{host}/")
    refuse_plaintext(f"https://{host}/")
