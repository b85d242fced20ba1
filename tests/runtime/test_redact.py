"""CV-9: credentials are shown by nothing."""

import copy
import json
import pickle

import msgspec
import pytest

from basis_daemon.redact import Secret, scrub


def test_secret_is_shown_by_no_way_of_printing() -> None:
    secret = Secret("sk-very-secret")
    shown = f"{secret} {secret!r} {secret:>20} {secret!s} {[secret]} {[secret]!r}" + "%s %r" % (secret, secret)  # noqa: UP031
    assert "very" not in shown and "[redacted]" in shown
    assert secret.reveal() == "sk-very-secret"


def test_secret_is_written_by_no_encoder() -> None:
    secret = Secret("sk-very-secret")
    for encode in (json.dumps, msgspec.json.encode, pickle.dumps):
        with pytest.raises(TypeError):
            encode(secret)


def test_secrets_are_equal_by_value_and_survive_copying() -> None:
    secret = Secret("sk-1")
    assert secret == Secret("sk-1") != Secret("sk-2") and secret != "sk-1"
    assert hash(secret) == hash(Secret("sk-1")) != hash("sk-1")
    assert copy.deepcopy({"k": secret}) == {"k": secret}
    assert not Secret("")


def test_text_is_freed_of_secrets_however_they_are_spelled() -> None:
    secret = Secret('sk-"a/b c"-ä')
    spelled = [secret.reveal(), json.dumps({"k": secret.reveal()}), "https://h/?k=sk-%22a%2Fb%20c%22-%C3%A4"]
    for text in spelled:
        assert "a/b" not in (clean := scrub(text, [secret])) and "%2F" not in clean and "[redacted]" in clean


def test_longer_secrets_go_before_the_ones_they_contain_and_tiny_ones_stay() -> None:
    secrets = [Secret("sk-abcdef"), Secret("sk-abcdef-123"), Secret("x")]
    assert scrub("key sk-abcdef-123 x", secrets) == "key [redacted] x"
