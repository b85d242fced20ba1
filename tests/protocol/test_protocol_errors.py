"""`basis_protocol.errors`: numbers and data that clients decide by."""

import json

import msgspec

from basis_protocol import errors
from codegen.reading import protocol


def test_the_agreed_numbers_are_kept() -> None:
    """protocol.md 8."""
    assert errors.SERVER_NOT_INITIALIZED == -32002
    assert errors.REQUEST_CANCELLED == -32800
    assert errors.OVERLOADED == -32001
    assert errors.AUTH_REQUIRED == -32000
    assert errors.INVALID_PARAMS == -32602


def test_no_number_means_two_things() -> None:
    codes = protocol().error_codes

    assert len(set(codes.values())) == len(codes)


def test_details_pass_through_whatever_they_are() -> None:
    """A client reads `kind` and shows `message`; what it doesn't know of the details it keeps as it is."""
    text = b'{"kind":"busy","message":"m","details":{"turnId":"t-1","nested":{"a":[1,2]}}}'

    data = msgspec.json.decode(text, type=errors.ErrorData)

    assert data.kind == "busy"
    assert json.loads(msgspec.json.encode(data)) == json.loads(text)
